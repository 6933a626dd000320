"""The Transformer (figure 1)."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from transformer.config import ModelConfig
from transformer.model.attention import KeyValues, causal_mask, segment_mask
from transformer.model.dropout import Dropout
from transformer.model.layers import DecoderLayer, EncoderLayer, layer_norm
from transformer.model.positions import sinusoids
from transformer.model.products import product


class Transformer(nn.Module):
    """Encoder, decoder and the tables between tokens and vectors.

    Rows hold one sentence or several: `segments` numbers a row's sentences from 1 (0 is
    padding), `positions` count from 0 in each, and no sentence sees another.
    `vocab_size` is the number of pieces; the tables have as many rows, or more where
    `config.vocab_rows_multiple` says so, and the surplus never gets probability.

    Departure: the decoder's first input is the table's row of bos, which is learned;
    the authors' code had a zero vector there.
    """

    config: ModelConfig
    vocab_size: int

    def setup(self) -> None:
        """Tables drawn from N(0, 1/d_model): lookups have unit variance, logits too."""
        c = self.config
        table = nn.initializers.normal(c.d_model**-0.5)
        shape = (self.num_rows, c.d_model)
        if c.tie_embeddings:
            shared = self.param("embedding", table, shape)
            self.source_table = self.target_table = self.output_table = shared
        else:
            self.source_table = self.param("source_embedding", table, shape)
            self.target_table = self.param("target_embedding", table, shape)
            self.output_table = self.param("output", table, shape)
        if c.positions == "learned":
            shape = (c.max_positions, c.d_model)
            self.source_positions = self.param("source_positions", table, shape)
            self.target_positions = self.param("target_positions", table, shape)
        self.encoder_layers = [EncoderLayer(c) for _ in range(c.num_layers)]
        self.decoder_layers = [DecoderLayer(c) for _ in range(c.num_layers)]
        self.source_dropout = Dropout(c.dropout)
        self.target_dropout = Dropout(c.dropout)
        if c.norm == "pre":
            self.encoder_norm = layer_norm()
            self.decoder_norm = layer_norm()

    @property
    def num_rows(self) -> int:
        """Rows of the tables: `vocab_size` rounded up to the configured multiple."""
        multiple = self.config.vocab_rows_multiple
        return -(-self.vocab_size // multiple) * multiple

    def __call__(
        self,
        source: Int[Array, "B S"],
        source_segments: Int[Array, "B S"],
        source_positions: Int[Array, "B S"],
        target_inputs: Int[Array, "B T"],
        target_segments: Int[Array, "B T"],
        target_positions: Int[Array, "B T"],
        deterministic: bool,
    ) -> Float[Array, "B T V"]:
        """Logits for the token that follows each target input."""
        states, _ = self.before_logits(
            source,
            source_segments,
            source_positions,
            target_inputs,
            target_segments,
            target_positions,
            deterministic,
        )
        return self._logits(states)

    def before_logits(
        self,
        source: Int[Array, "B S"],
        source_segments: Int[Array, "B S"],
        source_positions: Int[Array, "B S"],
        target_inputs: Int[Array, "B T"],
        target_segments: Int[Array, "B T"],
        target_positions: Int[Array, "B T"],
        deterministic: bool,
    ) -> tuple[Float[Array, "B T D"], Float[Array, "R D"]]:
        """What the logits are the product of: the decoder's output and the table.

        For the loss, which never holds the logits of all positions at once. The table
        may have more rows than there are pieces.
        """
        encoded = self.encode(source, source_segments, source_positions, deterministic)
        states = self._states(
            encoded,
            source_segments,
            target_inputs,
            target_segments,
            target_positions,
            deterministic,
        )
        return states, self.output_table

    def encode(
        self,
        source: Int[Array, "B S"],
        segments: Int[Array, "B S"],
        positions: Int[Array, "B S"],
        deterministic: bool,
    ) -> Float[Array, "B S D"]:
        """The encoder stack's output."""
        x = self._embed(self.source_table, source)
        x = x + self._position(positions, source.shape[1], "source")
        x = self.source_dropout(x, deterministic)
        mask = segment_mask(segments, segments)
        for layer in self.encoder_layers:
            x = layer(x, mask, deterministic)
        return self.encoder_norm(x) if self.config.norm == "pre" else x

    def decode(
        self,
        encoded: Float[Array, "B S D"],
        source_segments: Int[Array, "B S"],
        target_inputs: Int[Array, "B T"],
        target_segments: Int[Array, "B T"],
        target_positions: Int[Array, "B T"],
        deterministic: bool,
    ) -> Float[Array, "B T V"]:
        """Logits at all target positions, each seeing only the inputs up to its own."""
        states = self._states(
            encoded,
            source_segments,
            target_inputs,
            target_segments,
            target_positions,
            deterministic,
        )
        return self._logits(states)

    def memory(self, encoded: Float[Array, "B S D"]) -> tuple[KeyValues, ...]:
        """Each decoder layer's keys and values of the encoder's output."""
        return tuple(layer.memory(encoded) for layer in self.decoder_layers)

    def empty_cache(self, batch: int, places: int) -> tuple[KeyValues, ...]:
        """Room for the keys and values of `places` tokens of each sentence."""
        c = self.config
        heads = (batch, c.num_heads)
        layer = KeyValues(
            jnp.zeros((*heads, c.d_k, places)), jnp.zeros((*heads, places, c.d_v))
        )
        return (layer,) * c.num_layers

    def decode_step(
        self,
        tokens: Int[Array, "B K"],
        positions: Int[Array, "B"],
        places: Int[Array, "B K"],
        cache: tuple[KeyValues, ...],
        seen: Bool[Array, "B K P"],
        memory: tuple[KeyValues, ...],
        memory_mask: Bool[Array, "B S"],
    ) -> tuple[Float[Array, "B K V"], tuple[KeyValues, ...]]:
        """Logits after feeding one token to each of K hypotheses of B sentences.

        Their keys and values go to `places` of their sentence's cache, or nowhere if
        it has no such place. All its hypotheses share its P places: `seen` says which
        of them each one looks at, its new one among them. So a hypothesis that takes
        over another's past needs another mask, and nothing is moved. `positions` are
        those of the tokens in their sentences. Beyond a learned table, where only those
        of sentences that are done may be, they count as its last one.

        Returns the logits with the cache that holds this step as well.
        """
        x = self._embed(self.target_table, tokens)
        length = seen.shape[2]
        if self.config.positions == "learned":
            length = min(length, self.config.max_positions)
        x = x + self._position(positions[:, None], length, "target")
        new_cache = []
        for layer, own, looked_at in zip(
            self.decoder_layers, cache, memory, strict=True
        ):
            x, own = layer.step(
                x, places, own, seen[:, None], looked_at, memory_mask[:, None, None]
            )
            new_cache.append(own)
        if self.config.norm == "pre":
            x = self.decoder_norm(x)
        return self._logits(x), tuple(new_cache)

    def _states(
        self,
        encoded: Float[Array, "B S D"],
        source_segments: Int[Array, "B S"],
        target_inputs: Int[Array, "B T"],
        target_segments: Int[Array, "B T"],
        target_positions: Int[Array, "B T"],
        deterministic: bool,
    ) -> Float[Array, "B T D"]:
        """The decoder stack's output."""
        length = target_inputs.shape[1]
        x = self._embed(self.target_table, target_inputs)
        x = x + self._position(target_positions, length, "target")
        x = self.target_dropout(x, deterministic)
        mask = segment_mask(target_segments, target_segments) & causal_mask(length)
        memory_mask = segment_mask(target_segments, source_segments)
        for layer, memory in zip(
            self.decoder_layers, self.memory(encoded), strict=True
        ):
            x = layer(x, mask, memory, memory_mask, deterministic)
        return self.decoder_norm(x) if self.config.norm == "pre" else x

    def _embed(
        self, table: Float[Array, "V D"], tokens: Int[Array, "B T"]
    ) -> Float[Array, "B T D"]:
        """Rows of the table times sqrt(d_model), here only (section 3.4)."""
        return table[tokens] * self.config.d_model**0.5

    def _position(
        self, positions: Int[Array, "B T"], length: int, side: str
    ) -> Float[Array, "B T D"]:
        """Encodings of `positions`, all of them below `length`."""
        c = self.config
        if c.positions == "sinusoidal":
            return sinusoids(jnp.arange(length), c.d_model)[positions]
        if length > c.max_positions:
            raise ValueError(f"{length} positions, but the table has {c.max_positions}")
        return getattr(self, f"{side}_positions")[positions]

    def _logits(self, x: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """X E^T, unscaled and in float32; a surplus row's logit is the least float."""
        logits = product("btd,vd->btv", x, self.output_table, self.config.dtype)
        if self.num_rows == self.vocab_size:
            return logits
        real = jnp.arange(self.num_rows) < self.vocab_size
        return jnp.where(real, logits, jnp.finfo(jnp.float32).min / 2)
