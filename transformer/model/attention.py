"""Attention (section 3.2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from transformer.config import ModelConfig
from transformer.model.dropout import Dropout
from transformer.model.products import product


class KeyValues(NamedTuple):
    """What attention looks at: keys and values, head by head.

    The keys stand as columns, ready for the product with queries.
    """

    keys: Float[Array, "B H Dk S"]
    values: Float[Array, "B H S Dv"]


def segment_mask(
    query_segments: Int[Array, "B T"], key_segments: Int[Array, "B S"]
) -> Bool[Array, "B 1 T S"]:
    """True where query and key are of one sentence; padding (0) is never seen."""
    same = query_segments[:, :, None] == key_segments[:, None, :]
    return (same & (key_segments > 0)[:, None, :])[:, None]


def causal_mask(length: int) -> Bool[Array, "1 1 T T"]:
    """True where the key stands no later than the query."""
    return jnp.tri(length, dtype=bool)[None, None]


def attention_weights(
    queries: Float[Array, "B H T Dk"],
    keys: Float[Array, "B H Dk S"],
    mask: Bool[Array, "#B 1 #T S"],
    dtype: str,
) -> Float[Array, "B H T S"]:
    """softmax(QK^T / sqrt(d_k)) (equation 1), each row summing to 1, in float32.

    A row whose keys are all masked gets uniform weights: finite, and of no
    consequence, since such a row is padding.
    """
    scaled = queries * queries.shape[-1] ** -0.5
    scores = product("bhtk,bhks->bhts", scaled, keys, dtype)
    # Half of the least float: the maximum can be subtracted from it without overflow.
    scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min / 2)
    return jax.nn.softmax(scores, axis=-1)


def fused_attention(
    queries: Float[Array, "B H T Dk"],
    key_values: KeyValues,
    mask: Bool[Array, "#B 1 #T S"],
    dtype: str,
) -> Float[Array, "B H T Dv"]:
    """The same function by JAX's own attention; cuDNN's kernel on a GPU in bfloat16."""
    on_cudnn = dtype == "bfloat16" and jax.default_backend() == "gpu"
    mask = jnp.broadcast_to(mask, (*mask.shape[:2], queries.shape[2], mask.shape[3]))
    out = jax.nn.dot_product_attention(
        queries.swapaxes(1, 2).astype(dtype),
        jnp.moveaxis(key_values.keys, 3, 1).astype(dtype),
        key_values.values.swapaxes(1, 2).astype(dtype),
        mask=mask,
        implementation="cudnn" if on_cudnn else "xla",
    )
    return out.swapaxes(1, 2).astype(jnp.float32)


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O (section 3.2.2), without biases by default.

    Keys and values are projected apart from the queries, so that a decoder can project
    the encoder's output once and keep what it projected of its own.

    Departure: Q, K and V are drawn from the Glorot limits of their own matrices; the
    authors' code drew one wide matrix, whose limit is smaller by 1 / sqrt(2).
    """

    config: ModelConfig

    def setup(self) -> None:
        """Glorot-uniform weights over the flat matrices of the paper."""
        c = self.config
        self.query = self._kernel("query", (c.d_model, c.num_heads, c.d_k))
        self.key = self._kernel("key", (c.d_model, c.num_heads, c.d_k))
        self.value = self._kernel("value", (c.d_model, c.num_heads, c.d_v))
        self.out = self._kernel("out", (c.num_heads, c.d_v, c.d_model), split=2)
        self.weights_dropout = Dropout(c.attention_dropout)
        if c.attention_bias:
            zeros = nn.initializers.zeros
            self.query_bias = self.param("query_bias", zeros, (c.num_heads, 1, c.d_k))
            self.key_bias = self.param("key_bias", zeros, (c.num_heads, 1, c.d_k))
            self.value_bias = self.param("value_bias", zeros, (c.num_heads, 1, c.d_v))
            self.out_bias = self.param("out_bias", zeros, (c.d_model,))

    def _kernel(
        self, name: str, shape: tuple[int, int, int], split: int = 1
    ) -> Float[Array, "_ _ _"]:
        """Glorot initialisation sees the matrix that has `split` axes as its rows."""
        initializer = nn.initializers.variance_scaling(
            1.0,
            "fan_avg",
            "uniform",
            in_axis=tuple(range(split)),
            out_axis=tuple(range(split, 3)),
        )
        return self.param(name, initializer, shape)

    def key_values(self, x: Float[Array, "B S D"]) -> KeyValues:
        """Projects what is looked at: `x` times W^K and W^V."""
        dtype = self.config.dtype
        keys = product("bsd,dhk->bhks", x, self.key, dtype)
        values = product("bsd,dhk->bhsk", x, self.value, dtype)
        if self.config.attention_bias:
            keys = keys + self.key_bias.swapaxes(1, 2)
            values = values + self.value_bias
        return KeyValues(keys, values)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        key_values: KeyValues,
        mask: Bool[Array, "#B 1 #T S"],
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """Attends from `x` to `key_values` where `mask` is True.

        The weights are sown as "weights" in the collection "attention"; asking for
        that collection selects the einsum implementation, which has them.
        """
        c = self.config
        queries = product("btd,dhk->bhtk", x, self.query, c.dtype)
        if c.attention_bias:
            queries = queries + self.query_bias
        if c.attention == "dot_product" and not self.is_mutable_collection("attention"):
            heads = fused_attention(queries, key_values, mask, c.dtype)
        else:
            weights = attention_weights(queries, key_values.keys, mask, c.dtype)
            self.sow("attention", "weights", weights, reduce_fn=lambda _, new: new)
            weights = self.weights_dropout(weights, deterministic)
            heads = product("bhts,bhsk->bhtk", weights, key_values.values, c.dtype)
        out = product("bhtk,hkd->btd", heads, self.out, c.dtype)
        return out + self.out_bias if c.attention_bias else out
