"""Loss, optimiser, updates and what a run keeps (section 5)."""

from transformer.training.checkpoints import Checkpoints
from transformer.training.loss import LossSums, smoothed_loss
from transformer.training.manifest import Checkpoint
from transformer.training.metrics import MetricsWriter
from transformer.training.optimizer import adam, learning_rate
from transformer.training.progress import Clock, ProgressLog
from transformer.training.run_folder import RunFolder
from transformer.training.state import TrainState, initial_state
from transformer.training.step import (
    StepMetrics,
    by_rows,
    check_divisible,
    make_eval_step,
    make_mesh,
    make_train_step,
    replicated,
)

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Clock",
    "LossSums",
    "MetricsWriter",
    "ProgressLog",
    "RunFolder",
    "StepMetrics",
    "TrainState",
    "adam",
    "by_rows",
    "check_divisible",
    "initial_state",
    "learning_rate",
    "make_eval_step",
    "make_mesh",
    "make_train_step",
    "replicated",
    "smoothed_loss",
]
