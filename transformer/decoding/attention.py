"""What the model looks at while it translates a sentence."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.config import ModelConfig
from transformer.decoding.scoring import forced_outputs
from transformer.decoding.state import Network
from transformer.decoding.translator import Translator
from transformer.errors import UserError


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
    source = translator.source_ids(line)
    target = list(translation.tokens)
    rows = (np.asarray(ids, np.int32)[None] for ids in (source, target))
    sown = _weights(
        translator.config.model, translator.params, *rows, translator.network()
    )
    weights = {kind: np.asarray(array)[:, 0] for kind, array in sown.items()}
    return SentenceAttention(
        translation.text,
        vocabulary.pieces(source),
        vocabulary.pieces(target),
        **weights,
    )


@functools.partial(jax.jit, static_argnums=(0, 4))
def _weights(
    config: ModelConfig,
    params: dict[str, Any],
    source: Int[Array, "1 S"],
    target: Int[Array, "1 T"],
    network: Network,
) -> dict[str, Array]:
    """The attention that the model sows on the way to its logits."""
    return forced_outputs(config, params, source, target, network)[1]
