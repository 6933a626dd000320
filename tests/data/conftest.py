"""A real set that several test files of this room read."""

import dataclasses
from pathlib import Path

import pytest

from configs import multi30k
from transformer.config import Config, DataConfig
from transformer.data.corpora import load_split


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
