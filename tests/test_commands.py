"""What translate.py and evaluate.py do with a run's folder, files and streams."""

import dataclasses
import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jax.numpy as jnp
import pytest

from transformer.config import Config
from transformer.data import Position, Vocabulary
from transformer.errors import UserError
from transformer.training import Checkpoints, RunFolder, initial_state

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "the dog sees the cat\n\nthe cat\nMänner\n"
REFERENCE = "der Hund sieht die Katze\n\ndie Katze\nMänner\n"


def script(name: str) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def translate():
    """The module translate.py."""
    return script("translate")


@pytest.fixture
def evaluate():
    """The module evaluate.py."""
    return script("evaluate")


@pytest.fixture(scope="module")
def runs() -> dict:
    """The one run's folder, once it is made."""
    return {}


@pytest.fixture
def run(runs, tiny_config: Config, tmp_path_factory) -> Path:
    """The folder of a run with a random model and a file for its test split."""
    if not runs:
        path = tmp_path_factory.mktemp("run")
        (path / "test.en").write_text(SOURCE, "utf-8")
        (path / "test.de").write_text(REFERENCE, "utf-8")
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
        lines = [*SOURCE.split("\n"), *REFERENCE.split("\n")]
        vocabulary = Vocabulary.train(
            lines, dataclasses.replace(config.data, vocab_size=290)
        )
        vocabulary.save(folder.vocabulary_path)
        state = initial_state(config, len(vocabulary))._replace(step=jnp.asarray(7))
        # A random model prefers pieces with letters to bytes, so that it is legible.
        pieces = vocabulary.pieces(range(len(vocabulary)))
        is_byte = jnp.array([piece.startswith("<0x") for piece in pieces])
        table = jnp.where(is_byte[:, None], 0, state.params["embedding"])
        state = state._replace(params=state.params | {"embedding": table})
        checkpoints = Checkpoints(folder.checkpoints_path, vocabulary.fingerprint)
        checkpoints.save(state, Position(0, 7), {})
        checkpoints.wait()
        runs["path"] = path
    return runs["path"]


@pytest.fixture
def piped(translate, run, monkeypatch, capfdbinary):
    """Translates bytes from standard input to standard output."""

    def through(text: bytes, *flags: str) -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        with open(1, "w", closefd=False) as stdout:
            monkeypatch.setattr(sys, "stdout", stdout)
            translate.main([f"--workdir={run}", *flags])
        return capfdbinary.readouterr().out

    return through


def test_as_many_lines_come_out_as_go_in(piped):
    """A record ends at LF only; the last may lack it; blank lines stay blank.

    Elsewhere U+2028 and U+0085 ended lines, and an unterminated last line was lost.
    """
    assert piped(b"") == b""
    assert piped(b"\n") == b"\n"
    assert piped(b" \n\t\n\xc2\xa0\n\xe3\x80\x80\n" * 16) == b"\n" * 64
    found = piped(b"the cat\r\nthe\xe2\x80\xa8cat\n\nthe\xc2\x85cat")
    assert found.count(b"\n") == 4 and found.endswith(b"\n")
    lines = found.split(b"\n")
    assert lines[2] == b"" and all(lines[i] for i in (0, 1, 3))
    assert piped(b"\xef\xbb\xbfthe cat\n") == lines[0] + b"\n"
    assert piped(b"the cat\n", "--beam=1", "--alpha=0.0") == lines[0] + b"\n"


def test_bad_bytes_and_flags_are_refused_by_name(piped, translate, run, tmp_path):
    """With the line, the flag or the file in one sentence."""
    with pytest.raises(UserError, match="standard input, line 3"):
        piped(b"the cat\n\ncaf\xe9\n")
    with pytest.raises(UserError, match="decode.beam is 0"):
        piped(b"", "--beam=0")
    missing = str(tmp_path / "missing")
    with pytest.raises(UserError, match="missing: No such file"):
        translate.main([f"--workdir={run}", f"--input={missing}"])
    same = tmp_path / "text"
    same.write_text("the cat\n")
    with pytest.raises(UserError, match="is the file to be translated"):
        translate.main([f"--workdir={run}", f"--input={same}", f"--output={same}"])
    assert same.read_text() == "the cat\n"


