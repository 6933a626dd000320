"""The order of batches: epochs, resuming, workers, hosts, and what is left behind."""

import collections
import dataclasses
import gc
import itertools
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.data.random_corpus import START, take
from transformer.config import DataConfig
from transformer.data import pipeline
from transformer.data.cache import Corpus
from transformer.data.pipeline import Position, TrainingItem, training_batches
from transformer.data.plans import Plan, epoch_plan
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError


def assert_same(first: list[TrainingItem], second: list[TrainingItem]) -> None:
    """The items are equal to the last number."""
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.position_after == other.position_after
        np.testing.assert_array_equal(one.pairs, other.pairs)
        for array, another in zip(one.batch, other.batch, strict=True):
            np.testing.assert_array_equal(array, another)


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
    data_config: DataConfig,
    vocabulary: Vocabulary,
    make_corpus: Callable[[int], Corpus],
) -> None:
    """Two processes, or more threads, build the very batches of a single thread.

    Elsewhere each worker fed the same examples. Also across the end of an epoch.
    """
    corpus = make_corpus(30)
    config = dataclasses.replace(
        data_config, plan="pack", num_threads=1, num_workers=0, prefetch=1
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
    gc.collect()
    before = collections.Counter(map(type, gc.get_objects()))
    batches = training_batches(corpus, vocabulary, config, 1, START)
    next(batches)
    threads = threading.active_count()
    for _ in itertools.islice(batches, 200):
        pass
    assert threading.active_count() == threads
    alive = collections.Counter(map(type, gc.get_objects())) - before
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
