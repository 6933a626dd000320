"""What a search is in the middle of: sentences, their hypotheses, rows of both."""

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
    the next sentence; it is `settled` if nothing longer could have changed its result.
    `seen` holds, for each open hypothesis and slot of the ring, which beam's keys and
    values are its own there, or -1.
    """

    sentences: Sentences
    steps: Int[Array, "B"]
    open: Hypotheses
    ended: Hypotheses
    done: Bool[Array, "B"]
    settled: Bool[Array, "B"]
    slot: Int[Array, ""]
    seen: Int[Array, "B K L"]
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
    sentences: Sentences, rows: int, beam: int, length: int, network: Network
) -> State:
    """Rows without sentences, for `sentences` like these and outputs up to `length`.

    NumPy arrays: all that matters of them is that every row is done.
    """

    def build() -> State:
        nothing = no_hypotheses(rows, beam, length, network.ids.pad)
        number = jnp.zeros(rows, jnp.int32)
        return State(
            sentences=jax.tree.map(
                lambda a: jnp.zeros((rows, *a.shape[1:]), a.dtype), sentences
            ),
            steps=number,
            open=nothing,
            ended=nothing,
            done=number > 0,
            settled=number > 0,
            slot=jnp.zeros((), jnp.int32),
            seen=jnp.zeros((rows, beam, length), jnp.int32),
            caches=tuple(
                Transformer(c, network.vocab_size).empty_cache(rows, beam, length)
                for c in network.models
            ),
        )

    state = jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), jax.eval_shape(build))
    return state._replace(done=np.ones(rows, bool))


def moved_rows(
    state: State, chosen: list[int], rows: int, length: int, pad: int
) -> State:
    """The `chosen` rows of a state as the first of `rows`, with room for `length`.

    The other rows are idle. Works on NumPy arrays, and so compiles nothing.
    """
    grows = length > state.seen.shape[2]

    def fit(array: Any, axis: int = 0, ring: int = 0, fill: int = 0) -> Any:
        """`axis` gets the new length; `ring` places of it belong to a slot."""
        array = array[chosen]
        if grows and ring:  # the oldest slot comes first, and after the last is room
            array = np.roll(array, -ring * int(state.slot), axis)
        shape = [rows, *array.shape[1:]]
        if axis:
            shape[axis] = length * max(ring, 1)
        new = np.full(shape, fill, array.dtype)
        new[tuple(map(slice, array.shape))] = array
        return new

    def key_values(models: Any, ring: int) -> Any:
        return tuple(
            tuple(KeyValues(fit(k, 3, ring), fit(v, 2, ring)) for k, v in layers)
            for layers in models
        )

    def hypotheses(old: Hypotheses) -> Hypotheses:
        tokens, *others = old
        return Hypotheses(fit(tokens, 2, fill=pad), *map(fit, others))

    old = state.sentences
    idle: Any = np.arange(rows) >= len(chosen)
    slot: Any = np.int32(state.seen.shape[2] if grows else state.slot)
    has_prefixes = old.prefixes.shape[1] > 0
    return State(
        sentences=Sentences(
            memory=key_values(old.memory, 0),
            real=fit(old.real, 1),
            limits=fit(old.limits),
            prefixes=fit(old.prefixes, int(has_prefixes), fill=pad),
            keys=fit(old.keys),
        ),
        steps=fit(state.steps),
        open=hypotheses(state.open),
        ended=hypotheses(state.ended),
        done=idle,
        settled=idle,
        slot=slot,
        seen=fit(state.seen, 2, ring=1, fill=-1),
        caches=key_values(state.caches, state.seen.shape[1]),
    )
