"""What a model thinks of a given translation, and which words it aligns."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from transformer.config import ModelConfig
from transformer.decoding.shapes import rows_for, width_for
from transformer.decoding.state import Network
from transformer.model import Transformer, stacked_attention

_SLOTS = 1024  # of a batch: all their logits are held at once
_WORD_START = "\u2581"  # begins a piece that begins a word


class Score(NamedTuple):
    """Log-probabilities, in nats, of a given translation's pieces, EOS too if it ends.

    `attention` is that of the decoder to the source: rows are the target's pieces and
    sum to 1. The mean over the heads of the last layer but one, which aligns best
    (Garg et al., 2019), or of the only layer; of an ensemble, that of the first model.
    """

    source: tuple[int, ...]
    tokens: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    attention: Float[np.ndarray, "T S"]

    @property
    def log_prob(self) -> float:
        """Of the whole translation."""
        return math.fsum(self.token_log_probs)

    @property
    def perplexity(self) -> float:
        """Per piece, EOS counted: exp(-log_prob / pieces)."""
        return math.exp(-self.log_prob / len(self.tokens))


def score_pairs(
    network: Network,
    params: tuple[dict[str, Any], ...],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> Iterator[Score]:
    """Scores pairs of sources and targets in order.

    Sources have their EOS, and so have targets unless they were cut off.
    """
    widths: dict[int, list[int]] = {}
    for number, pair in enumerate(pairs):
        width = width_for(max(map(len, pair)), network.max_positions)
        widths.setdefault(width, []).append(number)
    found: dict[int, Score] = {}
    for width, numbers in widths.items():
        rows = rows_for(len(numbers), _SLOTS // width)
        for begin in range(0, len(numbers), rows):
            batch = numbers[begin : begin + rows]
            source, target = np.full((2, rows, width), network.ids.pad, np.int32)
            for row, number in enumerate(batch):
                source[row, : len(pairs[number][0])] = pairs[number][0]
                target[row, : len(pairs[number][1])] = pairs[number][1]
            results = jax.device_get(_forced(params, source, target, network=network))
            for row, number in enumerate(batch):
                found[number] = _score(*pairs[number], *(a[row] for a in results))
    for number in range(len(pairs)):
        yield found.pop(number)


def _score(
    source: Sequence[int],
    target: Sequence[int],
    log_probs: Float[np.ndarray, "T"],
    attention: Float[np.ndarray, "T S"],
) -> Score:
    """One row without its padding."""
    return Score(
        tuple(source),
        tuple(target),
        tuple(log_probs[: len(target)].tolist()),
        attention[: len(target), : len(source)],
    )


@functools.partial(jax.jit, static_argnames="network")
def _forced(
    params: tuple[dict[str, Any], ...],
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    *,
    network: Network,
) -> tuple[Float[Array, "B T"], Float[Array, "B T S"]]:
    """Log-probability of each target piece, and the attention that aligns it."""
    outputs = [
        forced_outputs(config, values, source, target, network)
        for config, values in zip(network.models, params, strict=True)
    ]
    log_probs = [jax.nn.log_softmax(logits) for logits, _ in outputs]
    mean = jax.nn.logsumexp(jnp.stack(log_probs), axis=0) - math.log(len(outputs))
    chosen = jnp.take_along_axis(mean, target[..., None], axis=-1)[..., 0]
    cross = outputs[0][1]["decoder_cross"]
    return chosen, cross[max(len(cross) - 2, 0)].mean(axis=1)


def forced_outputs(
    config: ModelConfig,
    params: dict[str, Any],
    source: Int[Array, "B S"],
    target: Int[Array, "B T"],
    network: Network,
) -> tuple[Float[Array, "B T V"], dict[str, Float[Array, "N B H _ _"]]]:
    """Logits before each target piece, given those before it, and all attention."""

    def places(ids: Int[Array, "B T"]) -> Int[Array, "B T"]:
        return jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)

    pad, bos, _ = network.ids
    inputs = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=bos)
    logits, sown = Transformer(config, network.vocab_size).apply(
        {"params": params},
        source,
        (source != pad).astype(jnp.int32),
        places(source),
        inputs,
        (target != pad).astype(jnp.int32),
        places(target),
        deterministic=True,
        mutable=["attention"],
    )
    return logits[..., : network.vocab_size], stacked_attention(sown["attention"])


def word_alignment(
    source: Sequence[str], target: Sequence[str], attention: Float[np.ndarray, "T S"]
) -> list[tuple[int, int]]:
    """Pairs (source word, target word), from 0: each target word's likeliest.

    Pieces make up words; a source word has the attention of its pieces together, a
    target word the mean of its pieces'. EOS aligns with nothing: the pieces are
    without it, and its row and column, which come last if they are there, are not read.
    """
    source_words, target_words = _words(source), _words(target)
    if not source_words or not target_words:
        return []
    weights = np.asarray(attention)[: len(target_words), : len(source_words)]
    by_source = np.zeros((max(source_words) + 1, len(weights)))
    np.add.at(by_source, source_words, weights.T)
    by_target = np.zeros((max(target_words) + 1, len(by_source)))
    np.add.at(by_target, target_words, by_source.T)
    best = by_target.argmax(axis=1).tolist()
    return [(source_word, target_word) for target_word, source_word in enumerate(best)]


def _words(pieces: Sequence[str]) -> list[int]:
    """The word's number, from 0, of each piece; white space separates words."""
    words: list[int] = []
    number = -1
    for piece in pieces:
        if piece.startswith(_WORD_START) or number < 0:
            number += 1
        words.append(number)
    return words
