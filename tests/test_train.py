"""What train.py does with a run: exact resume, signals, and the user's mistakes."""

import dataclasses
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from transformer.data import Vocabulary
from transformer.data.text import read_records
from transformer.errors import UserError
from transformer.training import Checkpoints, RunFolder, initial_state, make_mesh
from transformer.training.step import replicated

ROOT = Path(__file__).resolve().parents[1]
PAIRS = 60
MODEL = {
    "num_layers": 1,
    "d_model": 32,
    "d_ff": 64,
    "num_heads": 2,
    "d_k": 16,
    "d_v": 16,
}
DATA = {
    "vocab_size": 300,
    "max_tokens": 32,
    "pack_width": 32,
    "plan": "pack",
    "tokens_per_batch": 256,
    "rows_multiple": 4,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A reverse task: four words a side, two batches an epoch."""
    folder = tmp_path_factory.mktemp("corpus")
    draw = random.Random(0)
    for name, count in (("train", PAIRS), ("val", 7)):
        lines = [[str(draw.randrange(100)) for _ in range(4)] for _ in range(count)]
        for side, step in (("source", 1), ("target", -1)):
            text = "".join(" ".join(line[::step]) + "\n" for line in lines)
            (folder / f"{name}.{side}").write_text(text)
    return folder


def arguments(corpus: Path, workdir: Path, **more: object) -> list[str]:
    """The command line of a toy run."""
    keys = {
        "data.source": "text",
        "data.train_source": corpus / "train.source",
        "data.train_target": corpus / "train.target",
        "data.validation_source": corpus / "val.source",
        "data.validation_target": corpus / "val.target",
        **{f"model.{key}": value for key, value in MODEL.items()},
        **{f"data.{key}": value for key, value in DATA.items()},
        "train.num_steps": 20,
        "train.log_every": 1,
        "train.warmup_steps": 10,
        "train.validate_every": 0,
        "train.validation_sentences": 0,
        "train.checkpoint_every_steps": 5,
        "train.checkpoint_every_minutes": 0,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return [
        f"--config={ROOT / 'configs' / 'base.py'}",
        f"--workdir={workdir}",
        *(f"--config.{key}={value}" for key, value in keys.items()),
    ]


def process(arguments: list[str]) -> subprocess.Popen:
    """The command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def wait_for(condition, running: subprocess.Popen) -> None:
    """Waits until a condition holds while the process is alive."""
    while not condition():
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.02)


def metrics(workdir: Path) -> list[dict]:
    """The lines of a run's metrics without what depends on the clock."""
    lines = [json.loads(line) for line in read_records(workdir / "metrics.jsonl")]
    for line in lines:
        line.pop("train/tokens_per_second", None)
    return lines


def final_state(workdir: Path):
    """The newest state of a run and what stands beside it."""
    folder = RunFolder(workdir)
    vocabulary = folder.vocabulary()
    like = jax.eval_shape(lambda: initial_state(folder.config(), len(vocabulary)))
    checkpoints = Checkpoints(folder.checkpoints_path, vocabulary.fingerprint)
    return checkpoints.restore(like, replicated(make_mesh(jax.devices()[:1])))


@pytest.fixture(scope="module")
def straight(train, corpus, tmp_path_factory) -> Path:
    """A run from start to end: 40 updates, or twenty epochs."""
    workdir = tmp_path_factory.mktemp("straight")
    train.main(arguments(corpus, workdir, train__num_steps=40))
    return workdir


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_was_ended_goes_on_exactly(train, corpus, straight, tmp_path, end):
    """Updates straight equal some, a signal, and the rest, bit for bit.

    Elsewhere a resumed run began its warm-up or its data anew. The corpus has two
    batches an epoch, so both parts cross epochs; dropout is on.
    """
    broken = tmp_path / "broken"
    running = process(arguments(corpus, broken, train__num_steps=40))
    whole = broken / "checkpoints" / "5" / "manifest.json"
    wait_for(whole.exists, running)
    running.send_signal(end)
    running.wait()
    if end == signal.SIGTERM:
        assert running.returncode == 143
        assert "stopped by SIGTERM" in running.stderr.read()
    assert 5 <= final_state(broken)[1].step < 40
    train.main(arguments(corpus, broken, train__num_steps=40))
    (one, one_info), (other, other_info) = final_state(straight), final_state(broken)
    assert int(one.step) == int(other.step) == 40
    assert one_info.position == other_info.position
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert metrics(straight) == metrics(broken)
    assert [line["step"] for line in metrics(broken)] == [*range(1, 41), 40]


