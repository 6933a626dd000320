"""What a search is in the middle of: sentences, their hypotheses, rows of both."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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


def no_hypotheses(rows: int, beam: int, length: int, pad: int) -> Hypotheses:
    """Only empty slots."""
    return Hypotheses(
        tokens=jnp.full((rows, beam, length), pad, jnp.int32),
        log_probs=jnp.full((rows, beam), -jnp.inf),
        scores=jnp.full((rows, beam), -jnp.inf),
        lengths=jnp.zeros((rows, beam), jnp.int32),
    )


def idle_state(
    network: Network, rows: int, beam: int, places: int, width: int, prefix: int
) -> State:
    """Rows without sentences, for sources as wide as this and pasts of `places` tokens.

    NumPy arrays: all that matters of them is that every row is done.
    """

    def build() -> State:
        def key_values(length: int) -> tuple[tuple[KeyValues, ...], ...]:
            models = (Transformer(c, network.vocab_size) for c in network.models)
            return tuple(model.empty_cache(rows, length) for model in models)

        nothing = no_hypotheses(rows, beam, places, network.ids.pad)
        number = jnp.zeros(rows, jnp.int32)
        return State(
            sentences=Sentences(
                memory=key_values(width),
                real=jnp.zeros((rows, width), bool),
                limits=number,
                prefixes=jnp.zeros((rows, prefix), jnp.int32),
                keys=jnp.zeros((rows, 2), jnp.uint32),
            ),
            steps=number,
            open=nothing,
            ended=nothing,
            done=number > 0,
            settled=number > 0,
            past=jnp.zeros((rows, beam, places), bool),
            caches=key_values(places),
        )

    state = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), jax.eval_shape(build))
    return state._replace(done=np.ones(rows, bool))


def rows_alone(state: State, chosen: Sequence[int]) -> list[State]:
    """Copies of some rows, each by itself, as NumPy arrays."""
    arrays = jax.device_get(state)

    def alone(row: int) -> State:
        return jax.tree.map(lambda array: array[row].copy(), arrays)

    return [alone(row) for row in chosen]


def put_rows(state: State, kept: Sequence[tuple[int, State]], pad: int) -> State:
    """The state with rows, by number, that left others: here is room for them to go on.

    Copies to NumPy arrays and works on them, and so compiles nothing.
    """

    def put(array: Any, one: Any, fill: int = 0) -> None:
        array[row] = fill
        array[(row, *map(slice, one.shape))] = one

    state = jax.tree.map(np.array, jax.device_get(state))
    for row, one in kept:
        jax.tree.map(put, state, one)
        put(state.sentences.prefixes, one.sentences.prefixes, pad)
        put(state.open.tokens, one.open.tokens, pad)
        put(state.ended.tokens, one.ended.tokens, pad)
        state.done[row] = not has_room(state.past[[row]])[0]
    return state


def has_room(past: Any) -> Any:
    """Whether each row has free places for one more token of each hypothesis."""
    return (~past.any(axis=1)).sum(axis=1) >= past.shape[1]
