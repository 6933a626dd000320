"""What test files of this room share: a real set, and a corpus of random pairs."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from configs import multi30k
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
def data_config(tiny_config: Config) -> DataConfig:
    """The data part of the smallest configuration: 256 slots a batch."""
    return tiny_config.data


@pytest.fixture(scope="session")
def vocabulary(data_config: DataConfig) -> Vocabulary:
    """A real model of 300 pieces."""
    return Vocabulary.train(random_sentences(200, 12), data_config)


@pytest.fixture(params=["bucket", "pack"])
def config(request: pytest.FixtureRequest, data_config: DataConfig) -> DataConfig:
    """Both kinds of plan."""
    return dataclasses.replace(data_config, plan=request.param)


@pytest.fixture
def make_corpus(vocabulary: Vocabulary, tmp_path: Path) -> Callable[[int], Corpus]:
    """Tokenises so many random pairs; targets are longer than sources."""

    def make(num_pairs: int) -> Corpus:
        sources = random_sentences(num_pairs, 12)
        targets = random_sentences(num_pairs, 15)
        text = ParallelText(sources, targets, "source", "target")
        return tokenize(text, vocabulary, None, tmp_path)

    return make
