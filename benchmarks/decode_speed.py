"""Translation speed beside CTranslate2, with the same weights on both sides.

    .venv/bin/pip install -r benchmarks/requirements.txt
    PYTHONPATH=. .venv/bin/python benchmarks/decode_speed.py \
        --workdir=runs/multi30k --text=test_2016_flickr.en

Sentences per second over the first 1,000 lines, beam 4, alpha 0.6, each ended as the
model ends it. With --forced=30 all outputs have 30 pieces, for which weights need not
be trained: --size=small or --size=base with --vocabulary=FILE takes random ones. Every
contender is a process of its own with the same malloc settings; they take turns, the
first turns are not counted, and the medians are compared. CTranslate2 gets three batch
sizes, and the best one counts. At alpha 0, where the length penalties of both are the
same, the outputs are compared line by line: where they differ, the model itself says
which of the two is more probable. An output has one piece at least then: without a
penalty the empty sentence is often the most probable, and CTranslate2 leaves it out.

"scheme" is our model searched the way that early JAX code does: batches of similar
length, caches as long as the longest output from the start and reordered with their
hypotheses at every step, the source's keys and values repeated for every beam, and
finished sentences that wait for the last of their batch.
"""

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from contenders import Contender, answer
from ctranslate2_weights import ctranslate2_model
from train_speed import SIZES

from configs import base
from transformer.config import Config
from transformer.data import Vocabulary
from transformer.decoding import Translator
from transformer.decoding.pool import Job, Pool
from transformer.decoding.scoring import score_pairs
from transformer.decoding.state import Rules

CONTENDERS = (
    "ours-float32",
    "ours-bfloat16",
    "scheme-float32",
    "ctranslate2-float32-64",
    "ctranslate2-float32-128",
    "ctranslate2-float32-256",
    "ctranslate2-int8-128",
)
TURN = Callable[[float], list[list[str]]]  # alpha to the pieces of each translation


def load(flags: argparse.Namespace, dtype: str) -> tuple[Translator, list[str]]:
    """The model with its products in `dtype`, and the lines."""
    lines = Path(flags.text).read_text("utf-8").split("\n")[:1000]
    if flags.workdir:
        run = Translator.from_run(flags.workdir, average=flags.average)
        config, vocabulary, params = run.config, run.vocabulary, run.params
    else:
        config, vocabulary, params = _random(SIZES[flags.size], flags.vocabulary)
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, dtype=dtype)
    )
    return Translator(config, vocabulary, params), lines


def _random(size: dict[str, int], path: str) -> tuple[Config, Vocabulary, dict]:
    """A model of a size with random weights."""
    import jax

    from transformer.model import initial_variables

    config = base.get_config()
    config.model.update(size)
    whole, vocabulary = Config.from_dict(config), Vocabulary.load(path)
    variables = initial_variables(whole.model, len(vocabulary), jax.random.key(0))
    return whole, vocabulary, variables["params"]


def ours(flags: argparse.Namespace, dtype: str) -> TURN:
    """Translates all lines with our search."""
    translator, lines = load(flags, dtype)
    vocabulary, network = translator.vocabulary, translator.network()
    sources = [[*vocabulary.encode(line), vocabulary.eos_id] for line in lines]
    forced = flags.forced
    jobs = [Job(s, forced or len(s) + 50, (), (0, 0)) for s in sources]

    def turn(alpha: float) -> list[list[str]]:
        shortest = forced - 1 if forced else int(alpha == 0)
        rules = Rules(beam=4, min_length=shortest)
        pool = Pool((translator.params,), network, rules, alpha, slots=4096)
        found = dict(pool.run(jobs))
        return [vocabulary.pieces(found[n][0].tokens[:-1]) for n in range(len(jobs))]

    return turn


def scheme(flags: argparse.Namespace, dtype: str, rows: int = 64) -> TURN:
    """Translates all lines with the search that "scheme" stands for."""
    import jax
    import jax.numpy as jnp

    from transformer.decoding import length_penalty
    from transformer.decoding.shapes import size_for
    from transformer.model import Transformer

    translator, lines = load(flags, dtype)
    vocabulary = translator.vocabulary
    config = translator.config.model
    model, beam, eos = Transformer(config, len(vocabulary)), 4, vocabulary.eos_id
    barred = jnp.array([vocabulary.pad_id, vocabulary.bos_id])
    sources = [[*vocabulary.encode(line), eos] for line in lines]
    order = sorted(range(len(lines)), key=lambda n: len(sources[n]))

    @jax.jit
    def translate(params: dict, source: Any, alpha: Any) -> tuple[Any, Any]:
        length = flags.forced or source.shape[1] + 50
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
            shortest = max(flags.forced - 1, 1)
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
            width = size_for(len(sources[batch[-1]]))
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


