"""Laws of the beam search, against exhaustive search and a plain NumPy search."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.decoding.tiny_search import (
    IDS,
    LENGTH,
    VOCAB,
    hypotheses,
    hypothesis,
    parameters,
    search,
    sentences,
)
from transformer.config import ModelConfig
from transformer.decoding import length_penalty, shapes
from transformer.decoding import search as search_module
from transformer.decoding.state import (
    Network,
    Rules,
    Sentences,
    State,
    first_state,
    idle_state,
)
from transformer.model import Transformer


@functools.partial(jax.jit, static_argnames=("config", "vocab_size"))
def forced(config: ModelConfig, params: dict, source, targets, vocab_size: int):
    """Log-probabilities after each prefix of `targets`, without any cache."""

    def places(array):
        return jnp.broadcast_to(jnp.arange(array.shape[1]), array.shape)

    inputs = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=IDS.bos)
    logits = Transformer(config, vocab_size).apply(
        {"params": params},
        source,
        (source != IDS.pad).astype(jnp.int32),
        places(source),
        inputs,
        jnp.ones_like(inputs),
        places(inputs),
        deterministic=True,
    )
    return jax.nn.log_softmax(logits)


def forced_steps(config, params, source, targets, vocab_size: int = VOCAB):
    """The log-probability of each token of `targets` (R rows of one source each)."""
    table = forced(
        config, params, jnp.asarray(source), jnp.asarray(targets), vocab_size
    )
    return np.take_along_axis(np.asarray(table), targets[..., None], axis=2)[..., 0]


def penalty(length: int, alpha: float) -> float:
    """The paper's length penalty by itself."""
    return ((5 + length) / 6) ** alpha


def test_length_penalty_has_the_published_values():
    """((5 + |Y|) / 6)^alpha, neutral at alpha 0: not length^alpha, not turned round."""
    expected = {1: 1.0, 10: 1.733, 25: 2.627, 50: 3.779, 100: 5.570}
    for length, value in expected.items():
        assert float(length_penalty(length, 0.6)) == pytest.approx(value, abs=5e-4)
        assert float(length_penalty(length, 0.0)) == 1.0
    assert float(length_penalty(50, 0.3)) == pytest.approx(1.9439, abs=5e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_a_wide_beam_finds_what_exhaustive_search_finds(model_config, alpha):
    """The best eight of all sequences, the beam being wider than the vocabulary.

    Elsewhere a top-k over fewer candidates than beams failed or let padding win.
    """
    vocab_size, longest = 7, 3
    params = parameters(model_config, vocab_size)
    source = sentences(24, 4, vocab_size)
    result = hypotheses(
        *(model_config, params, source),
        *(Rules(beam=64, nbest=8), alpha, longest, vocab_size),
    )
    words = range(3, vocab_size)
    ended = [
        [*body, IDS.eos]
        for size in range(longest)
        for body in itertools.product(words, repeat=size)
    ]
    targets = np.array([s + [IDS.pad] * (longest - len(s)) for s in ended])
    assert len(ended) == 21
    for row in range(len(source)):
        repeated = np.repeat(source[row : row + 1], len(ended), axis=0)
        steps = forced_steps(model_config, params, repeated, targets, vocab_size)
        totals = [steps[i, : len(s)].sum() for i, s in enumerate(ended)]
        scores = [
            total / penalty(len(s), alpha)
            for total, s in zip(totals, ended, strict=True)
        ]
        best = np.argsort(scores)[::-1][:8]
        assert [h.tokens for h in result[row]] == [tuple(ended[i]) for i in best]
        assert all(h.finished for h in result[row])
        for found, i in zip(result[row], best, strict=True):
            assert found.score == pytest.approx(scores[i], abs=1e-4)
            assert found.log_prob == pytest.approx(totals[i], abs=1e-4)


def plain_search(config, params, source, beam: int, alpha: float):
    """Beam search by its definition, on one source: no cache, and no early stop.

    Returns (finished, tokens, score) of the best.
    """
    alive = [((), 0.0)]
    ended: list[tuple[float, tuple[int, ...]]] = []
    for step in range(LENGTH):
        targets = np.zeros((beam, LENGTH), np.int32)
        for row, (tokens, _) in enumerate(alive):
            targets[row, : len(tokens)] = tokens
        repeated = np.repeat(source[None], beam, axis=0)
        table = np.asarray(forced(config, params, repeated, targets, VOCAB))
        candidates = [
            (total + float(table[row, step, piece]), (*tokens, piece))
            for row, (tokens, total) in enumerate(alive)
            for piece in range(VOCAB)
            if piece not in (IDS.pad, IDS.bos)
        ]
        candidates = sorted(candidates, reverse=True)[: 2 * beam if beam > 1 else 1]
        for total, tokens in candidates:
            if tokens[-1] == IDS.eos:
                ended.append((total / penalty(len(tokens), alpha), tokens))
        ended = sorted(ended, reverse=True)[:beam]
        alive = [(t, total) for total, t in candidates if t[-1] != IDS.eos][:beam]
        if not alive:
            break
    if ended:
        return True, ended[0][1], ended[0][0]
    tokens, total = alive[0]
    return False, tokens, total / penalty(len(tokens), alpha)


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.6), (2, 0.0), (4, 0.6), (4, 3.0)])
def test_search_equals_its_definition(model_config, beam, alpha):
    """The same answer as a plain search that never stops early; beam 1 is greedy.

    Elsewhere the first finished hypothesis was taken, which is the shortest, early
    finishers were dropped, or the search ran on after nothing could change any more.
    """
    params, source = parameters(model_config), sentences(12, 6)
    result = search(model_config, params, source, beam, alpha)
    for row in range(len(source)):
        finished, tokens, score = plain_search(
            model_config, params, source[row], beam, alpha
        )
        assert hypothesis(result, row) == tokens
        assert bool(result.finished[row]) == finished
        assert result.scores[row] == pytest.approx(score, abs=1e-4)
    assert result.finished.any()
    assert len(set(result.lengths.tolist())) > 2


