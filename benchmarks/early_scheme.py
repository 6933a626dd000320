"""Beam search the way that early JAX code does it, to be measured beside ours.

Batches of similar length, caches as long as the longest output from the start and
reordered with their hypotheses at every step, the source's keys and values repeated for
every beam, and finished sentences that wait for the last of their batch.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.decoding import Translator, length_penalty
from transformer.decoding.shapes import width_for
from transformer.model import Transformer


def scheme(
    translator: Translator, lines: list[str], forced: int, rows: int = 64
) -> Callable[[float], list[list[str]]]:
    """Translates all lines at an alpha; all outputs have `forced` pieces, or any."""
    vocabulary = translator.vocabulary
    config = translator.config.model
    model, beam, eos = Transformer(config, len(vocabulary)), 4, vocabulary.eos_id
    barred = jnp.array([vocabulary.pad_id, vocabulary.bos_id])
    sources = [[*vocabulary.encode(line), eos] for line in lines]
    order = sorted(range(len(lines)), key=lambda n: len(sources[n]))

    @jax.jit
    def translate(params: dict, source: Any, alpha: Any) -> tuple[Any, Any]:
        length = forced or source.shape[1] + 50
        bound = model.bind({"params": params})
        real = source != vocabulary.pad_id
        places = jnp.broadcast_to(jnp.arange(source.shape[1]), source.shape)
        encoded = bound.encode(source, real.astype(jnp.int32), places, True)
        memory = jax.tree.map(
            lambda a: jnp.repeat(a, beam, axis=0), bound.memory(encoded)
        )
        seen = jnp.repeat(real, beam, axis=0)

        def pick(tree: Any, index: Any) -> Any:
            def of(a: Any) -> Any:
                shaped = index.reshape(*index.shape, *(1,) * (a.ndim - 2))
                return jnp.take_along_axis(a, shaped, axis=1)

            return jax.tree.map(of, tree)

        def step(state: Any) -> Any:
            time, tokens, log_probs, ended, scores, cache = state
            last = tokens[:, :, jnp.maximum(time - 1, 0)].reshape(-1, 1)
            last = jnp.where(time == 0, vocabulary.bos_id, last)
            mask = jnp.broadcast_to(
                jnp.arange(length) <= time, (rows * beam, 1, length)
            )
            logits, cache = model.apply(
                {"params": params},
                last,
                jnp.full(rows * beam, time),
                jnp.full((rows * beam, 1), time),
                cache,
                mask,
                memory,
                seen,
                method="decode_step",
            )
            new = jax.nn.log_softmax(logits).reshape(rows, beam, -1)
            new = new.at[:, :, barred].set(-jnp.inf)
            shortest = max(forced - 1, 1)
            new = new.at[:, :, eos].add(jnp.where(time < shortest, -1e9, 0))
            totals = (log_probs[:, :, None] + new).reshape(rows, -1)
            best, index = jax.lax.top_k(totals, 2 * beam)
            longer = pick(tokens, index // new.shape[2])
            longer = longer.at[:, :, time].set(index % new.shape[2])
            ends = index % new.shape[2] == eos
            value = jnp.where(ends, best / length_penalty(time + 1, alpha), -jnp.inf)
            both = jnp.concatenate([scores, value], axis=1)
            scores, kept = jax.lax.top_k(both, beam)
            ended = pick(jnp.concatenate([ended, longer], axis=1), kept)
            log_probs, kept = jax.lax.top_k(jnp.where(ends, -jnp.inf, best), beam)
            parents = pick(index // new.shape[2], kept)
            flat = (jnp.arange(rows)[:, None] * beam + parents).reshape(-1)
            cache = jax.tree.map(lambda a: a[flat], cache)
            return time + 1, pick(longer, kept), log_probs, ended, scores, cache

        def go_on(state: Any) -> Any:
            time, _, log_probs, _, scores, _ = state
            possible = log_probs[:, 0] / length_penalty(length, alpha)
            return (time < length) & (possible > scores[:, 0]).any()

        nothing = jnp.full((rows, beam, length), vocabulary.pad_id, jnp.int32)
        first = jnp.where(jnp.arange(beam) == 0, 0.0, -jnp.inf)
        empty = jnp.full((rows, beam), -jnp.inf)
        cache = bound.empty_cache(rows * beam, length)
        start = (0, nothing, empty.at[:].set(first), nothing, empty, cache)
        _, opened, _, ended, scores, _ = jax.lax.while_loop(go_on, step, start)
        return jnp.where(scores[:, :1] > -jnp.inf, ended[:, 0], opened[:, 0]), scores

    def turn(alpha: float) -> list[list[str]]:
        found: dict[int, list[str]] = {}
        for begin in range(0, len(order), rows):
            batch = order[begin : begin + rows]
            width = width_for(len(sources[batch[-1]]))
            source = np.full((rows, width), vocabulary.pad_id, np.int32)
            source[:, 0] = eos  # rows to spare
            for row, number in enumerate(batch):
                source[row, : len(sources[number])] = sources[number]
            tokens, _ = translate(translator.params, source, alpha)
            for row, number in zip(np.asarray(tokens), batch, strict=False):
                ids = row[row != vocabulary.pad_id]
                found[number] = vocabulary.pieces(ids[ids != eos])
        return [found[number] for number in range(len(lines))]

    return turn
