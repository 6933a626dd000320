"""Checkpoints: Orbax writes and reads them, a manifest says that one is whole.

`checkpoints/STEP/` appears when Orbax has written everything; `manifest.json` is added
to it last. A folder without it, or that differs from it, is passed over.
"""

import functools
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding

from transformer.data.pipeline import Position
from transformer.errors import UserError
from transformer.training.manifest import (
    Checkpoint,
    Damaged,
    read_manifest,
    verify,
    write_manifest,
)
from transformer.training.state import TrainState

logger = logging.getLogger(__name__)

_UNFINISHED = ".orbax-checkpoint-tmp"  # what Orbax appends to a folder's name


class Checkpoints:
    """The checkpoints of a run, numbered by update."""

    def __init__(
        self,
        directory: Path,
        vocabulary: str,
        keep_last: int = 1,
        keep_best: int = 0,
    ):
        """Opens the folder, which need not exist yet.

        Args:
          directory: the folder of all checkpoints.
          vocabulary: fingerprint of the run's vocabulary.
          keep_last: newest checkpoints that `save` keeps.
          keep_best: of the older ones, how many with the lowest "perplexity" it keeps.
        """
        self._directory = directory.resolve()
        self._vocabulary = vocabulary
        self._keep = keep_last, keep_best
        self._writer: threading.Thread | None = None
        self._failure: Exception | None = None
        self._checkpointer = ocp.StandardCheckpointer()

    def save(
        self, state: TrainState, position: Position, metrics: dict[str, float]
    ) -> None:
        """Copies the state and writes it while training goes on.

        Waits for the checkpoint before, if it is not yet written.

        Raises:
          UserError: this or the previous checkpoint cannot be written, as when the disk
            is full. Those before it are untouched.
        """
        self.wait()
        manifest = Checkpoint(int(state.step), position, metrics, self._vocabulary)
        path = self._directory / str(manifest.step)
        # A step's buffers are given away with the next update: Orbax gets a copy.
        state = jax.tree.map(jnp.copy, state)
        self._guard(lambda: self._start(path, state))
        self._raise_failure()
        finish = functools.partial(self._guard, lambda: self._finish(path, manifest))
        self._writer = threading.Thread(target=finish, name="checkpoint")
        self._writer.start()

    def wait(self) -> None:
        """Returns when the last checkpoint is whole on disk; raises as `save` does."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        self._raise_failure()

    def steps(self) -> list[int]:
        """Steps with a folder, rising, whole or not."""
        if not self._directory.is_dir():
            return []
        return sorted(
            int(p.name) for p in self._directory.iterdir() if p.name.isdigit()
        )

    def whole(self, at_most: int | None = None) -> list[Checkpoint]:
        """The newest `at_most` undamaged checkpoints, falling; damaged ones are named.

        Raises:
          UserError: a checkpoint was made with another vocabulary.
        """
        found: list[Checkpoint] = []
        for step in reversed(self.steps()):
            if at_most is not None and len(found) >= at_most:
                break
            try:
                found.append(self._verify(step))
            except Damaged as error:
                path = self._directory / str(step)
                logger.warning("checkpoint %s is damaged, passed over: %s", path, error)
        return found

    def restore(
        self, like: TrainState, sharding: NamedSharding, step: int | None = None
    ) -> tuple[TrainState, Checkpoint]:
        """The state of `step`, or of the newest whole checkpoint.

        Args:
          like: arrays or shapes of a state of the run's model.
          sharding: where each array shall live; that of the saved run does not matter.
          step: which checkpoint.

        Raises:
          UserError: there is no whole checkpoint, or none of that step.
        """
        checkpoint = self._choose(step)
        target = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), like
        )
        path = self._directory / str(checkpoint.step)
        try:
            state = self._checkpointer.restore(path, target)
        except ValueError as error:
            raise UserError(
                f"{path} does not hold this run's model: {str(error).splitlines()[0]}"
            ) from error
        return state, checkpoint

    def restore_params(
        self,
        like: TrainState,
        sharding: NamedSharding,
        step: int | None = None,
        average: int = 1,
    ) -> dict[str, Any]:
        """Parameters of one checkpoint, or the mean of the last ones (section 6.1).

        Raises:
          UserError: there are fewer whole checkpoints than `average`.
        """
        if average < 1:
            raise UserError(f"the number of checkpoints to average is {average}")
        if average == 1:
            return self.restore(like, sharding, step)[0].params
        if step is not None:
            raise UserError(
                "give a step or a number of checkpoints to average, not both"
            )
        chosen = self.whole(average)
        if len(chosen) < average:
            raise UserError(
                f"{average} checkpoints to average, but {self._directory} has only "
                f"{len(chosen)} whole ones"
            )
        total: Any = None
        for checkpoint in chosen:
            state, _ = self.restore(like, sharding, checkpoint.step)
            params = jax.tree.map(lambda a: np.asarray(a, np.float64), state.params)
            total = params if total is None else jax.tree.map(np.add, total, params)
        return jax.tree.map(
            lambda a: jax.device_put((a / average).astype(np.float32), sharding), total
        )

    def _choose(self, step: int | None) -> Checkpoint:
        """The newest whole checkpoint, or that of `step`."""
        if step is None:
            if newest := self.whole(1):
                return newest[0]
            raise UserError(f"there is no whole checkpoint in {self._directory}")
        if step not in self.steps():
            names = ", ".join(map(str, self.steps())) or "none"
            raise UserError(f"step {step}: {self._directory} has the steps {names}")
        try:
            return self._verify(step)
        except Damaged as error:
            path = self._directory / str(step)
            raise UserError(f"checkpoint {path} is damaged: {error}") from error

    def _start(self, path: Path, state: TrainState) -> None:
        """Hands the state to Orbax, which writes in the background."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._sweep()
        if path.exists():
            shutil.rmtree(path)  # a damaged one that was passed over
        # Orbax would notice a full disk as well, but with many tracebacks.
        needed = sum(array.nbytes for array in jax.tree.leaves(state))
        if (free := shutil.disk_usage(self._directory).free) < needed:
            raise OSError(
                f"no space left on device: {needed / 1e6:,.1f} MB are needed, "
                f"{free / 1e6:,.1f} MB are free"
            )
        self._checkpointer.save(path, state)

    def _finish(self, path: Path, manifest: Checkpoint) -> None:
        """Waits for Orbax, writes the manifest, then deletes what is not kept."""
        self._checkpointer.wait_until_finished()
        write_manifest(path, manifest)
        self._prune(manifest.step)

    def _prune(self, newest: int) -> None:
        """Deletes all but the last ones and the best.

        What is later than `newest` was damaged, or the run would have gone on from it.
        """
        keep_last, keep_best = self._keep
        perplexities: dict[int, float] = {}
        whole = []
        for step in self.steps():
            try:
                metrics = read_manifest(self._directory / str(step)).metrics
            except Damaged:
                continue
            if step <= newest:
                whole.append(step)
                perplexities[step] = metrics.get("perplexity", np.inf)
        judged = [step for step in whole if perplexities[step] < np.inf]
        best = sorted(judged, key=perplexities.__getitem__)[:keep_best]
        for step in self.steps():
            if step not in whole[-keep_last:] and step not in best:
                shutil.rmtree(self._directory / str(step), ignore_errors=True)

    def _sweep(self) -> None:
        """Deletes what a save that failed or was killed has left."""
        for path in self._directory.glob(f"*{_UNFINISHED}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _verify(self, step: int) -> Checkpoint:
        """The manifest of a whole checkpoint of this vocabulary."""
        path = self._directory / str(step)
        checkpoint = verify(path)
        if checkpoint.vocabulary != self._vocabulary:
            raise UserError(
                f"checkpoint {path} was made with another vocabulary than "
                f"{self._directory.parent / 'vocab.model'}"
            )
        return checkpoint

    def _guard(self, action: Callable[[], None]) -> None:
        """Keeps a failure for the thread that trains."""
        try:
            action()
        except Exception as error:
            self._failure = error
            self._sweep()

    def _raise_failure(self) -> None:
        """Raises what went wrong while writing, once."""
        failure, self._failure = self._failure, None
        if failure is None:
            return
        if reason := _disk_trouble(failure):
            raise UserError(
                f"a checkpoint could not be written to {self._directory}: {reason}; "
                "earlier checkpoints are untouched: make room and give the same "
                "command again"
            ) from failure
        raise failure


def _disk_trouble(error: Exception) -> str | None:
    """The operating system's words where it refused to write, or None."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = str(error).splitlines()[0] if str(error) else ""
    if isinstance(error, ValueError) and "Failed to write" in text:
        # TensorStore: "... Failed to write 9 bytes to file 5: No space left [...]"
        return text.rpartition(": ")[2].partition(" [")[0]
    return None
