"""Laws of the token cache: whole pairs are kept or skipped, and counted."""

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest

from transformer.config import Config
from transformer.data import cache
from transformer.data.cache import tokenize
from transformer.data.text import ParallelText
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError


@pytest.fixture
def vocabulary(tiny_config: Config) -> Vocabulary:
    """A few pieces beside the bytes."""
    config = dataclasses.replace(tiny_config.data, vocab_size=280)
    return Vocabulary.train(["x1 x3 x4 y1 y2 y3 y4 and so on"] * 4, config)


def text(sources: list[str], targets: list[str]) -> ParallelText:
    """Two sides in memory."""
    return ParallelText(sources, targets, "source.txt", "target.txt")


def pairs(corpus, vocabulary) -> list[tuple[str, str]]:
    """The corpus as text again; each side must end in EOS."""
    found = []
    for i in range(len(corpus)):
        sides = corpus.pair(i)
        assert all(side[-1] == vocabulary.eos_id for side in sides)
        found.append(tuple(vocabulary.decode(side) for side in sides))
    return found


def test_a_blank_side_skips_the_pair(vocabulary, tmp_path: Path):
    """Blanks removed side by side shifted every pair behind them elsewhere."""
    corpus = tokenize(
        text(["x1", "", "x3", "x4", "\u200f"], ["y1", "y2", "y3", "y4", "y1"]),
        vocabulary,
        64,
        tmp_path,
    )
    assert pairs(corpus, vocabulary) == [("x1", "y1"), ("x3", "y3"), ("x4", "y4")]
    assert [corpus.record(i) for i in range(3)] == [0, 2, 3]
    assert corpus.report.blank == 2
    assert "2 blank pairs skipped" in str(corpus.report)


def test_one_blank_pair_is_reported_in_words(vocabulary, tmp_path: Path):
    """The report is a sentence."""
    corpus = tokenize(text(["a", " "], ["b", "c"]), vocabulary, 64, tmp_path)
    assert "1 blank pair skipped" in str(corpus.report)


def test_long_pairs_are_skipped_and_counted(vocabulary, tmp_path: Path):
    """EOS counts; the limit itself is allowed; None keeps all."""
    sides = text(["x1", "x1 x3 x4 x1", "x1"], ["y1", "y1", "y1 y2 y3 y4 y1"])
    limit = len(vocabulary.encode("x1 x3 x4 x1")) + 1
    corpus = tokenize(sides, vocabulary, limit, tmp_path)
    assert [corpus.record(i) for i in range(len(corpus))] == [0, 1]
    assert corpus.report.too_long == 1
    assert corpus.source_lengths.max() == limit
    assert len(tokenize(sides, vocabulary, None, tmp_path)) == 3


def test_nothing_left_is_an_error_with_the_limit(vocabulary, tmp_path: Path):
    """Elsewhere an iterator over nothing hung or crashed hours later."""
    sides = text(["x1 x3 x4 x1"] * 200, ["y1 y2 y3 y4"] * 200)
    with pytest.raises(UserError, match=r"0 of 200 pairs .*max length 3"):
        tokenize(sides, vocabulary, 3, tmp_path)


def test_lengths_and_totals_agree(vocabulary, tmp_path: Path):
    """The lengths that plans are made of are those of the pairs."""
    corpus = tokenize(text(["x1", "x3 x4"], ["y1 y2", "y3"]), vocabulary, 64, tmp_path)
    for i in range(2):
        source, target = corpus.pair(i)
        assert len(source) == corpus.source_lengths[i]
        assert len(target) == corpus.target_lengths[i]
        assert source.dtype == np.int32
    assert corpus.report.source_tokens == corpus.source_lengths.sum()


