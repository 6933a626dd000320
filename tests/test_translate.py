"""What translate.py does with a run's folder, files and streams."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.errors import UserError


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
    with pytest.raises(UserError, match="is a file to be read"):
        translate.main([f"--workdir={run}", f"--input={same}", f"--output={same}"])
    flags = [f"--input={same}", f"--output={tmp_path / 'old'}", "--beam=4"]
    (tmp_path / "old").write_text("old\n")
    with pytest.raises(UserError, match="nbest is 9"):
        translate.main([f"--workdir={run}", *flags, "--nbest=9"])
    assert same.read_text() == "the cat\n" and (tmp_path / "old").read_text() == "old\n"


def test_locale_and_devices_have_no_say(piped, translate, run, tmp_path):
    """Under a C locale the same bytes come out, through pipes and through files.

    And on one device, compiled as XLA does by default, as on the four of the tests.
    Elsewhere a codec error came up only under cron or in a container.
    """
    text = (run / "test.en").read_bytes()
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
            cwd=Path(translate.__file__).parent,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (output.read_bytes() if flags else done.stdout) == expected


TEXT = b"the dog sees the cat\n\nthe cat\n"


def rows(output: bytes) -> list[list[str]]:
    """Lines of tab-separated columns."""
    return [line.split("\t") for line in output.decode("utf-8").split("\n")[:-1]]


def test_nbest_lists_are_in_order_and_their_scores_can_be_recomputed(piped):
    """Line number, score, log-probability, pieces, text: the best first.

    A blank line has one blank translation, so that every line number is there.
    """
    flags = ("--beam=4", "--alpha=0.6", "--max-extra-tokens=40")
    found = rows(piped(TEXT, "--nbest=3", *flags))
    assert [row[0] for row in found] == ["1", "1", "1", "2", "3", "3", "3"]
    assert found[3] == ["2", "0.000000", "0.000000", "0", ""]
    scores = {}
    for number, score, log_prob, pieces, _ in found:
        if number == "2":
            continue
        expected = float(log_prob) / ((5 + int(pieces)) / 6) ** 0.6
        assert float(score) == pytest.approx(expected, abs=1e-4)
        scores.setdefault(number, []).append(float(score))
    assert all(s == sorted(s, reverse=True) for s in scores.values())
    best = piped(TEXT, *flags).decode("utf-8").split("\n")
    assert [found[0][4], "", found[4][4]] == best[:3]


def test_json_lines_hold_what_the_columns_hold(piped):
    """One object a line, in the input's order, with pieces and alignment."""
    flags = ("--nbest=2", "--beam=4", "--align")
    columns = rows(piped(TEXT, *flags))
    objects = [json.loads(line) for line in piped(TEXT, *flags, "--json").splitlines()]
    assert [one["line"] for one in objects] == [1, 2, 3]
    assert [one["source"] for one in objects] == ["the dog sees the cat", "", "the cat"]
    flat = [one for line in objects for one in line["translations"]]
    for (_, score, _, pieces, text, pharaoh), one in zip(columns, flat, strict=True):
        assert one["text"] == text and one["num_pieces"] == int(pieces)
        assert one["score"] == pytest.approx(float(score), abs=1e-6)
        pairs = " ".join(f"{i}-{j}" for i, j in one["alignment"])
        assert pairs == pharaoh and len(one["pieces"]) == one["num_pieces"]
    words = flat[0]["text"].split()
    assert [j for _, j in flat[0]["alignment"]] == list(range(len(words)))
    assert {i for i, _ in flat[0]["alignment"]} <= set(range(5))


def test_given_translations_are_scored(piped, tmp_path):
    """The model's own output has its own log-probability; the numbers are one law."""
    targets = tmp_path / "targets"
    found = rows(piped(TEXT, "--nbest=1", "--beam=1", "--max-extra-tokens=40"))
    targets.write_text("".join(f"{row[4]}\n" for row in found), "utf-8")
    scored = rows(piped(TEXT, f"--targets={targets}"))
    assert len(scored) == 3
    for log_prob, perplexity, pieces in scored:
        mean = -float(log_prob) / int(pieces)
        assert float(perplexity) == pytest.approx(2.718281828**mean, rel=1e-3)
    (one, *_) = piped(TEXT, f"--targets={targets}", "--json").splitlines()
    shown = json.loads(one)
    assert len(shown["pieces"]) == len(shown["piece_log_probs"]) == shown["num_pieces"]
    assert sum(shown["piece_log_probs"]) == pytest.approx(shown["log_prob"])


