"""Laws of sentences that share a search: none of them notices the others."""

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
from transformer.decoding import shapes
from transformer.decoding.state import idle_state, moved_rows


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
        monkeypatch.setattr(shapes, "_SIZES", (23,))
        assert_same(search(model_config, params, source, 4, 0.6), together)
    outputs = {hypothesis(together, row) for row in range(len(source))}
    assert len(outputs) > 15


def test_batches_are_as_large_as_their_slots(model_config, monkeypatch):
    """A batch has at most `slots` slots and 1024 hypotheses, or a single row."""
    params, source = parameters(model_config), sentences(80, 6)
    together, made = search(model_config, params, source, 4, 0.6), []

    def counting(sentences, rows, *settings):
        made.append(rows)
        return idle_state(sentences, rows, *settings)

    monkeypatch.setattr("transformer.decoding.pool.idle_state", counting)
    for slots in (1, 8 * 16, 32 * 16 - 1, 32 * 16, 10**6):
        found = search(model_config, params, source, 4, 0.6, slots=slots)
        assert_same(found, together)
    assert made == [1, 8, 8, 32, 64]


def test_outgrowing_a_size_changes_nothing(model_config, monkeypatch):
    """A sentence without room for its output begins again in the next size."""
    params, source = parameters(model_config), sentences(30, 3)
    roomy, made = search(model_config, params, source, 4, 1.5), []

    def counting(sentences, rows, beam, size, network):
        made.append(size)
        return idle_state(sentences, rows, beam, size, network)

    monkeypatch.setattr("transformer.decoding.pool.idle_state", counting)
    monkeypatch.setattr(shapes, "_SIZES", (3,))
    assert_same(search(model_config, params, source, 4, 1.5), roomy)
    assert made == [6, 9, 12]
    assert roomy.lengths.min() <= 6 and roomy.lengths.max() == LENGTH


def test_the_past_of_a_moved_row_keeps_its_order(model_config, monkeypatch):
    """Rows that move in the middle of a ring take their past along."""
    params, source = parameters(model_config), sentences(80, 8)
    roomy, slots = search(model_config, params, source, 4, 0.6), []

    def counting(state, chosen, rows, length, pad):
        slots.append(int(state.slot))
        return moved_rows(state, chosen, rows, length, pad)

    monkeypatch.setattr("transformer.decoding.pool.moved_rows", counting)
    monkeypatch.setattr(shapes, "_SIZES", (6, 12))
    monkeypatch.setattr(shapes, "_ROWS", (4,))
    assert_same(search(model_config, params, source, 4, 0.6), roomy)
    assert any(slots)


def test_the_last_sentences_move_and_stay_the_same(model_config, monkeypatch):
    """The very last sentences go on in fewer rows."""
    params, source = parameters(model_config), sentences(80, 8)
    still, moves = search(model_config, params, source, 4, 0.6), []

    def counting(state, chosen, rows, length, pad):
        moves.append((len(chosen), *state.seen.shape[::2], rows, length))
        return moved_rows(state, chosen, rows, length, pad)

    monkeypatch.setattr("transformer.decoding.pool.moved_rows", counting)
    monkeypatch.setattr(shapes, "_SIZES", (6, 12))
    assert_same(search(model_config, params, source, 4, 0.6), still)
    assert moves[-1][0] <= 8 and moves[-1][2:] == (12, 8, 12)


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
