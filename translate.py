"""Translates text with a trained run: standard input to standard output.

    python translate.py --workdir=DIR < in.txt > out.txt

One line in, one line out, in order; a blank line stays blank. What comes out instead:

    --nbest=N         N lines for each, tab-separated: line number, score,
                      log-probability, pieces (EOS counted), text
    --targets=FILE    these translations are scored: log-probability, perplexity per
                      piece, pieces, tab-separated
    --align           one column more: the words that attention aligns, as "0-0 1-2"
                      (source word - target word, from 0)
    --json            a JSON object a line, with all of this
"""

import argparse
import contextlib
import itertools
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

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
    parser.add_argument(
        "--ensemble",
        action="append",
        default=[],
        metavar="DIR[@STEP]",
        help="one more model that votes, of the same vocabulary; may be repeated",
    )
    parser.add_argument("--input", help="a text file instead of standard input")
    parser.add_argument("--output", help="a text file instead of standard output")
    parser.add_argument("--nbest", type=int, help="give so many translations a line")
    parser.add_argument("--prefixes", help="a text file: how each translation begins")
    parser.add_argument("--targets", help="a text file: score these translations")
    parser.add_argument("--align", action="store_true", help="align words")
    parser.add_argument("--json", action="store_true", help="JSON lines")
    add_decode_flags(parser)
    flags = parser.parse_args(argv)
    if flags.targets and (flags.nbest or flags.prefixes):
        raise UserError("--targets are scored as they are: no --nbest, no --prefixes")
    with contextlib.ExitStack() as files:
        source: IO[bytes] = sys.stdin.buffer
        if flags.input:
            source = files.enter_context(_opened(flags.input, "rb"))
        seconds: Iterable[str] | None = None
        if second := flags.targets or flags.prefixes:
            file = files.enter_context(_opened(second, "rb"))
            seconds = iter_records(file, second)
        translator = _translator(flags)
        if flags.nbest is not None:
            translator.check_nbest(flags.nbest)  # before a file is overwritten
        target: IO[bytes] = sys.stdout.buffer
        if flags.output:
            for name in (flags.input, second):
                if name and Path(name).resolve() == Path(flags.output).resolve():
                    raise UserError(f"--output={flags.output} is a file to be read")
            target = files.enter_context(_opened(flags.output, "wb"))
        records = iter_records(source, flags.input or "standard input")
        window = {"window_size": 1} if source.isatty() else {}
        if flags.targets:
            lines = _scored(translator, records, seconds or (), flags, window)
        else:
            lines = _translated(translator, records, seconds, flags, window)
        hidden = not sys.stderr.isatty() or target.isatty()
        total = _count_lines(flags.input)
        for group in tqdm(lines, total=total, unit="line", disable=hidden):
            # Bytes, so that the locale has no say.
            target.write("".join(f"{line}\n" for line in group).encode("utf-8"))
            target.flush()


def _translator(flags: argparse.Namespace) -> Translator:
    """The run's model and those that vote with it, and how to search."""
    translator = Translator.from_run(flags.workdir, flags.step, flags.average)
    for name in flags.ensemble:
        folder, _, step = name.partition("@")
        if step and not step.isdecimal():
            raise UserError(f"--ensemble={name}: {step!r} is not a checkpoint's step")
        translator.add(Translator.from_run(folder, int(step) if step else None))
    translator.decode = decode_settings(flags, translator.config.decode)
    return translator


def _translated(
    translator: Translator,
    records: Iterable[str],
    prefixes: Iterable[str] | None,
    flags: argparse.Namespace,
    window: dict[str, int],
) -> Iterator[list[str]]:
    """For each record the lines that go out."""
    records, sources = itertools.tee(records)
    found = translator.translate_nbest(
        records,
        flags.nbest or 1,
        prefixes=prefixes,
        align=flags.align,
        **window,
    )
    numbered = enumerate(zip(sources, found, strict=True), start=1)
    for number, (source, translations) in numbered:
        shown = [_as_dict(translator, one, flags.align) for one in translations]
        if flags.json:
            head = {"line": number, "source": source}
            yield [json.dumps(head | {"translations": shown}, ensure_ascii=False)]
            continue
        lines = []
        for one in shown:
            columns = [one["text"]]
            if flags.nbest is not None:
                numbers = (f"{one['score']:.6f}", f"{one['log_prob']:.6f}")
                columns = [str(number), *numbers, str(one["num_pieces"]), one["text"]]
            lines.append("\t".join([*columns, *_pharaoh(one)]))
        yield lines


def _as_dict(translator: Translator, one: Translation, align: bool) -> dict[str, Any]:
    """All that there is to say about a translation."""
    shown = {
        "text": one.text,
        "score": one.score,
        "log_prob": one.log_prob,
        "num_pieces": len(one.tokens),
        "finished": one.finished,
        "pieces": translator.vocabulary.pieces(one.tokens),
    }
    return shown | {"alignment": one.alignment} if align else shown


def _scored(
    translator: Translator,
    records: Iterable[str],
    targets: Iterable[str],
    flags: argparse.Namespace,
    window: dict[str, int],
) -> Iterator[list[str]]:
    """For each pair its line; the corpus's perplexity at the end, on stderr."""
    number, total, pieces = 0, 0.0, 0
    scores = translator.score(records, targets, **window)
    for number, score in enumerate(scores, start=1):
        total, pieces = total + score.log_prob, pieces + len(score.tokens)
        shown: dict[str, Any] = {
            "line": number,
            "log_prob": score.log_prob,
            "perplexity": score.perplexity,
            "num_pieces": len(score.tokens),
            "pieces": translator.vocabulary.pieces(score.tokens),
            "piece_log_probs": score.token_log_probs,
        }
        if flags.align:
            shown["alignment"] = translator.alignment(score)
        if flags.json:
            yield [json.dumps(shown, ensure_ascii=False)]
            continue
        numbers = (f"{score.log_prob:.6f}", f"{score.perplexity:.4f}")
        yield ["\t".join([*numbers, str(len(score.tokens)), *_pharaoh(shown)])]
    if not number:
        raise UserError("there are no segments to score")
    perplexity = math.exp(-total / pieces)
    print(f"{number} lines, perplexity per piece {perplexity:.4f}", file=sys.stderr)


def _pharaoh(shown: dict[str, Any]) -> list[str]:
    """A column with the alignment, if there is one."""
    if "alignment" not in shown:
        return []
    return [" ".join(f"{source}-{target}" for source, target in shown["alignment"])]


def _count_lines(path: str | None) -> int | None:
    """Lines of a file, for the time left; None for a stream."""
    if not path or not Path(path).is_file():
        return None
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))


def _opened(path: str, mode: str) -> IO[bytes]:
    """The file at `path`."""
    try:
        return cast(IO[bytes], open(path, mode))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


if __name__ == "__main__":
    run_command(main)
