"""What makes training fast: choices of ours beside those they were taken over.

    PYTHONPATH=. .venv/bin/python benchmarks/train_cost.py --text=train.en,train.de

Three tables. Plans: how much of a batch is real, packed or in buckets of some widths.
Loss: milliseconds for the last product, the loss and both gradients of 4,096 slots,
part after part as in training, or with all logits at once. Malloc: real target tokens
per second with the model of configs/multi30k.py, with the settings that the commands
start themselves with and with those of glibc; the two processes take turns.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contenders import Contender
from train_speed import load, ours, take_turns

from configs import base, multi30k
from transformer.config import Config
from transformer.data import Corpus, epoch_plan

SLOTS = 4096
NARROW = (8, 12, 16, 20, 24, 32, 48, 64)


def plans(corpus: Corpus) -> None:
    """Prints how well each way of making batches fills them."""
    ways: dict[str, dict[str, Any]] = {
        "rows of 64, packed": dict(plan="pack", pack_width=64),
        "widths of configs/base.py": dict(plan="bucket"),
        f"widths {', '.join(map(str, NARROW))}": dict(
            plan="bucket", bucket_widths=NARROW
        ),
    }
    print(f"real tokens in batches of {SLOTS:,} slots")
    for name, keys in ways.items():
        config = base.get_config()
        config.data.update(keys, max_tokens=64, tokens_per_batch=SLOTS)
        plan = epoch_plan(
            Config.from_dict(config).data,
            0,
            0,
            corpus.source_lengths,
            corpus.target_lengths,
        )
        source, target = plan.padding_efficiency
        print(
            f"  {name:40}{target:7.1%} target{source:7.1%} source"
            f"{len(plan.shapes):4} shapes"
        )


def milliseconds(work: Callable[[], Any], times: int = 7) -> float:
    """Median time of some work, the first time not counted."""
    work()
    spans = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        spans.append(time.perf_counter() - begin)
    return 1000 * statistics.median(spans)


def losses(depth: int = 128, num_pieces: int = 8000) -> None:
    """Prints what the loss takes, with its gradients, in two forms."""
    import jax
    import jax.numpy as jnp

    from transformer.training import make_mesh
    from transformer.training.loss import smoothed_loss

    states = jax.random.normal(jax.random.key(0), (SLOTS // 64, 64, depth))
    table = jax.random.normal(jax.random.key(1), (num_pieces, depth)) * depth**-0.5
    targets = jax.random.randint(jax.random.key(2), states.shape[:2], 0, num_pieces)
    weights, mesh = jnp.ones(targets.shape, bool), make_mesh()

    def in_parts(states: Any, table: Any) -> Any:
        settings = (0.1, num_pieces, "float32", mesh)
        return smoothed_loss(states, table, targets, weights, *settings).loss_sum

    def at_once(states: Any, table: Any) -> Any:
        log_probs = jax.nn.log_softmax(states @ table.T)
        of_targets = jnp.take_along_axis(log_probs, targets[..., None], axis=-1)
        return -(0.9 * of_targets.sum() + 0.1 * log_probs.mean(axis=-1).sum())

    print(f"loss and gradients, {SLOTS:,} slots, {num_pieces:,} pieces of {depth}")
    for name, loss in (("in parts", in_parts), ("all logits at once", at_once)):
        both = jax.jit(jax.value_and_grad(loss, (0, 1)))
        value, _ = both(states, table)
        each = milliseconds(
            lambda both=both: jax.block_until_ready(both(states, table))
        )
        print(f"  {name:40}{each:7.0f} ms (loss {value / targets.size:.4f})")


def configuration() -> Config:
    """That of configs/multi30k.py, for text files."""
    config = multi30k.get_config()
    config.data.source = "text"
    return Config.from_dict(config)


def malloc(seconds: float, rounds: int, folder: str) -> None:
    """Prints training throughput with and without our settings of malloc."""
    flags = ("--train", f"--folder={folder}")
    ways = {
        "malloc settings of the commands": Contender(*flags),
        "malloc settings of glibc": Contender(*flags, plain_malloc=True),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, process in ways.items():
            rates[name].append(process.turn(seconds))
    print("real target tokens per second, model of configs/multi30k.py")
    for name, process in ways.items():
        process.close()
        print(f"  {name:40}{statistics.median(rates[name]):7,.0f}")


def main() -> None:
    """Measures, and prints the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", required=True, help="source and target file")
    parser.add_argument("--seconds", type=float, default=20, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    paths = flags.text.split(",")
    if flags.train:
        config = configuration()
        take_turns(ours(config, *load(paths, Path(flags.folder), config)))
        return
    with tempfile.TemporaryDirectory() as folder:
        corpus, _ = load(paths, Path(folder), configuration())
        plans(corpus)
        losses()
        malloc(flags.seconds, flags.rounds, folder)


if __name__ == "__main__":
    main()
