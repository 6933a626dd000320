"""A checkpoint's manifest: what the run needs beside the arrays, and that it is whole.

`manifest.json` is the last file of a checkpoint's folder to be written. It holds the
size and SHA-256 of every other one, since Orbax alone does not notice a flipped bit,
and the digest of its own content. A folder without it, or that differs from it, counts
as damaged.
"""

import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from transformer.data.pipeline import Position

_NAME = "manifest.json"


class Damaged(Exception):
    """A checkpoint is not whole; the text says why."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a manifest says of a checkpoint."""

    step: int
    position: Position
    metrics: dict[str, float]
    vocabulary: str


def write_manifest(path: Path, checkpoint: Checkpoint) -> None:
    """Declares the checkpoint in the folder `path` whole; its files are all written.

    Metrics that are not finite, which JSON does not know, are left out.
    """
    metrics = {k: v for k, v in checkpoint.metrics.items() if math.isfinite(v)}
    values: dict[str, Any] = {
        "checkpoint": dataclasses.asdict(checkpoint) | {"metrics": metrics},
        "files": {
            str(file.relative_to(path)): [file.stat().st_size, _file_digest(file)]
            for file in sorted(path.rglob("*"))
            if file.is_file() and not file.name.startswith(_NAME)
        },
    }
    temporary = path / f"{_NAME}.tmp"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump({"sha256": _digest(values), **values}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path / _NAME)


def read_manifest(path: Path) -> Checkpoint:
    """What the manifest in the folder `path` says; its files are not looked at.

    Raises:
      Damaged: there is no manifest, or it was altered.
    """
    return _read(path)[0]


def verify(path: Path) -> Checkpoint:
    """`read_manifest`, and every file read and compared with it.

    Raises:
      Damaged: there is no manifest, or it or a file is missing or altered.
    """
    checkpoint, files = _read(path)
    for name, (size, digest) in files.items():
        try:
            if (found := (path / name).stat().st_size) != size:
                raise Damaged(f"{name} has {found} bytes instead of {size}")
            if _file_digest(path / name) != digest:
                raise Damaged(f"{name} has been altered")
        except OSError as error:
            raise Damaged(f"{name} cannot be read ({error.strerror})") from error
    return checkpoint


def _read(path: Path) -> tuple[Checkpoint, dict[str, list]]:
    """A manifest whose own digest is right, and its list of files."""
    try:
        values = json.loads((path / _NAME).read_text(encoding="utf-8"))
        if values.pop("sha256") != _digest(values):
            raise Damaged(f"{_NAME} has been altered")
        fields = values["checkpoint"]
        position = Position(*fields.pop("position"))
        return Checkpoint(position=position, **fields), values["files"]
    except FileNotFoundError as error:
        raise Damaged(f"it has no {_NAME}, so it was never finished") from error
    except OSError as error:
        raise Damaged(f"{_NAME} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{_NAME} has been altered") from error


def _digest(values: dict[str, Any]) -> str:
    """SHA-256 of a JSON object, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
