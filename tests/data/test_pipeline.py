import collections
import dataclasses
import gc
import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from configs import base
from transformer.config import Config, DataConfig
from transformer.data import pipeline
from transformer.data.cache import Corpus, tokenize
from transformer.data.pipeline import (
    Batch,
    Position,
    TrainingItem,
    collate,
    evaluation_batches,
    training_batches,
)
from transformer.data.plans import Plan, PlannedBatch, epoch_plan
from transformer.data.text import ParallelText
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError

START = Position(epoch=0, index=0)


def random_sentences(num_sentences: int, longest: int) -> list[str]:
    """Sentences of different lengths from a handful of words, no two alike."""
    random = np.random.default_rng(longest)
    words = ["ein", "Hund", "läuft", "the", "dog", "runs", "über", "Straße"]
    return [
        " ".join(random.choice(words, size=random.integers(1, longest))) + f" {number}"
        for number in range(num_sentences)
    ]


@pytest.fixture(scope="module")
def vocabulary(module_config: DataConfig) -> Vocabulary:
    """A real model of 300 pieces."""
    return Vocabulary.train(random_sentences(200, 12), module_config)


@pytest.fixture(scope="module")
def module_config() -> DataConfig:
    """The data part of the smallest configuration: 256 slots a batch."""
    values = base.get_config()
    values.data.update(
        vocab_size=300,
        max_tokens=64,
        bucket_widths=(8, 16, 32, 64),
        pack_width=64,
        tokens_per_batch=256,
        rows_multiple=4,
    )
    return Config.from_dict(values).data


@pytest.fixture(params=["bucket", "pack"])
def config(request: pytest.FixtureRequest, module_config: DataConfig) -> DataConfig:
    """Both kinds of plan."""
    return dataclasses.replace(module_config, plan=request.param)


@pytest.fixture
def make_corpus(vocabulary: Vocabulary, tmp_path: Path) -> Callable[[int], Corpus]:
    """Tokenises so many random pairs; targets are longer than sources."""

    def make(num_pairs: int) -> Corpus:
        sources = random_sentences(num_pairs, 12)
        targets = random_sentences(num_pairs, 15)
        text = ParallelText(sources, targets, "source", "target")
        return tokenize(text, vocabulary, None, tmp_path)

    return make


def take(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: DataConfig,
    count: int,
    position: Position = START,
) -> list[TrainingItem]:
    """The first `count` items from a position."""
    batches = training_batches(corpus, vocabulary, config, 1, position)
    try:
        return list(itertools.islice(batches, count))
    finally:
        batches.close()


def assert_same(first: list[TrainingItem], second: list[TrainingItem]) -> None:
    """The items are equal to the last number."""
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.position_after == other.position_after
        np.testing.assert_array_equal(one.pairs, other.pairs)
        for array, another in zip(one.batch, other.batch, strict=True):
            np.testing.assert_array_equal(array, another)


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
    module_config: DataConfig,
    vocabulary: Vocabulary,
    make_corpus: Callable[[int], Corpus],
) -> None:
    """A packed batch does pack, so that the laws of segments are put to the test."""
    config = dataclasses.replace(module_config, plan="pack")
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


