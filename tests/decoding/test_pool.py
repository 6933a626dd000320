"""Laws of sentences that share a search: none of them notices the others."""

import collections
import itertools

import numpy as np
import pytest

from tests.decoding.tiny_search import (
    LENGTH,
    assert_same,
    hypothesis,
    parameters,
    search,
    sentences,
)
from transformer.decoding import pool, shapes
from transformer.decoding.pool import Pool
from transformer.decoding.search import admit
from transformer.decoding.state import idle_state


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_neighbours_padding_and_place_change_nothing(model_config, monkeypatch, rows):
    """A sentence's translation is its own: alone, wider, shuffled, in any row.

    There are more sentences than rows, so that most of them take a row over in the
    middle of their neighbours' search. Elsewhere finished sentences went on being
    changed while a neighbour was not, padding was looked at, and sources were paired
    with other sentences' beams.
    """
    params, source = parameters(model_config), sentences(80, 6)
    together = search(model_config, params, source, 4, 0.6)
    order = np.random.default_rng(rows).permutation(len(source))
    monkeypatch.setattr(shapes, "_ROWS", (rows,))
    assert_same(search(model_config, params, source[order], 4, 0.6), together, order)
    if rows == 7:
        monkeypatch.setattr(shapes, "_SIZES", (48,))
        monkeypatch.setattr(shapes, "_WIDTHS", (40,))
        assert_same(search(model_config, params, source, 4, 0.6), together)
    outputs = {hypothesis(together, row) for row in range(len(source))}
    assert len(outputs) > 15


def test_batches_are_as_large_as_their_slots(model_config, monkeypatch):
    """Sources searched at once have `slots` slots and 1024 hypotheses at most.

    Half of them in each of two lanes, where there is always one. The last of 128 rows
    go on in 8.
    """
    params, source = parameters(model_config), sentences(160, 6)
    together, made = search(model_config, params, source, 4, 0.6), []

    def counting(network, rows, *settings):
        made.append(rows)
        return idle_state(network, rows, *settings)

    monkeypatch.setattr(pool, "idle_state", counting)
    for lanes, slots, rows in (
        (1, 1, [1]),
        (1, 128 * 32 - 1, [32]),
        (1, 128 * 32, [128, 8]),
        (2, 8 * 32, [1, 1]),
        (2, 64 * 32 - 1, [8, 8]),
        (2, 64 * 32, [32, 32]),
    ):
        made.clear()
        monkeypatch.setattr(pool, "_LANES", {"cpu": lanes})
        found = search(model_config, params, source, 4, 0.6, slots=slots)
        assert_same(found, together)
        assert made == rows
    made.clear()
    search(model_config, params, source[:80], 64, 0.6, slots=10**6)
    assert set(made) == {8}


def moves_of(monkeypatch) -> list[tuple]:
    """Rows that go on elsewhere: steps done, open paths, new rows and width.

    From now on there is a single lane, so that they come in order.
    """
    monkeypatch.setattr(pool, "_LANES", {})
    moves = []

    def counting(state, arrivals, places, pad):
        if arrivals.past.shape[2]:  # not from the encoder
            chosen = places[places >= 0]
            paths = arrivals.past.sum(axis=(1, 2))[chosen].tolist()
            steps = arrivals.steps[chosen].tolist()
            moves.append((steps, paths, *state.sentences.real.shape))
        return admit(state, arrivals, places, pad=pad)

    monkeypatch.setattr(pool, "admit", counting)
    return moves


