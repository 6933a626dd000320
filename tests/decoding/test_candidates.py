"""Laws of what may follow a hypothesis: blocking, lengths, prefixes and sampling."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.decoding.tiny_search import IDS, LENGTH, VOCAB, parameters
from transformer.config import ModelConfig
from transformer.decoding import shapes
from transformer.decoding.candidates import allowed_pieces, largest, sample
from transformer.decoding.pool import Found, Job, Pool
from transformer.decoding.scoring import score_pairs
from transformer.decoding.state import Network, Rules


def jobs(count: int, vocab_size: int = VOCAB, seed: int = 0) -> list[Job]:
    """Random sources of 1 to 6 pieces, EOS counted."""
    random = np.random.default_rng(seed)
    bodies = [random.integers(3, vocab_size, n % 6).tolist() for n in range(count)]
    return [
        Job((*body, IDS.eos), LENGTH, (), (seed, n)) for n, body in enumerate(bodies)
    ]


def run(
    config: ModelConfig,
    params: dict,
    listed: list[Job],
    rules: Rules,
    alpha: float = 1.5,
    vocab_size: int = VOCAB,
) -> list[Found]:
    """The best hypothesis of each job; a large alpha makes them long."""
    pool = Pool((params,), Network((config,), vocab_size, IDS), rules, alpha, 4096)
    return [hypotheses[0] for _, hypotheses in sorted(pool.run(listed))]


def texts(found: list[Found]) -> list[tuple[int, ...]]:
    """The tokens alone."""
    return [hypothesis.tokens for hypothesis in found]


def assert_log_probs_are_the_models(
    config: ModelConfig, params: dict, listed: list[Job], found: list[Found]
) -> None:
    """What is barred or forced keeps its share of the probability."""
    pairs = [(job.source, f.tokens) for job, f in zip(listed, found, strict=True)]
    scores = score_pairs(Network((config,), VOCAB, IDS), (params,), pairs)
    for score, hypothesis in zip(scores, found, strict=True):
        assert hypothesis.log_prob == pytest.approx(score.log_prob, abs=1e-3)


@pytest.mark.parametrize(
    ("width", "count"),
    [(5, 5), (64, 1), (65, 1), (130, 2), (200, 4), (1000, 8), (1000, 16), (2113, 3)],
)
def test_the_largest_are_those_of_top_k(width, count):
    """Values and places are exactly JAX's, ties and barred pieces included."""
    random = np.random.default_rng(width)
    some = random.integers(0, 4, (3, 2, width)).astype(np.float32)
    rare = np.where(random.random((3, 2, width)) < 2 / width, some, -np.inf)
    for values in (some, random.permuted(some * 0.1, axis=2), rare.astype(np.float32)):
        best, places = jax.jit(largest, static_argnums=1)(jnp.asarray(values), count)
        expected, expected_places = jax.lax.top_k(values, count)
        np.testing.assert_array_equal(best, expected)
        np.testing.assert_array_equal(places, expected_places)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_allowed_pieces_equal_their_definition(n):
    """Barred are pad, bos, an early EOS, an n-gram's second time, and all but forced.

    EOS is allowed where nothing else is.
    """
    random = np.random.default_rng(n)
    tokens = random.integers(3, 6, (9, 3, 8)).astype(np.int32)
    lengths = np.arange(9, dtype=np.int32) % 8
    forced = np.where(np.arange(9) == 4, 5, -1).astype(np.int32)
    allowed = allowed_pieces(
        *map(jnp.asarray, (tokens, lengths, forced)),
        6,
        never=(IDS.pad, IDS.bos),
        eos=IDS.eos,
        min_length=3,
        no_repeat_ngram=n,
    )
    for row, slot in itertools.product(range(9), range(3)):
        text = tokens[row, slot, : lengths[row]].tolist()
        grams = {tuple(text[i : i + n]) for i in range(len(text) - n + 1)}
        expected = [
            piece
            for piece in range(3, 6)
            if not n or len(text) < n - 1 or tuple([*text, piece][-n:]) not in grams
        ]
        if len(text) >= 3 or not expected:
            expected = [IDS.eos, *expected]
        if forced[row] >= 0:
            expected = [forced[row]]
        assert np.flatnonzero(allowed[row, slot]).tolist() == expected


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_comes_twice(model_config, n):
    """Not where the model repeats itself; log-probabilities stay the model's."""
    params, listed = parameters(model_config), jobs(12)

    def repeats(tokens: tuple[int, ...]) -> bool:
        """Whether any n-gram is there twice."""
        grams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
        return len(set(grams)) < len(grams)

    free = run(model_config, params, listed, Rules(beam=4))
    assert sum(map(repeats, texts(free))) > 3
    found = run(model_config, params, listed, Rules(beam=4, no_repeat_ngram=n))
    assert not any(map(repeats, texts(found)))
    assert_log_probs_are_the_models(model_config, params, listed, found)


