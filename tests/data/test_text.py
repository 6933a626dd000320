"""Laws of reading text: LF alone ends a record, UTF-8 whatever the locale."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from transformer.data.text import is_blank, iter_records, read_parallel, read_records
from transformer.errors import UserError


def records(content: bytes) -> list[str]:
    """The records of some bytes."""
    return list(iter_records(io.BytesIO(content), "input"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"zw\rei\r\n", ["zw\rei"]),
        (b"a\r", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1ee\n".encode(), None),
        ('tab\t\uffe8 ||| @@ ##AT##-##AT## "q",\n'.encode(), None),
    ],
)
def test_a_record_ends_at_lf_only(content, expected):
    """Other line breaks split records elsewhere and shifted one side of a corpus."""
    if expected is None:
        expected = [content.decode().removesuffix("\n")]
    assert records(content) == expected


def test_records_stream():
    """A record is handed out before the next is read: input may be endless."""

    def endless():
        while True:
            yield b"line\r\n"

    stream = iter_records(endless(), "input")
    assert [next(stream) for _ in range(3)] == ["line"] * 3


def test_both_sides_keep_their_lines(tmp_path: Path):
    """Line separators of Unicode inside a record do not make the sides differ."""
    (tmp_path / "s").write_bytes(b"a b\xe2\x80\xa8c d\ne\xc2\x85f\ng h\n")
    (tmp_path / "t").write_bytes(b"A B C D\r\nE F\r\nG H")
    text = read_parallel(tmp_path / "s", tmp_path / "t")
    assert len(text.sources) == 3
    assert list(text.targets) == ["A B C D", "E F", "G H"]


def test_unequal_counts_are_refused_with_both_names_and_counts(tmp_path: Path):
    """Elsewhere the longer side was cut, or a bare assertion failed."""
    (tmp_path / "ten").write_text("x\n" * 10)
    (tmp_path / "eleven").write_text("x\n" * 11)
    with pytest.raises(UserError, match=r"ten has 10 lines .*eleven has 11"):
        read_parallel(tmp_path / "ten", tmp_path / "eleven")


@pytest.mark.parametrize("bad", [b"caf\xe9 noir", b"a\0b"])
def test_bytes_that_are_no_text_stop_the_work_at_their_line(tmp_path: Path, bad):
    """Elsewhere an offset into a buffer was named, or the text was altered."""
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"fine\n" * 36 + bad + b"\n" + b"fine\n" * 13)
    with pytest.raises(UserError, match=r"corpus\.txt, line 37: "):
        read_records(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path):
    """The user's mistake gets the path and the reason."""
    with pytest.raises(UserError, match="nothing cannot be read: No such file"):
        read_records(tmp_path / "nothing")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_records(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\t",
        "\u00a0",
        "\u3000",
        "\u200f\u200f",
        "\u200d",
        "\ufeff",
        "\x1f",
        "\r",
    ],
)
def test_marks_that_say_nothing_are_blank(text):
    """White space, joiners and direction marks leave nothing to translate."""
    assert is_blank(text)


@pytest.mark.parametrize("text", ["-", ".", "می‌خواهم", "👨‍👩‍👧", "\u2581"])
def test_text_is_not_blank(text):
    """Joiners inside words do not blank them."""
    assert not is_blank(text)


def test_the_locale_has_no_say(tmp_path: Path):
    """Under cron and in containers the locale is C, and ASCII was assumed there."""
    path = tmp_path / "text"
    path.write_text("Männer\n", encoding="utf-8")
    program = (
        "import sys; from transformer.data.text import read_records; "
        "sys.stdout.buffer.write(read_records(sys.argv[1])[0].encode())"
    )
    environment = {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        env=environment,
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == "Männer"
