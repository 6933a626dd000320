"""Training throughput beside PyTorch's own Transformer, and as a share of XLA's peak.

    .venv/bin/pip install -r benchmarks/requirements.txt
    PYTHONPATH=. .venv/bin/python benchmarks/train_speed.py --text=train.en,train.de

Counts real (non-pad) target tokens per second on batches of 4,096 target slots. The
peer is torch.nn.Transformer with one table for source, target and output, fused Adam
and length-sorted batches, eager and compiled, in float32 and under bfloat16 autocast.
Every contender is a process of its own with the same malloc settings; they take turns,
each turn begins with one step that is not timed, and the medians are compared.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contenders import Contender, answer

from configs import base
from transformer.config import Config
from transformer.data import (
    Corpus,
    Position,
    Vocabulary,
    epoch_plan,
    read_parallel,
    tokenize,
    training_batches,
)

SLOTS = 4096
SIZES = {
    "small": dict(num_layers=3, d_model=256, d_ff=1024, num_heads=4),
    "base": dict(num_layers=6, d_model=512, d_ff=2048, num_heads=8),
}
CONTENDERS = (
    "ours-float32",
    "torch-float32",
    "torch-compile-float32",
    "ours-bfloat16",
    "torch-bfloat16",
    "torch-compile-bfloat16",
)


def configuration(size: str, dtype: str) -> Config:
    """The experiment: a body, 8,000 pieces, rows of 64 packed with sentences."""
    config = base.get_config()
    config.model.update(SIZES[size], d_k=64, d_v=64, dtype=dtype)
    config.data.update(
        source="text",
        vocab_size=8000,
        max_tokens=64,
        plan="pack",
        pack_width=64,
        tokens_per_batch=SLOTS,
    )
    return Config.from_dict(config)


def load(paths: list[str], folder: Path, config: Config) -> tuple[Corpus, Vocabulary]:
    """The corpus and its vocabulary, made once for all contenders."""
    text = read_parallel(*paths)
    model = folder / "vocab.model"
    if model.exists():
        vocabulary = Vocabulary.load(model)
    else:
        vocabulary = Vocabulary.train([*text.sources, *text.targets], config.data)
        vocabulary.save(model)
    return tokenize(text, vocabulary, config.data.max_tokens, folder), vocabulary


def ours(config: Config, corpus: Corpus, vocabulary: Vocabulary) -> Callable[[], int]:
    """A function that makes one update and returns its number of target tokens."""
    from transformer.training import initial_state, make_mesh, make_train_step

    state = initial_state(config, len(vocabulary))
    step = make_train_step(config, len(vocabulary), make_mesh())
    batches = training_batches(corpus, vocabulary, config.data, 0, Position(0, 0))

    def update() -> int:
        nonlocal state
        state, metrics = step(state, next(batches).batch)
        return int(metrics.sums.num_tokens)

    return update


def work(contender: str, size: str, paths: list[str], folder: Path) -> None:
    """A contender's process."""
    *kind, dtype = contender.split("-")
    corpus, vocabulary = load(paths, folder, configuration(size, "float32"))
    if kind[0] == "ours":
        update = ours(configuration(size, dtype), corpus, vocabulary)
    else:
        from torch_peer import peer

        settings = (dtype, len(kind) > 1, corpus, vocabulary, SLOTS)
        update = peer(SIZES[size], *settings)
    take_turns(update)


def take_turns(update: Callable[[], int]) -> None:
    """Updates when it is told: turns of so many seconds, target tokens per second."""
    update()  # with compilation

    def turn(seconds: float) -> float:
        update()
        begin, tokens = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            tokens += update()
        return tokens / (time.perf_counter() - begin)

    answer(turn)


def peak(size: int = 2048) -> float:
    """XLA's rate on a square float32 product, in floating-point operations a second."""
    import jax

    square = jax.numpy.ones((size, size))
    multiply = jax.jit(lambda a, b: a @ b)
    multiply(square, square).block_until_ready()
    rates = []
    for _ in range(5):
        begin = time.perf_counter()
        multiply(square, square).block_until_ready()
        rates.append(2 * size**3 / (time.perf_counter() - begin))
    return statistics.median(rates)


def operations_per_slot(config: Config, vocab_size: int) -> float:
    """Floating-point operations of an update per slot of both sides, padding counted.

    Twice the weights that each slot meets, and the products of attention; times three
    for the backward pass.
    """
    m, width = config.model, config.data.pack_width
    projections = 4 * m.d_model * m.num_heads * m.d_k
    ffn = 2 * m.d_model * m.d_ff
    scores = 2 * width * m.num_heads * m.d_k
    encoder = projections + ffn + scores
    decoder = 2 * (projections + scores) + ffn
    weights = m.num_layers * (encoder + decoder) + vocab_size * m.d_model
    return 3 * 2 * weights


def measure(
    size: str, names: list[str], folder: Path, seconds: float, rounds: int
) -> dict[str, float]:
    """Medians of turns that all contenders of a size take one after another."""
    contenders, found = {}, {name: list[float]() for name in names}
    for name in names:
        contenders[name] = Contender(
            f"--size={size}", f"--contender={name}", f"--folder={folder}"
        )
        print(f"{size}, {name}: ready", file=sys.stderr)
    for _ in range(rounds):
        for name, contender in contenders.items():
            found[name].append(contender.turn(seconds))
            print(f"{size}, {name}: {found[name][-1]:,.0f}", file=sys.stderr)
    for contender in contenders.values():
        contender.close()
    return {name: statistics.median(rates) for name, rates in found.items()}


def main() -> None:
    """Measures and prints one table a size and a JSON line with everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True, help="source and target file")
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--seconds", type=float, default=20, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--size", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    paths = flags.text.split(",")
    if flags.contender:
        work(flags.contender, flags.size, paths, flags.folder)
        return
    report: dict[str, Any] = {"peak": peak()}
    print(f"XLA, float32 2048 x 2048 x 2048: {report['peak'] / 1e9:.0f} GFLOP/s")
    with tempfile.TemporaryDirectory() as folder:
        for size in flags.sizes.split(","):
            rates = measure(
                size,
                flags.contenders.split(","),
                Path(folder),
                flags.seconds,
                flags.rounds,
            )
            report[size] = rates
            _print(size, rates, report["peak"], paths, Path(folder))
    print(json.dumps(report))


def _print(
    size: str, rates: dict[str, float], top: float, paths: list[str], folder: Path
) -> None:
    """Rates, ratios to the faster form of the peer, and our share of the peak."""
    print(f"\n{size}: real target tokens per second")
    for name, rate in rates.items():
        print(f"  {name:24}{rate:10,.0f}")
    for dtype in ("float32", "bfloat16"):
        peers = [r for n, r in rates.items() if n.startswith("torch") and dtype in n]
        if peers and f"ours-{dtype}" in rates:
            print(f"  {dtype}: {rates[f'ours-{dtype}'] / max(peers):.2f} of the peer")
    if "ours-float32" in rates:
        config = configuration(size, "float32")
        corpus, vocabulary = load(paths, folder, config)
        plan = epoch_plan(
            config.data, 0, 0, corpus.source_lengths, corpus.target_lengths
        )
        slots = rates["ours-float32"] / plan.padding_efficiency[1]
        used = slots * operations_per_slot(config, len(vocabulary))
        print(f"  float32: {used / top:.0%} of XLA's peak, padding counted")


if __name__ == "__main__":
    main()
