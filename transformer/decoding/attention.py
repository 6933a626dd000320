"""What the model looks at while it translates a sentence."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from transformer.config import ModelConfig
from transformer.data import Batch
from transformer.decoding.translator import Translator
from transformer.errors import UserError
from transformer.model import Transformer, stacked_attention


class SentenceAttention(NamedTuple):
    """Attention weights of one translation; each row of each matrix sums to 1.

    Rows are positions that look, columns those looked at. `target` are the generated
    pieces with EOS: row t of `decoder_cross` is where the model looked to produce it.
    `decoder_self` has the decoder's inputs on both sides: bos, then `target` but the
    last.
    """

    text: str
    source: list[str]
    target: list[str]
    encoder: Float[np.ndarray, "N H S S"]
    decoder_self: Float[np.ndarray, "N H T T"]
    decoder_cross: Float[np.ndarray, "N H T S"]


def sentence_attention(translator: Translator, line: str) -> SentenceAttention:
    """Translates a line and hands out the weights of every layer and head.

    Raises:
      UserError: the line is blank.
    """
    vocabulary = translator.vocabulary
    (translation,) = translator.translate([line])
    if not translation.tokens:
        raise UserError("a blank line has no attention")
    source = [*vocabulary.encode(line), vocabulary.eos_id]
    source = source[: translator.config.decode.max_source_tokens]
    target = list(translation.tokens)
    inputs = [vocabulary.bos_id, *target[:-1]]
    sown = jax.device_get(
        _weights(
            translator.config.model,
            len(vocabulary),
            translator.params,
            _one_pair(source, inputs, target),
        )
    )
    weights = {kind: array[:, 0] for kind, array in sown.items()}
    return SentenceAttention(
        translation.text,
        vocabulary.pieces(source),
        vocabulary.pieces(target),
        **weights,
    )


def _one_pair(source: list[int], inputs: list[int], targets: list[int]) -> Batch:
    """A batch of one row without padding."""

    def row(values: Any) -> np.ndarray:
        return np.asarray(values, np.int32)[None]

    return Batch(
        source=row(source),
        source_segments=row([1] * len(source)),
        source_positions=row(range(len(source))),
        target_inputs=row(inputs),
        targets=row(targets),
        target_segments=row([1] * len(inputs)),
        target_positions=row(range(len(inputs))),
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _weights(
    config: ModelConfig, vocab_size: int, params: dict[str, Any], batch: Batch
) -> dict[str, Array]:
    """The attention that the model sows on the way to its logits."""
    _, sown = Transformer(config, vocab_size).apply(
        {"params": params},
        batch.source,
        batch.source_segments,
        batch.source_positions,
        batch.target_inputs,
        batch.target_segments,
        batch.target_positions,
        deterministic=True,
        mutable=["attention"],
    )
    return stacked_attention(sown["attention"])
