"""Positional encodings (section 3.5)."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def sinusoids(positions: Int[Array, "*P"], d_model: int) -> Float[Array, "*P D"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(same), float32.

    Sines and cosines are interleaved, as the paper's formula has them; the authors'
    code instead concatenated a block of each.
    """
    exponents = jnp.arange(0, d_model, 2, dtype=jnp.float32) / d_model
    angles = positions[..., None].astype(jnp.float32) * 10000.0**-exponents
    pairs = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return pairs.reshape(*positions.shape, d_model)
