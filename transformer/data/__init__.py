"""From text to batches (section 5.1)."""

from transformer.data.cache import Corpus, tokenize
from transformer.data.corpora import load_split
from transformer.data.pipeline import (
    Batch,
    Position,
    evaluation_batches,
    training_batches,
)
from transformer.data.plans import epoch_plan
from transformer.data.text import ParallelText, is_blank, read_parallel, read_records
from transformer.data.vocabulary import Vocabulary

__all__ = [
    "Batch",
    "Corpus",
    "ParallelText",
    "Position",
    "Vocabulary",
    "epoch_plan",
    "evaluation_batches",
    "is_blank",
    "load_split",
    "read_parallel",
    "read_records",
    "tokenize",
    "training_batches",
]
