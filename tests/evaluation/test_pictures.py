"""Pictures show what they say, for any text."""

import json
import warnings

import numpy as np
import pytest
from matplotlib import pyplot as plt

from transformer.evaluation import attention_picture, learning_curve, pictures

PNG = b"\x89PNG"


@pytest.fixture
def figures(monkeypatch):
    """The figures that were saved, still open."""
    kept = []
    save = pictures._save

    def save_and_keep(figure, picture):
        with monkeypatch.context() as patch:
            patch.setattr(plt, "close", lambda figure: None)
            save(figure, picture)
        kept.append(figure)

    monkeypatch.setattr(pictures, "_save", save_and_keep)
    yield kept
    plt.close("all")


def labels(axis) -> list[str]:
    """The texts at an axis's ticks."""
    return [tick.get_text() for tick in axis.get_ticklabels()]


def test_rows_are_target_pieces_and_columns_source_pieces(figures, tmp_path):
    """Nine rows for nine target pieces, five columns for five source pieces, by head.

    Elsewhere the axes were swapped, without a word where both are equally long.
    """
    weights = np.random.default_rng(0).dirichlet(np.ones(5), (2, 9)).astype(np.float32)
    source = [f"s{i}" for i in range(5)]
    target = [f"t{i}" for i in range(9)]
    attention_picture(weights, target, source, "layer 1", tmp_path / "heads.png")
    attention_picture(weights[1], target, source, "head 2", tmp_path / "one.png")
    assert (tmp_path / "heads.png").read_bytes().startswith(PNG)
    panels = [axes for axes in figures[0].axes if axes.images]
    assert len(panels) == 3 and len(figures[1].axes) == 1
    shown = [panel.images[0].get_array() for panel in (*panels, *figures[1].axes)]
    for array, expected in zip(
        shown, (weights.mean(axis=0), *weights, weights[1]), strict=True
    ):
        np.testing.assert_allclose(array, expected, rtol=1e-6)
    for panel in (*panels, *figures[1].axes):
        assert labels(panel.yaxis) == target
        assert labels(panel.xaxis) == source
        assert panel.yaxis.get_inverted()  # the first target piece is at the top
    assert figures[0].get_suptitle() == "layer 1"


def test_wrong_labels_are_refused(tmp_path):
    """Labels of the other side do not go unnoticed."""
    weights = np.full((3, 2), 0.5, np.float32)
    with pytest.raises(ValueError):
        attention_picture(weights, ["a", "b"], ["x", "y", "z"], "", tmp_path / "a.png")


def test_any_script_can_stand_in_a_label(tmp_path):
    """A "$" is no formula, and what the font lacks neither fails nor warns."""
    pieces = [
        "日本語",
        "עברית",
        "عربي",
        "\U0001f680",
        "<b>&</b>",
        "$x_1$",
        "$",
        "▁a",
        "\\",
    ]
    weights = np.eye(len(pieces), dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention_picture(weights, pieces, pieces, "$\\frac{", tmp_path / "any.png")
    assert (tmp_path / "any.png").read_bytes().startswith(PNG)


def test_a_long_sentence_stays_a_possible_picture(figures, tmp_path):
    """Cells shrink: 300 by 300 weights do not take all memory."""
    pieces = ["x"] * 300
    weights = np.eye(300, dtype=np.float32)
    attention_picture(weights, pieces, pieces, "long", tmp_path / "long.png")
    assert max(figures[0].get_size_inches()) < 20


def test_learning_curve_shows_what_there_is(figures, tmp_path):
    """Every number at its step; what a run did not measure, or a NaN, leaves a gap."""
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"step": 10, "train/loss": 5.0},
        {"step": 20, "train/loss": 4.0},
        {"step": 20, "validation/perplexity": 30.0, "validation/nll": None},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    learning_curve(path, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)
    drawn = {
        line.get_label(): line.get_xydata().tolist()
        for axes in figures[0].axes
        for line in axes.lines
    }
    assert drawn["train/loss"] == [[10, 5], [20, 4]]
    assert drawn["validation/perplexity"] == [[20, 30]]
    assert drawn["validation/bleu"] == drawn["validation/nll"] == []
    path.write_text("")
    learning_curve(path, tmp_path / "empty.png")
