"""Laws of checkpoints: exact, whole or passed over, never at the cost of older ones."""

import contextlib
import dataclasses
import json
import logging
import resource
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import Config
from transformer.data import Position
from transformer.errors import UserError
from transformer.training import (
    Checkpoints,
    TrainState,
    initial_state,
    make_mesh,
    make_train_step,
    replicated,
)
from transformer.training.manifest import Damaged, read_manifest

VOCAB = 50
ONE = replicated(make_mesh(jax.devices()[:1]))
FOUR = replicated(make_mesh(jax.devices()))


def state_of(step: int, value: float | None = None) -> TrainState:
    """A small state whose every number says which step it is of."""
    value = float(step) if value is None else value
    return TrainState(
        step=jnp.asarray(step, jnp.int32),
        params={"layer": {"kernel": jnp.full((3, 4), value), "bias": jnp.ones(4)}},
        opt_state=(jnp.full((3, 4), -value), jnp.asarray(step, jnp.int32)),
        key=jnp.array([1, step], jnp.uint32),
    )


LIKE = state_of(0)


def save(checkpoints: Checkpoints, *steps: int, **perplexities: float) -> None:
    """Saves states of the steps; `s10=5.0` is the perplexity of step 10."""
    for step in steps:
        found = perplexities.get(f"s{step}")
        metrics = {"minutes": 1.0} | ({} if found is None else {"perplexity": found})
        checkpoints.save(state_of(step), Position(step, step + 1), metrics)
    checkpoints.wait()


def keep_all(directory: Path, *steps: int) -> Checkpoints:
    """Saves states of the steps, none of which is deleted."""
    checkpoints = Checkpoints(directory, "words", keep_last=10)
    save(checkpoints, *steps)
    return checkpoints


def reopened(directory: Path, vocabulary: str = "words") -> Checkpoints:
    """What another process sees."""
    return Checkpoints(directory, vocabulary)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "run" / "checkpoints"


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


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: writing fails as on a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


# Orbax ends its event loop before the writes that failed have reported to it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_full_disk_is_one_sentence_and_costs_nothing(directory: Path) -> None:
    """Earlier checkpoints stay, nothing half-written does, and saving can go on."""
    checkpoints = Checkpoints(directory, "words", keep_last=5)
    save(checkpoints, 1)
    noise = {"noise": jax.random.normal(jax.random.key(0), (400, 400))}
    with largest_file(300_000), pytest.raises(UserError) as caught:
        checkpoints.save(state_of(2)._replace(params=noise), Position(0, 0), {})
        checkpoints.wait()
    assert "File too large; earlier checkpoints" in str(caught.value)
    assert str(directory) in str(caught.value)
    assert [p.name for p in directory.iterdir()] == ["1"]
    save(checkpoints, 3)
    assert [c.step for c in reopened(directory).whole()] == [3, 1]


