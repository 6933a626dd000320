"""Which jobs are in the rows of a search, and which wait for one."""

import dataclasses
from collections import deque

import numpy as np
from jaxtyping import Int

from transformer.decoding.shapes import FEW
from transformer.decoding.state import State, rows_alone


@dataclasses.dataclass
class Rows:
    """The rows of one size, by number, and the jobs in them and before them.

    Of those that are `arrived`, sources have been encoded, at most `most_arriving` at a
    time: they have their places among the newest arrivals. Those that are `kept` have
    begun elsewhere. Those that have `outgrown` their rows have left them, some with
    what they had found, the others to begin `anew`.
    """

    count: int
    most_arriving: int
    pending: deque[int]
    kept: deque[tuple[int, State]]
    arrived: deque[tuple[int, int]] = dataclasses.field(default_factory=deque)
    working: dict[int, int] = dataclasses.field(default_factory=dict)
    outgrown: list[tuple[int, State]] = dataclasses.field(default_factory=list)
    anew: list[int] = dataclasses.field(default_factory=list)

    @property
    def supplied(self) -> bool:
        """Whether any sentence waits for a row."""
        return bool(self.arrived or self.pending or self.kept)

    @property
    def unfinished(self) -> bool:
        """Whether any job is not yet done."""
        return bool(self.outgrown or self.working or self.supplied)

    @property
    def can_begin(self) -> bool:
        """Whether there is a free row for a sentence that waits for its beginning."""
        free = len(self.working) < self.count
        return free and bool(self.arrived or self.pending)

    @property
    def can_go_on(self) -> bool:
        """Whether there is a free row for a sentence that has begun elsewhere."""
        return len(self.working) < self.count and bool(self.kept)

    def next_batch(self) -> list[int]:
        """Jobs to be encoded now: none while encoded ones wait."""
        if self.arrived:
            return []
        size = min(self.most_arriving, len(self.pending))
        batch = [self.pending.popleft() for _ in range(size)]
        self.arrived.extend(enumerate(batch))
        return batch

    def place_arrived(self) -> Int[np.ndarray, "rows"]:
        """Puts arrivals in free rows: for each row the number of one, or -1."""
        places = np.full(self.count, -1, np.int32)
        for row in self._free()[: len(self.arrived)]:
            places[row], self.working[row] = self.arrived.popleft()
        return places

    def place_kept(self) -> tuple[list[State], Int[np.ndarray, "rows"]]:
        """Puts a few jobs that have begun elsewhere in free rows: likewise."""
        places = np.full(self.count, -1, np.int32)
        states: list[State] = []
        for row in self._free()[: min(len(self.kept), FEW)]:
            places[row] = len(states)
            self.working[row], state = self.kept.popleft()
            states.append(state)
        return states, places

    def _free(self) -> list[int]:
        """Rows without a job."""
        return [row for row in range(self.count) if row not in self.working]

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
            waiting = [number for _, number in self.arrived]
            begun = [number for number, _ in self.kept]
            self.anew.extend([*numbers[count:], *waiting, *self.pending, *begun])
            for queue in (self.arrived, self.pending, self.kept):
                queue.clear()

    def enough_done(self, few: int) -> np.int32:
        """Rows that are to be done before others take their places, or leave."""
        if not self.supplied:
            return np.int32(self.count - few)
        idle = self.count - len(self.working)
        return np.int32(min(idle + max(1, self.count // 8), self.count))
