"""How far a run is: updates, minutes, and the numbers that it reports on the way."""

import logging
import sys
import time

import jax
import numpy as np
from tqdm import tqdm

from transformer.config import TrainConfig
from transformer.errors import UserError
from transformer.training.loss import LossSums
from transformer.training.metrics import MetricsWriter
from transformer.training.step import StepMetrics

logger = logging.getLogger(__name__)


class Clock:
    """Minutes of training, those of earlier parts of the run included."""

    def __init__(self, minutes: float):
        """Goes on from `minutes`."""
        self._begin = time.monotonic() - 60 * minutes

    def minutes(self) -> float:
        """Minutes so far."""
        return (time.monotonic() - self._begin) / 60


class ProgressLog:
    """Counts updates, and writes their numbers one update late.

    The device is never waited for: while it computes an update, the host reads what the
    one before reported.
    """

    def __init__(
        self, metrics: MetricsWriter, config: TrainConfig, step: int, clock: Clock
    ):
        """Starts after `step`."""
        self.step = step
        self.finite = True
        self._metrics, self._config, self._clock = metrics, config, clock
        self._pending: StepMetrics | None = None
        self._sums: list[LossSums] = []
        self._begin = time.monotonic()
        self._bar = tqdm(
            total=config.num_steps,
            initial=step,
            unit="step",
            disable=not sys.stderr.isatty(),
        )

    def is_last(self) -> bool:
        """Whether the run's steps or minutes are used up."""
        limit = self._config.max_minutes
        over = bool(limit) and self._clock.minutes() >= limit
        return over or self.step >= self._config.num_steps

    def add(self, metrics: StepMetrics) -> None:
        """Takes an update's numbers and reads those of the one before."""
        self.settle()
        self._pending = metrics
        self.step += 1

    def settle(self) -> None:
        """Reads the numbers of the last update.

        Raises:
          UserError: the update's loss or gradient was not finite.
        """
        metrics, self._pending = self._pending, None
        if metrics is None:
            return
        if not bool(metrics.finite):
            self.finite = False
            raise UserError(
                f"step {self.step}: the loss is not finite; the checkpoints before it "
                "are good: lower train.learning_rate_factor, lengthen "
                "train.warmup_steps, or look at the data"
            )
        self._sums.append(jax.device_get(metrics.sums))
        self._bar.update()
        if self.step % self._config.log_every == 0 or self.is_last():
            self._write(metrics)

    def settle_quietly(self) -> None:
        """`settle` while another error is on its way."""
        try:
            self.settle()
        except UserError as error:
            logger.error("%s", error)
        self._bar.close()

    def _write(self, metrics: StepMetrics) -> None:
        """One line of metrics: means over the updates since the last line."""
        total = np.sum([np.asarray(s, np.float64) for s in self._sums], axis=0)
        sums = dict(zip(LossSums._fields, total.tolist(), strict=True))
        tokens = sums["num_tokens"]
        seconds = time.monotonic() - self._begin
        values = {
            "loss": sums["loss_sum"] / tokens,
            "nll": sums["nll_sum"] / tokens,
            "accuracy": sums["num_correct"] / tokens,
            "learning_rate": float(metrics.learning_rate),
            "grad_norm": float(metrics.grad_norm),
            "tokens_per_second": tokens / seconds,
            "tokens_per_update": tokens / len(self._sums),
        }
        self._metrics.write(self.step, {f"train/{k}": v for k, v in values.items()})
        left = (self._config.num_steps - self.step) * seconds / len(self._sums) / 60
        if limit := self._config.max_minutes:
            left = min(left, limit - self._clock.minutes())
        line = f"loss {values['loss']:.3f}, {values['tokens_per_second']:,.0f} tokens/s"
        self._bar.set_postfix_str(line)
        if self._bar.disable:
            logger.info("step %d: %s, %.0f min left", self.step, line, max(left, 0))
        self._sums, self._begin = [], time.monotonic()