def peer(flags: argparse.Namespace, dtype: str, batch_size: int) -> TURN:
    """Translates all lines with CTranslate2."""
    import ctranslate2

    translator, lines = load(flags, "float32")
    vocabulary = translator.vocabulary
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        model.mkdir()
        ctranslate2_model(translator, model)
        engine = ctranslate2.Translator(
            str(model),
            compute_type=dtype,
            inter_threads=1,
            intra_threads=os.cpu_count() or 1,
        )
    sources = [
        vocabulary.pieces([*vocabulary.encode(line), vocabulary.eos_id])
        for line in lines
    ]
    barred = [vocabulary.pieces([i])[0] for i in (vocabulary.pad_id, vocabulary.bos_id)]
    limits = dict(max_decoding_length=200)
    if flags.forced:
        limits = dict(
            max_decoding_length=flags.forced, min_decoding_length=flags.forced
        )

    def turn(alpha: float) -> list[list[str]]:
        found = engine.translate_batch(
            sources,
            max_batch_size=batch_size,
            beam_size=4,
            length_penalty=alpha,
            suppress_sequences=[[piece] for piece in barred],
            **limits,
        )
        return [one.hypotheses[0] for one in found]

    return turn


def work(flags: argparse.Namespace) -> None:
    """A contender's process: for each line on stdin, all sentences at that alpha."""
    name, dtype, *batch_size = flags.contender.split("-")
    if name == "ours":
        turn = ours(flags, dtype)
    elif name == "scheme":
        turn = scheme(flags, dtype)
    else:
        turn = peer(flags, dtype, int(batch_size[0]))

    def timed(alpha: float) -> tuple[float, list[list[str]]]:
        begin = time.perf_counter()
        found = turn(alpha)
        return time.perf_counter() - begin, found

    answer(timed)


def preferred(
    flags: argparse.Namespace, found: list[list[str]], other: list[list[str]]
) -> tuple[int, int]:
    """On how many lines the model gives more probability to either of two outputs."""
    translator, lines = load(flags, "float32")
    vocabulary = translator.vocabulary
    eos, size = vocabulary.eos_id, len(vocabulary)
    ids = dict(zip(vocabulary.pieces(range(size)), range(size), strict=True))
    pairs = [
        ([*vocabulary.encode(line), eos], [*(ids[piece] for piece in pieces), eos])
        for line, *both in zip(lines, found, other, strict=True)
        if both[0] != both[1]
        for pieces in both
    ]
    scored = score_pairs(translator.network(), (translator.params,), pairs)
    log_probs = np.array([score.log_prob for score in scored]).reshape(-1, 2)
    first, second = log_probs.T
    return int((first > second).sum()), int((second > first).sum())


def main() -> None:
    """Measures, and prints a table, the agreement and a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True, help="the source sentences")
    parser.add_argument("--workdir", help="a trained run")
    parser.add_argument("--average", type=int, default=1)
    parser.add_argument("--size", choices=SIZES, help="random weights instead")
    parser.add_argument("--vocabulary", help="and this vocabulary")
    parser.add_argument("--forced", type=int, default=0, help="pieces of every output")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.contender:
        work(flags)
        return
    names = flags.contenders.split(",")
    contenders = {name: Contender(f"--contender={name}") for name in names}
    outputs = {name: one.turn(0.0)[1] for name, one in contenders.items()}
    for one in contenders.values():
        one.turn(0.6)  # shapes that only this alpha meets
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(flags.rounds):
        for name, one in contenders.items():
            seconds[name].append(one.turn(0.6)[0])
    for one in contenders.values():
        one.close()
    count = len(outputs[names[0]])
    rates = {name: count / statistics.median(s) for name, s in seconds.items()}
    peers = [rate for name, rate in rates.items() if "ctranslate2-float32" in name]
    for name, rate in rates.items():
        ratio = f"{rate / max(peers):8.2f}" if peers else ""
        print(f"{name:28}{rate:10.1f} sentences/s{ratio}")
    first = outputs[names[0]]
    for name, found in outputs.items() if not flags.forced else ():
        equal = sum(a == b for a, b in zip(first, found, strict=True))
        better, worse = preferred(flags, first, found)
        print(
            f"{name:28}{equal:10} of {count} lines as {names[0]} at alpha 0; of the "
            f"others the model finds {better} less probable, {worse} more probable"
        )
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