def test_greedy_search_takes_the_likeliest_piece_and_ends_at_its_first_eos(
    model_config,
):
    """Beam 1 is greedy by definition, whatever alpha says."""
    params, source = parameters(model_config), sentences(12, 6)
    result = search(model_config, params, source, 1, 1.5)
    targets = np.zeros((len(source), LENGTH), np.int32)
    done = np.zeros(len(source), bool)
    for step in range(LENGTH):
        table = np.array(forced(model_config, params, source, targets, VOCAB))
        table[..., [IDS.pad, IDS.bos]] = -np.inf
        piece = table[:, step].argmax(axis=-1)
        targets[:, step] = np.where(done, IDS.pad, piece)
        done |= piece == IDS.eos
    np.testing.assert_array_equal(result.tokens, targets)
    np.testing.assert_array_equal(result.finished, done)
    assert done.any() and not done.all()


def test_cached_steps_equal_the_full_decoder(model_config):
    """Teacher-forcing the output gives the search's log-probabilities again.

    Elsewhere caches were not reordered with their hypotheses: a good loss, a poor BLEU.
    """
    params, source = parameters(model_config), sentences(20, 6)
    result = search(model_config, params, source, 4, 1.5)
    steps = forced_steps(model_config, params, source, result.tokens)
    real = np.arange(LENGTH) < result.lengths[:, None]
    totals = np.where(real, steps, 0).sum(axis=1)
    assert (np.abs(totals - result.log_probs) / result.lengths).max() < 1e-4
    assert result.lengths.max() >= 5


