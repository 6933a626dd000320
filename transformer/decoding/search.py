"""Beam search (section 6.1) with the length penalty of Wu et al. (2016), and sampling.

Each sentence has `beam` open hypotheses, ranked by log-probability, and `beam` finished
ones, ranked by score = log P(Y) / lp(Y). A step extends the open ones by every piece
and looks at the best 2 * beam extensions, so that `beam` open ones remain even if half
of them end. A sentence stops when no open hypothesis can come among its `nbest` best,
and from then on nothing of it changes, whatever its neighbours do.

A state has rows, and each row works on a sentence of its own at that sentence's own
step. `search` goes on until enough rows are done, so that their sentences can leave and
`admit` can put others in their places (`transformer.decoding.pool`). What the open
hypotheses of a sentence have in common is kept once: their pasts are a tree, each of
its tokens has a place in the sentence's cache, and masks say which places are a
hypothesis's own past. So reordering beams moves nothing, and a place is free when no
hypothesis sees it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.decoding.candidates import allowed_pieces, largest, sample
from transformer.decoding.state import (
    Hypotheses,
    Network,
    Rules,
    SpecialIds,
    State,
    has_room,
)
from transformer.model import KeyValues, Transformer


def length_penalty(length: Array | int, alpha: Array | float) -> Float[Array, "..."]:
    """lp(Y) = ((5 + |Y|) / 6)^alpha; |Y| counts EOS. alpha = 0 is no penalty."""
    return ((5.0 + jnp.asarray(length, jnp.float32)) / 6.0) ** alpha


@functools.partial(jax.jit, static_argnames=("network", "room"))
def encode(
    params: tuple[dict[str, Any], ...],
    source: Int[Array, "B S"],
    *,
    network: Network,
    room: int,
) -> tuple[tuple[tuple[KeyValues, ...], ...], Bool[Array, "B R"]]:
    """Runs the encoders over `source` (EOS at each end, then padding).

    The keys and values of every decoder layer are projected here, once per sentence,
    and get `room` for so many tokens. Also says which of their places hold one.
    """
    real = source != network.ids.pad
    positions = jnp.broadcast_to(jnp.arange(source.shape[1]), source.shape)
    memory = []
    for config, values in zip(network.models, params, strict=True):
        model = Transformer(config, network.vocab_size)
        bound = model.bind({"params": values})
        encoded = bound.encode(source, real.astype(jnp.int32), positions, True)
        memory.append(bound.memory(encoded))
    more, nothing = (0, room - source.shape[1]), (0, 0)

    def roomy(layer: KeyValues) -> KeyValues:
        return KeyValues(
            jnp.pad(layer.keys, (nothing, nothing, nothing, more)),
            jnp.pad(layer.values, (nothing, nothing, more, nothing)),
        )

    memories = tuple(tuple(map(roomy, layers)) for layers in memory)
    return memories, jnp.pad(real, (nothing, more))


@functools.partial(jax.jit, static_argnames="pad", donate_argnames="state")
def admit(state: State, arrivals: State, places: Int[Array, "B"], *, pad: int) -> State:
    """Lets rows in: row b becomes number `places[b]` of `arrivals`, or stays for -1.

    Arrivals may be narrower: they get the room that the rows of `state` have.
    """

    def put(old: Array, new: Array) -> Array:
        room = [(0, b - a) for a, b in zip(new.shape[1:], old.shape[1:], strict=True)]
        fill = pad if jnp.issubdtype(old.dtype, jnp.signedinteger) else 0
        wide = jnp.pad(new, [(0, 0), *room], constant_values=fill)
        return _where(places >= 0, wide[jnp.maximum(places, 0)], old)

    # What a row's caches hold need not go before others come: no mask sees it.
    bare = jax.tree.map(put, state._replace(caches=()), arrivals._replace(caches=()))
    caches = state.caches
    if arrivals.past.shape[2]:
        caches = jax.tree.map(put, caches, arrivals.caches)
    return bare._replace(caches=caches, done=bare.done | ~has_room(bare.past))


@functools.partial(
    jax.jit, static_argnames=("network", "rules"), donate_argnames="state"
)
def search(
    params: tuple[dict[str, Any], ...],
    state: State,
    enough: Int[Array, ""],
    alpha: Float[Array, ""],
    *,
    network: Network,
    rules: Rules,
) -> State:
    """Searches until `enough` rows are done."""

    def go_on(state: State) -> Bool[Array, ""]:
        return state.done.sum() < enough

    def step(state: State) -> State:
        logits, caches, past = _feed(params, state, network)
        new, parents = _extend(state, logits, alpha, network.ids, rules)
        past = jnp.take_along_axis(past, parents[:, :, None], axis=1)
        past &= (new.open.log_probs > -jnp.inf)[:, :, None]
        new = _keep_done(state, new._replace(past=past))
        return _stop(new._replace(caches=caches), alpha, rules.nbest)

    return jax.lax.while_loop(go_on, step, state)


def _where(rows: Bool[Array, "B"], yes: Any, no: Any) -> Any:
    """Trees of arrays whose rows come from `yes` or from `no`."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(rows.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)


