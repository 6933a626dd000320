"""The network as pure functions of parameters and arrays (section 3)."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from transformer.config import ModelConfig
from transformer.model.attention import KeyValues
from transformer.model.transformer import Transformer

__all__ = [
    "KeyValues",
    "Transformer",
    "initial_variables",
    "parameter_count",
    "stacked_attention",
]


@functools.partial(jax.jit, static_argnames=("config", "vocab_size"))
def initial_variables(
    config: ModelConfig, vocab_size: int, key: PRNGKeyArray
) -> dict[str, dict]:
    """Freshly drawn parameters, as `{"params": ...}`."""
    row = jnp.zeros((1, 1), jnp.int32)
    model = Transformer(config, vocab_size)
    variables = model.init(key, row, row, row, row, row, row, deterministic=True)
    return {"params": variables["params"]}


def parameter_count(config: ModelConfig, vocab_size: int) -> int:
    """Number of trained values, found without allocating any."""
    shapes = jax.eval_shape(
        lambda key: initial_variables(config, vocab_size, key), jax.random.key(0)
    )
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def stacked_attention(
    collection: dict[str, dict],
) -> dict[str, Float[Array, "N B H T S"]]:
    """The sown collection "attention" as one array per kind of attention.

    Keys are "encoder", "decoder_self" and "decoder_cross"; each array's rows sum to 1.
    """
    num_layers = len([name for name in collection if name.startswith("encoder")])
    kinds = {
        "encoder": ("encoder_layers", "attention"),
        "decoder_self": ("decoder_layers", "self_attention"),
        "decoder_cross": ("decoder_layers", "cross_attention"),
    }
    return {
        kind: jnp.stack(
            [collection[f"{stack}_{n}"][name]["weights"] for n in range(num_layers)]
        )
        for kind, (stack, name) in kinds.items()
    }
