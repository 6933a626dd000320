"""What the tests of training share: batches made by hand, and comparisons of trees."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from transformer.data.pipeline import Batch

VOCAB = 50
PAD, BOS, FIRST_WORD = 0, 1, 3


def _side(random: Any, lengths: list[int], width: int) -> tuple[np.ndarray, ...]:
    """Random tokens of so many rows, with segments and positions."""
    columns = np.arange(width)[None, :]
    real = columns < np.array(lengths)[:, None]
    tokens = random.integers(FIRST_WORD, VOCAB, size=real.shape)
    return (
        np.where(real, tokens, PAD).astype(np.int32),
        real.astype(np.int32),
        np.where(real, columns, 0).astype(np.int32),
    )


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """Makes a batch with one random sentence a row, of the target lengths given.

    A length of 0 is a row of padding. The tokens are a function of `seed` alone.
    """

    def make(lengths: list[int], seed: int = 0, extra_columns: int = 0) -> Batch:
        width = max(max(lengths), 1)
        random = np.random.default_rng(seed)
        source = _side(random, [min(n, 6) for n in lengths], 6)
        target = _side(random, lengths, width)
        inputs = np.roll(target[0], 1, axis=1)
        inputs[:, 0] = BOS
        inputs = np.where(target[1] > 0, inputs, PAD).astype(np.int32)
        pad = [(0, 0), (0, extra_columns)]
        return Batch(
            *(np.pad(a, pad) for a in (*source, inputs, *target)),
        )

    return make


@pytest.fixture
def assert_close() -> Callable[[Any, Any, float], None]:
    """Asserts that two trees of arrays differ by at most so much of their norm."""

    def check(one: Any, other: Any, tolerance: float) -> None:
        pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
        arrays = [(np.asarray(a), np.asarray(b)) for a, b in pairs]
        distance = np.sqrt(sum(np.sum((a - b) ** 2.0) for a, b in arrays))
        norm = np.sqrt(sum(np.sum(a**2.0) for a, _ in arrays))
        assert norm > 0 and distance <= tolerance * norm, distance / norm

    return check


@pytest.fixture
def assert_same() -> Callable[[Any, Any], None]:
    """Asserts that two trees of arrays are equal to the last bit."""

    def check(one: Any, other: Any) -> None:
        assert jax.tree.structure(one) == jax.tree.structure(other)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))

    return check


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "run" / "checkpoints"
