"""Laws of the mean of the last checkpoints."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.saved_states import LIKE, ONE, keep_all, state_of
from transformer.data import Position
from transformer.errors import UserError
from transformer.training import (
    Checkpoints,
)


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
