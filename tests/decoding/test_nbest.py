"""Laws of several translations of a line, and of several models that vote."""

import dataclasses
import functools
import random

import jax
import numpy as np
import pytest

from transformer.config import Config
from transformer.data import Vocabulary
from transformer.decoding import Translation, Translator
from transformer.decoding.scoring import score_pairs
from transformer.errors import UserError
from transformer.model import initial_variables

WORDS = "a the dog cat sees old big man".split()


def text(count: int, longest: int = 6, seed: int = 0) -> list[str]:
    """Random sentences over a few words."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)
    ]


LINES = text(12)


@functools.cache
def vocabulary(config: Config) -> Vocabulary:
    """Every word is a piece."""
    return Vocabulary.train(text(200, seed=1), config.data)


@functools.cache
def params(config: Config, seed: int) -> dict:
    """A random model that has opinions about words and EOS only."""
    pieces = vocabulary(config).pieces(range(len(vocabulary(config))))
    scale = np.array([[4.0 * (piece.lstrip("\u2581") in WORDS)] for piece in pieces])
    scale[vocabulary(config).eos_id] = 4
    values = initial_variables(config.model, len(pieces), jax.random.key(seed))
    values = values["params"]
    return values | {"output": np.float32(scale) * values["output"]}


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Output has at most six pieces more than the source."""
    return dataclasses.replace(
        tiny_config,
        model=dataclasses.replace(tiny_config.model, tie_embeddings=False),
        decode=dataclasses.replace(tiny_config.decode, max_extra_tokens=6),
    )


def translator(config: Config, *seeds: int, **settings) -> Translator:
    """An ensemble of random models."""
    decode = dataclasses.replace(config.decode, **settings)
    models = [
        Translator(config, vocabulary(config), params(config, seed), decode)
        for seed in seeds
    ]
    for other in models[1:]:
        models[0].add(other)
    return models[0]


def assert_same(found: list[Translation], expected: list[Translation]) -> None:
    """The same output, and the same scores within rounding."""
    assert [t.tokens for t in found] == [t.tokens for t in expected]
    for name in ("log_prob", "score"):
        ours, theirs = ([getattr(t, name) for t in side] for side in (found, expected))
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_the_best_come_first_and_none_twice(config):
    """Scores fall, follow from log-probability and length, and belong to their text.

    The first is what one would have got alone: elsewhere a search for several stopped
    elsewhere and found another best.
    """
    model = translator(config, 10)
    alone = list(model.translate(LINES))
    several = list(model.translate_nbest([*LINES, " "], 4))
    assert [t.text for t in several.pop()] == [""]
    assert_same([best for best, *_ in several], alone)
    assert [list(best) for best in model.translate_nbest(LINES, 1)] == [
        [best] for best in alone
    ]
    for translations in several:
        scores = [t.score for t in translations]
        assert scores == sorted(scores, reverse=True)
        assert len({t.tokens for t in translations}) == len(translations) <= 4
        for t in translations:
            penalty = ((5 + len(t.tokens)) / 6) ** 0.6
            assert t.score == pytest.approx(t.log_prob / penalty, abs=1e-4)
            assert t.text == vocabulary(config).decode(t.tokens)
            assert t.finished == (t.tokens[-1] == vocabulary(config).eos_id)
            assert t.finished or len(translations) == 1
    assert sum(len(translations) == 4 for translations in several) >= 3


@pytest.mark.parametrize("nbest", [-1, 0, 5])
def test_more_than_the_beam_holds_is_refused(config, nbest):
    """A beam of 4 has 1 to 4 hypotheses to give."""
    with pytest.raises(UserError, match=f"nbest is {nbest}: a beam of 4 gives 1 to 4"):
        list(translator(config, 10).translate_nbest(LINES, nbest))


def test_sampling_draws_as_many_as_are_asked_for(config):
    """They differ from each other, and are the same again with the same seed."""
    model = translator(config, 10, temperature=2.0, seed=3)
    several = list(model.translate_nbest(LINES, 6))
    assert all(len(translations) == 6 for translations in several)
    assert (
        sum(len({t.tokens for t in translations}) > 3 for translations in several) > 6
    )
    again = list(model.translate_nbest(LINES, 6, window_size=5))
    for found, expected in zip(again, several, strict=True):
        assert_same(found, expected)
    model.decode = dataclasses.replace(model.decode, seed=4)
    other = list(model.translate_nbest(LINES, 6))
    both = zip(other, several, strict=True)
    assert not any(a[0].tokens == b[0].tokens for a, b in both)


def test_output_grows_with_alpha(config):
    """The mean length does not fall as the penalty of length is divided out."""
    lengths = []
    for alpha in (0.0, 0.6, 1.5, 4.0):
        found = translator(config, 10, alpha=alpha).translate(LINES)
        lengths.append(np.mean([len(t.tokens) for t in found]))
    assert lengths == sorted(lengths) and lengths[0] + 2 < lengths[-1]


def test_an_ensemble_of_copies_is_the_model(config):
    """The mean of equal probabilities is one of them, whichever translator adds."""
    single = list(translator(config, 10).translate_nbest(LINES, 4))
    copies = list(translator(config, 10, 10).translate_nbest(LINES, 4))
    for found, expected in zip(copies, single, strict=True):
        assert_same(found, expected)


def test_an_ensemble_has_the_mean_probability(config):
    """Log of the mean, piece by piece, not the mean of logs; and it is searched."""
    both = translator(config, 10, 13)
    eos = vocabulary(config).eos_id
    sources = [(*vocabulary(config).encode(line), eos) for line in LINES]
    found = list(both.translate(LINES))
    pairs = [(s, t.tokens) for s, t in zip(sources, found, strict=True)]
    network = translator(config, 10).network()
    first, second = (
        list(score_pairs(network, (params(config, seed),), pairs)) for seed in (10, 13)
    )
    together = list(score_pairs(both.network(), both._params(), pairs))
    for one, two, mean, t in zip(first, second, together, found, strict=True):
        probabilities = np.exp([one.token_log_probs, two.token_log_probs])
        expected = np.log(probabilities.mean(axis=0))
        np.testing.assert_allclose(mean.token_log_probs, expected, atol=1e-4)
        assert t.log_prob == pytest.approx(expected.sum(), abs=1e-3)
        np.testing.assert_allclose(mean.attention, one.attention, atol=1e-6)
    alone = [list(translator(config, seed).translate(LINES)) for seed in (10, 13)]
    assert all([t.tokens for t in a] != [t.tokens for t in found] for a in alone)


def test_models_with_other_pieces_do_not_vote(config):
    """Equal numbers of pieces are not equal pieces."""
    other = Vocabulary.train(["zwei kleine hunde sehen hohe berge"] * 9, config.data)
    assert len(other) == len(vocabulary(config))
    stranger = Translator(config, other, params(config, 10))
    model = translator(config, 10)
    with pytest.raises(UserError, match="share their vocabulary"):
        model.add(stranger)
    assert len(model.network().models) == 1
