"""What the tests share: the real corpora, a tiny configuration, device count."""

import os
from pathlib import Path

import pytest

# Four CPU devices for every test, so that meshes of one, two and four can be compared;
# and quick compilation, which is most of what a test of a tiny model waits for.
os.environ["XLA_FLAGS"] = " ".join(
    (
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=4",
        "--xla_backend_optimization_level=0",
    )
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from configs import base
from transformer.config import Config

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real corpora are not at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture
def tiny_config() -> Config:
    """A model of two small layers without dropout, for laws that need no quality."""
    config = base.get_config()
    config.model.update(
        num_layers=1, d_model=32, d_ff=64, num_heads=2, d_k=16, d_v=16, dropout=0.0
    )
    config.data.update(
        source="text",
        vocab_size=300,
        max_tokens=64,
        bucket_widths=(8, 16, 32, 64),
        pack_width=64,
        tokens_per_batch=256,
        rows_multiple=4,
    )
    config.train.update(warmup_steps=10, num_steps=20)
    return Config.from_dict(config)
