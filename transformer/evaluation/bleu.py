"""BLEU and chrF by sacreBLEU, on raw text."""

import os
import socket
import tarfile
from collections.abc import Sequence
from typing import NamedTuple

import sacrebleu
from sacrebleu.dataset.base import Dataset
from sacrebleu.metrics import BLEU, CHRF

from transformer.data.text import check_same_count, read_records
from transformer.errors import UserError


class Score(NamedTuple):
    """A score from 0 to 100 and sacreBLEU's signature of how it was computed."""

    score: float
    signature: str


class Scores(NamedTuple):
    """Cased BLEU, lower-cased BLEU, both with tokeniser 13a, and chrF."""

    bleu: Score
    bleu_lowercase: Score
    chrf: Score


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    hypothesis_name: str = "the output",
    reference_name: str = "the reference",
) -> Scores:
    """Scores detokenised hypotheses against raw references, line by line.

    An empty hypothesis stays in its place. sacreBLEU logs a warning where the
    hypotheses look tokenised.

    Raises:
      UserError: there are no segments, or not equally many; the sentence names both.
    """
    _check_counts(hypothesis_name, len(hypotheses), reference_name, len(references))
    if not references:
        raise UserError(
            f"no segments to score: {hypothesis_name} and {reference_name} are empty"
        )

    def measure(metric: BLEU | CHRF) -> Score:
        result = metric.corpus_score(list(hypotheses), [list(references)])
        return Score(result.score, str(metric.get_signature()))

    # `force` only silences the warning about tokenised text, which the first has given.
    lowercase = BLEU(lowercase=True, force=True)
    return Scores(measure(BLEU()), measure(lowercase), measure(CHRF()))


def _check_counts(one: str, one_count: int, other: str, other_count: int) -> None:
    """Refuses different counts; two of them are well known."""
    try:
        check_same_count(one, one_count, other, other_count)
    except UserError as error:
        if {one_count, other_count} != {2737, 3003}:
            raise
        raise UserError(
            f"{error}; newstest2014 has 3,003 segments as wmt14/full and 2,737 as "
            "wmt14, the filtered release: take the same one on both sides"
        ) from error


# Segments of the sets that a partial download would quietly cut.
_SIZES = {
    ("wmt14/full", "de-en"): 3003,
    ("wmt14/full", "en-de"): 3003,
    ("wmt14/full", "en-fr"): 3003,
    ("wmt14/full", "fr-en"): 3003,
    ("wmt14", "de-en"): 2737,
    ("wmt14", "en-de"): 2737,
    ("wmt14", "en-fr"): 3003,
    ("wmt14", "fr-en"): 3003,
    ("wmt13", "de-en"): 3000,
    ("wmt13", "en-de"): 3000,
    ("wmt13", "en-fr"): 3000,
    ("wmt13", "fr-en"): 3000,
    ("multi30k/2016", "en-de"): 1000,
    ("multi30k/2016", "en-fr"): 1000,
    ("multi30k/2017", "en-de"): 1000,
    ("multi30k/2017", "en-fr"): 1000,
}
_NETWORK_SECONDS = 10


def sacrebleu_set(name: str, pair: str) -> tuple[list[str], list[str]]:
    """Sources and references of a test set that sacreBLEU knows, such as wmt14/full.

    Raises:
      UserError: sacreBLEU has no such set or pair, it is neither in the cache nor to be
        downloaded, or the files in the cache are incomplete.
    """
    if name not in sacrebleu.DATASETS:
        raise UserError(f"sacreBLEU has no test set {name!r}; wmt14/full is one")
    dataset = sacrebleu.DATASETS[name]
    if pair not in dataset.langpairs:
        known = ", ".join(sorted(dataset.langpairs))
        raise UserError(f"sacreBLEU's {name} has no pair {pair!r}, but {known}")
    paths = _files(dataset, pair)
    first_reference = next(field for field in paths if field.startswith("ref"))
    sides = {field: read_records(paths[field]) for field in ("src", first_reference)}
    source, reference = sides.values()
    expected = _SIZES.get((name, pair), len(source))
    wrong = {f: len(side) for f, side in sides.items() if len(side) != expected}
    if wrong:
        counts = ", ".join(f"{paths[f]} has {count:,}" for f, count in wrong.items())
        raise UserError(
            f"{name} {pair} has {expected:,} segments, but {counts}: an incomplete "
            "download; delete these files"
        )
    return source, reference


def _files(dataset: Dataset, pair: str) -> dict[str, str]:
    """The set's files by field, downloaded where they are not in the cache.

    sacreBLEU checks the MD5 sum of what it downloads. Nothing is tried twice.
    """
    seconds = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_NETWORK_SECONDS)
    try:
        paths = dataset.get_files(pair)
    except (OSError, EOFError, tarfile.TarError, SystemExit) as error:
        cache = os.path.dirname(dataset._get_txt_file_path(pair, "src"))
        raise UserError(
            f"{dataset.name} {pair} is not in the cache {cache} and cannot be "
            f"downloaded ({error}): run sacrebleu once where there is a network and "
            "set SACREBLEU=FOLDER to its cache, or use --source=FILE --reference=FILE"
        ) from error
    finally:
        socket.setdefaulttimeout(seconds)
    return dict(zip(dataset.fieldnames(pair), paths, strict=True))
