"""Pictures of a run: the learning curve, and attention between two sentences."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float

matplotlib.use("Agg")

from matplotlib import pyplot as plt  # noqa: E402  (after the choice of backend)
from matplotlib.axes import Axes  # noqa: E402

_CELL, _LONGEST_SIDE = 0.28, 14.0  # inches: of a weight, and at most of a matrix
_FONT_SIZE = 8


def learning_curve(metrics: Path, picture: Path) -> None:
    """Draws loss, validation perplexity and BLEU of a `metrics.jsonl` over steps."""
    lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    panels = {
        "loss in nats per token": ("train/loss", "validation/nll"),
        "validation perplexity": ("validation/perplexity",),
        "validation BLEU": ("validation/bleu",),
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 3.5))
    for panel, (title, names) in zip(axes, panels.items(), strict=True):
        for name in names:
            points = [(x["step"], x[name]) for x in lines if x.get(name) is not None]
            panel.plot(*np.array(points).reshape(-1, 2).T, label=name, marker=".")
        panel.set(title=title, xlabel="step")
        panel.grid(alpha=0.3)
        if len(names) > 1:
            panel.legend()
    _save(figure, picture)


def attention_picture(
    weights: Float[np.ndarray, "*H T S"],
    target_labels: Sequence[str],
    source_labels: Sequence[str],
    title: str,
    picture: Path,
) -> None:
    """Draws a matrix, or each head and their mean.

    Rows are target pieces, columns source pieces. Any script may stand in the labels;
    what the font lacks is drawn as boxes.
    """
    heads = [("", weights)]
    if weights.ndim == 3:
        heads = [("mean of heads", weights.mean(axis=0))]
        heads += [(f"head {i}", head) for i, head in enumerate(weights, start=1)]
    columns = min(3, len(heads))
    rows = -(-len(heads) // columns)
    cell = min(_CELL, _LONGEST_SIDE / max(*weights.shape[-2:], 1))
    height, width = (cell * length + 1.2 for length in weights.shape[-2:])
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False
    )
    for panel in axes.flat[len(heads) :]:
        panel.axis("off")
    for panel, (name, head) in zip(axes.flat, heads, strict=False):
        font = _FONT_SIZE * cell / _CELL
        _draw_head(panel, name, head, target_labels, source_labels, font)
    figure.suptitle(title, parse_math=False)
    _save(figure, picture)


def _draw_head(
    panel: Axes,
    name: str,
    weights: Float[np.ndarray, "T S"],
    target_labels: Sequence[str],
    source_labels: Sequence[str],
    font: float,
) -> None:
    """One matrix with its labels; a "$" in them is a dollar sign, not mathematics."""
    panel.imshow(weights, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    panel.set_title(name, fontsize=9)
    settings: dict[str, Any] = {"fontsize": font, "parse_math": False}
    panel.set_xticks(range(weights.shape[1]))
    panel.set_xticklabels(source_labels, rotation=90, **settings)
    panel.set_yticks(range(weights.shape[0]))
    panel.set_yticklabels(target_labels, **settings)


def _save(figure: plt.Figure, picture: Path) -> None:
    """Writes a PNG."""
    with warnings.catch_warnings():
        # Matplotlib warns of every character that its font lacks, of scripts that it
        # writes from the wrong side, and of labels too long for its layout.
        warnings.simplefilter("ignore", UserWarning)
        figure.tight_layout()
        figure.savefig(picture, dpi=120)
    plt.close(figure)
