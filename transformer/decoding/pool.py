"""Rows that are searched at once, and sentences that take turns in them.

Sentences are sorted by length into a few sizes: the room for what is looked at of a
source, and about that of an output. In each size a fixed number of rows is
searched: a sentence that is done leaves its row to the next one, so that no row waits
for the longest sentence of a batch. What outgrows its size goes on in the next one, and
the last sentences of a size beside those of another. The shapes, and with them the
compilations, are few whatever the text.
"""

import dataclasses
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from transformer.decoding.search import encode, search
from transformer.decoding.shapes import (
    FEW,
    places_for,
    rows_for,
    rows_to_hold,
    size_for,
    width_for,
)
from transformer.decoding.state import (
    Network,
    Rules,
    Sentences,
    State,
    idle_state,
    rows_alone,
    rows_of,
)

_MOST_HYPOTHESES = 1024  # of all rows together


class Job(NamedTuple):
    """A sentence to be searched for: pieces with EOS, longest output, first pieces.

    Equal `stream`s draw equal samples from equal sources.
    """

    source: Sequence[int]
    limit: int
    prefix: Sequence[int]
    stream: tuple[int, int]


class Found(NamedTuple):
    """A hypothesis: its pieces (with EOS if `finished`), log-probability and score."""

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool


class _Left(NamedTuple):
    """Jobs that are to go on in another size or in fewer rows, and their old rows.

    There are no more of them than the new rows will hold. Other jobs begin `anew`.
    """

    size: int
    rows: list[tuple[int, State]]
    anew: list[int]


