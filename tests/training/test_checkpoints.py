"""Laws of checkpoints: exact, whole or passed over, never at the cost of older ones."""

import dataclasses
import json
import logging
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from tests.training.saved_states import (
    FOUR,
    LIKE,
    ONE,
    VOCAB,
    keep_all,
    reopened,
    save,
    state_of,
)
from transformer.config import Config
from transformer.data import Position
from transformer.errors import UserError
from transformer.training import (
    Checkpoints,
    initial_state,
    make_mesh,
    make_train_step,
)


def test_restored_state_is_the_saved_one(directory: Path, assert_same) -> None:
    """Every array to the last bit, the position and the numbers beside it."""
    keep_all(directory, 1, 7)
    state, found = reopened(directory).restore(LIKE, ONE)
    assert_same(state, state_of(7))
    assert (found.step, found.position) == (7, Position(7, 8))
    assert isinstance(found.position, Position)
    assert found.metrics == {"minutes": 1.0}


def test_training_goes_on_as_if_it_had_not_stopped(
    directory: Path, tiny_config: Config, make_batch, assert_same
) -> None:
    """Two updates, a checkpoint, two more: the same bits as four at a stretch.

    Elsewhere the rate, the moments or the random masks began anew.
    """
    model = dataclasses.replace(tiny_config.model, dropout=0.1)
    config = dataclasses.replace(tiny_config, model=model)
    train_step = make_train_step(config, VOCAB, make_mesh(jax.devices()[:1]))
    batches = [make_batch([3, 9, 4, 6], seed=seed) for seed in range(4)]
    straight = jax.device_put(initial_state(config, VOCAB), ONE)
    for batch in batches:
        straight, wanted = train_step(straight, batch)

    state = jax.device_put(initial_state(config, VOCAB), ONE)
    checkpoints = Checkpoints(directory, "words")
    for index, batch in enumerate(batches[:2]):
        state, _ = train_step(state, batch)
        position = Position(0, index + 1)
    checkpoints.save(state, position, {})
    train_step(state, batches[3])  # goes on, and gives away the buffers, while saving
    checkpoints.wait()

    like = jax.eval_shape(lambda: initial_state(config, VOCAB))
    resumed, found = reopened(directory).restore(like, ONE)
    for batch in batches[found.position.index :]:
        resumed, metrics = train_step(resumed, batch)
    assert_same(resumed, straight)
    assert_same(metrics, wanted)
    assert int(resumed.step) == 4


