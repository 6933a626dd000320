"""Dropout (section 5.4) whose mask is a function of a key and the element's index.

A counter hash costs a few integer operations that XLA fuses into the consumer, where
JAX's generators write the random bits to memory first. The gradient computes the mask
again instead of keeping it.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, UInt32


class Dropout(nn.Module):
    """Zeroes each element with probability `rate` and scales the rest to keep the mean.

    Draws its key from the stream named "dropout"; the identity when `deterministic`.
    """

    rate: float

    @nn.compact
    def __call__(
        self, x: Float[Array, "..."], deterministic: bool
    ) -> Float[Array, "..."]:
        """`x` with dropout."""
        if deterministic or self.rate == 0:
            return x
        key = self.make_rng("dropout")
        return _drop(self.rate, x, jax.random.key_data(key))


def keep_mask(
    seed: UInt32[Array, "2"], shape: tuple[int, ...], rate: float
) -> Bool[Array, "..."]:
    """True with probability 1 - `rate`, independently for each element and seed.

    The seed is mixed before it meets the index, and enters again between two mixing
    steps: an additive seed alone would give masks that are shifted copies of one
    another.
    """
    first = _mix(seed[0] + _mix(seed[1] ^ jnp.uint32(0x9E3779B9)))
    second = _mix(seed[1] + _mix(first ^ jnp.uint32(0x85EBCA6B)))
    index = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        iota = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        index = index + iota * jnp.uint32(stride % 2**32)
        stride *= shape[axis]
    bits = _mix(_mix(index ^ first) + second)
    return bits >= jnp.uint32(round(rate * 2**32))


def _mix(x: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A bijection of 32-bit words with good avalanche (multiply and xor-shift)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _apply(rate, x, seed):  # type: ignore[no-untyped-def]
    return jnp.where(keep_mask(seed, x.shape, rate), x / (1 - rate), 0)


_drop = jax.custom_vjp(_apply, nondiff_argnums=(0,))
_drop.defvjp(
    lambda rate, x, seed: (_apply(rate, x, seed), seed),
    lambda rate, seed, gradient: (_apply(rate, gradient, seed), None),
)
