"""What a search costs: its shapes and steps, longer outputs, wider beams.

    PYTHONPATH=. .venv/bin/python benchmarks/decode_cost.py \
        --workdir=runs/multi30k --average=10 --text=test_2016_flickr.en

Three tables about the first 1,000 lines of the text. Shapes: calls, steps and
milliseconds a step of each shape of the search, and how many of the steps that its rows
were given were taken by a sentence; searches that run side by side share the cores, and
their times add up. Lengths: milliseconds a piece of an output, for 128 lines whose
outputs all have 25, 50 or 100 pieces. Beams: the mean score and log-probability of the
first 200 lines. Compilation is not counted.
"""

import argparse
import dataclasses
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from configs import base
from transformer.decoding import Translator, pool
from transformer.decoding.pool import Job, Pool
from transformer.decoding.search import search
from transformer.decoding.state import Rules, State


@dataclasses.dataclass
class Cost:
    """What the calls of one shape took; `used` are steps of rows with a sentence."""

    calls: int = 0
    steps: int = 0
    used: int = 0
    seconds: float = 0.0


class Meter:
    """The search, with what it costs by shape: rows and places."""

    def __init__(self) -> None:
        """Nothing so far."""
        self.costs: dict[tuple[int, int], Cost] = defaultdict(Cost)
        self._counting = threading.Lock()  # searches run side by side

    def __call__(
        self,
        params: Any,
        state: State,
        *settings: Any,
        **statics: Any,
    ) -> State:
        """Searches."""
        shape = (state.past.shape[0], state.past.shape[2])
        before = np.array(state.steps)
        begin = time.perf_counter()
        state = jax.block_until_ready(search(params, state, *settings, **statics))
        seconds = time.perf_counter() - begin
        advance = np.asarray(state.steps) - before
        with self._counting:
            cost = self.costs[shape]
            cost.seconds += seconds
            cost.calls += 1
            cost.steps += int(advance.max())
            cost.used += int(advance.sum())
        return state


def shapes(translator: Translator, lines: list[str]) -> None:
    """Prints what translating the lines takes, by shape."""
    list(translator.translate(lines))
    meter = Meter()
    pool.search = meter  # type: ignore[assignment]
    begin = time.perf_counter()
    found = list(translator.translate(lines))
    seconds = time.perf_counter() - begin
    pool.search = search
    print("rows  places   calls  steps  ms a step  taken")
    for (rows, places), cost in sorted(meter.costs.items()):
        each, taken = 1000 * cost.seconds / cost.steps, cost.used / cost.steps / rows
        print(
            f"{rows:4}{places:8}{cost.calls:8}{cost.steps:7}{each:11.1f}{taken:7.0%}",
        )
    costs = meter.costs.values()
    given = sum(cost.steps * rows for (rows, _), cost in meter.costs.items())
    used = sum(cost.used for cost in costs)
    pieces = np.mean([len(translation.tokens) for translation in found])
    print(
        f"{used / given:.0%} of the steps were taken, {used / len(lines):.1f} a line "
        f"for {pieces:.1f} pieces; {seconds:.2f} s, and the searches' times add up to "
        f"{sum(cost.seconds for cost in costs):.2f} s"
    )


def lengths(translator: Translator, lines: list[str], slots: int) -> None:
    """Prints what a piece costs in outputs of different lengths."""
    encode, eos = translator.vocabulary.encode, translator.vocabulary.eos_id
    sources = [[*encode(line), eos] for line in lines]
    for length in (25, 50, 100):
        jobs = [Job(source, length, (), (0, 0)) for source in sources]
        rules = Rules(beam=4, min_length=length - 1)
        for _ in range(2):  # the first time with compilation
            forced = Pool((translator.params,), translator.network(), rules, 0.6, slots)
            begin = time.perf_counter()
            found = list(forced.run(jobs))
            seconds = time.perf_counter() - begin
        assert all(len(best.tokens) == length for _, (best, *_) in found)
        each = 1000 * seconds / length / len(jobs)
        print(f"{length:4} pieces: {each:.2f} ms a piece")


def beams(translator: Translator, lines: list[str]) -> None:
    """Prints how likely the outputs of wider beams are."""
    for beam in (1, 2, 4, 8, 16):
        translator.decode = dataclasses.replace(translator.decode, beam=beam)
        found = list(translator.translate(lines))
        score, log_prob = (
            np.mean([getattr(one, name) for one in found])
            for name in ("score", "log_prob")
        )
        print(f"beam {beam:2}: score {score:.3f}, log-probability {log_prob:.3f}")


def main() -> None:
    """Measures, and prints the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workdir", required=True, help="a trained run")
    parser.add_argument("--text", required=True, help="the source sentences")
    parser.add_argument("--average", type=int, default=1)
    flags = parser.parse_args()
    slots = base.get_config().decode.tokens_per_batch
    translator = Translator.from_run(flags.workdir, average=flags.average)
    translator.decode = dataclasses.replace(translator.decode, tokens_per_batch=slots)
    lines = Path(flags.text).read_text("utf-8").split("\n")[:1000]
    shapes(translator, lines)
    lengths(translator, lines[:128], slots)
    beams(translator, lines[:200])


if __name__ == "__main__":
    main()
