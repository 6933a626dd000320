"""A corpus of random sentences, and the first batches of a pipeline over it."""

import itertools

import numpy as np

from transformer.config import DataConfig
from transformer.data.cache import Corpus
from transformer.data.pipeline import Position, TrainingItem, training_batches
from transformer.data.vocabulary import Vocabulary

START = Position(epoch=0, index=0)


def random_sentences(num_sentences: int, longest: int) -> list[str]:
    """Sentences of different lengths from a handful of words, no two alike."""
    random = np.random.default_rng(longest)
    words = ["ein", "Hund", "läuft", "the", "dog", "runs", "über", "Straße"]
    return [
        " ".join(random.choice(words, size=random.integers(1, longest))) + f" {number}"
        for number in range(num_sentences)
    ]


def take(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: DataConfig,
    count: int,
    position: Position = START,
) -> list[TrainingItem]:
    """The first `count` items from a position."""
    batches = training_batches(corpus, vocabulary, config, 1, position)
    try:
        return list(itertools.islice(batches, count))
    finally:
        batches.close()