@dataclasses.dataclass
class _Rows:
    """The rows of one size, by number, and the jobs in them and before them.

    Of those that are `arrived`, sources have been encoded: they have their places
    among the newest arrivals. Those that have `outgrown` their rows have left them,
    some with what they had found, the others to begin `anew`.
    """

    count: int
    pending: deque[int]
    arrived: deque[tuple[int, int]] = dataclasses.field(default_factory=deque)
    working: dict[int, int] = dataclasses.field(default_factory=dict)
    outgrown: list[tuple[int, State]] = dataclasses.field(default_factory=list)
    anew: list[int] = dataclasses.field(default_factory=list)

    @property
    def supplied(self) -> bool:
        """Whether any sentence waits for a row."""
        return bool(self.arrived or self.pending)

    @property
    def unfinished(self) -> bool:
        """Whether any job is not yet done."""
        return bool(self.outgrown or self.working or self.supplied)

    def next_batch(self) -> list[int]:
        """Jobs to be encoded now: none while encoded ones wait."""
        if self.arrived:
            return []
        size = min(self.count, len(self.pending))
        batch = [self.pending.popleft() for _ in range(size)]
        self.arrived.extend(enumerate(batch))
        return batch

    def take_places(self) -> Int[np.ndarray, "rows"]:
        """Puts jobs in free rows: for each row a place among the arrivals, or -1."""
        places = np.full(self.count, -1, np.int32)
        for row in range(self.count):
            if row not in self.working and self.arrived:
                places[row], self.working[row] = self.arrived.popleft()
        return places

    def leave(self, state: State, chosen: list[int], most: int) -> None:
        """Takes jobs out of rows of `state`, `most` of all with what they had found.

        If these are not all, the rows are too small for this text, and what waits for
        one begins elsewhere as well.
        """
        numbers = [self.working.pop(row) for row in chosen]
        count = min(len(chosen), most - len(self.outgrown))
        alone = rows_alone(state, chosen[:count]) if count else []
        self.outgrown.extend(zip(numbers[:count], alone, strict=True))
        if count < len(chosen):
            waiting = [*(number for _, number in self.arrived), *self.pending]
            self.anew.extend(numbers[count:] + waiting)
            self.arrived.clear()
            self.pending.clear()

    def enough_done(self, few: int) -> np.int32:
        """Rows that are to be done before others take their places, or leave."""
        if not self.supplied:
            return np.int32(self.count - few)
        idle = self.count - len(self.working)
        return np.int32(min(idle + max(1, self.count // 8), self.count))


class Pool:
    """Searches for the outputs of sentences with one network."""

    def __init__(
        self,
        params: tuple[dict[str, Any], ...],
        network: Network,
        rules: Rules,
        alpha: float,
        slots: int,
    ):
        """A batch of sources has at most `slots` slots, or one row."""
        self._device = jax.local_devices()[0]
        self._params = jax.device_put(params, self._device)
        self._network = network
        self._rules = rules
        self._alpha = np.float32(alpha)
        self._slots = slots
        self._max_positions = network.max_positions
        self._has_prefixes = False

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Found]]]:
        """Each job's number and its best hypotheses, the best first, in any order.

        At least one hypothesis: where none has ended, the best of the open ones.
        """
        self._has_prefixes = any(job.prefix for job in jobs)
        waiting: dict[int, list[int]] = {}
        for number, job in enumerate(jobs):
            waiting.setdefault(size_for(_room(job)), []).append(number)
        left: _Left | None = None
        while waiting or left:
            size = left.size if left else min(waiting)
            # Longest first, so that the last rows to be done are quickly done.
            numbers = sorted(waiting.pop(size, []), key=lambda n: -len(jobs[n].source))
            larger = min((s for s in waiting if s > size), default=None)
            left = yield from self._run_size(jobs, numbers, size, larger, left)
            if left and left.anew:
                waiting.setdefault(left.size, []).extend(left.anew)

    def _most_rows(self, size: int) -> int:
        """How many rows may be searched at once."""
        most = min(self._slots // size, _MOST_HYPOTHESES // self._rules.beam)
        return rows_for(most, most)

    def _run_size(
        self,
        jobs: Sequence[Job],
        numbers: list[int],
        size: int,
        larger: int | None,
        left: _Left | None,
    ) -> Generator[tuple[int, list[Found]], None, _Left | None]:
        """Searches in one size, for `numbers` and what another size has `left`.

        Returns what is better done elsewhere: sentences that need more room, and the
        last few, for which so many rows are too many. `larger` is the next size that
        is to come, where they can go on beside others.
        """
        kept = left.rows if left else []
        total = len(numbers) + (max(len(kept), FEW) if kept else 0)
        if not larger:  # The last ones will have nowhere to go: let them be few.
            total = max(total // 2, min(total, FEW))
        most = self._most_rows(size)
        count = max(rows_for(total, most), rows_to_hold(len(kept), most))
        places = places_for(size, self._rules.beam)
        rows = _Rows(count, deque(numbers))
        state: Any = None
        if kept:
            rows.working = {row: number for row, (number, _) in enumerate(kept)}
            old = [state for _, state in kept]
            state = rows_of(old, count, size, places, self._network.ids.pad)
            state, arrivals = map(self._on_device, (state, state.sentences))
        while True:
            if batch := rows.next_batch():
                arrivals = self._encode([jobs[n] for n in batch], count, size)
            if state is None:
                state = self._on_device(
                    idle_state(arrivals, count, self._rules.beam, places, self._network)
                )
            taken = rows.take_places()
            few = self._few(rows, size, larger)
            if (taken < 0).all() and len(rows.working) <= few:
                break
            state = search(
                self._params,
                state,
                arrivals,
                *self._on_device((taken, rows.enough_done(few), self._alpha)),
                network=self._network,
                rules=self._rules,
            )
            done, settled = jax.device_get((state.done, state.settled))
            results = jax.device_get((state.open, state.ended))
            for row in [row for row in rows.working if settled[row]]:
                yield rows.working.pop(row), self._found(results, row)
            no_room = [row for row in rows.working if done[row]]
            rows.leave(state, no_room, self._most_rows(size_for(size + 1)))
        if not rows.unfinished:
            return None
        next_size = size_for(size + 1) if rows.outgrown else larger or size
        rows.leave(state, list(rows.working), self._most_rows(next_size))
        return _Left(next_size, rows.outgrown, rows.anew)

    def _few(self, rows: _Rows, size: int, larger: int | None) -> int:
        """How many working rows are so few that their sentences had better move."""
        if rows.supplied:
            return 0
        if larger or rows.outgrown:
            return rows.count // 4
        return FEW if rows_to_hold(FEW, self._most_rows(size)) < rows.count // 4 else 0

    def _encode(self, jobs: list[Job], rows: int, size: int) -> Sentences:
        """Sources as rows of a batch, and through the encoder."""
        pad = self._network.ids.pad
        longest = max(len(job.source) for job in jobs)
        width = width_for(longest, min(self._max_positions or size, size))
        source = np.full((rows, width), pad, np.int32)
        limits = np.zeros(rows, np.int32)
        longest_prefix = size if self._has_prefixes else 0
        prefixes = np.full((rows, longest_prefix), pad, np.int32)
        keys = np.zeros((rows, 2), np.uint32)
        for row, job in enumerate(jobs):
            source[row, : len(job.source)] = job.source
            limits[row] = job.limit
            prefixes[row, : len(job.prefix)] = job.prefix
            keys[row] = job.stream
        arrays = self._on_device((source, limits, prefixes, keys))
        return encode(self._params, *arrays, network=self._network, size=size)

    def _on_device(self, tree: Any) -> Any:
        """Arrays where the parameters are, so that all calls are compiled alike."""
        return jax.device_put(tree, self._device)

    def _found(self, results: Any, row: int) -> list[Found]:
        """A row's hypotheses: the finished ones, else the best open one."""
        opened, ended = results
        best = []
        for slot in range(self._rules.nbest):
            if ended.scores[row, slot] > -np.inf:
                best.append(_hypothesis(ended, row, slot, True))
        return best or [_hypothesis(opened, row, 0, False)]


def _room(job: Job) -> int:
    """Tokens of the output that are likely to do, or those of the source."""
    likely = len(job.source) + len(job.source) // 4 + 3
    return max(len(job.source), min(job.limit, likely), len(job.prefix) + 1)


def _hypothesis(hypotheses: Any, row: int, slot: int, finished: bool) -> Found:
    """One hypothesis as plain values."""
    length = int(hypotheses.lengths[row, slot])
    return Found(
        tokens=tuple(hypotheses.tokens[row, slot, :length].tolist()),
        log_prob=float(hypotheses.log_probs[row, slot]),
        score=float(hypotheses.scores[row, slot]),
        finished=finished,
    )