def test_a_finished_run_leaves_what_later_commands_need(train, corpus, tmp_path):
    """Configuration, vocabulary, checkpoints, metrics, events, log and picture."""
    settings = dict(train__num_steps=2, train__validation_sentences=2)
    train.main(arguments(corpus, tmp_path / "run", **settings))
    names = {path.name for path in (tmp_path / "run").iterdir()}
    wanted = "config.json vocab.model checkpoints metrics.jsonl log.txt".split()
    assert {*wanted, "learning_curve.png"} <= names
    assert any("tfevents" in name for name in names)
    first, *_, last = metrics(tmp_path / "run")
    assert first["train/learning_rate"] == pytest.approx(32**-0.5 * 10**-1.5)
    assert last["validation/perplexity"] > 1 and 0 <= last["validation/bleu"] <= 100
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "60 pairs read" in log
    assert "% real target tokens" in log


def test_a_run_compiles_its_update_once_a_shape(train, corpus, tmp_path, monkeypatch):
    """Each bucket width is one program, at the start and after a restart.

    A state that is not placed as the update returns it would be compiled for twice.
    """
    steps = []

    def make(*settings):
        steps.append(make_train_step(*settings))
        return steps[-1]

    make_train_step = train.make_train_step
    monkeypatch.setattr(train, "make_train_step", make)
    buckets = {"data__plan": "bucket", "data__bucket_widths": (8, 32)}
    for last in (8, 16):
        train.main(
            arguments(corpus, tmp_path / "run", train__num_steps=last, **buckets)
        )
    first, second = (step._cache_size() for step in steps)
    assert first == second == 2


def test_a_loss_that_is_not_finite_stops_the_run_at_its_step(train, corpus, tmp_path):
    """The step is named, and no checkpoint of it or behind it is kept."""
    with pytest.raises(UserError, match=r"step \d+: the loss is not finite"):
        train.main(
            arguments(
                corpus,
                tmp_path / "run",
                train__learning_rate_factor=1e30,
                train__checkpoint_every_steps=1,
            )
        )
    state, _ = final_state(tmp_path / "run")
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


MISTAKES = [
    ({"data__max_tokens": 3}, r"0 of 60 pairs .*max length 3"),
    ({"train__num_stps": 3}, "train.num_stps is not .* did you mean train.num_steps"),
    ({"model__d_model": "big"}, "model.d_model is 'big'"),
    ({"data__vocab_size": 32000}, r"--config\.data\.vocab_size=\d+"),
    ({"data__train_target": "nothing.txt"}, "nothing.txt cannot be read"),
    ({"train__accumulation_steps": 3}, "data.rows_multiple is 4"),
    ({"train__warmup_steps": -1}, "train.warmup_steps is -1"),
]


@pytest.mark.parametrize(("mistake", "says"), MISTAKES)
def test_mistakes_are_one_sentence_before_any_training(
    train, corpus, tmp_path, mistake, says
):
    """The key or file is named, and no checkpoint or metric is left behind."""
    with pytest.raises(UserError, match=says):
        train.main(arguments(corpus, tmp_path / "run", **mistake))
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_sides_of_different_length_are_refused(train, corpus, tmp_path):
    """Both names and counts, and nothing is left half-written."""
    longer = tmp_path / "longer"
    longer.write_text((corpus / "train.target").read_text() + "one more\n")
    with pytest.raises(UserError, match=r"train.source has 60 lines .*longer has 61"):
        train.main(arguments(corpus, tmp_path / "run", data__train_target=longer))
    assert not (tmp_path / "run" / "vocab.model").exists()


def test_another_configuration_or_vocabulary_is_refused(train, corpus, tmp_path):
    """Heads change no shape that one would notice; they are named all the same."""
    train.main(arguments(corpus, tmp_path / "run", train__num_steps=1))
    with pytest.raises(UserError, match="model.num_heads: saved 2, given 4"):
        train.main(arguments(corpus, tmp_path / "run", model__num_heads=4))
    config = RunFolder(tmp_path / "run").config()
    lines = (corpus / "train.source").read_text().splitlines()
    other = tmp_path / "other.model"
    Vocabulary.train(lines, dataclasses.replace(config.data, vocab_size=290)).save(
        other
    )
    with pytest.raises(UserError, match="is not the vocabulary"):
        train.main(arguments(corpus, tmp_path / "run", data__vocab_model=other))


def test_a_command_ends_with_code_2_and_no_traceback(corpus, tmp_path):
    """One sentence on stderr, whatever library the mistake would have met."""
    for bad in (
        ["--config=nothing.py", f"--workdir={tmp_path}"],
        [f"--workdir={tmp_path}"],
        [f"--config={ROOT}/configs/en_fr.py:huge", f"--workdir={tmp_path}"],
        [*arguments(corpus, tmp_path / "run"), "--unknown"],
    ):
        running = process(bad)
        _, errors = running.communicate()
        assert running.returncode == 2, errors
        assert errors.startswith("error: ")
        assert len(errors.strip().splitlines()) == 1
