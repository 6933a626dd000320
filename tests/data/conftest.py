"""What test files of this room share: a real set, and a corpus of random pairs."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from configs import base, multi30k
from tests.data.random_corpus import random_sentences
from transformer.config import Config, DataConfig
from transformer.data.cache import Corpus, tokenize
from transformer.data.corpora import load_split
from transformer.data.text import ParallelText
from transformer.data.vocabulary import Vocabulary


@pytest.fixture(scope="session")
def multi30k_config() -> DataConfig:
    """The data section of the Multi30k experiment."""
    return Config.from_dict(multi30k.get_config()).data


@pytest.fixture(scope="session")
def prepared_multi30k(
    multi30k_config: DataConfig, tmp_path_factory, shared_data: Path
) -> DataConfig:
    """A configuration whose folder holds Multi30k, prepared once from local files."""
    config = dataclasses.replace(
        multi30k_config,
        tfds_dir=str(tmp_path_factory.mktemp("tfds")),
        tfds_manual_dir=str(shared_data / "multi30k"),
    )
    load_split(config, "validation")
    return dataclasses.replace(config, tfds_manual_dir="")


@pytest.fixture(scope="session")
def module_config() -> DataConfig:
    """The data part of the smallest configuration: 256 slots a batch."""
    values = base.get_config()
    values.data.update(
        vocab_size=300,
        max_tokens=64,
        bucket_widths=(8, 16, 32, 64),
        pack_width=64,
        tokens_per_batch=256,
        rows_multiple=4,
    )
    return Config.from_dict(values).data


@pytest.fixture(scope="session")
def vocabulary(module_config: DataConfig) -> Vocabulary:
    """A real model of 300 pieces."""
    return Vocabulary.train(random_sentences(200, 12), module_config)


@pytest.fixture(params=["bucket", "pack"])
def config(request: pytest.FixtureRequest, module_config: DataConfig) -> DataConfig:
    """Both kinds of plan."""
    return dataclasses.replace(module_config, plan=request.param)


@pytest.fixture
def make_corpus(vocabulary: Vocabulary, tmp_path: Path) -> Callable[[int], Corpus]:
    """Tokenises so many random pairs; targets are longer than sources."""

    def make(num_pairs: int) -> Corpus:
        sources = random_sentences(num_pairs, 12)
        targets = random_sentences(num_pairs, 15)
        text = ParallelText(sources, targets, "source", "target")
        return tokenize(text, vocabulary, None, tmp_path)

    return make
