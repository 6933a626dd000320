"""A run's numbers over time: `metrics.jsonl` and TensorBoard events."""

import json
import math
from pathlib import Path

from transformer.training.run_folder import RunFolder, write_whole


class MetricsWriter:
    """Appends the numbers of a step to both files."""

    def __init__(self, folder: RunFolder, step: int):
        """Opens the files of a run that goes on after `step`; what is later is cut."""
        self._path = folder.metrics_path
        _cut(self._path, step)
        self._lines = open(self._path, "a", encoding="utf-8")  # noqa: SIM115
        # Here because it imports PyTorch where that is installed: seconds that commands
        # which only read a run's folder need not wait.
        from tensorboardX import SummaryWriter

        self._events = SummaryWriter(str(folder.path), purge_step=step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Writes one line and one event per value; a NaN becomes null."""
        clean = {k: v if math.isfinite(v) else None for k, v in values.items()}
        self._lines.write(json.dumps({"step": step, **clean}) + "\n")
        self._lines.flush()
        for name, value in values.items():
            self._events.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes out what is buffered."""
        self._lines.close()
        self._events.close()


def _cut(path: Path, step: int) -> None:
    """Drops lines after `step`, and a last one that was cut off."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            if line and json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    write_whole(path, "".join(kept).encode("utf-8"))
