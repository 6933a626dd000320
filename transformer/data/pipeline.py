"""From plans to arrays: batches for training (endless) and for evaluation (one pass).

Grain builds the batches of a plan in threads or worker processes, a few ahead of their
use, and always in the order of the plan.
"""

import bisect
import sys
import threading
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import grain
import numpy as np
from absl import flags
from jaxtyping import Int, Int32

from transformer.config import DataConfig
from transformer.data.cache import Corpus
from transformer.data.plans import Plan, PlannedBatch, epoch_plan, evaluation_plan
from transformer.data.vocabulary import Vocabulary
from transformer.errors import UserError


class Batch(NamedTuple):
    """Sentence pairs as arrays; a row may hold several pairs, one segment each.

    Attributes:
      source: piece ids, each sentence with its EOS; pad elsewhere.
      source_segments: 0 is padding, the pairs of a row count from 1.
      source_positions: from 0 in each segment; 0 in padding.
      target_inputs: what the decoder reads, bos and the targets but the last, by pair.
      targets: what the decoder shall predict, each sentence with its EOS.
      target_segments: as on the source side; the same number is the same pair.
      target_positions: as on the source side.
    """

    source: Int32[np.ndarray, "B S"]
    source_segments: Int32[np.ndarray, "B S"]
    source_positions: Int32[np.ndarray, "B S"]
    target_inputs: Int32[np.ndarray, "B T"]
    targets: Int32[np.ndarray, "B T"]
    target_segments: Int32[np.ndarray, "B T"]
    target_positions: Int32[np.ndarray, "B T"]


class Position(NamedTuple):
    """The next batch to be used: batch `index` of the plan of `epoch`, both from 0."""

    epoch: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs


class TrainingItem(NamedTuple):
    """One training batch and how to go on after it.

    Attributes:
      position_after: where the next batch stands; a checkpoint keeps it.
      pairs: numbers of the pairs in the batch (in all hosts' parts of it).
      batch: the arrays (this host's part).
    """

    position_after: Position
    pairs: Int[np.ndarray, "P"]
    batch: Batch


def collate(planned: PlannedBatch, corpus: Corpus, vocabulary: Vocabulary) -> Batch:
    """The arrays of a planned batch."""
    sources, targets = [], []
    for pair in planned.pairs.tolist():
        source_ids, target_ids = corpus.pair(pair)
        sources.append(source_ids)
        targets.append(target_ids)
    source = _Side.lay_out(sources, planned.rows)
    target = _Side.lay_out(targets, planned.rows)
    source_shape = (planned.num_rows, planned.source_width)
    target_shape = (planned.num_rows, planned.target_width)
    inputs = np.roll(target.ids, 1)
    inputs[target.positions == 0] = vocabulary.bos_id
    return Batch(
        source=source.place(source.ids, source_shape, vocabulary.pad_id),
        source_segments=source.place(source.segments, source_shape, 0),
        source_positions=source.place(source.positions, source_shape, 0),
        target_inputs=target.place(inputs, target_shape, vocabulary.pad_id),
        targets=target.place(target.ids, target_shape, vocabulary.pad_id),
        target_segments=target.place(target.segments, target_shape, 0),
        target_positions=target.place(target.positions, target_shape, 0),
    )


def training_batches(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: DataConfig,
    seed: int,
    position: Position,
    *,
    host_index: int = 0,
    host_count: int = 1,
) -> Generator[TrainingItem, None, None]:
    """Endless training batches from `position` on, each epoch in an order of its own.

    The sequence is a function of the corpus, the configuration's plan and the seed:
    neither the threads and worker processes nor the number of hosts change it, and one
    that starts at a `position_after` goes on as if it had never been interrupted. The
    start takes as long at any position. Close the generator to end the threads and
    processes behind it.

    Raises:
      UserError: at the call: the corpus is empty, its pairs do not fit the plan
        (see `epoch_plan`), the plan has no batch at `position`, or `data.rows_multiple`
        cannot be divided among the hosts.
    """
    _check_hosts(config, host_count)
    stream = _BatchStream(
        corpus, vocabulary, config, seed, position, (host_index, host_count)
    )
    stream.check()
    return _closing(_read(stream, config))


def evaluation_batches(
    corpus: Corpus,
    vocabulary: Vocabulary,
    config: DataConfig,
    *,
    host_index: int = 0,
    host_count: int = 1,
) -> Iterator[tuple[Int[np.ndarray, "P"], Batch]]:
    """Every pair of the corpus once: pair numbers and arrays, a batch at a time.

    Rows are a multiple of `data.rows_multiple` for any number of pairs; rows without a
    pair are all padding. Pairs longer than the widest bucket are not left out.

    Raises:
      UserError: at the call: the corpus is empty, or `data.rows_multiple` cannot be
        divided among the hosts.
    """
    plan = evaluation_plan(config, corpus.source_lengths, corpus.target_lengths)
    _check_hosts(config, host_count)
    return (
        (
            planned.pairs,
            collate(planned.share(host_index, host_count), corpus, vocabulary),
        )
        for planned in map(plan.__getitem__, range(len(plan)))
    )