def test_the_locale_has_no_say(piped, run, tmp_path):
    """Under a C locale the same bytes come out, through pipes and through files.

    Elsewhere a codec error came up only under cron or in a container.
    """
    text = SOURCE.encode("utf-8")
    expected = piped(text)
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(text)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "JAX_PLATFORMS": "cpu"}
    environment |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "translate.py", f"--workdir={run}"]
    for flags, stdin in (
        ([], text),
        ([f"--input={source}", f"--output={output}"], b""),
    ):
        done = subprocess.run(
            [*command, *flags],
            input=stdin,
            capture_output=True,
            cwd=ROOT,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (output.read_bytes() if flags else done.stdout) == expected


def test_evaluating_a_run_prints_scores_and_keeps_the_output(
    evaluate, run, capfdbinary
):
    """Scores with signatures, perplexity, protocol, samples; the output in a file.

    Sources and references are raw, and blank lines keep their place.
    """
    evaluate.main([f"--workdir={run}", "--json"])
    report = json.loads(capfdbinary.readouterr().out)
    assert report["test set"] == "test" and report["segments"] == 4
    assert report["checkpoints"] == "7"
    assert "tok:13a" in report["BLEU signature"]
    assert "case:lc" in report["BLEU lower-cased signature"]
    assert "sacreBLEU" in report["protocol"]
    assert 1 < report["perplexity per subword"] < 1e6
    kept = (run / "translations" / "test.txt").read_text("utf-8").split("\n")
    assert len(kept) == 5 and kept[1] == kept[4] == ""
    samples = report["samples"]
    assert [sample["source"] for sample in samples] == SOURCE.split("\n")[:4]
    assert [sample["translation"] for sample in samples] == kept[:4]
    flags = [f"--source={run / 'test.en'}", f"--reference={run / 'test.de'}"]
    evaluate.main([f"--workdir={run}", *flags])
    shown = capfdbinary.readouterr().out.decode("utf-8")
    assert f"BLEU: {report['BLEU']:.2f}\n" in shown and "Männer" in shown
    assert (run / "translations" / "test.en.txt").read_text("utf-8").split("\n") == kept


def test_files_are_scored_without_a_model(evaluate, tmp_path, capfdbinary):
    """One byte-order mark, CRLF or a missing last LF change no score."""
    reference, hypothesis = tmp_path / "ref", tmp_path / "hyp"
    flags = [f"--hypothesis={hypothesis}", f"--reference={reference}"]
    lines = "Ein Hund sieht die Katze.\nzwei Männer\u2028gehen nach Hause\n"
    forms = [lines, "\ufeff" + lines, lines.replace("\n", "\r\n"), lines[:-1]]
    reference.write_bytes(lines.encode("utf-8"))
    for form in forms:
        hypothesis.write_bytes(form.encode("utf-8"))
        evaluate.main([*flags, "--json"])
        report = json.loads(capfdbinary.readouterr().out)
        assert (report["BLEU"], report["segments"]) == (pytest.approx(100), 2)


def test_files_that_cannot_be_scored_are_refused(evaluate, tmp_path):
    """Unequal, empty or not UTF-8: with names, counts and lines."""
    reference, hypothesis = tmp_path / "ref", tmp_path / "hyp"
    flags = [f"--hypothesis={hypothesis}", f"--reference={reference}"]
    reference.write_text("a\nb\nc\nd\n")
    hypothesis.write_text("a\nb\nc\n")
    with pytest.raises(UserError, match="hyp has 3 lines and .*ref has 4"):
        evaluate.main(flags)
    hypothesis.write_bytes(b"a\nb\ncaf\xe9\nd\n")
    with pytest.raises(UserError, match="hyp, line 3"):
        evaluate.main(flags)
    hypothesis.write_text("")
    reference.write_text("")
    with pytest.raises(UserError, match="no segments"):
        evaluate.main(flags)


def test_contradicting_flags_are_refused(evaluate, run, tmp_path):
    """What is to be scored is said once."""
    for flags in (
        [],
        ["--hypothesis=x"],
        ["--hypothesis=x", "--reference=y", "--sacrebleu=wmt13"],
        ["--hypothesis=x", "--sacrebleu=wmt13"],
        [f"--workdir={run}", "--source=x"],
        [f"--workdir={run}", "--source=x", "--reference=y", "--split=test"],
        [f"--workdir={run}", "--hypothesis=x", "--reference=y"],
        [f"--workdir={tmp_path}"],
        [f"--workdir={run}", "--spilt=test"],
    ):
        with pytest.raises(UserError):
            evaluate.main(flags)