def test_output_ends_when_every_piece_is_used(model_config):
    """With nothing else allowed EOS comes, even before the shortest length."""
    params, listed = parameters(model_config, 5), jobs(8, 5)
    rules = Rules(beam=4, no_repeat_ngram=1, min_length=LENGTH)
    found = run(model_config, params, listed, rules, vocab_size=5)
    assert all(hypothesis.finished for hypothesis in found)
    assert {(3, 4, IDS.eos), (4, 3, IDS.eos)} >= set(texts(found))
    assert all(np.isfinite(hypothesis.log_prob) for hypothesis in found)


def test_no_output_is_shorter_than_the_shortest_length(model_config):
    """EOS is not counted; what was long enough by itself stays as it was, if greedy."""
    params, listed = parameters(model_config), jobs(24)
    free = run(model_config, params, listed, Rules(beam=1), 0.0)
    found = run(model_config, params, listed, Rules(beam=1, min_length=4), 0.0)
    lengths = [len(t) - (t[-1] == IDS.eos) for t in texts(free)]
    assert min(lengths) < 4 <= max(lengths)
    for length, before, after in zip(lengths, free, found, strict=True):
        assert len(after.tokens) - after.finished >= 4
        assert before.tokens[:length] == after.tokens[:length]
        assert length < 4 or before.tokens == after.tokens
        assert length < 4 or before.score == pytest.approx(after.score, abs=1e-4)
    assert_log_probs_are_the_models(model_config, params, listed, found)


def test_output_begins_with_its_prefix(model_config):
    """Each hypothesis of each sentence does, and its log-probability is the model's."""
    params = parameters(model_config)
    listed = [
        job._replace(prefix=(5, 7, 3 + n)[: n % 4]) for n, job in enumerate(jobs(8))
    ]
    rules = Rules(beam=4, nbest=4)
    network = Network((model_config,), VOCAB, IDS)
    found = sorted(Pool((params,), network, rules, 0.6, 4096).run(listed))
    for number, hypotheses in found:
        prefix = listed[number].prefix
        assert len(hypotheses) > 1
        assert all(h.tokens[: len(prefix)] == prefix for h in hypotheses)
        assert len({h.tokens for h in hypotheses}) == len(hypotheses)
    best = [hypotheses[0] for _, hypotheses in found]
    assert_log_probs_are_the_models(model_config, params, listed, best)


def test_prefixes_may_come_after_many_lines_without(model_config, monkeypatch):
    """Rows take over sentences with a prefix from sentences that had none."""
    params, listed = parameters(model_config), jobs(24)
    listed[16:] = [job._replace(prefix=(5, 7)) for job in listed[16:]]
    together = texts(run(model_config, params, listed, Rules(beam=4)))
    monkeypatch.setattr(shapes, "_ROWS", (2,))
    assert texts(run(model_config, params, listed, Rules(beam=4))) == together
    assert all(tokens[:2] == (5, 7) for tokens in together[16:])


def test_the_searchs_own_beginning_as_a_prefix_changes_nothing(
    model_config, monkeypatch
):
    """Greedy search goes on as it would have, beside sentences without a prefix."""
    monkeypatch.setattr(shapes, "_ROWS", (4,))
    params, listed = parameters(model_config), jobs(12)
    free = run(model_config, params, listed, Rules(beam=1))
    begun = [
        job._replace(prefix=text[: n % 4 * (len(job.source) < 6)])
        for n, (job, text) in enumerate(zip(listed, texts(free), strict=True))
    ]
    assert {len(job.prefix) for job in begun} == {0, 1, 2, 3}
    found = run(model_config, params, begun, Rules(beam=1))
    assert texts(found) == texts(free)
    np.testing.assert_allclose(
        [f.log_prob for f in found], [f.log_prob for f in free], atol=1e-4
    )
    whole = [job._replace(limit=2, prefix=(5, 7)) for job in listed]
    assert set(texts(run(model_config, params, whole, Rules(beam=1)))) == {(5, 7)}


