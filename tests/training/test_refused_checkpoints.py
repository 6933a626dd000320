"""Laws of checkpoints that cannot be written or read: one sentence, nothing lost."""

import contextlib
import dataclasses
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tests.training.saved_states import (
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
    TrainState,
    initial_state,
)
from transformer.training.manifest import Damaged, read_manifest


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
