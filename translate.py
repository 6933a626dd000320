"""Translates text with a trained run: standard input to standard output.

    python translate.py --workdir=DIR < in.txt > out.txt

One line in, one line out, in order; a blank line stays blank.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from transformer.command_line import (
    ArgumentParser,
    add_decode_flags,
    decode_settings,
    keep_freed_memory,
    run_command,
)

if __name__ == "__main__":
    keep_freed_memory()  # before JAX is imported: it may start the process again

from tqdm import tqdm

from transformer.data.text import iter_records
from transformer.decoding import Translation, Translator
from transformer.errors import UserError


def main(argv: Sequence[str]) -> None:
    """Reads the command line and translates."""
    parser = ArgumentParser(prog="translate.py", description=__doc__)
    parser.add_argument("--workdir", required=True, help="the run's folder")
    parser.add_argument("--input", help="a text file instead of standard input")
    parser.add_argument("--output", help="a text file instead of standard output")
    add_decode_flags(parser)
    flags = parser.parse_args(argv)
    with contextlib.ExitStack() as files:
        source: IO[bytes] = sys.stdin.buffer
        if flags.input:
            source = files.enter_context(_opened(flags.input, "rb"))
        translator = Translator.from_run(flags.workdir, flags.step, flags.average)
        translator.decode = decode_settings(flags, translator.config.decode)
        target: IO[bytes] = sys.stdout.buffer
        if flags.output:
            if flags.input and _same_file(flags.input, flags.output):
                raise UserError(f"--output={flags.output} is the file to be translated")
            target = files.enter_context(_opened(flags.output, "wb"))
        records = iter_records(source, flags.input or "standard input")
        window = {"window_size": 1} if source.isatty() else {}
        for translation in _shown(translator.translate(records, **window), target):
            # Bytes, so that the locale has no say.
            target.write(translation.text.encode("utf-8") + b"\n")
            target.flush()


def _shown(
    translations: Iterator[Translation], target: IO[bytes]
) -> Iterable[Translation]:
    """Counts lines on the terminal where the translations do not appear there."""
    hidden = not sys.stderr.isatty() or target.isatty()
    return tqdm(translations, unit="line", disable=hidden)


def _same_file(one: str, other: str) -> bool:
    """Whether both names lead to one file."""
    return Path(one).resolve() == Path(other).resolve()


def _opened(path: str, mode: str) -> IO[bytes]:
    """The file at `path`."""
    try:
        return cast(IO[bytes], open(path, mode))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


if __name__ == "__main__":
    run_command(main)
