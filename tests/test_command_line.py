"""Exit codes, and how configurations and their overrides are read."""

import subprocess
import sys
from pathlib import Path

import pytest

from transformer.command_line import load_config, split_overrides
from transformer.errors import UserError

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("pass", 0, ""),
        ("raise UserError('what to do')", 2, "error: what to do"),
        ("open('/dev/full', 'wb', buffering=0).write(b'x')", 2, "No space left"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "stopped by SIGTERM"),
        ("os.kill(os.getpid(), signal.SIGINT)", 130, "stopped by SIGINT"),
        ("raise KeyError('ours')", 1, "Traceback"),
    ],
)
def test_how_a_command_ends(body, code, says):
    """The user's mistakes are a sentence and 2, ours a traceback and 1."""
    program = (
        "import os, signal\n"
        "from transformer.command_line import run_command\n"
        "from transformer.errors import UserError\n"
        f"def command(argv):\n    {body}\n"
        "run_command(command)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == code
    assert says in done.stderr
    assert ("Traceback" in done.stderr) == (code == 1)


def test_overrides_are_taken_out_of_the_arguments():
    """With "=" or as the next argument; what is left is for the other flags."""
    rest, overrides = split_overrides(
        ["--workdir=x", "--config.a.b=c=d", "--config.e.f", "-1", "--config=y"]
    )
    assert rest == ["--workdir=x", "--config=y"]
    assert overrides == {"a.b": "c=d", "e.f": "-1"}
    with pytest.raises(UserError, match="--config.a.b needs a value"):
        split_overrides(["--config.a.b"])


def test_values_have_the_kind_of_their_key():
    """Texts stay texts, lists and numbers are read."""
    config = load_config(
        str(ROOT / "configs" / "base.py"),
        {
            "data.train_source": "1234",
            "data.bucket_widths": "(8,256)",
            "model.dropout": "0",
            "model.tie_embeddings": "false",
        },
    )
    assert config.data.train_source == "1234"
    assert config.data.bucket_widths == (8, 256)
    assert config.model.dropout == 0.0
    assert config.model.tie_embeddings is False


@pytest.mark.parametrize(
    ("path", "overrides", "says"),
    [
        ("configs/nothing.py", {}, "there is no such file"),
        ("README.md", {}, "a Python file"),
        ("configs/base.py:x", {}, "has no variants"),
        ("configs/en_fr.py:x", {}, "base, big"),
        ("configs/base.py", {"trian.num_steps": "5"}, "no such configuration key"),
        ("configs/base.py", {"train": "5"}, "no such configuration key"),
        ("configs/base.py", {"train.num_steps": "5.5"}, "train.num_steps is 5.5"),
        ("configs/base.py", {"train.num_steps": ""}, "train.num_steps is ''"),
        ("configs/base.py", {"data.bucket_widths": "8"}, "data.bucket_widths is 8"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named(path, overrides, says):
    """Whatever library would have complained, it is one sentence about the key."""
    with pytest.raises(UserError, match=says):
        load_config(str(ROOT / path), overrides)