def _check_hosts(config: DataConfig, host_count: int) -> None:
    """Refuses rows that cannot be divided among the hosts."""
    if config.rows_multiple % host_count:
        raise UserError(
            f"data.rows_multiple is {config.rows_multiple}: the rows of a batch cannot "
            f"be divided among {host_count} hosts"
        )


class _Side(NamedTuple):
    """One side of a batch, its tokens one after another, each with its place."""

    ids: Int32[np.ndarray, "L"]
    rows: Int[np.ndarray, "L"]
    columns: Int[np.ndarray, "L"]
    segments: Int[np.ndarray, "L"]
    positions: Int[np.ndarray, "L"]

    @classmethod
    def lay_out(
        cls, sentences: list[Int32[np.ndarray, "_"]], rows: Int[np.ndarray, "P"]
    ) -> "_Side":
        """Places sentences side by side in their rows (`rows` never falls)."""
        if not sentences:
            empty = np.zeros(0, dtype=np.int32)
            return cls(empty, empty, empty, empty, empty)
        lengths = np.array([len(sentence) for sentence in sentences])
        before = np.cumsum(lengths) - lengths
        first_in_row = np.searchsorted(rows, rows)
        sentence = np.repeat(np.arange(len(sentences)), lengths)
        token = np.arange(len(sentence))
        return cls(
            ids=np.concatenate(sentences),
            rows=rows[sentence],
            columns=token - before[first_in_row][sentence],
            segments=(np.arange(len(sentences)) - first_in_row + 1)[sentence],
            positions=token - before[sentence],
        )

    def place(
        self, values: Int[np.ndarray, "L"], shape: tuple[int, int], elsewhere: int
    ) -> Int32[np.ndarray, "B W"]:
        """An array with the tokens' values in their places."""
        array = np.full(shape, elsewhere, dtype=np.int32)
        array[self.rows, self.columns] = values
        return array


class _BatchStream:
    """Training batches by their distance from the start: what Grain reads at random.

    Epochs follow without end, so neither threads nor processes start anew with each.
    Plans are computed when they are first needed; the last two are kept. A copy that
    goes to a worker process takes none along.
    """

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: Vocabulary,
        config: DataConfig,
        seed: int,
        position: Position,
        host: tuple[int, int],
    ) -> None:
        self._corpus = corpus
        self._vocabulary = vocabulary
        self._config = config
        self._seed = seed
        self._position = position
        self._host = host
        self._begins = [-position.index]  # distance of the first batch of each epoch
        self._plans: dict[int, Plan] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, distance: int) -> TrainingItem:
        with self._lock:
            position, plan = self._locate(distance)
        planned = plan[position.index]
        batch = collate(planned.share(*self._host), self._corpus, self._vocabulary)
        if position.index + 1 < len(plan):
            after = Position(position.epoch, position.index + 1)
        else:
            after = Position(position.epoch + 1, 0)
        return TrainingItem(after, planned.pairs, batch)

    def check(self) -> None:
        """Refuses a position that the plan does not have."""
        epoch, index = self._position
        plan = self._plan(epoch)
        if not 0 <= index < len(plan):
            raise UserError(
                f"batch {index} of epoch {epoch} does not exist: this corpus and "
                f"configuration make {len(plan)} batches; resume with those of the "
                "checkpoint"
            )

    def _locate(self, distance: int) -> tuple[Position, Plan]:
        """Epoch, index within it, and the plan of that epoch."""
        first = self._position.epoch
        last = first + len(self._begins) - 1
        while distance >= (end := self._begins[-1] + len(self._plan(last))):
            self._begins.append(end)
            last += 1
        passed = bisect.bisect_right(self._begins, distance) - 1
        index = distance - self._begins[passed]
        return Position(first + passed, index), self._plan(first + passed)

    def _plan(self, epoch: int) -> Plan:
        """The plan of an epoch, kept while it is in use."""
        if epoch not in self._plans:
            while len(self._plans) > 1:
                self._plans.pop(next(iter(self._plans)))
            self._plans[epoch] = epoch_plan(
                self._config,
                self._seed,
                epoch,
                self._corpus.source_lengths,
                self._corpus.target_lengths,
            )
        return self._plans[epoch]


def _read(stream: _BatchStream, config: DataConfig) -> grain.DatasetIterator:
    """Grain's iterator over the stream, with its threads or worker processes."""
    items = grain.MapDataset.source(stream).to_iter_dataset(
        grain.ReadOptions(
            num_threads=min(config.num_threads, config.prefetch),
            prefetch_buffer_size=config.prefetch,
        )
    )
    if config.num_workers:
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # Grain asks a flag of its own
        items = items.mp_prefetch(
            grain.MultiprocessingOptions(
                num_workers=config.num_workers,
                per_worker_buffer_size=max(1, config.prefetch // config.num_workers),
            )
        )
    return iter(items)


def _closing(items: grain.DatasetIterator) -> Generator[TrainingItem, None, None]:
    """Hands the items on and ends Grain's threads and processes at the end."""
    try:
        yield from items
    finally:
        items.close()
