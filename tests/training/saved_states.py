"""States whose numbers say which step they are of, and folders with them saved."""

from pathlib import Path

import jax
import jax.numpy as jnp

from transformer.data import Position
from transformer.training import (
    Checkpoints,
    TrainState,
    make_mesh,
    replicated,
)

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
