"""Tokenised corpora, memory-mapped from disk."""

import dataclasses
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Int, Int32, Shaped
from tqdm import tqdm

from transformer.data.text import ParallelText, is_blank
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError

logger = logging.getLogger(__name__)

_BATCH = 10_000
_FORMAT = "2"  # part of the key: raise it when what is stored changes


@dataclasses.dataclass(frozen=True)
class CorpusReport:
    """What became of a text's pairs."""

    read: int
    blank: int
    too_long: int
    max_tokens: int
    source_tokens: int
    target_tokens: int

    @property
    def kept(self) -> int:
        """Pairs in the corpus."""
        return self.read - self.blank - self.too_long

    def __str__(self) -> str:
        """One line with every number."""
        pairs = "1 blank pair" if self.blank == 1 else f"{self.blank:,} blank pairs"
        limit = f"over {self.max_tokens} tokens" if self.max_tokens else "too long"
        return (
            f"{self.read:,} pairs read, {pairs} skipped, {self.too_long:,} skipped "
            f"as {limit}, {self.kept:,} kept with {self.source_tokens:,} source and "
            f"{self.target_tokens:,} target tokens"
        )


class Corpus:
    """Sentence pairs as piece ids, each side ending in EOS."""

    def __init__(self, directory: Path):
        """Maps the files of `tokenize` into memory."""
        self._directory = directory
        self.report = CorpusReport(
            **json.loads((directory / "report.json").read_text())
        )
        self._tokens = [_map(directory / f"{side}.npy") for side in _SIDES]
        self._ends = [_map(directory / f"{side}_ends.npy") for side in _SIDES]
        self._records = _map(directory / "records.npy")
        counts = [len(ends) for ends in self._ends] + [len(self._records)]
        totals = [int(ends[-1]) if len(ends) else 0 for ends in self._ends]
        if len(set(counts)) > 1 or totals != [len(tokens) for tokens in self._tokens]:
            raise ValueError(f"{directory} is damaged")

    def __reduce__(self) -> tuple:
        """Worker processes map the files themselves."""
        return Corpus, (self._directory,)

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self._records)

    @property
    def source_lengths(self) -> Int[np.ndarray, "P"]:
        """Tokens of each source sentence, EOS counted."""
        return np.diff(self._ends[0], prepend=0)

    @property
    def target_lengths(self) -> Int[np.ndarray, "P"]:
        """Tokens of each target sentence, EOS counted."""
        return np.diff(self._ends[1], prepend=0)

    def pair(self, index: int) -> tuple[Int32[np.ndarray, "S"], Int32[np.ndarray, "T"]]:
        """Source and target ids of a pair."""
        source, target = (
            tokens[ends[index - 1] if index else 0 : ends[index]].astype(np.int32)
            for tokens, ends in zip(self._tokens, self._ends, strict=True)
        )
        return source, target

    def record(self, index: int) -> int:
        """Number of the pair's record in the text, from 0."""
        return int(self._records[index])


_SIDES = ("source", "target")
_SUMS = "checksums.json"


def tokenize(
    text: ParallelText,
    vocabulary: Vocabulary,
    max_tokens: int | None,
    directory: Path,
) -> Corpus:
    """The text as piece ids, from the cache in `directory` or written there now.

    Blank pairs and, unless `max_tokens` is None, pairs with a side over `max_tokens`
    (EOS counted) are left out as pairs and counted.

    Raises:
      UserError: no pair is left.
    """
    key = _key(text, vocabulary, max_tokens)
    place = directory / key
    try:
        corpus = Corpus(place)
        _verify(place)
    except (OSError, ValueError, TypeError, KeyError, EOFError):
        shutil.rmtree(place, ignore_errors=True)  # none, or damaged
        corpus = _write(text, vocabulary, max_tokens, place)
    if not len(corpus):
        report = corpus.report
        raise UserError(
            f"0 of {report.read:,} pairs of {text.source_name} and {text.target_name} "
            f"left after filtering (max length {max_tokens or 'none'}; {report})"
        )
    return corpus


def _map(path: Path) -> Shaped[np.ndarray, "_"]:
    """A file as a plain array over mapped memory: a memmap is slow to cut."""
    return np.asarray(np.load(path, "r"))


