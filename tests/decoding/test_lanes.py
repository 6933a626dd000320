"""Laws of work done side by side: all of it, once, and no more than is asked for."""

import collections
import threading
from collections.abc import Iterator

import jax
import pytest

from tests.decoding.tiny_search import assert_same, parameters, search, sentences
from transformer.decoding import pool, shapes
from transformer.decoding.lanes import side_by_side

MANY = 10**7  # seconds of work


def test_lanes_give_all_that_they_hold():
    """Whatever the number of lanes, and also where one of them holds nothing."""
    for lanes in ([range(5)], [range(3), range(3, 5)], [[], range(5), []]):
        assert sorted(side_by_side(lanes)) == list(range(5))


def test_lanes_run_at_once():
    """Each of them waits for the other, which one after the other would never come."""
    barrier = threading.Barrier(2, timeout=20)

    def lane() -> Iterator[int]:
        yield barrier.wait()

    assert sorted(side_by_side([lane(), lane()])) == [0, 1]


def test_a_lane_that_fails_ends_the_others():
    """The error reaches the caller, and long work beside it stops."""

    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("out of rows")

    long = iter(range(MANY))
    with pytest.raises(ValueError, match="out of rows"):
        list(side_by_side([long, broken()]))
    assert next(long, None) is not None


def test_lanes_end_when_nobody_listens():
    """After an interruption nothing goes on in the background."""
    before, long = threading.active_count(), iter(range(3, MANY))
    found = side_by_side([range(3), long])
    assert next(found) == 0
    found.close()
    assert threading.active_count() == before
    assert next(long, None) is not None


def test_lanes_change_nothing(model_config, monkeypatch):
    """The same translations from one lane, two and three."""
    params, source = parameters(model_config), sentences(80, 6)
    monkeypatch.setattr(pool, "_LANES", {})
    alone = search(model_config, params, source, 4, 0.6)
    for lanes in (2, 3):
        monkeypatch.setattr(pool, "_LANES", {"cpu": lanes})
        assert_same(search(model_config, params, source, 4, 0.6), alone)


def test_lanes_compile_once(model_config, monkeypatch, caplog):
    """What two lanes need at the same time is compiled for both of them."""
    monkeypatch.setattr(pool, "_LANES", {"cpu": 2})
    monkeypatch.setattr(shapes, "_ROWS", (1, 9))  # rows that no other test has
    params, source = parameters(model_config), sentences(40, 6)
    jax.config.update("jax_log_compiles", True)  # the context manager is for a thread
    try:
        search(model_config, params, source, 4, 0.6)
    finally:
        jax.config.update("jax_log_compiles", False)
    messages = collections.Counter(
        r.getMessage().split(" in ")[0] for r in caplog.records
    )
    assert messages["Finished XLA compilation of jit(search)"] == 1
