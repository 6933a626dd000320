"""Memory of the host over a long training run and a long translation.

    PYTHONPATH=. .venv/bin/python benchmarks/memory.py

Trains a toy on the generated language for 5,000 updates (four epochs), then
translates 200,000 of its sentences through a pipe, and prints how much memory each
process holds on the way: what is resident, in MiB, at tenths of its work. It is flat if
it does not grow after the first tenths.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from transformer.data.demo_language import demo_corpus

TOY = (
    *("--config.model.num_layers=1", "--config.model.d_model=32"),
    *("--config.model.d_ff=64", "--config.data.tokens_per_batch=512"),
    *("--config.train.max_minutes=0.0", "--config.train.checkpoint_every_steps=500"),
)
PARTS = 10


def resident(pid: int) -> int:
    """MiB of a process that are in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    raise ValueError(f"process {pid} has no VmRSS")


def watch(process: subprocess.Popen, name: str, done: Callable[[], float]) -> None:
    """Prints memory whenever another tenth of the work is done."""
    sizes: list[int] = []
    while process.poll() is None:
        while done() >= (len(sizes) + 1) / PARTS and process.poll() is None:
            sizes.append(resident(process.pid))
            print(f"{name}, {len(sizes)} tenths: {sizes[-1]} MiB", flush=True)
        threading.Event().wait(0.1)
    assert process.returncode == 0 and len(sizes) > 2, (process.returncode, sizes)
    growth = max(sizes[2:]) - sizes[1]
    print(json.dumps({"what": name, "MiB": sizes, "after_two_tenths": growth}))


def train(workdir: Path, steps: int) -> None:
    """The toy's training run."""
    metrics = workdir / "metrics.jsonl"
    command = [sys.executable, "train.py", "--config=configs/demo.py"]
    process = subprocess.Popen(
        [*command, f"--workdir={workdir}", *TOY, f"--config.train.num_steps={steps}"],
        stderr=subprocess.DEVNULL,
    )

    def done() -> float:
        lines = metrics.read_text().split("\n")[:-1] if metrics.is_file() else []
        return json.loads(lines[-1])["step"] / steps if lines else 0.0

    watch(process, "training", done)


def translate(workdir: Path, lines: int) -> None:
    """Many short lines through a pipe."""
    sources = demo_corpus("train").sources
    process = subprocess.Popen(
        [sys.executable, "translate.py", f"--workdir={workdir}", "--beam=1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin and process.stdout
    stdin, stdout, count = process.stdin, process.stdout, [0]

    def write() -> None:
        for number in range(lines):
            stdin.write(f"{sources[number % len(sources)]}\n".encode())
        stdin.close()

    def read() -> None:
        for _ in stdout:
            count[0] += 1

    for work in (write, read):
        threading.Thread(target=work, daemon=True).start()
    watch(process, "translation", lambda: count[0] / lines)


def main() -> None:
    """Measures both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--lines", type=int, default=200_000)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder) / "run"
        train(workdir, flags.steps)
        translate(workdir, flags.lines)


if __name__ == "__main__":
    main()
