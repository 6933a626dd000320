"""Which pair stands in which row of which batch (section 5.1).

A plan is computed from lengths alone, before a single batch is built. It depends on the
seed, the epoch and the lengths and on nothing else: not on hosts, devices, threads or
worker processes. A batch is therefore random access, and to resume is to compute the
plan of one epoch and start in the middle of it.

A plan holds each pair exactly once, in few shapes (one for each width), with rows a
multiple of `data.rows_multiple`; no batch is all padding.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transformer.config import DataConfig
from transformer.data.packing import first_fit_decreasing
from transformer.errors import UserError


class PlannedBatch(NamedTuple):
    """The composition of one batch.

    Attributes:
      pairs: numbers of the pairs, by row and by place in the row.
      rows: the row of each of these pairs; those of one row stand in this order.
      num_rows: rows of the batch; rows without a pair have no weight.
      source_width: slots of a row on the source side.
      target_width: slots of a row on the target side.
    """

    pairs: Int[np.ndarray, "P"]
    rows: Int[np.ndarray, "P"]
    num_rows: int
    source_width: int
    target_width: int

    def share(self, index: int, count: int) -> "PlannedBatch":
        """Part `index` of the batch when `count` hosts build equally many rows each."""
        if self.num_rows % count:
            raise ValueError(f"{self.num_rows} rows do not divide among {count} hosts")
        num_rows = self.num_rows // count
        first = index * num_rows
        mine = (self.rows >= first) & (self.rows < first + num_rows)
        return self._replace(
            pairs=self.pairs[mine], rows=self.rows[mine] - first, num_rows=num_rows
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """All batches of an epoch, as flat arrays (eight bytes a pair).

    Attributes:
      pairs: numbers of the pairs.
      rows: the row of each of these pairs within its batch.
      starts: where each batch begins in `pairs` and `rows`.
      stops: where each batch ends.
      num_rows: rows of each batch.
      widths: slots of a row of each batch, on both sides.
      real_tokens: tokens of all pairs, on the source and on the target side.
    """

    pairs: Int[np.ndarray, "P"]
    rows: Int[np.ndarray, "P"]
    starts: Int[np.ndarray, "N"]
    stops: Int[np.ndarray, "N"]
    num_rows: Int[np.ndarray, "N"]
    widths: Int[np.ndarray, "N"]
    real_tokens: tuple[int, int]

    def __len__(self) -> int:
        """The number of batches."""
        return len(self.starts)

    def __getitem__(self, index: int) -> PlannedBatch:
        """Batch `index`, in constant time.

        Raises:
          IndexError: the plan has no such batch.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of a plan of {len(self)} batches")
        span = slice(int(self.starts[index]), int(self.stops[index]))
        width = int(self.widths[index])
        return PlannedBatch(
            pairs=self.pairs[span],
            rows=self.rows[span],
            num_rows=int(self.num_rows[index]),
            source_width=width,
            target_width=width,
        )

    @property
    def slots(self) -> int:
        """Slots for tokens of all batches, padding counted; the same on both sides."""
        return int(np.sum(self.num_rows.astype(np.int64) * self.widths))

    @property
    def padding_efficiency(self) -> tuple[float, float]:
        """Real tokens per slot on the source and on the target side."""
        source_tokens, target_tokens = self.real_tokens
        return source_tokens / self.slots, target_tokens / self.slots

    @property
    def shapes(self) -> set[tuple[int, int, int]]:
        """All (rows, source width, target width) that occur, one compilation each."""
        kinds = zip(self.num_rows.tolist(), self.widths.tolist(), strict=True)
        return {(num_rows, width, width) for num_rows, width in kinds}

    def describe(self) -> str:
        """One line for the log: batches, shapes, real tokens."""
        by_width = sorted(self.shapes, key=lambda shape: shape[1])
        shapes = ", ".join(f"{rows} x {width}" for rows, width, _ in by_width)
        source, target = self.padding_efficiency
        return (
            f"{len(self.pairs):,} pairs in {len(self):,} batches of {shapes} slots, "
            f"{100 * target:.1f} % real target tokens "
            f"({self.real_tokens[1] / len(self):,.0f} a batch), "
            f"{100 * source:.1f} % real source tokens"
        )


