"""Work done side by side."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")


def side_by_side(lanes: Sequence[Iterable[T]]) -> Iterator[T]:
    """All that some iterables give, each of them run through in a thread of its own.

    A single one is run through where it is, without a thread. If one fails, or the
    caller does not wait for the end, the others stop at what they give next.
    """
    if len(lanes) == 1:
        yield from lanes[0]
        return
    stopped = threading.Event()

    def run_through(lane: Iterable[T]) -> list[T]:
        found = []
        for one in lane:
            if stopped.is_set():
                break
            found.append(one)
        return found

    with ThreadPoolExecutor(len(lanes)) as threads:
        results = [threads.submit(run_through, lane) for lane in lanes]
        try:
            for result in as_completed(results):
                yield from result.result()
        finally:
            stopped.set()
