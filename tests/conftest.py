"""What the tests share: real corpora, a tiny configuration, a run's folder, scripts."""

import dataclasses
import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

# Four CPU devices for every test, so that meshes of one, two and four can be compared;
# and quick compilation, which is most of what a test of a tiny model waits for:
# XLA's plain emitters alone save a third of the suite's time. XLA's defaults are met in
# tests/test_translate.py, once, and in `make demo`.
os.environ["XLA_FLAGS"] = " ".join(
    (
        os.environ.get("XLA_FLAGS", ""),
        "--xla_force_host_platform_device_count=4",
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false",
    )
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

from configs import base
from transformer.config import Config

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"


RUN_SOURCE = "the dog sees the cat\n\nthe cat\nMänner\n"
RUN_REFERENCE = "der Hund sieht die Katze\n\ndie Katze\nMänner\n"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora beside the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the real corpora are not at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    """One small layer a side, no dropout: for laws that need no quality."""
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


def script(name: str) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def train() -> ModuleType:
    """The module train.py."""
    return script("train")


@pytest.fixture
def translate():
    """The module translate.py."""
    return script("translate")


@pytest.fixture
def evaluate():
    """The module evaluate.py."""
    return script("evaluate")


@pytest.fixture(scope="session")
def runs() -> dict:
    """The one run's folder, once it is made."""
    return {}


@pytest.fixture
def run(runs, tiny_config: Config, tmp_path_factory) -> Path:
    """The folder of a run with a random model and a file for its test split."""
    from transformer.data import Position, Vocabulary
    from transformer.training import Checkpoints, RunFolder, initial_state

    if not runs:
        path = tmp_path_factory.mktemp("run")
        (path / "test.en").write_text(RUN_SOURCE, "utf-8")
        (path / "test.de").write_text(RUN_REFERENCE, "utf-8")
        config = dataclasses.replace(
            tiny_config,
            data=dataclasses.replace(
                tiny_config.data,
                test_source=str(path / "test.en"),
                test_target=str(path / "test.de"),
            ),
            decode=dataclasses.replace(
                tiny_config.decode, beam=1, max_extra_tokens=2, tokens_per_batch=256
            ),
        )
        folder = RunFolder(path)
        folder.prepare(config)
        lines = [*RUN_SOURCE.split("\n"), *RUN_REFERENCE.split("\n")]
        vocabulary = Vocabulary.train(
            lines, dataclasses.replace(config.data, vocab_size=290)
        )
        vocabulary.save(folder.vocabulary_path)
        state = initial_state(config, len(vocabulary))._replace(
            step=jax.numpy.asarray(7)
        )
        # A random model prefers pieces with letters to bytes, so that it is legible.
        pieces = vocabulary.pieces(range(len(vocabulary)))
        is_byte = jax.numpy.array([piece.startswith("<0x") for piece in pieces])
        table = jax.numpy.where(is_byte[:, None], 0, state.params["embedding"])
        state = state._replace(params=state.params | {"embedding": table})
        checkpoints = Checkpoints(folder.checkpoints_path, vocabulary.fingerprint)
        checkpoints.save(state, Position(0, 7), {})
        checkpoints.wait()
        runs["path"] = path
    return runs["path"]
