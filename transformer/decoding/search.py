"""Beam search (section 6.1) with the length penalty of Wu et al. (2016).

Each sentence has `beam` open hypotheses, ranked by log-probability, and `beam` finished
ones, ranked by score = log P(Y) / lp(Y). A step extends the open ones by every piece
and looks at the best 2 * beam extensions, so that `beam` open ones remain even if half
of them end. A sentence stops when no open hypothesis can beat its best finished one,
and from then on nothing of it changes, whatever its neighbours do.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import ModelConfig
from transformer.model import KeyValues, Transformer


class SpecialIds(NamedTuple):
    """The vocabulary's ids that a search must know."""

    pad: int
    bos: int
    eos: int


class SearchResult(NamedTuple):
    """The best hypothesis of each sentence.

    `lengths` counts the EOS of a finished hypothesis; after it there is padding. Scores
    are log-probabilities (in nats) divided by the length penalty.
    """

    tokens: Int[Array, "B L"]
    lengths: Int[Array, "B"]
    log_probs: Float[Array, "B"]
    scores: Float[Array, "B"]
    finished: Bool[Array, "B"]
    num_steps: Int[Array, ""]


class _Hypotheses(NamedTuple):
    """Token sequences of B sentences, the best first; an empty slot has -inf."""

    tokens: Int[Array, "B K L"]
    log_probs: Float[Array, "B K"]
    scores: Float[Array, "B K"]
    lengths: Int[Array, "B K"]


class _State(NamedTuple):
    """What a step of the search changes."""

    step: Int[Array, ""]
    open: _Hypotheses
    ended: _Hypotheses
    stopped: Bool[Array, "B"]
    cache: tuple[KeyValues, ...]


def length_penalty(length: Array | int, alpha: Array | float) -> Float[Array, "..."]:
    """lp(Y) = ((5 + |Y|) / 6)^alpha; |Y| counts EOS. alpha = 0 is no penalty."""
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


@functools.partial(
    jax.jit,
    static_argnames=("config", "vocab_size", "ids", "beam", "length"),
)
def beam_search(
    params: dict[str, Any],
    source: Int[Array, "B S"],
    max_lengths: Int[Array, "B"],
    alpha: Float[Array, ""] | float,
    *,
    config: ModelConfig,
    vocab_size: int,
    ids: SpecialIds,
    beam: int,
    length: int,
) -> SearchResult:
    """The best translation of each row of `source` (EOS at its end, then padding).

    Args:
      params: the model's parameters.
      source: piece ids.
      max_lengths: longest output of each sentence, EOS counted, at most `length`; 0 for
        a row that is not to be translated.
      alpha: exponent of the length penalty, 0 or more.
      config: the model.
      vocab_size: number of pieces.
      ids: the special ones among them; pad and bos are never produced.
      beam: open hypotheses; 1 is greedy search by definition and ends at its first EOS.
      length: room for output tokens.
    """
    model = Transformer(config, vocab_size)
    real = source != ids.pad
    positions = jnp.broadcast_to(jnp.arange(source.shape[1]), source.shape)
    segments = real.astype(jnp.int32)
    variables = {"params": params}
    encoded = model.apply(
        variables, source, segments, positions, deterministic=True, method="encode"
    )
    memory = model.apply(variables, encoded, method="memory")
    alpha = jnp.asarray(alpha, jnp.float32)

    def advance(state: _State) -> _State:
        previous = jnp.where(
            state.step == 0, ids.bos, state.open.tokens[:, :, state.step - 1]
        )
        outputs: Any = model.apply(
            variables,
            previous,
            state.step,
            state.cache,
            memory,
            real,
            method="decode_step",
        )
        logits, cache = outputs
        candidates, parents = _extend(state, jax.nn.log_softmax(logits), ids)
        ends = candidates.tokens[:, :, state.step] == ids.eos
        opened, kept = _open(candidates, ends, beam)
        ended = _end(state.ended, candidates, ends, alpha, beam)
        frozen = state._replace(step=state.step + 1)
        new = frozen._replace(open=opened, ended=ended)
        new = _keep_stopped(state, new)
        chosen = jnp.take_along_axis(parents, kept, axis=1)
        new = new._replace(cache=_follow(cache, chosen, beam))
        return new._replace(stopped=_stopped(new, max_lengths, alpha))

    state = _initial(model, source.shape[0], beam, length, ids)
    state = state._replace(stopped=max_lengths <= 0)
    state = jax.lax.while_loop(
        lambda s: ~s.stopped.all() & (s.step < length), advance, state
    )
    return _best(state, alpha)


def _initial(
    model: Transformer, batch: int, beam: int, length: int, ids: SpecialIds
) -> _State:
    """One open hypothesis, the empty one, in slot 0 of each sentence."""
    nothing = _Hypotheses(
        tokens=jnp.full((batch, beam, length), ids.pad, jnp.int32),
        log_probs=jnp.full((batch, beam), -jnp.inf),
        scores=jnp.full((batch, beam), -jnp.inf),
        lengths=jnp.zeros((batch, beam), jnp.int32),
    )
    first = jnp.where(jnp.arange(beam) == 0, 0.0, -jnp.inf)
    return _State(
        step=jnp.zeros((), jnp.int32),
        open=nothing._replace(log_probs=jnp.broadcast_to(first, (batch, beam))),
        ended=nothing,
        stopped=jnp.zeros(batch, bool),
        cache=model.empty_cache(batch, beam, length),
    )