def _feed(
    params: tuple[dict[str, Any], ...], state: State, network: Network
) -> tuple[Float[Array, "B K V"], Any, Bool[Array, "B K P"]]:
    """Logits after each open hypothesis: of the mean probability, if models are many.

    Also the caches and `past` with the newest tokens in them.
    """
    newest = jnp.maximum(state.steps - 1, 0)[:, None, None]
    tokens = jnp.take_along_axis(state.open.tokens, newest, axis=2)[:, :, 0]
    tokens = jnp.where(state.steps[:, None] == 0, network.ids.bos, tokens)
    # The n-th hypothesis takes the n-th free place: behind all that come before it.
    _, beam, length = state.past.shape
    up_to_here = jnp.cumsum(~state.past.any(axis=1), axis=1)
    places = (up_to_here[:, None] <= jnp.arange(beam)[:, None]).sum(axis=2)
    past = state.past | (jnp.arange(length) == places[:, :, None])
    outputs = [
        Transformer(config, network.vocab_size).apply(
            {"params": values},
            tokens,
            state.steps,
            places,
            cache,
            past,
            memory,
            state.sentences.real,
            method="decode_step",
        )
        for config, values, cache, memory in zip(
            network.models, params, state.caches, state.sentences.memory, strict=True
        )
    ]
    caches = tuple(cache for _, cache in outputs)
    if len(outputs) == 1:
        return outputs[0][0][..., : network.vocab_size], caches, past
    log_probs = jnp.stack(
        [jax.nn.log_softmax(logits[..., : network.vocab_size]) for logits, _ in outputs]
    )
    return jax.nn.logsumexp(log_probs, axis=0), caches, past


def _extend(
    state: State,
    logits: Float[Array, "B K V"],
    alpha: Float[Array, ""],
    ids: SpecialIds,
    rules: Rules,
) -> tuple[State, Int[Array, "B K"]]:
    """Hypotheses one piece longer, and the slots that the open ones come from."""
    beam = logits.shape[1]
    best, pieces, parents = _candidates(state, logits, ids, rules)
    tokens = jnp.take_along_axis(state.open.tokens, parents[:, :, None], axis=1)
    is_new = jnp.arange(tokens.shape[2]) == state.steps[:, None, None]
    lengths = jnp.broadcast_to(state.steps[:, None] + 1, best.shape)
    longer = Hypotheses(
        tokens=jnp.where(is_new, pieces[:, :, None], tokens),
        log_probs=best,
        scores=best / length_penalty(lengths, alpha),
        lengths=lengths,
    )
    ends = pieces == ids.eos
    ending = longer._replace(scores=jnp.where(ends, longer.scores, -jnp.inf))
    both = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b], axis=1), state.ended, ending
    )
    ended, _ = _select(both, both.scores, beam)
    opened, kept = _select(longer, jnp.where(ends, -jnp.inf, best), beam)
    new = state._replace(steps=state.steps + 1, open=opened, ended=ended)
    return new, jnp.take_along_axis(parents, kept, axis=1)