PLAIN = Rules(beam=1, temperature=1.0)


@pytest.mark.parametrize(
    "rules",
    [
        Rules(beam=1, temperature=1e-8),
        PLAIN._replace(top_k=1),
        PLAIN._replace(top_p=1e-8),
    ],
)
def test_sampling_without_choice_is_greedy(model_config, rules):
    """A cold distribution, one piece, or no probability leave only the likeliest."""
    params, listed = parameters(model_config), jobs(24)
    greedy = run(model_config, params, listed, Rules(beam=1))
    assert texts(run(model_config, params, listed, rules)) == texts(greedy)


def test_samples_depend_on_the_seed_alone(model_config, monkeypatch):
    """Neither rows nor order nor neighbours matter; another stream draws anew."""
    params, listed = parameters(model_config), jobs(24)
    found = run(model_config, params, listed, PLAIN)
    assert found == run(model_config, params, listed, PLAIN)
    assert_log_probs_are_the_models(model_config, params, listed, found)
    for place in (0, 1):  # of the seed, and of the line's number
        streams = [list(job.stream) for job in listed]
        for stream in streams:
            stream[place] += 100
        others = [
            job._replace(stream=tuple(s))
            for job, s in zip(listed, streams, strict=True)
        ]
        other = run(model_config, params, others, PLAIN)
        same = [a == b for a, b in zip(texts(found), texts(other), strict=True)]
        assert sum(same) < len(same) // 2
    monkeypatch.setattr(shapes, "_ROWS", (5,))
    order = np.random.default_rng(0).permutation(len(listed)).tolist()
    shuffled = run(model_config, params, [listed[n] for n in order], PLAIN)
    assert texts(shuffled) == [found[n].tokens for n in order]


def test_pad_and_bos_are_never_sampled(model_config):
    """Not even where the model likes them best."""
    params, listed = parameters(model_config), jobs(24)
    table = params["output"].at[jnp.array([IDS.pad, IDS.bos])].multiply(9)
    found = run(model_config, params | {"output": table}, listed, PLAIN)
    produced = set(itertools.chain(*texts(found)))
    assert produced <= set(range(2, VOCAB)) and len(produced) > 3


LOGITS = np.array([0.3, 2.0, -1.0, 1.2, 0.0, -np.inf], np.float32)


def draws(count: int, *cut: float, stepwise: bool = False) -> np.ndarray:
    """Pieces drawn from LOGITS, over streams, or over the steps of one stream."""
    numbers = np.arange(count)
    keys = np.stack([np.full(count, 3), numbers * (not stepwise)], 1).astype(np.uint32)
    steps = (numbers * stepwise).astype(np.int32)
    logits = np.broadcast_to(LOGITS, (count, len(LOGITS)))
    return np.asarray(sample(*map(jnp.asarray, (logits, keys, steps)), *cut))


@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "kept"),
    [
        (1.0, 0, 1.0, 5),
        (0.5, 0, 1.0, 5),
        (2.0, 3, 1.0, 3),
        (1.0, 0, 0.5, 1),  # the likeliest has 0.55 of the probability
        (1.0, 0, 0.6, 2),
        (1.0, 3, 0.85, 2),  # of the three that are left, two have 0.89
    ],
)
def test_frequencies_are_those_of_the_distribution(
    temperature, top_k, top_p, kept, stepwise
):
    """softmax(logits / temperature), cut to its head, within the error of sampling."""
    count = 4000
    found = np.bincount(
        draws(count, temperature, top_k, top_p, stepwise=stepwise), minlength=6
    )
    weights = np.exp(LOGITS / temperature)
    weights[np.argsort(-weights)[kept:]] = 0
    expected = weights / weights.sum()
    error = np.sqrt(count * expected * (1 - expected))
    assert (np.abs(found - count * expected) <= 4 * error + 1e-6).all()


def test_a_cut_that_keeps_all_is_none():
    """Neither `top_k` of the vocabulary or more, nor `top_p` 1, changes draws."""
    plain = draws(500, 1.0, 0, 1.0)
    for top_k in (5, 6, 7, 100):
        np.testing.assert_array_equal(draws(500, 1.0, top_k, 1.0), plain)