def epoch_plan(
    config: DataConfig,
    seed: int,
    epoch: int,
    source_lengths: Int[np.ndarray, "P"],
    target_lengths: Int[np.ndarray, "P"],
) -> Plan:
    """The batches of one training epoch: a function of (seed, epoch, lengths).

    "bucket": a pair belongs to the narrowest of `bucket_widths` that holds both of its
    sides, and a batch has about `tokens_per_batch` slots whatever its width. Where the
    pairs of a width do not fill their last batch, pairs of the next narrower width do.

    "pack": several pairs share a row of `pack_width` as long as both of their sides
    fit; the rows are spread evenly over the batches, which have one shape.

    Lengths count EOS.

    Raises:
      UserError: there are no pairs, a pair is longer than the widest row, or
        `rows_multiple` rows of a width are more than `tokens_per_batch` slots.
    """
    pack = config.plan == "pack"
    widths = (config.pack_width,) if pack else config.bucket_widths
    longest = _longest(source_lengths, target_lengths)
    if longest.max() > widths[-1]:
        pair = int(np.argmax(longest > widths[-1]))
        key = "data.pack_width" if pack else "the last of data.bucket_widths"
        raise UserError(
            f"pair {pair} has {source_lengths[pair]} source and {target_lengths[pair]} "
            f"target tokens, but {key} is {widths[-1]}: lower data.max_tokens to that, "
            "or widen the rows"
        )
    random = np.random.default_rng(np.random.SeedSequence((seed, epoch)))
    order = random.permutation(len(longest)).astype(np.int32)
    if pack:
        lengths = np.stack([source_lengths, target_lengths]).astype(np.int32)
        return _pack(config, order, lengths, random)
    plan = _bucket(
        widths,
        [_rows_per_batch(config, width) for width in widths[: _used(widths, longest)]],
        order,
        longest,
        _real_tokens(source_lengths, target_lengths),
    )
    shuffled = random.permutation(len(plan))
    return dataclasses.replace(
        plan,
        starts=plan.starts[shuffled],
        stops=plan.stops[shuffled],
        num_rows=plan.num_rows[shuffled],
        widths=plan.widths[shuffled],
    )


