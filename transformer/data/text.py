"""Reading text: records, blank lines and parallel files.

A record ends at LF and nowhere else, so that other tools' line numbers hold: form
feeds, U+0085, U+2028 and lone CRs are characters of a record. One CR before the LF is
dropped, and so is a byte-order mark at the start. Every file is UTF-8 whatever the
locale says.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from transformer.errors import UserError

_BOM = b"\xef\xbb\xbf"


class ParallelText(NamedTuple):
    """Equally many records in two languages, and where they come from."""

    sources: Sequence[str]
    targets: Sequence[str]
    source_name: str
    target_name: str


def iter_records(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """The records of a binary stream (or of its lines), one at a time.

    Raises:
      UserError: a record is not UTF-8 or holds a NUL character, which SentencePiece
        would silently drop; the sentence names `name` and the line.
    """
    # A binary stream's own iteration splits at LF only.
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        if b"\0" in line:
            raise UserError(
                f"{name}, line {number}: there is a NUL character; is this a text "
                "file? Remove it, for example with: tr -d '\\000'"
            )
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number}: byte {error.start + 1} of the line "
                f"(0x{line[error.start]:02x}) is not UTF-8; convert the file, for "
                "example with: iconv -f WINDOWS-1252 -t UTF-8"
            ) from error


def read_records(path: str | Path) -> list[str]:
    """All records of a file.

    Raises:
      UserError: the file cannot be read, or see `iter_records`.
    """
    try:
        with open(path, "rb") as stream:
            return list(iter_records(stream, str(path)))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


def read_parallel(source: str | Path, target: str | Path) -> ParallelText:
    """Two files whose records belong together line by line.

    Raises:
      UserError: the numbers of records differ, or a file cannot be read.
    """
    sources, targets = read_records(source), read_records(target)
    check_same_count(str(source), len(sources), str(target), len(targets))
    return ParallelText(sources, targets, str(source), str(target))


def check_same_count(
    one_name: str, one_count: int, other_name: str, other_count: int
) -> None:
    """Raises `UserError` with both names and counts where they differ."""
    if one_count != other_count:
        raise UserError(
            f"{one_name} has {one_count:,} lines and {other_name} has "
            f"{other_count:,}: they must have equally many"
        )


def is_blank(text: str) -> bool:
    """True for white space, and for marks that leave nothing to translate.

    Such marks are format characters (joiners, direction marks, a stray U+FEFF) and
    control characters: normalisation removes them or turns them into spaces.
    """
    return all(
        char.isspace() or unicodedata.category(char) in ("Cf", "Cc") for char in text
    )
