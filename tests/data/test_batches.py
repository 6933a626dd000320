"""What a batch holds, in training and in evaluation."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.data.random_corpus import take
from transformer.config import DataConfig
from transformer.data.cache import Corpus, tokenize
from transformer.data.pipeline import Batch, collate, evaluation_batches
from transformer.data.plans import PlannedBatch
from transformer.data.text import ParallelText
from transformer.data.vocabulary import Vocabulary


def segments_of(batch: Batch, side: str) -> list[list[int]]:
    """The sentences of one side in the order of rows and segments, read one by one."""
    ids = {"source": batch.source, "target": batch.targets}[side]
    segments = {"source": batch.source_segments, "target": batch.target_segments}[side]
    return [
        ids[row][segments[row] == segment].tolist()
        for row in range(len(ids))
        for segment in range(1, int(segments[row].max()) + 1)
    ]


def test_a_batch_holds_its_pairs_whole(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """Read back by segment, a batch is exactly its pairs, source beside target."""
    corpus = make_corpus(60)
    for item in take(corpus, vocabulary, config, 12):
        pairs = [corpus.pair(pair) for pair in item.pairs.tolist()]
        sources = [source.tolist() for source, _ in pairs]
        targets = [target.tolist() for _, target in pairs]
        assert segments_of(item.batch, "source") == sources
        assert segments_of(item.batch, "target") == targets
        assert all(array.dtype == np.int32 for array in item.batch)


def test_positions_segments_and_shift(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """In each segment positions run from 0 and the inputs are bos and the targets.

    Segments are numbered 1, 2, ... from the left without gaps, and all that belongs to
    none is pad, segment 0.
    """
    corpus = make_corpus(60)
    for item in take(corpus, vocabulary, config, 12):
        batch = item.batch
        for ids, segments, positions in (
            (batch.source, batch.source_segments, batch.source_positions),
            (batch.targets, batch.target_segments, batch.target_positions),
        ):
            assert (ids[segments == 0] == vocabulary.pad_id).all()
            assert (ids[segments > 0] != vocabulary.pad_id).all()
            assert (positions[segments == 0] == 0).all()
            for row in range(len(ids)):
                used = segments[row][segments[row] > 0]
                np.testing.assert_array_equal(segments[row][: len(used)], used)
                assert set(np.diff(used).tolist()) <= {0, 1}
                for segment in set(used.tolist()):
                    here = positions[row][segments[row] == segment]
                    np.testing.assert_array_equal(here, np.arange(len(here)))
        assert batch.source_segments.max(axis=1).tolist() == (
            batch.target_segments.max(axis=1).tolist()
        )
        for row in range(len(batch.targets)):
            for segment in range(1, int(batch.target_segments[row].max()) + 1):
                here = batch.target_segments[row] == segment
                targets = batch.targets[row][here].tolist()
                inputs = batch.target_inputs[row][here].tolist()
                assert targets[-1] == vocabulary.eos_id
                assert inputs == [vocabulary.bos_id, *targets[:-1]]
        outside = batch.target_inputs[batch.target_segments == 0]
        assert (outside == vocabulary.pad_id).all()


def test_packed_rows_hold_several_pairs(
    data_config: DataConfig,
    vocabulary: Vocabulary,
    make_corpus: Callable[[int], Corpus],
) -> None:
    """A packed batch does pack, so that the laws of segments are put to the test."""
    config = dataclasses.replace(data_config, plan="pack")
    (item,) = take(make_corpus(60), vocabulary, config, 1)
    assert item.batch.source_segments.max() > 1
    assert item.batch.source.shape == item.batch.targets.shape == (4, 64)


def test_a_batch_without_pairs_is_all_padding(
    vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """A host whose rows hold no pair still has arrays of the right shape."""
    nothing = np.zeros(0, dtype=np.int32)
    planned = PlannedBatch(nothing, nothing, 4, 8, 16)
    batch = collate(planned, make_corpus(3), vocabulary)
    assert batch.source.shape == (4, 8) and batch.targets.shape == (4, 16)
    assert not batch.source_segments.any() and not batch.target_segments.any()
    assert (batch.target_inputs == vocabulary.pad_id).all()


@pytest.mark.parametrize("num_pairs", [1, 8, 59])
def test_evaluation_sees_every_pair_once(
    data_config: DataConfig,
    vocabulary: Vocabulary,
    make_corpus: Callable[[int], Corpus],
    num_pairs: int,
) -> None:
    """1, 8 and 59 pairs: each is evaluated once and whole, in rows of multiples of 8.

    Elsewhere 59 sentences on 8 devices stopped a run at its first evaluation.
    """
    config = dataclasses.replace(data_config, rows_multiple=8)
    corpus = make_corpus(num_pairs)
    seen, shapes = [], set()
    for pairs, batch in evaluation_batches(corpus, vocabulary, config):
        assert len(batch.source) % 8 == 0
        targets = [corpus.pair(pair)[1].tolist() for pair in pairs.tolist()]
        assert segments_of(batch, "target") == targets
        seen.extend(pairs.tolist())
        shapes.add((batch.source.shape, batch.targets.shape))
    assert sorted(seen) == list(range(num_pairs))
    assert len(shapes) <= len(config.bucket_widths)


def test_evaluation_takes_over_long_pairs(
    data_config: DataConfig, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """A validation pair far beyond the widest bucket is evaluated like any other."""
    text = ParallelText(["ein Hund"] * 5, ["dog"] * 4 + ["dog " * 700], "s", "t")
    corpus = tokenize(text, vocabulary, None, tmp_path)
    batches = list(evaluation_batches(corpus, vocabulary, data_config))
    pairs = np.concatenate([pairs for pairs, _ in batches])
    assert sorted(pairs.tolist()) == [0, 1, 2, 3, 4]
    tokens = sum(int((batch.target_segments > 0).sum()) for _, batch in batches)
    assert tokens == corpus.target_lengths.sum()