def evaluation_plan(
    config: DataConfig,
    source_lengths: Int[np.ndarray, "P"],
    target_lengths: Int[np.ndarray, "P"],
) -> Plan:
    """Every pair once, widest first, in buckets and without chance.

    Pairs beyond the last of `bucket_widths` are not left out: further widths double it
    until one holds the longest pair. There are no more rows than the pairs need.

    Raises:
      UserError: there are no pairs.
    """
    longest = _longest(source_lengths, target_lengths)
    widths = list(config.bucket_widths)
    while widths[-1] < longest.max():
        widths.append(2 * widths[-1])
    multiple = config.rows_multiple
    most = -(-len(longest) // multiple) * multiple
    rows = [
        min(most, max(config.tokens_per_batch // width // multiple, 1) * multiple)
        for width in widths
    ]
    return _bucket(
        widths,
        rows,
        np.arange(len(longest), dtype=np.int32),
        longest,
        _real_tokens(source_lengths, target_lengths),
    )


def _longest(
    source_lengths: Int[np.ndarray, "P"], target_lengths: Int[np.ndarray, "P"]
) -> Int[np.ndarray, "P"]:
    """The longer side of each pair; refuses to plan nothing."""
    if not len(source_lengths):
        raise UserError("there are no sentence pairs to make batches of")
    return np.maximum(source_lengths, target_lengths)


def _real_tokens(
    source_lengths: Int[np.ndarray, "P"], target_lengths: Int[np.ndarray, "P"]
) -> tuple[int, int]:
    """Tokens on both sides of the corpus."""
    return (
        int(source_lengths.sum(dtype=np.int64)),
        int(target_lengths.sum(dtype=np.int64)),
    )


def _used(widths: Sequence[int], longest: Int[np.ndarray, "P"]) -> int:
    """How many of the widths, from the narrowest, the pairs have a use for."""
    return int(np.searchsorted(widths, longest.max())) + 1


def _rows_per_batch(config: DataConfig, width: int) -> int:
    """Rows of `width` slots that fit into a training batch."""
    rows = config.tokens_per_batch // width // config.rows_multiple
    if not rows:
        raise UserError(
            f"data.tokens_per_batch is {config.tokens_per_batch}, but "
            f"data.rows_multiple={config.rows_multiple} rows of {width} slots are "
            f"{config.rows_multiple * width}: raise the first or lower the second"
        )
    return rows * config.rows_multiple


def _bucket(
    widths: Sequence[int],
    rows_per_batch: Sequence[int],
    order: Int[np.ndarray, "P"],
    longest: Int[np.ndarray, "P"],
    real_tokens: tuple[int, int],
) -> Plan:
    """Cuts pairs of similar length into batches, widest first.

    The pairs stand by falling width, in the given order within a width; each batch is
    as wide as its first pair needs. So a batch that the pairs of its width do not fill
    goes on with narrower ones, and only the very last batch has empty rows.
    """
    bucket = np.searchsorted(widths, longest).astype(np.int16)
    # Radix sort (for 16-bit keys) is stable: the shuffled order within a bucket stays.
    by_width = np.argsort(-bucket[order], kind="stable")
    pairs = order[by_width]
    kinds = bucket[pairs]
    starts, kind_of_batch = [], []
    start = 0
    while start < len(pairs):
        kind = int(kinds[start])
        starts.append(start)
        kind_of_batch.append(kind)
        start += rows_per_batch[kind]
    begins = np.array(starts, dtype=np.int64)
    ends = np.append(begins[1:], len(pairs))
    return Plan(
        pairs=pairs,
        rows=(np.arange(len(pairs)) - np.repeat(begins, ends - begins)).astype(
            np.int32
        ),
        starts=begins,
        stops=ends,
        num_rows=np.array(rows_per_batch, dtype=np.int32)[kind_of_batch],
        widths=np.array(widths, dtype=np.int32)[kind_of_batch],
        real_tokens=real_tokens,
    )


def _pack(
    config: DataConfig,
    order: Int[np.ndarray, "P"],
    lengths: Int[np.ndarray, "2 P"],
    random: np.random.Generator,
) -> Plan:
    """Puts several pairs into each row, shuffles the rows and cuts them into batches.

    The last batch is not left nearly empty: all batches have equally many rows in use,
    give or take one.
    """
    rows_per_batch = _rows_per_batch(config, config.pack_width)
    row = first_fit_decreasing(lengths[:, order], config.pack_width)
    num_rows = int(row.max()) + 1
    row = random.permutation(num_rows).astype(np.int32)[row]
    by_row = np.argsort(row, kind="stable")
    row = row[by_row]
    num_batches = -(-num_rows // rows_per_batch)
    first_rows = np.arange(num_batches + 1) * num_rows // num_batches
    cuts = np.searchsorted(row, first_rows).astype(np.int64)
    return Plan(
        pairs=order[by_row],
        rows=row - np.repeat(first_rows[:-1], np.diff(cuts)).astype(np.int32),
        starts=cuts[:-1],
        stops=cuts[1:],
        num_rows=np.full(num_batches, rows_per_batch, dtype=np.int32),
        widths=np.full(num_batches, config.pack_width, dtype=np.int32),
        real_tokens=_real_tokens(lengths[0], lengths[1]),
    )