def test_too_little_room_is_seen_before_writing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence says how much is needed and how much there is."""
    checkpoints = Checkpoints(directory, "words", keep_last=5)
    save(checkpoints, 1)
    usage = shutil.disk_usage(directory)._replace(free=50)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match="MB are needed, 0.0 MB are free"):
        save(checkpoints, 2)
    assert [p.name for p in directory.iterdir()] == ["1"]


def test_failure_in_the_background_is_raised_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next save reports it; the one after works."""
    checkpoints = Checkpoints(directory, "words", keep_last=5)

    def fail(path: Path, checkpoint: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("transformer.training.checkpoints.write_manifest", fail)
    checkpoints.save(state_of(1), Position(0, 0), {})
    with pytest.raises(UserError, match="Input/output error"):
        checkpoints.save(state_of(2), Position(0, 0), {})
    monkeypatch.undo()
    save(checkpoints, 3)
    assert [c.step for c in checkpoints.whole()] == [3]


def test_another_vocabulary_is_refused(directory: Path) -> None:
    """By fingerprint, with both files named, also where the sizes agree.

    Elsewhere a model went on with another's vocabulary and wrote nonsense.
    """
    keep_all(directory, 1)
    other = reopened(directory, "other words")
    for action in (
        other.whole,
        lambda: other.restore(LIKE, ONE),
        lambda: other.restore_params(LIKE, ONE),
    ):
        with pytest.raises(UserError) as caught:
            action()
        assert str(directory / "1") in str(caught.value)
        assert str(directory.parent / "vocab.model") in str(caught.value)


@pytest.mark.parametrize(
    "knobs",
    [
        {"d_ff": 128},
        {"num_layers": 2},
        {"num_heads": 4, "d_k": 8, "d_v": 8},
        {"positions": "learned"},
        {"norm": "pre"},
        {"tie_embeddings": False},
        {"attention_bias": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("exchanged", [False, True])
def test_another_model_is_refused(
    saved_model: Path, tiny_config: Config, knobs: dict, exchanged: bool
) -> None:
    """No array is padded, cut, renamed or left at its initial value in silence.

    Four heads of 8 have as many values as two of 16, and are still another model.
    """
    other = dataclasses.replace(
        tiny_config, model=dataclasses.replace(tiny_config.model, **knobs)
    )
    like = jax.eval_shape(lambda: initial_state(other, VOCAB))
    if exchanged:  # the checkpoint has what the model lacks
        directory = saved_model.with_name("other")
        checkpoints = Checkpoints(directory, "words")
        checkpoints.save(zeros(like), Position(0, 0), {})
        checkpoints.wait()
        like = jax.eval_shape(lambda: initial_state(tiny_config, VOCAB))
    else:
        directory = saved_model
    with pytest.raises(UserError, match="this run's model"):
        reopened(directory).restore(like, ONE)


def zeros(like: TrainState) -> TrainState:
    """A state of these shapes."""
    return jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)


@pytest.fixture
def saved_model(directory: Path, tiny_config: Config) -> Path:
    """A checkpoint of the tiny model."""
    like = jax.eval_shape(lambda: initial_state(tiny_config, VOCAB))
    checkpoints = Checkpoints(directory, "words")
    checkpoints.save(zeros(like), Position(0, 0), {})
    checkpoints.wait()
    return directory


def test_no_checkpoint_is_said_plainly(directory: Path) -> None:
    """No folder at all, and a step that there is not, with those that there are."""
    with pytest.raises(UserError, match="no whole checkpoint"):
        reopened(directory).restore(LIKE, ONE)
    assert reopened(directory).whole() == reopened(directory).steps() == []
    keep_all(directory, 5, 6)
    with pytest.raises(UserError, match="step 4: .* has the steps 5, 6"):
        reopened(directory).restore(LIKE, ONE, step=4)
    assert reopened(directory).restore(LIKE, ONE, step=5)[1].step == 5


def test_average_of_one_is_the_checkpoint(directory: Path, assert_same) -> None:
    """To the last bit, and so is that of equal ones."""
    third = 1 / 3
    checkpoints = Checkpoints(directory, "words", keep_last=5)
    for step in range(1, 4):
        checkpoints.save(state_of(step, third), Position(0, 0), {})
    checkpoints.wait()
    wanted = state_of(1, third).params
    for average in (1, 2, 3):
        found = checkpoints.restore_params(LIKE, ONE, average=average)
        assert_same(found, wanted)


def test_average_is_the_mean_of_the_last(directory: Path) -> None:
    """Of the parameters only, the last ones by step, damaged ones not counted."""
    checkpoints = keep_all(directory, 1, 2, 3, 4, 5)
    (directory / "4" / "manifest.json").unlink()
    params = checkpoints.restore_params(LIKE, ONE, average=3)
    np.testing.assert_allclose(params["layer"]["kernel"], (5 + 3 + 2) / 3, rtol=1e-7)
    np.testing.assert_array_equal(params["layer"]["bias"], 1)
    assert params["layer"]["kernel"].dtype == jnp.float32


def test_average_does_not_depend_on_the_order(tmp_path: Path, assert_close) -> None:
    """Large and small numbers summed either way; float32 sums would differ."""
    values = [1e4, 0.1, -1e4, 0.7, 3e-3]
    found = []
    for name, ordered in (("up", values), ("down", values[::-1])):
        checkpoints = Checkpoints(tmp_path / name, "words", keep_last=5)
        for step, value in enumerate(ordered, start=1):
            checkpoints.save(state_of(step, value), Position(0, 0), {})
        checkpoints.wait()
        found.append(checkpoints.restore_params(LIKE, ONE, average=5))
    assert_close(*found, 1e-7)


def test_average_of_more_than_there_are(directory: Path) -> None:
    """Refused with both numbers; damaged ones do not count."""
    checkpoints = keep_all(directory, 1, 2, 3)
    (directory / "2" / "manifest.json").unlink()
    with pytest.raises(UserError, match="3 checkpoints to average.* only 2"):
        checkpoints.restore_params(LIKE, ONE, average=3)
    with pytest.raises(UserError, match="to average is 0"):
        checkpoints.restore_params(LIKE, ONE, average=0)


def test_averaging_leaves_the_folder_as_it_was(directory: Path) -> None:
    """The mean is never taken for a checkpoint to resume from."""
    checkpoints = keep_all(directory, 1, 2)
    before = sorted(directory.rglob("*"))
    checkpoints.restore_params(LIKE, ONE, average=2)
    assert sorted(directory.rglob("*")) == before
    assert checkpoints.restore(LIKE, ONE)[1].step == 2


def test_every_byte_of_a_manifest_counts(directory: Path) -> None:
    """A position that is off by one batch would be as bad as a lost weight."""
    keep_all(directory, 1)
    path = directory / "1" / "manifest.json"
    good = path.read_bytes()
    wanted = read_manifest(directory / "1")
    for place in range(0, len(good), 7):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bad)
        with contextlib.suppress(Damaged):
            assert read_manifest(directory / "1") == wanted  # white space at most
    path.write_bytes(good)
    assert read_manifest(directory / "1") == wanted
