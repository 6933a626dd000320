"""What the tests of decoding share."""

import dataclasses

import pytest

from transformer.config import Config, ModelConfig


@pytest.fixture
def model_config(tiny_config: Config) -> ModelConfig:
    """Tables of their own, so that a test can make an output piece likely or not."""
    return dataclasses.replace(tiny_config.model, tie_embeddings=False)
