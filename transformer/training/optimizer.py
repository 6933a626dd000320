"""Adam and its learning rate (section 5.3)."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from transformer.config import TrainConfig


def learning_rate(
    step: Int[Array, ""] | int, config: TrainConfig, d_model: int
) -> Float[Array, ""]:
    """Factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), equation 3.

    Steps count from 1. Without warm-up the rate falls from the first step on.
    """
    s = jnp.asarray(step, jnp.float32)
    rate = s**-0.5
    if config.warmup_steps:
        rate = jnp.minimum(rate, s * config.warmup_steps**-1.5)
    return config.learning_rate_factor * d_model**-0.5 * rate


def adam(config: TrainConfig, d_model: int) -> optax.GradientTransformation:
    """Adam with the paper's rate; optax counts updates from 0, the paper from 1."""
    return optax.adam(
        lambda count: learning_rate(count + 1, config, d_model),
        b1=config.adam_b1,
        b2=config.adam_b2,
        eps=config.adam_eps,
    )