def _extend(
    state: _State, log_probs: Float[Array, "B K V"], ids: SpecialIds
) -> tuple[_Hypotheses, Int[Array, "B C"]]:
    """The best extensions by one piece, falling, and the slot that each comes from."""
    batch, beam, pieces = log_probs.shape
    # Two per slot, so that `beam` stay open if all others end; greedy search has one.
    wanted = 2 * beam if beam > 1 else 1
    barred = jnp.zeros(pieces, bool).at[jnp.array([ids.pad, ids.bos])].set(True)
    totals = state.open.log_probs[:, :, None] + jnp.where(barred, -jnp.inf, log_probs)
    # The best of all are among the best of each slot: two small searches, not one big.
    per_slot = min(wanted, pieces)
    best, piece = jax.lax.top_k(totals, per_slot)
    best, index = jax.lax.top_k(best.reshape(batch, -1), min(wanted, beam * per_slot))
    piece = jnp.take_along_axis(piece.reshape(batch, -1), index, axis=1)
    parents = index // per_slot
    tokens = jnp.take_along_axis(state.open.tokens, parents[:, :, None], axis=1)
    candidates = _Hypotheses(
        tokens=tokens.at[:, :, state.step].set(piece),
        log_probs=best,
        scores=best,
        lengths=jnp.full(best.shape, state.step + 1),
    )
    return candidates, parents


def _open(
    candidates: _Hypotheses, ends: Bool[Array, "B C"], beam: int
) -> tuple[_Hypotheses, Int[Array, "B K"]]:
    """The best `beam` extensions that go on, and their places among the candidates."""
    log_probs = jnp.where(ends, -jnp.inf, candidates.log_probs)
    return _select(candidates._replace(log_probs=log_probs), log_probs, beam)


def _end(
    ended: _Hypotheses,
    candidates: _Hypotheses,
    ends: Bool[Array, "B C"],
    alpha: Float[Array, ""],
    beam: int,
) -> _Hypotheses:
    """The best `beam` of the finished hypotheses and of those that end now."""
    scores = candidates.log_probs / length_penalty(candidates.lengths, alpha)
    new = candidates._replace(scores=jnp.where(ends, scores, -jnp.inf))
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), ended, new)
    return _select(both, both.scores, beam)[0]


def _select(
    hypotheses: _Hypotheses, values: Float[Array, "B C"], beam: int
) -> tuple[_Hypotheses, Int[Array, "B K"]]:
    """The `beam` hypotheses with the largest values, and their places."""
    if values.shape[1] < beam:  # a beam wider than the vocabulary, at the first step
        missing = beam - values.shape[1]
        values = jnp.pad(values, ((0, 0), (0, missing)), constant_values=-jnp.inf)
    _, index = jax.lax.top_k(values, beam)
    usable = jnp.take_along_axis(values, index, axis=1) > -jnp.inf
    index = jnp.minimum(index, hypotheses.log_probs.shape[1] - 1)

    def pick(array: Array) -> Array:
        shaped = index.reshape(*index.shape, *(1,) * (array.ndim - 2))
        return jnp.take_along_axis(array, shaped, axis=1)

    chosen = jax.tree.map(pick, hypotheses)
    return chosen._replace(
        log_probs=jnp.where(usable, chosen.log_probs, -jnp.inf),
        scores=jnp.where(usable, chosen.scores, -jnp.inf),
    ), index


def _keep_stopped(old: _State, new: _State) -> _State:
    """A sentence that has stopped keeps its hypotheses."""

    def keep(before: Array, after: Array) -> Array:
        stopped = old.stopped.reshape(-1, *(1,) * (after.ndim - 1))
        return jnp.where(stopped, before, after)

    return new._replace(
        open=jax.tree.map(keep, old.open, new.open),
        ended=jax.tree.map(keep, old.ended, new.ended),
    )


def _follow(
    cache: tuple[KeyValues, ...], parents: Int[Array, "B K"], beam: int
) -> tuple[KeyValues, ...]:
    """Each slot takes the keys and values of the slot that it comes from."""
    if beam == 1:
        return cache
    batch = parents.shape[0]
    rows = (jnp.arange(batch)[:, None] * beam + parents).reshape(-1)
    return jax.tree.map(lambda array: array[rows], cache)


def _stopped(
    state: _State, max_lengths: Int[Array, "B"], alpha: Float[Array, ""]
) -> Bool[Array, "B"]:
    """Whether no open hypothesis can still win.

    A log-probability only falls as a hypothesis grows, and the penalty divides it by
    most at the longest length: that quotient is the best score still possible.
    """
    possible = state.open.log_probs.max(axis=1) / length_penalty(max_lengths, alpha)
    return (
        state.stopped
        | (possible <= state.ended.scores.max(axis=1))
        | (state.step >= max_lengths)
    )


def _best(state: _State, alpha: Float[Array, ""]) -> SearchResult:
    """The best finished hypothesis, else the best open one."""
    finished = state.ended.scores[:, 0] > -jnp.inf
    scores = state.open.log_probs / length_penalty(state.open.lengths, alpha)
    fallback = state.open._replace(scores=scores)

    def first(ended: Array, opened: Array) -> Array:
        chosen = finished.reshape(-1, *(1,) * (ended.ndim - 2))
        return jnp.where(chosen, ended[:, 0], opened[:, 0])

    best = jax.tree.map(first, state.ended, fallback)
    return SearchResult(
        best.tokens, best.lengths, best.log_probs, best.scores, finished, state.step
    )