def test_scores_follow_from_log_probability_and_length(model_config):
    """Score = log P / ((5 + length) / 6)^alpha, EOS counted, padding never.

    A larger alpha favours longer output; elsewhere it counted the batch's padding.
    """
    params, source = parameters(model_config), sentences(24, 6)
    mean_lengths = []
    for alpha in (0.0, 0.6, 1.5):
        result = search(model_config, params, source, 4, alpha)
        expected = result.log_probs / ((5 + result.lengths) / 6) ** alpha
        np.testing.assert_allclose(result.scores, expected, rtol=1e-5)
        for row in np.flatnonzero(result.finished):
            tokens = hypothesis(result, row)
            assert tokens.index(IDS.eos) == len(tokens) - 1
            assert (result.tokens[row, len(tokens) :] == IDS.pad).all()
        mean_lengths.append(result.lengths.mean())
    assert mean_lengths[0] < mean_lengths[1] < mean_lengths[2]


def test_search_stops_when_no_open_hypothesis_can_win(model_config):
    """Sentences that end early take steps for their length, not for a limit of 200.

    Elsewhere the search ran on to the limit after everything was done.
    """
    params = parameters(model_config)
    undecided = (params | {"output": params["output"] / 3},)
    network, rules = Network((model_config,), VOCAB, IDS), Rules(beam=4)
    limits, keys = np.full(12, 200, np.int32), np.zeros((12, 2), np.uint32)
    memory, real = search_module.encode(
        undecided, sentences(12, 6), network=network, room=6
    )
    arriving = Sentences(memory, real, limits, np.zeros((12, 0), np.int32), keys)
    arrivals = first_state(arriving, 4, network)

    def found(enough: int) -> State:
        """The state when so many rows are done."""
        idle = idle_state(network, 12, 4, 200, real.shape[1], 0)
        places = np.arange(12, dtype=np.int32)
        return search_module.search(
            undecided,
            search_module.admit(idle, arrivals, places, pad=IDS.pad),
            np.int32(enough),
            np.float32(0),
            network=network,
            rules=rules,
        )

    state = found(12)
    assert state.settled.all() and (state.ended.scores[:, 0] > -np.inf).all()
    # Ending at once costs this model a few nats, and so do a few pieces more.
    assert state.steps.max() < 12
    some = found(3)  # the rows that are done wait for others no longer than asked
    assert 3 <= some.done.sum() < 12 and some.steps.max() < state.steps.max()
    np.testing.assert_array_equal(some.steps[some.done], state.steps[some.done])


def test_a_wider_beam_finds_likelier_output(model_config):
    """With alpha 0 the mean log-probability does not fall as the beam grows.

    Elsewhere a wrong rule for stopping made wide beams worse than greedy search.
    """
    params = parameters(model_config)
    source = np.concatenate([sentences(12, 6, seed=seed) for seed in range(6)])
    means = []
    for beam in (1, 2, 4):
        found = search(model_config, params, source, beam)
        if beam == 1:  # the others may end where greedy search does not
            ended = found.finished
        means.append(found.log_probs[ended].mean())
    assert means[0] < means[1] < means[2]


@pytest.mark.parametrize("beam", [4, 12, 64, 200])
def test_pad_bos_and_surplus_rows_are_never_produced(model_config, monkeypatch, beam):
    """Not even where the model likes them best or the beam is wider than the rest."""
    monkeypatch.setattr(shapes, "_SIZES", (6,))
    padded = dataclasses.replace(model_config, vocab_rows_multiple=16)
    params = parameters(padded)
    table = params["output"].at[jnp.array([IDS.pad, IDS.bos])].multiply(20)
    params, source = params | {"output": table}, sentences(12, 6)
    result = search(padded, params, source, beam, 0.6, 4)
    produced = {token for row in range(12) for token in hypothesis(result, row)}
    assert produced <= set(range(2, VOCAB))
    first = forced(padded, params, source, np.zeros((12, 4), np.int32), VOCAB)[:, 0]
    assert set(np.argmax(first, axis=-1).tolist()) & {IDS.pad, IDS.bos}
    # The log-probabilities stay the model's: pad and bos keep their share of them.
    steps = forced_steps(padded, params, source, result.tokens)
    totals = np.where(np.arange(4) < result.lengths[:, None], steps, 0).sum(axis=1)
    np.testing.assert_allclose(totals, result.log_probs, rtol=1e-4)
