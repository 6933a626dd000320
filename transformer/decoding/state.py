"""What a search is in the middle of: sentences, their hypotheses, rows of both."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from transformer.config import ModelConfig
from transformer.model import KeyValues, Transformer


class SpecialIds(NamedTuple):
    """The vocabulary's ids that a search must know."""

    pad: int
    bos: int
    eos: int


class Network(NamedTuple):
    """What the parameters belong to: one model, or several whose mean is searched."""

    models: tuple[ModelConfig, ...]
    vocab_size: int
    ids: SpecialIds

    @property
    def max_positions(self) -> int | None:
        """Length of the shortest learned table of positions, if there is one."""
        learned = (m for m in self.models if m.positions == "learned")
        return min((m.max_positions for m in learned), default=None)


class Rules(NamedTuple):
    """How to search: the keys of the configuration that the compiled code knows.

    With a `temperature` there is one hypothesis, and its pieces are drawn.
    """

    beam: int
    nbest: int = 1
    min_length: int = 0
    no_repeat_ngram: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    @property
    def bar_pieces(self) -> bool:
        """Whether what may come next depends on the hypothesis, or on luck."""
        return bool(self.min_length or self.no_repeat_ngram or self.temperature)


class Sentences(NamedTuple):
    """Encoded sources, with what each one's output must keep to.

    `limits` are the longest outputs, EOS counted. `prefixes` are the first pieces of
    each output, then padding; no columns where there are none. `keys` are the
    sentences' own random streams.
    """

    memory: tuple[tuple[KeyValues, ...], ...]
    real: Bool[Array, "B S"]
    limits: Int[Array, "B"]
    prefixes: Int[Array, "B P"]
    keys: UInt32[Array, "B 2"]


class Hypotheses(NamedTuple):
    """Token sequences of B sentences, the best first; an empty slot has -inf.

    L is the number of places in a sentence's cache: no hypothesis can be longer.
    `lengths` count the EOS of a finished hypothesis; after it there is padding. Scores
    are log-probabilities (in nats) divided by the length penalty.
    """

    tokens: Int[Array, "B K L"]
    log_probs: Float[Array, "B K"]
    scores: Float[Array, "B K"]
    lengths: Int[Array, "B K"]


class State(NamedTuple):
    """Rows of a search between two steps.

    `steps` are the tokens in a row's open hypotheses. A row that is `done` waits for
    the next sentence, or for more room; it is `settled` if nothing longer could have
    changed its result. The pasts of a row's open hypotheses are a tree, and each of its
    tokens has a place in the caches: `past` says which places are a hypothesis's own.
    """

    sentences: Sentences
    steps: Int[Array, "B"]
    open: Hypotheses
    ended: Hypotheses
    done: Bool[Array, "B"]
    settled: Bool[Array, "B"]
    past: Bool[Array, "B K P"]
    caches: tuple[tuple[KeyValues, ...], ...]


def idle_state(
    network: Network, rows: int, beam: int, places: int, width: int, prefix: int
) -> State:
    """Rows without sentences: for sources of `width` and pasts of `places` tokens.

    NumPy arrays, so that building them compiles nothing.
    """

    def full(value: Any, *shape: int, dtype: Any = np.int32) -> Any:
        return np.full((rows, *shape), value, dtype)

    def nothing() -> Hypotheses:
        return Hypotheses(
            tokens=full(network.ids.pad, beam, places),
            log_probs=full(-np.inf, beam, dtype=np.float32),
            scores=full(-np.inf, beam, dtype=np.float32),
            lengths=full(0, beam),
        )

    return State(
        sentences=Sentences(
            memory=_empty(network, rows, width),
            real=full(False, width, dtype=bool),
            limits=full(0),
            prefixes=full(network.ids.pad, prefix),
            keys=full(0, 2, dtype=np.uint32),
        ),
        steps=full(0),
        open=nothing(),
        ended=nothing(),
        done=full(True, dtype=bool),
        settled=full(True, dtype=bool),
        past=full(False, beam, places, dtype=bool),
        caches=_empty(network, rows, places),
    )


def _empty(network: Network, rows: int, length: int) -> Any:
    """Zeros as keys and values of so many tokens."""
    shapes = _cache_shapes(network, rows, length)
    return jax.tree.map(lambda array: np.zeros(array.shape, array.dtype), shapes)


@functools.cache
def _cache_shapes(network: Network, rows: int, length: int) -> Any:
    """Shapes of keys and values; finding them takes a while."""
    models = [Transformer(c, network.vocab_size) for c in network.models]
    return jax.eval_shape(lambda: tuple(m.empty_cache(rows, length) for m in models))


def first_state(sentences: Sentences, beam: int, network: Network) -> State:
    """Sentences that begin: with one open hypothesis, the empty one, in slot 0."""
    (rows, width), (_, prefix) = sentences.real.shape, sentences.prefixes.shape
    idle = idle_state(network, rows, beam, 0, width, prefix)
    log_probs: Any = np.array(idle.open.log_probs)
    log_probs[:, 0] = 0
    none_allowed = sentences.limits <= 0
    return idle._replace(
        sentences=sentences,
        open=idle.open._replace(log_probs=log_probs),
        done=none_allowed,
        settled=none_allowed,
    )


def rows_alone(state: State, chosen: Sequence[int]) -> list[State]:
    """Copies of some rows, each by itself, to go on where there is room for them."""
    arrays = jax.device_get(state)._replace(done=np.zeros(state.done.shape, bool))

    def alone(row: int) -> State:
        return jax.tree.map(lambda array: array[row].copy(), arrays)

    return [alone(row) for row in chosen]


def rows_together(alone: Sequence[State], rows: int) -> State:
    """Such rows as the first of so many; the others are of no use."""

    def together(*arrays: Any) -> Any:
        new = np.zeros((rows, *arrays[0].shape), arrays[0].dtype)
        new[: len(arrays)] = arrays
        return new

    return jax.tree.map(together, *alone)


def has_room(past: Any) -> Any:
    """Whether each row has free places for one more token of each hypothesis."""
    return (~past.any(axis=1)).sum(axis=1) >= past.shape[1]
