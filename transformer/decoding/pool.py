"""Rows that are searched at once, and sentences that take turns in them.

Sentences are sorted by length into a few sizes: the room for what is looked at of a
source, and about that of an output. In each size a fixed number of rows is
searched: a sentence that is done leaves its row to the next one, so that no row waits
for the longest sentence of a batch. What outgrows its size goes on in the next one, and
the last sentences of a size beside those of another. The shapes, and with them the
compilations, are few whatever the text.

On a CPU half of the sentences go through all this in one thread and half in another: a
search by itself leaves cores idle, as many of its operations run on one.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.decoding.lanes import side_by_side
from transformer.decoding.rows import Rows
from transformer.decoding.search import admit, encode, search
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
    first_state,
    idle_state,
    rows_together,
)

_MOST_HYPOTHESES = 1024  # of all lanes together
_ARRIVING = 64  # rows that are encoded together
_LANES = {"cpu": 2}  # searches side by side, by platform; one elsewhere


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

    There are no more old rows than can be searched at once; other jobs begin `anew`.
    """

    size: int
    rows: list[tuple[int, State]]
    anew: list[int]


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
        """Sources searched at once have `slots` slots, or there is one in each lane."""
        self._device = jax.local_devices()[0]
        self._lanes = _LANES.get(self._device.platform, 1)
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
        lanes = max(1, min(self._lanes, len(jobs) // (2 * FEW)))
        # Like shares of long and of short sentences.
        order = sorted(range(len(jobs)), key=lambda n: _room(jobs[n]))
        return side_by_side(
            [self._run_lane(jobs, order[lane::lanes]) for lane in range(lanes)]
        )

    def _run_lane(
        self, jobs: Sequence[Job], numbers: list[int]
    ) -> Iterator[tuple[int, list[Found]]]:
        """Searches for some of the jobs, size by size."""
        waiting: dict[int, list[int]] = {}
        for number in numbers:
            waiting.setdefault(size_for(_room(jobs[number])), []).append(number)
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
        """How many rows may be searched at once, in each lane."""
        most = min(self._slots // size, _MOST_HYPOTHESES // self._rules.beam)
        most //= self._lanes
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
        kept = deque(left.rows if left else [])
        total = max(len(numbers) + len(kept), FEW if kept else 0)
        most = self._most_rows(size)
        count = rows_for(total, most)
        rows = Rows(count, min(count, _ARRIVING), deque(numbers), kept)
        state = self._idle(count, size)
        while True:
            while rows.can_begin:
                if batch := rows.next_batch():
                    arrivals = self._encode(
                        [jobs[n] for n in batch], rows.most_arriving, size
                    )
                state = self._admit(state, arrivals, rows.place_arrived())
            while rows.can_go_on:
                chosen, places = rows.place_kept()
                state = self._admit(state, rows_together(chosen, FEW), places)
            few = self._few(rows, size, larger)
            if len(rows.working) <= few:
                break
            state = search(
                self._params,
                state,
                *self._on_device((rows.enough_done(few), self._alpha)),
                network=self._network,
                rules=self._rules,
            )
            done, settled = jax.device_get((state.done, state.settled))
            results = jax.device_get((state.open, state.ended))
            for row in [row for row in rows.working if settled[row]]:
                yield rows.working.pop(row), self._found(results, row)
            no_room = [row for row in rows.working if done[row]]
            rows.leave(state, no_room, most)
        if not rows.unfinished:
            return None
        next_size = size_for(size + 1) if rows.outgrown else larger or size
        rows.leave(state, list(rows.working), most)
        return _Left(next_size, rows.outgrown, rows.anew)

    def _few(self, rows: Rows, size: int, larger: int | None) -> int:
        """How many working rows are so few that their sentences had better move."""
        if rows.supplied:
            return 0
        if larger or rows.outgrown:
            return rows.count // 4
        return FEW if rows_to_hold(FEW, self._most_rows(size)) < rows.count // 4 else 0

    def _idle(self, rows: int, size: int) -> State:
        """Rows that wait for sentences."""
        beam, prefix = self._rules.beam, self._prefix(size)
        places = places_for(size, beam)
        idle = idle_state(self._network, rows, beam, places, size, prefix)
        return self._on_device(idle)

    def _admit(self, state: State, arrivals: State, places: Any) -> State:
        """Rows with those `arrivals` in them whose numbers are in `places`."""
        arrivals, places = self._on_device((arrivals, places))
        return admit(state, arrivals, places, pad=self._network.ids.pad)

    def _encode(self, jobs: list[Job], rows: int, size: int) -> State:
        """Sources as rows of a batch, through the encoder: sentences that begin."""
        pad = self._network.ids.pad
        longest = max(len(job.source) for job in jobs)
        width = width_for(longest, min(self._max_positions or size, size))
        source = np.full((rows, width), pad, np.int32)
        limits: Any = np.zeros(rows, np.int32)
        prefixes: Any = np.full((rows, self._prefix(size)), pad, np.int32)
        keys: Any = np.zeros((rows, 2), np.uint32)
        for row, job in enumerate(jobs):
            source[row, : len(job.source)] = job.source
            limits[row] = job.limit
            prefixes[row, : len(job.prefix)] = job.prefix
            keys[row] = job.stream
        memory, real = encode(
            self._params,
            self._on_device(source),
            network=self._network,
            room=size_for(width),
        )
        sentences = Sentences(memory, real, limits, prefixes, keys)
        return first_state(sentences, self._rules.beam, self._network)

    def _prefix(self, size: int) -> int:
        """Room for the pieces that an output is to begin with."""
        return size if self._has_prefixes else 0

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
