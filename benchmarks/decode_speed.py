"""Translation speed beside CTranslate2, with the same weights on both sides.

    .venv/bin/pip install -r benchmarks/requirements.txt
    PYTHONPATH=. .venv/bin/python benchmarks/decode_speed.py \
        --workdir=runs/multi30k --text=test_2016_flickr.en

Sentences per second over the first 1,000 lines, beam 4, alpha 0.6, each ended as the
model ends it. With --forced=30 all outputs have 30 pieces, for which weights need not
be trained: --size=small or --size=base with --vocabulary=FILE takes random ones. Every
contender is a process of its own with the same malloc settings; they take turns, the
first turns are not counted, and the medians are compared. CTranslate2 gets three batch
sizes with one worker, which uses all cores, and two with two workers ("x2"), and the
best of all counts. At alpha 0, where the length penalties of both are the same, the
outputs are compared line by line: where they differ, the model itself says which of the
two is more probable. An output has one piece at least then: without a penalty the empty
sentence is often the most probable, and CTranslate2 leaves it out. With --reference
each contender's BLEU at alpha 0.6 is printed as well.

"scheme" is our model searched the way that early JAX code does: see early_scheme.py.
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
from transformer.evaluation.bleu import score

CONTENDERS = (
    "ours-float32",
    "ours-bfloat16",
    "scheme-float32",
    "ctranslate2-float32-64",
    "ctranslate2-float32-128",
    "ctranslate2-float32-256",
    "ctranslate2-float32-32x2",
    "ctranslate2-float32-64x2",
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
    slots = base.get_config().decode.tokens_per_batch

    def turn(alpha: float) -> list[list[str]]:
        shortest = forced - 1 if forced else int(alpha == 0)
        rules = Rules(beam=4, min_length=shortest)
        pool = Pool((translator.params,), network, rules, alpha, slots)
        found = dict(pool.run(jobs))
        return [vocabulary.pieces(found[n][0].tokens[:-1]) for n in range(len(jobs))]

    return turn


def peer(flags: argparse.Namespace, dtype: str, batch_size: int, workers: int) -> TURN:
    """Translates all lines with CTranslate2, whose workers share the cores."""
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
            inter_threads=workers,
            intra_threads=max(1, (os.cpu_count() or 1) // workers),
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
    name, dtype, *batches = flags.contender.split("-")
    if name == "ours":
        turn = ours(flags, dtype)
    elif name == "scheme":
        from early_scheme import scheme

        turn = scheme(*load(flags, dtype), flags.forced)
    else:
        batch_size, _, workers = batches[0].partition("x")
        turn = peer(flags, dtype, int(batch_size), int(workers or 1))

    def timed(alpha: float) -> tuple[float, list[list[str]]]:
        begin = time.perf_counter()
        found = turn(alpha)
        return time.perf_counter() - begin, found

    answer(timed)


def bleus(
    flags: argparse.Namespace,
    outputs: dict[str, list[list[str]]],
    references: list[str],
) -> dict[str, float]:
    """Cased BLEU of each contender's output."""
    vocabulary = load(flags, "float32")[0].vocabulary
    size = len(vocabulary)
    ids = dict(zip(vocabulary.pieces(range(size)), range(size), strict=True))
    texts = {
        name: [vocabulary.decode([ids[piece] for piece in line]) for line in lines]
        for name, lines in outputs.items()
    }
    return {name: score(text, references).bleu.score for name, text in texts.items()}


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
    parser.add_argument("--reference", help="their translations")
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
    # Not measured: it compiles the shapes that only this alpha meets.
    penalised = {name: one.turn(0.6)[1] for name, one in contenders.items()}
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
    if flags.reference:
        references = Path(flags.reference).read_text("utf-8").split("\n")[:count]
        for name, bleu in bleus(flags, penalised, references).items():
            print(f"{name:28}{bleu:10.2f} BLEU")
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