def test_the_cache_is_used_keyed_and_repaired(vocabulary, tmp_path: Path):
    """A second call reads the files; other text or limits have others; damage heals."""
    sides = text(["x1", "x3"], ["y1", "y3"])
    tokenize(sides, vocabulary, 64, tmp_path)
    (folder,) = tmp_path.iterdir()
    before = (folder / "source.npy").stat().st_mtime_ns
    tokenize(sides, vocabulary, 64, tmp_path)
    assert (folder / "source.npy").stat().st_mtime_ns == before
    tokenize(text(["x1", "x4"], ["y1", "y3"]), vocabulary, 64, tmp_path)
    tokenize(sides, vocabulary, 63, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    content = (folder / "target.npy").read_bytes()
    (folder / "target.npy").write_bytes(content[:-2])
    again = tokenize(sides, vocabulary, 64, tmp_path)
    assert pairs(again, vocabulary) == [("x1", "y1"), ("x3", "y3")]


@pytest.mark.parametrize(
    "name", ["source.npy", "target_ends.npy", "records.npy", "report.json"]
)
@pytest.mark.parametrize("damage", ["emptied", "zeros", "cut", "one bit", "gone"])
def test_a_damaged_cache_is_made_anew(vocabulary, tmp_path: Path, name, damage):
    """A full disk or a flipped bit must not become other words in silence."""
    sides = text(["x1", "x3 x4"], ["y1 y2", "y3"])
    tokenize(sides, vocabulary, 64, tmp_path)
    (folder,) = tmp_path.iterdir()
    path = folder / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        flipped = content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]
        damaged = {
            "emptied": b"",
            "zeros": bytes(len(content)),
            "cut": content[:-2],
            "one bit": flipped,
        }
        path.write_bytes(damaged[damage])
    again = tokenize(sides, vocabulary, 64, tmp_path)
    assert pairs(again, vocabulary) == [("x1", "y1 y2"), ("x3 x4", "y3")]
    assert path.read_bytes() == content


def test_an_interrupted_run_leaves_no_cache(vocabulary, tmp_path: Path, monkeypatch):
    """What is under a corpus's name is always whole; the rest is cleaned up."""

    def interrupt(*arguments):
        raise KeyboardInterrupt

    sides = text(["x1"], ["y1"])
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_flat", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tokenize(sides, vocabulary, 64, tmp_path)
    assert not any(tmp_path.iterdir())
    assert len(tokenize(sides, vocabulary, 64, tmp_path)) == 1


def test_texts_that_differ_in_line_breaks_differ(vocabulary, tmp_path: Path):
    """A record of a set may hold an LF: where records end is part of the key."""
    for sources in (["x1\nx3", "x4"], ["x1", "x3\nx4"]):
        corpus = tokenize(text(sources, ["y1", "y2"]), vocabulary, 64, tmp_path)
        assert pairs(corpus, vocabulary)[0][0] == sources[0].replace("\n", " ")


def test_a_place_that_is_no_folder_is_named(vocabulary, tmp_path: Path):
    """The key that sets it is in the sentence."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file \(.*data\.cache_dir"):
        tokenize(text(["x1"], ["y1"]), vocabulary, 64, tmp_path / "file")


def test_large_vocabularies_are_stored_whole(tmp_path: Path):
    """Ids over 65,535 must not wrap around."""

    class Large(Vocabulary):
        """A vocabulary of 70,000 pieces, one a number."""

        def __init__(self):
            self.model_bytes, self.eos_id = b"large", 69_999

        def __len__(self):
            return 70_000

        def encode_batch(self, texts):
            return [[int(word) for word in one.split()] for one in texts]

    corpus = tokenize(text(["65536 7"], ["69998"]), Large(), 64, tmp_path)
    assert [side.tolist() for side in corpus.pair(0)] == [
        [65536, 7, 69_999],
        [69_998, 69_999],
    ]


def test_workers_get_the_files_not_the_arrays(vocabulary, tmp_path: Path):
    """A pickled corpus is small and maps the same tokens."""
    corpus = tokenize(text(["x1"] * 500, ["y1"] * 500), vocabulary, 64, tmp_path)
    pickled = pickle.dumps(corpus)
    assert len(pickled) < 500
    assert pairs(pickle.loads(pickled), vocabulary) == [("x1", "y1")] * 500


def test_crlf_copies_give_the_same_tokens(tiny_config, tmp_path: Path):
    """A Windows copy of a corpus is the same corpus, vocabulary included."""
    from transformer.data.text import read_parallel

    fingerprints = []
    for name, end in (("unix", "\n"), ("dos", "\r\n")):
        for side in "st":
            path = tmp_path / f"{name}.{side}"
            path.write_bytes(f"one two{end}three four{end}".encode() * 20)
        sides = read_parallel(tmp_path / f"{name}.s", tmp_path / f"{name}.t")
        config = dataclasses.replace(tiny_config.data, vocab_size=280)
        vocabulary = Vocabulary.train(sides.sources, config)
        tokenize(sides, vocabulary, 64, tmp_path / "cache")
        fingerprints.append(vocabulary.fingerprint)
    assert fingerprints[0] == fingerprints[1]
    assert len(list((tmp_path / "cache").iterdir())) == 1
