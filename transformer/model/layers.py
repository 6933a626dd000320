"""The layers of both stacks (section 3.1)."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from transformer.config import ModelConfig
from transformer.model.attention import KeyValues, MultiHeadAttention
from transformer.model.dropout import Dropout
from transformer.model.products import product


def layer_norm() -> nn.LayerNorm:
    """Layer normalisation with biased variance, epsilon 1e-6 under the root."""
    return nn.LayerNorm(epsilon=1e-6, use_fast_variance=False)


class Residual(nn.Module):
    """What stands around every sub-layer.

    "post", the paper: LayerNorm(x + Dropout(Sublayer(x))).
    "pre", later systems: x + Dropout(Sublayer(LayerNorm(x))).
    """

    config: ModelConfig

    def setup(self) -> None:
        """One normalisation and one dropout."""
        self.norm = layer_norm()
        self.dropout = Dropout(self.config.dropout)

    def before(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """The sub-layer's input."""
        return self.norm(x) if self.config.norm == "pre" else x

    def after(
        self, x: Float[Array, "B T D"], out: Float[Array, "B T D"], deterministic: bool
    ) -> Float[Array, "B T D"]:
        """Joins the residual stream `x` and the sub-layer's output `out`."""
        x = x + self.dropout(out, deterministic)
        return self.norm(x) if self.config.norm == "post" else x


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2)."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], deterministic: bool
    ) -> Float[Array, "B T D"]:
        """Applies the same two-layer network at every position."""
        c = self.config
        glorot, zeros = nn.initializers.glorot_uniform(), nn.initializers.zeros
        hidden = self.param("hidden", glorot, (c.d_model, c.d_ff))
        hidden_bias = self.param("hidden_bias", zeros, (c.d_ff,))
        out = self.param("out", glorot, (c.d_ff, c.d_model))
        out_bias = self.param("out_bias", zeros, (c.d_model,))
        inner = jax.nn.relu(product("btd,df->btf", x, hidden, c.dtype) + hidden_bias)
        inner = Dropout(c.ffn_dropout)(inner, deterministic)
        return product("btf,fd->btd", inner, out, c.dtype) + out_bias


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    config: ModelConfig

    def setup(self) -> None:
        """Two sub-layers, each with its residual connection."""
        self.attention = MultiHeadAttention(self.config)
        self.attention_residual = Residual(self.config)
        self.feed_forward = FeedForward(self.config)
        self.feed_forward_residual = Residual(self.config)

    def __call__(
        self,
        x: Float[Array, "B S D"],
        mask: Bool[Array, "#B 1 #S S"],
        deterministic: bool,
    ) -> Float[Array, "B S D"]:
        """One layer of the encoder."""
        inputs = self.attention_residual.before(x)
        key_values = self.attention.key_values(inputs)
        out = self.attention(inputs, key_values, mask, deterministic)
        x = self.attention_residual.after(x, out, deterministic)
        out = self.feed_forward(self.feed_forward_residual.before(x), deterministic)
        return self.feed_forward_residual.after(x, out, deterministic)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder, feed-forward network."""

    config: ModelConfig

    def setup(self) -> None:
        """Three sub-layers, each with its residual connection."""
        self.self_attention = MultiHeadAttention(self.config)
        self.self_residual = Residual(self.config)
        self.cross_attention = MultiHeadAttention(self.config)
        self.cross_residual = Residual(self.config)
        self.feed_forward = FeedForward(self.config)
        self.feed_forward_residual = Residual(self.config)

    def memory(self, encoded: Float[Array, "B S D"]) -> KeyValues:
        """What this layer's cross-attention looks at, once per sentence."""
        return self.cross_attention.key_values(encoded)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        mask: Bool[Array, "#B 1 #T T"],
        memory: KeyValues,
        memory_mask: Bool[Array, "#B 1 #T S"],
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """One layer over all target positions at once."""
        inputs = self.self_residual.before(x)
        own = self.self_attention.key_values(inputs)
        out = self.self_attention(inputs, own, mask, deterministic)
        x = self.self_residual.after(x, out, deterministic)
        return self._attend_to_memory(x, memory, memory_mask, deterministic)

    def step(
        self,
        x: Float[Array, "B K D"],
        places: Int[Array, "B K"],
        cache: KeyValues,
        mask: Bool[Array, "B 1 K P"],
        memory: KeyValues,
        memory_mask: Bool[Array, "B 1 1 S"],
    ) -> tuple[Float[Array, "B K D"], KeyValues]:
        """One layer at the newest position of each of a sentence's K hypotheses.

        To cache and memory they are what target positions are in `__call__`.
        """
        inputs = self.self_residual.before(x)
        new = self.self_attention.key_values(inputs)
        sentence = jnp.arange(len(x))[:, None]
        cache = KeyValues(
            cache.keys.at[sentence, :, :, places].set(jnp.moveaxis(new.keys, 3, 1)),
            cache.values.at[sentence, :, places].set(new.values.swapaxes(1, 2)),
        )
        out = self.self_attention(inputs, cache, mask, deterministic=True)
        x = self.self_residual.after(x, out, deterministic=True)
        return self._attend_to_memory(x, memory, memory_mask, True), cache

    def _attend_to_memory(
        self,
        x: Float[Array, "B T D"],
        memory: KeyValues,
        memory_mask: Bool[Array, "#B 1 #T S"],
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """The second and third sub-layer."""
        inputs = self.cross_residual.before(x)
        out = self.cross_attention(inputs, memory, memory_mask, deterministic)
        x = self.cross_residual.after(x, out, deterministic)
        out = self.feed_forward(self.feed_forward_residual.before(x), deterministic)
        return self.feed_forward_residual.after(x, out, deterministic)