def _verify(directory: Path) -> None:
    """Raises `ValueError` where a file's content is not what was written."""
    for name, checksum in json.loads((directory / _SUMS).read_text()).items():
        if _checksum(directory / name) != checksum:
            raise ValueError(f"{directory / name} is damaged")


def _checksum(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _key(text: ParallelText, vocabulary: Vocabulary, max_tokens: int | None) -> str:
    """A name for exactly this text with this vocabulary and limit."""
    digest = hashlib.sha256(f"{_FORMAT} {vocabulary.fingerprint} {max_tokens}".encode())
    for side in (text.sources, text.targets):
        digest.update(b"%d\n" % len(side))
        for record in side:
            content = record.encode("utf-8", "surrogatepass")
            digest.update(b"%d " % len(content) + content)  # it may hold any character
    return digest.hexdigest()[:32]


def _write(
    text: ParallelText, vocabulary: Vocabulary, max_tokens: int | None, place: Path
) -> Corpus:
    """Tokenises into a temporary folder and renames it when it is complete."""
    logger.info("tokenising %s pairs into %s", f"{len(text.sources):,}", place.parent)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
    except OSError as error:
        raise UserError(
            f"tokenised corpora cannot be kept in {place.parent} ({error.strerror}): "
            "set --config.data.cache_dir=DIR"
        ) from error
    try:
        _tokenize_into(temporary, text, vocabulary, max_tokens)
        sums = {path.name: _checksum(path) for path in temporary.iterdir()}
        (temporary / _SUMS).write_text(json.dumps(sums))
        try:
            os.rename(temporary, place)
        except OSError:
            if not place.is_dir():  # else another process was quicker
                raise
        return Corpus(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _tokenize_into(
    directory: Path,
    text: ParallelText,
    vocabulary: Vocabulary,
    max_tokens: int | None,
) -> None:
    """Writes the ids of both sides, where sentences end, and the report."""
    kind = np.uint16 if len(vocabulary) <= 2**16 else np.int32
    eos = [vocabulary.eos_id]
    parts: tuple[list, list] = ([], [])
    lengths: tuple[list[int], list[int]] = ([], [])
    records: list[int] = []
    blank = too_long = 0
    for begin in tqdm(
        range(0, len(text.sources), _BATCH),
        desc="tokenising",
        disable=not sys.stderr.isatty() or len(text.sources) <= _BATCH,
    ):
        sides = [side[begin : begin + _BATCH] for side in (text.sources, text.targets)]
        ids = [vocabulary.encode_batch(side) for side in sides]
        kept = []
        for i, (one, other) in enumerate(zip(*sides, strict=True)):
            if is_blank(one) or is_blank(other) or not (ids[0][i] and ids[1][i]):
                blank += 1
            elif max_tokens and max(len(ids[0][i]), len(ids[1][i])) + 1 > max_tokens:
                too_long += 1
            else:
                kept.append(i)
        records.extend(begin + i for i in kept)
        for side in range(2):
            sentences = [ids[side][i] + eos for i in kept]
            lengths[side].extend(map(len, sentences))
            parts[side].append(_flat(sentences, kind))
    for name, side_parts, side_lengths in zip(_SIDES, parts, lengths, strict=True):
        tokens = np.concatenate(side_parts) if side_parts else np.zeros(0, kind)
        np.save(directory / f"{name}.npy", tokens)
        np.save(directory / f"{name}_ends.npy", np.cumsum(side_lengths, dtype=np.int64))
    np.save(directory / "records.npy", np.asarray(records, np.int64))
    report = CorpusReport(
        read=len(text.sources),
        blank=blank,
        too_long=too_long,
        max_tokens=max_tokens or 0,
        source_tokens=sum(lengths[0]),
        target_tokens=sum(lengths[1]),
    )
    (directory / "report.json").write_text(json.dumps(dataclasses.asdict(report)))


def _flat(sentences: Iterable[list[int]], kind: type) -> Shaped[np.ndarray, "L"]:
    """Sentences one after another."""
    return np.fromiter((i for ids in sentences for i in ids), dtype=kind)