@pytest.mark.parametrize(("before", "after"), [(FOUR, ONE), (ONE, FOUR)])
def test_number_of_devices_may_change(
    directory: Path,
    assert_same,
    before: jax.sharding.NamedSharding,
    after: jax.sharding.NamedSharding,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Saved on four, read on one, and the reverse, without a word of warning."""
    checkpoints = Checkpoints(directory, "words")
    checkpoints.save(jax.device_put(state_of(3), before), Position(0, 0), {})
    checkpoints.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state, _ = reopened(directory).restore(LIKE, after)
        params = reopened(directory).restore_params(LIKE, after)
    assert_same(state, state_of(3))
    for leaf in jax.tree.leaves((state, params)):
        assert leaf.sharding == after
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def flip(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_to_any_file_is_noticed(
    directory: Path, damage: Callable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever file it is, the manifest too: the checkpoint is named and passed over.

    Orbax alone reads a flipped bit as another number, or fails half-way.
    """
    keep_all(directory, 1, 2)
    good = tmp_path / "good"
    shutil.copytree(directory / "2", good)
    names = [p.relative_to(good) for p in good.rglob("*") if p.is_file()]
    assert Path("manifest.json") in names and len(names) > 3
    for name in names:
        damage(directory / "2" / name)
        caplog.clear()
        assert [c.step for c in reopened(directory).whole()] == [1], name
        assert str(directory / "2") in caplog.text
        with pytest.raises(UserError, match="2 is damaged"):
            reopened(directory).restore(LIKE, ONE, step=2)
        shutil.rmtree(directory / "2")
        shutil.copytree(good, directory / "2")
    assert [c.step for c in reopened(directory).whole()] == [2, 1]


def test_newest_whole_checkpoint_is_restored(directory: Path, assert_same) -> None:
    """Two damaged ones cost two checkpoints, not the run."""
    keep_all(directory, 1, 2, 3)
    (directory / "3" / "manifest.json").unlink()
    flip(directory / "2" / "manifest.json")
    state, found = reopened(directory).restore(LIKE, ONE)
    assert found.step == 1
    assert_same(state, state_of(1))


def test_a_save_that_was_killed_leaves_nothing_that_counts(directory: Path) -> None:
    """Neither Orbax's unfinished folder nor one without manifest; both go later."""
    keep_all(directory, 1)
    shutil.copytree(directory / "1", directory / "2.orbax-checkpoint-tmp")
    shutil.copytree(directory / "1", directory / "3")
    (directory / "3" / "manifest.json").unlink()
    checkpoints = Checkpoints(directory, "words", keep_last=5)
    assert [c.step for c in checkpoints.whole()] == [1]
    save(checkpoints, 2, 3)
    assert sorted(p.name for p in directory.iterdir()) == ["1", "2", "3"]
    assert [c.step for c in checkpoints.whole()] == [3, 2, 1]


def test_last_and_best_are_kept(directory: Path) -> None:
    """The newest, and of all the lowest perplexities; the rest is deleted."""
    checkpoints = Checkpoints(directory, "words", keep_last=2, keep_best=2)
    perplexities = {"s1": 9.0, "s2": 4.0, "s3": 8.0, "s4": 3.0, "s6": 7.0}
    save(checkpoints, 1, 2, 3, 4, 5, 6, 7, **perplexities)
    assert checkpoints.steps() == [2, 4, 6, 7]


def test_steps_are_ordered_as_numbers(directory: Path) -> None:
    """1000 is newer than 900."""
    checkpoints = Checkpoints(directory, "words", keep_last=2)
    save(checkpoints, 900, 1000, 1100)
    assert checkpoints.steps() == [1000, 1100]
    assert reopened(directory).restore(LIKE, ONE)[1].step == 1100


def test_perplexity_that_is_none_is_never_best(directory: Path) -> None:
    """NaN and infinity compare with nothing."""
    checkpoints = Checkpoints(directory, "words", keep_last=1, keep_best=1)
    save(checkpoints, 1, 2, 3, 4, s1=float("nan"), s2=5.0, s3=float("inf"))
    assert checkpoints.steps() == [2, 4]
    text = (directory / "4" / "manifest.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_damaged_later_ones_cost_no_good_one(directory: Path) -> None:
    """A run that went back keeps what it saves, not the higher numbers it passed over.

    Kept by number, the damaged checkpoint would outlive every good one.
    """
    keep_all(directory, 10, 20)
    damaged = next(p for p in (directory / "20").rglob("*") if p.name == "_METADATA")
    flip(damaged)
    checkpoints = Checkpoints(directory, "words", keep_last=1)
    assert checkpoints.restore(LIKE, ONE)[1].step == 10
    save(checkpoints, 15)
    assert checkpoints.steps() == [15]
    assert reopened(directory).restore(LIKE, ONE)[1].step == 15


def test_old_ones_are_deleted_after_the_new_one_is_whole(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the new one is being written, and if that fails, the old one is there."""
    checkpoints = Checkpoints(directory, "words", keep_last=1)
    save(checkpoints, 1)

    def fail(path: Path, checkpoint: object) -> None:
        assert [c.step for c in reopened(directory).whole()] == [1]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformer.training.checkpoints.write_manifest", fail)
    with pytest.raises(UserError, match="No space left on device"):
        save(checkpoints, 2)
    monkeypatch.undo()
    assert [c.step for c in checkpoints.whole()] == [1]
    save(checkpoints, 3)
    assert checkpoints.steps() == [3]
