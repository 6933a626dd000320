"""What a training step changes: arrays only, so that a checkpoint holds only arrays."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from transformer.config import Config
from transformer.model import initial_variables
from transformer.training.optimizer import adam


class TrainState(NamedTuple):
    """The state after `step` updates."""

    step: Int[Array, ""]
    params: dict[str, Any]
    opt_state: Any
    key: UInt32[Array, "2"]


def initial_state(config: Config, vocab_size: int) -> TrainState:
    """The state before the first update, a function of the seed."""
    init_key, dropout_key = jax.random.split(jax.random.key(config.train.seed))
    params = initial_variables(config.model, vocab_size, init_key)["params"]
    opt_state = jax.jit(adam(config.train, config.model.d_model).init)(params)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=opt_state,
        key=jax.random.key_data(dropout_key),
    )