def test_each_pair_once_an_epoch_in_a_new_order(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """103 pairs: each epoch has every number once, and the next another order.

    Elsewhere every worker read the same examples, or shuffled with a seed of its own.
    """
    corpus = make_corpus(103)
    epochs: list[list[int]] = [[]]
    batches = training_batches(corpus, vocabulary, config, 1, START)
    for item in batches:
        epochs[-1].extend(item.pairs.tolist())
        if item.position_after.index == 0:
            assert item.position_after.epoch == len(epochs)
            if len(epochs) == 3:
                break
            epochs.append([])
    batches.close()
    assert all(sorted(epoch) == list(range(103)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_resuming_continues_the_sequence(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """From the position after any item, in mid-epoch or at its end, all goes on.

    Elsewhere a resumed run began its data anew: early pairs twice, late ones never.
    """
    corpus = make_corpus(60)
    per_epoch = len(
        epoch_plan(config, 1, 0, corpus.source_lengths, corpus.target_lengths)
    )
    whole = take(corpus, vocabulary, config, 2 * per_epoch + 3)
    assert whole[per_epoch - 1].position_after == Position(1, 0)
    for done in range(1, per_epoch + 2):
        position = whole[done - 1].position_after
        assert_same(
            take(corpus, vocabulary, config, per_epoch + 1, position),
            whole[done : done + per_epoch + 1],
        )


def test_a_start_late_in_training_reads_one_plan_only(
    config: DataConfig,
    vocabulary: Vocabulary,
    make_corpus: Callable[[int], Corpus],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Resuming in epoch 1,000 computes that epoch's plan and no earlier one.

    Elsewhere the time to resume grew with the step, since the data were replayed.
    """
    planned = []

    def counting_plan(config, seed, epoch, *lengths):  # type: ignore[no-untyped-def]
        planned.append(epoch)
        return epoch_plan(config, seed, epoch, *lengths)

    monkeypatch.setattr(pipeline, "epoch_plan", counting_plan)
    corpus = make_corpus(60)
    take(corpus, vocabulary, config, 1, Position(1000, 2))
    assert planned[0] == 1000
    assert set(planned) <= set(range(1000, 1004))


def test_worker_processes_and_threads_change_nothing(
    module_config: DataConfig,
    vocabulary: Vocabulary,
    make_corpus: Callable[[int], Corpus],
) -> None:
    """Two processes, or more threads, build the very batches of a single thread.

    Elsewhere each worker fed the same examples. Also across the end of an epoch.
    """
    corpus = make_corpus(30)
    config = dataclasses.replace(
        module_config, plan="pack", num_threads=1, num_workers=0, prefetch=1
    )
    alone = take(corpus, vocabulary, config, 9, Position(2, 1))
    assert alone[-1].position_after.epoch > 2
    for changes in (dict(num_threads=4, prefetch=8), dict(num_workers=2)):
        other = dataclasses.replace(config, **changes)
        assert_same(take(corpus, vocabulary, other, 9, Position(2, 1)), alone)


def test_a_small_corpus_runs_on_through_epochs(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """50 pairs last for 100 batches, and none of them is all padding.

    Elsewhere training crashed, or ran on with empty batches, when the data ended.
    """
    items = take(make_corpus(50), vocabulary, config, 100)
    assert len(items) == 100
    assert items[-1].position_after.epoch > 2
    assert all(item.batch.target_segments.any() for item in items)


def test_a_corpus_smaller_than_a_batch_is_padded(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """Three pairs are one batch an epoch, filled up with rows of no weight."""
    items = take(make_corpus(3), vocabulary, config, 4)
    assert [item.position_after for item in items] == [
        Position(epoch, 0) for epoch in (1, 2, 3, 4)
    ]
    for item in items:
        assert sorted(item.pairs.tolist()) == [0, 1, 2]
        assert len(item.batch.source) % config.rows_multiple == 0


def test_a_position_of_another_configuration_is_refused(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """A batch number beyond the plan is refused at the call, with both numbers.

    Elsewhere a changed batch size sent the position silently back to the beginning.
    """
    corpus = make_corpus(60)
    lengths = (corpus.source_lengths, corpus.target_lengths)
    beyond = len(epoch_plan(config, 1, 4, *lengths))
    training_batches(corpus, vocabulary, config, 1, Position(4, beyond - 1)).close()
    with pytest.raises(UserError, match=rf"batch {beyond} of epoch 4.*{beyond} batch"):
        training_batches(corpus, vocabulary, config, 1, Position(4, beyond))


def test_hosts_build_their_own_rows_only(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """The hosts' batches under one another are the batch of a single host."""
    corpus = make_corpus(60)
    whole = take(corpus, vocabulary, config, 8)
    parts = [
        training_batches(
            corpus, vocabulary, config, 1, START, host_index=host, host_count=2
        )
        for host in (0, 1)
    ]
    for item, upper, lower in zip(whole, *parts, strict=False):
        assert upper.position_after == lower.position_after == item.position_after
        np.testing.assert_array_equal(upper.pairs, item.pairs)
        for array, first, second in zip(
            item.batch, upper.batch, lower.batch, strict=True
        ):
            np.testing.assert_array_equal(np.concatenate([first, second]), array)
    for part in parts:
        part.close()
    with pytest.raises(UserError, match=r"rows_multiple is 4.*3 hosts"):
        training_batches(
            corpus, vocabulary, config, 1, START, host_index=0, host_count=3
        )


def test_memory_stays_flat_over_epochs(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """Hundreds of epochs leave nothing behind: no plan, no batch, no thread.

    Elsewhere the memory of the host grew with every epoch until the run was killed.
    """
    corpus = make_corpus(8)
    batches = training_batches(corpus, vocabulary, config, 1, START)
    next(batches)
    threads = threading.active_count()
    for _ in itertools.islice(batches, 200):
        pass
    assert threading.active_count() == threads
    alive = collections.Counter(type(value) for value in gc.get_objects())
    batches.close()
    assert alive[Plan] <= 2
    assert alive[TrainingItem] <= config.prefetch + config.num_threads + 2


def test_closing_ends_the_threads(
    config: DataConfig, vocabulary: Vocabulary, make_corpus: Callable[[int], Corpus]
) -> None:
    """After `close` none of the threads that built batches lives on."""
    before = set(threading.enumerate())
    batches = training_batches(make_corpus(60), vocabulary, config, 1, START)
    next(batches)
    started = set(threading.enumerate()) - before
    assert started
    batches.close()
    for thread in started:
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.mark.parametrize("num_pairs", [1, 8, 59])
def test_evaluation_sees_every_pair_once(
    module_config: DataConfig,
    vocabulary: Vocabulary,
    make_corpus: Callable[[int], Corpus],
    num_pairs: int,
) -> None:
    """1, 8 and 59 pairs: each is evaluated once and whole, in rows of multiples of 8.

    Elsewhere 59 sentences on 8 devices stopped a run at its first evaluation.
    """
    config = dataclasses.replace(module_config, rows_multiple=8)
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
    module_config: DataConfig, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    """A validation pair far beyond the widest bucket is evaluated like any other."""
    text = ParallelText(["ein Hund"] * 5, ["dog"] * 4 + ["dog " * 700], "s", "t")
    corpus = tokenize(text, vocabulary, None, tmp_path)
    batches = list(evaluation_batches(corpus, vocabulary, module_config))
    pairs = np.concatenate([pairs for pairs, _ in batches])
    assert sorted(pairs.tolist()) == [0, 1, 2, 3, 4]
    tokens = sum(int((batch.target_segments > 0).sum()) for _, batch in batches)
    assert tokens == corpus.target_lengths.sum()