@pytest.mark.parametrize("beam", [1, 4])
def test_outgrowing_a_size_changes_nothing(model_config, monkeypatch, beam):
    """A sentence without room for its output goes on in the next size."""
    params, source = parameters(model_config), sentences(30, 3)
    roomy = search(model_config, params, source, beam, 1.5)
    moves = moves_of(monkeypatch)
    monkeypatch.setattr(shapes, "_SIZES", (5, 10, 20))
    monkeypatch.setattr(
        "transformer.decoding.pool.places_for",
        lambda size, beam: size * beam // 3 + beam - 1,
    )
    assert_same(search(model_config, params, source, beam, 1.5), roomy)
    widths = [width for *_, width in moves]
    assert widths == sorted(widths) and len(set(widths)) > 1
    assert roomy.lengths.min() <= 6 and roomy.lengths.max() == LENGTH
    for steps, paths, *_ in moves:
        assert any(steps)  # what was found so far goes along
        assert all(beam * s >= p >= s for s, p in zip(steps, paths, strict=True))


def test_no_more_rows_are_kept_than_are_searched(model_config, monkeypatch):
    """Whole rows are large: no more are kept than are ever searched, others begin anew.

    What is kept waits for a row. Where so many outgrow a size, those that wait do not
    begin in it.
    """
    params, source = parameters(model_config), sentences(30, 3)
    roomy, moves = search(model_config, params, source, 1), moves_of(monkeypatch)
    monkeypatch.setattr(shapes, "_SIZES", (6, 12))
    monkeypatch.setattr(shapes, "_ROWS", (4, 8))
    begun, encode = collections.Counter(), Pool._encode

    def counting(self, jobs, rows, size):
        begun[size] += len(jobs)
        return encode(self, jobs, rows, size)

    monkeypatch.setattr(Pool, "_encode", counting)
    assert_same(search(model_config, params, source, 1, slots=8 * 6), roomy)
    assert sum(len(steps) for steps, *_ in moves) == 8
    assert {rows for _, _, rows, _ in moves} == {4}
    assert begun[6] <= 24 and 30 - 16 <= begun[12] <= 30 - 8


def test_places_grow_with_the_beam():
    """A size more is so many places more that wide beams are soon done with sizes."""
    for beam in (1, 4, 12, 64, 500):
        sizes = [shapes.size_for(length) for length in (1, 33, 65, 129)]
        places = [shapes.places_for(size, beam) for size in sizes]
        assert all(p >= s + beam - 1 for s, p in zip(sizes, places, strict=True))
        assert all(b == 2 * a for a, b in itertools.pairwise(places))


def test_the_last_sentences_move_and_stay_the_same(model_config, monkeypatch):
    """The last sentences of a size go on in the next, the very last in fewer rows."""
    params, source = parameters(model_config), sentences(300, 8)
    limits = 2 + np.arange(300) % 9
    monkeypatch.setattr(shapes, "_ROWS", (1,))
    alone = search(model_config, params, source[:40], 4, 0.6, limits[:40])
    monkeypatch.undo()
    moves = moves_of(monkeypatch)
    together = search(model_config, params, source, 4, 0.6, limits)
    ((steps, _, rows, width),) = moves
    assert len(steps) <= 8 and rows == 8 and width == 32 and any(steps)
    moves.clear()
    monkeypatch.setattr(shapes, "_SIZES", (6, 12))
    assert_same(search(model_config, params, source, 4, 0.6, limits), together)
    (steps, _, rows, width), *_ = moves
    assert len(steps) <= 8 and rows > 8 and width == 12 and any(steps)
    assert sum(len(steps) for steps, _, _, width in moves if width == 12) > 8
    assert_same(alone, together, np.arange(40))


def test_each_sentence_has_its_own_limit(model_config):
    """Limits hold row by row; what reaches its limit unfinished says so."""
    params, source = parameters(model_config), sentences(12, 6)
    free = search(model_config, params, source, 1, 0.6)
    limits = free.lengths - np.arange(12) % 3  # as long as it needs, or shorter
    limits[0] = 0
    result = search(model_config, params, source, 1, 0.6, limits)
    for row, limit in enumerate(limits):
        assert hypothesis(result, row) == hypothesis(free, row)[:limit]
        ends = free.finished[row] and free.lengths[row] <= limit
        assert result.finished[row] == ends
    assert result.finished.any() and not result.finished.all()