def _candidates(
    state: State, logits: Float[Array, "B K V"], ids: SpecialIds, rules: Rules
) -> tuple[Float[Array, "B C"], Int[Array, "B C"], Int[Array, "B C"]]:
    """The best extensions by one piece, falling: log-probability, piece, slot."""
    rows, beam, num_pieces = logits.shape
    prefixes = state.sentences.prefixes
    forced = None
    if prefixes.shape[1]:
        forced = jnp.take_along_axis(
            prefixes, state.steps[:, None], axis=1, mode="fill", fill_value=ids.pad
        )[:, 0]
        forced = jnp.where(forced == ids.pad, -1, forced)
    never = (ids.pad, ids.bos)
    # The log-probabilities are the model's: what is barred keeps its share of them.
    log_total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    open_to = logits
    if forced is not None or rules.bar_pieces:
        allowed = allowed_pieces(
            state.open.tokens,
            state.steps,
            forced,
            num_pieces,
            never=never,
            eos=ids.eos,
            min_length=rules.min_length,
            no_repeat_ngram=rules.no_repeat_ngram,
        )
        open_to = jnp.where(allowed, logits, -jnp.inf)
    # Two per slot, so that `beam` stay open if all others end; greedy has one.
    wanted = 2 * beam if beam > 1 else 1
    if rules.temperature:
        drawn = sample(
            open_to[:, 0],
            state.sentences.keys,
            state.steps,
            rules.temperature,
            rules.top_k,
            rules.top_p,
        )
        piece = drawn[:, None, None]
        best = jnp.take_along_axis(logits, piece, axis=2)
    else:
        # What is never output is taken from among the best: quicker than from all.
        best, piece = largest(open_to, min(wanted + len(never), num_pieces))
        barred = (piece[..., None] == jnp.asarray(never)).any(axis=-1)
        best = jnp.where(barred, -jnp.inf, best)
    totals = state.open.log_probs[:, :, None] + (best - log_total)
    per_slot = totals.shape[2]
    best, index = jax.lax.top_k(totals.reshape(rows, -1), wanted)
    piece = jnp.take_along_axis(piece.reshape(rows, -1), index, axis=1)
    return best, piece, index // per_slot


def _select(
    hypotheses: Hypotheses, values: Float[Array, "B C"], beam: int
) -> tuple[Hypotheses, Int[Array, "B K"]]:
    """The `beam` hypotheses with the largest values, and their places."""
    _, index = jax.lax.top_k(values, beam)
    usable = jnp.take_along_axis(values, index, axis=1) > -jnp.inf

    def pick(array: Array) -> Array:
        shaped = index.reshape(*index.shape, *(1,) * (array.ndim - 2))
        return jnp.take_along_axis(array, shaped, axis=1)

    chosen = jax.tree.map(pick, hypotheses)
    return chosen._replace(
        log_probs=jnp.where(usable, chosen.log_probs, -jnp.inf),
        scores=jnp.where(usable, chosen.scores, -jnp.inf),
    ), index


def _keep_done(old: State, new: State) -> State:
    """A row that is done keeps its hypotheses: it may yet go on where it has room."""

    def kept(before: Any, after: Any) -> Any:
        return _where(old.done, before, after)

    return new._replace(
        steps=kept(old.steps, new.steps),
        open=kept(old.open, new.open),
        ended=kept(old.ended, new.ended),
        past=kept(old.past, new.past),
    )


def _stop(state: State, alpha: Float[Array, ""], nbest: int) -> State:
    """Ends the rows whose results are found, or have no room to grow.

    A log-probability only falls as a hypothesis grows, and the penalty divides it by
    most at the longest length: that quotient is the best score still possible.
    """
    limits = state.sentences.limits
    possible = state.open.log_probs.max(axis=1) / length_penalty(limits, alpha)
    found = possible <= state.ended.scores[:, nbest - 1]
    settled = state.settled | ~state.done & (found | (state.steps >= limits))
    done = state.done | settled | ~has_room(state.past)
    return state._replace(settled=settled, done=done)