def test_translations_begin_with_their_prefixes(piped, tmp_path):
    """Line by line; a blank prefix leaves the translation free."""
    prefixes = tmp_path / "prefixes"
    prefixes.write_text("der Hund\n\n\n", "utf-8")
    first, _, third = piped(TEXT, f"--prefixes={prefixes}").decode("utf-8").splitlines()
    assert first.startswith("der Hund")
    assert third == piped(TEXT).decode("utf-8").splitlines()[2]
    with pytest.raises(UserError, match="line 3 has no prefix"):
        prefixes.write_text("der\n\n", "utf-8")
        piped(TEXT, f"--prefixes={prefixes}")


def test_samples_depend_on_the_seed_alone(piped):
    """The same seed gives the same text; temperature 0 is greedy search."""
    flags = ("--temperature=1.5", "--seed=3")
    assert piped(TEXT, *flags) == piped(TEXT, *flags)
    assert piped(TEXT, *flags) != piped(TEXT, "--temperature=1.5", "--seed=4")
    greedy = piped(TEXT, "--beam=1")
    assert piped(TEXT, "--temperature=0", "--beam=1") == greedy
    assert piped(TEXT, "--temperature=1e-8") == greedy
    assert piped(TEXT, "--temperature=2", "--top-k=1") == greedy
    assert len(rows(piped(b"the cat\n", "--nbest=5", *flags))) == 5


def test_a_model_votes_with_itself(piped, run):
    """An ensemble of one model twice is that model; a checkpoint may be named."""
    assert piped(TEXT, f"--ensemble={run}@7") == piped(TEXT)
    with pytest.raises(UserError, match="'x' is not a checkpoint"):
        piped(TEXT, f"--ensemble={run}@x")


@pytest.mark.parametrize(
    ("flag", "match"),
    [
        ("--nbest=5", "nbest is 5"),
        ("--nbest=0", "nbest is 0"),
        ("--alpha=nan", "decode.alpha is nan"),
        ("--alpha=-1", "decode.alpha is -1"),
        ("--temperature=-1", "decode.temperature is -1"),
        ("--temperature=nan", "decode.temperature is nan"),
        ("--temperature=inf", "decode.temperature is inf"),
        ("--top-p=0", "decode.top_p is 0"),
        ("--top-p=1.5", "decode.top_p is 1.5"),
        ("--top-p=nan", "decode.top_p is nan"),
        ("--top-k=-1", "decode.top_k is -1"),
        ("--seed=-1", "decode.seed is -1"),
        ("--min-length=-2", "decode.min_length is -2"),
        ("--no-repeat-ngram=-1", "decode.no_repeat_ngram is -1"),
        ("--beam=two", "--beam"),
        ("--targets=nowhere", "nowhere: No such file"),
        ("--prefixes=nowhere", "nowhere: No such file"),
    ],
)
def test_settings_that_no_search_can_have_are_refused(piped, flag, match):
    """One sentence names the flag and its value, before any line is read."""
    with pytest.raises(UserError, match=match):
        piped(TEXT, "--beam=4", flag)


def test_nothing_to_score_is_said(piped, tmp_path):
    """No NaN for an empty file; unequal files name the line."""
    targets = tmp_path / "targets"
    targets.write_text("")
    with pytest.raises(UserError, match="no segments"):
        piped(b"", f"--targets={targets}")
    with pytest.raises(UserError, match="line 1 has no target"):
        piped(TEXT, f"--targets={targets}")
    with pytest.raises(UserError, match="scored as they are"):
        piped(TEXT, f"--targets={targets}", "--nbest=2")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_translation_has_written_what_was_done(translate, run, number):
    """Whole lines, in order, no traceback; a reader that goes away is no error of ours.

    Lines are answered a window at a time, so that the first come before the last.
    """
    process = subprocess.Popen(
        [sys.executable, "translate.py", f"--workdir={run}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(translate.__file__).parent,
        env={"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu"},
    )
    assert process.stdin and process.stdout
    process.stdin.write(b"the cat\n" * 3000)
    process.stdin.flush()
    first = process.stdout.readline()
    process.send_signal(number)
    output, errors = process.communicate()
    assert process.returncode == 128 + number
    assert b"Traceback" not in errors and b"stopped by" in errors
    lines = output.split(b"\n")
    assert lines[-1] == b"" and {first, *(line + b"\n" for line in lines[:-1])} == {
        first
    }
