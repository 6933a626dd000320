"""A run's folder: everything that a later command needs."""

import os
from pathlib import Path

from transformer.config import Config
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError

# Keys that a resumed run may change: they alter neither the model nor its data or path.
_FREE = {
    "data.cache_dir",
    "data.num_threads",
    "data.num_workers",
    "data.prefetch",
    "data.tfds_dir",
    "data.tfds_manual_dir",
    "data.vocab_model",
    "train.checkpoint_every_minutes",
    "train.checkpoint_every_steps",
    "train.keep_best",
    "train.keep_last",
    "train.log_every",
    "train.max_minutes",
    "train.num_steps",
    "train.validate_every",
    "train.validation_sentences",
}


class RunFolder:
    """Paths of a run, its configuration and its vocabulary."""

    def __init__(self, path: str | Path):
        """Names the folder; it need not exist yet."""
        self.path = Path(path)
        self.config_path = self.path / "config.json"
        self.vocabulary_path = self.path / "vocab.model"
        self.checkpoints_path = self.path / "checkpoints"
        self.metrics_path = self.path / "metrics.jsonl"

    def prepare(self, config: Config) -> None:
        """Writes the configuration, or checks that it continues the one that is there.

        Raises:
          UserError: the folder cannot be written, or it holds a run with other values
            of keys that define the model, the data or the optimiser, all of them named.
        """
        if self.config_path.exists():
            self._check(self.config(), config)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.config_path, config.to_json().encode("utf-8"))
        except OSError as error:
            raise UserError(
                f"--workdir={self.path} cannot be written: {error.strerror}"
            ) from error

    def config(self) -> Config:
        """The configuration that the run was started with.

        Raises:
          UserError: this is no run's folder.
        """
        try:
            text = self.config_path.read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"--workdir={self.path} is not a run's folder: {self.config_path} "
                f"cannot be read ({error.strerror})"
            ) from error
        return Config.from_json(text, str(self.config_path))

    def vocabulary(self) -> Vocabulary:
        """The run's own vocabulary; `UserError` where it is missing or broken."""
        return Vocabulary.load(self.vocabulary_path)

    def _check(self, saved: Config, given: Config) -> None:
        """Refuses to continue a run as another one."""
        old, new = saved.flatten(), given.flatten()
        differences = [
            f"{key}: saved {old[key]!r}, given {new[key]!r}"
            for key in old
            if old[key] != new[key]
            and key not in _FREE
            and not key.startswith("decode.")
        ]
        if differences:
            raise UserError(
                f"--workdir={self.path} holds a run with another configuration "
                f"({'; '.join(differences)}): use another folder or the saved values"
            )


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file in one step: a reader sees the old content or the new."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
