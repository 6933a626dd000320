"""Laws of scoring a given translation, and of the words that it aligns."""

import dataclasses
import functools
import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import Config
from transformer.data import Vocabulary
from transformer.decoding import Score, Translator, scoring, shapes, word_alignment
from transformer.errors import UserError
from transformer.model import initial_variables

WORDS = "a the dog cat sees old big man".split()


def text(count: int, longest: int = 6, seed: int = 0) -> list[str]:
    """Random sentences over a few words."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)
    ]


@functools.cache
def vocabulary(config: Config) -> Vocabulary:
    """Every word is a piece."""
    return Vocabulary.train(text(200, seed=1), config.data)


@functools.cache
def params(config: Config) -> dict:
    """A random model that produces words and EOS only."""
    pieces = vocabulary(config).pieces(range(len(vocabulary(config))))
    scale = np.array([[4.0 * (piece.lstrip("\u2581") in WORDS)] for piece in pieces])
    scale[vocabulary(config).eos_id] = 4
    values = initial_variables(config.model, len(pieces), jax.random.key(8))["params"]
    return values | {"output": np.float32(scale) * values["output"]}


@pytest.fixture
def translator(tiny_config: Config) -> Translator:
    """Three layers, so that the last but one is neither the first nor the last."""
    config = dataclasses.replace(
        tiny_config,
        model=dataclasses.replace(
            tiny_config.model, tie_embeddings=False, num_layers=3
        ),
        decode=dataclasses.replace(tiny_config.decode, max_extra_tokens=3),
    )
    return Translator(config, vocabulary(config), params(config))


def test_the_models_own_output_has_its_log_probability(translator):
    """What the search found, scored as a given text, is as likely as the search said.

    Elsewhere a scorer left out EOS or began without bos, and ranked by something else.
    """
    lines = text(30)
    found = list(translator.translate(lines))
    scores = list(translator.score(lines, [t.text for t in found]))
    assert len(scores) == len(lines)
    checked = set()
    for translation, score in zip(found, scores, strict=True):
        if translation.tokens == score.tokens:
            error = abs(score.log_prob - translation.log_prob)
            assert error / len(score.tokens) < 1e-4
            checked.add(score.tokens)
    assert len(checked) > 4 and any(len(tokens) > 3 for tokens in checked)


def test_a_score_is_made_of_its_pieces(translator):
    """EOS is a piece; perplexity is exp(-log_prob / pieces); attention sums to 1."""
    sources, targets = text(9, seed=2), text(9, seed=3)
    encode, eos = translator.vocabulary.encode, translator.vocabulary.eos_id
    found = list(translator.score(sources, targets))
    for source, target, score in zip(sources, targets, found, strict=True):
        assert score.source == (*encode(source), eos)
        assert score.tokens == (*encode(target), eos)
        assert len(score.token_log_probs) == len(score.tokens)
        assert score.log_prob == pytest.approx(sum(score.token_log_probs))
        assert score.perplexity == pytest.approx(
            math.exp(-score.log_prob / len(score.tokens))
        )
        assert score.attention.shape == (len(score.tokens), len(score.source))
        np.testing.assert_allclose(score.attention.sum(axis=1), 1, atol=1e-5)


def test_attention_is_that_of_the_last_layer_but_one(translator):
    """The mean of its heads, from the code that shows all of the attention."""
    (score,) = translator.score(["the dog sees"], ["old man"])
    pair = (jnp.array([ids]) for ids in (score.source, score.tokens))
    _, weights = scoring.forced_outputs(
        translator.config.model, translator.params, *pair, translator.network()
    )
    expected = weights["decoder_cross"][1, 0].mean(axis=0)
    np.testing.assert_allclose(score.attention, expected, atol=1e-5)


def test_translations_are_aligned_as_they_are_scored(translator):
    """`align` gives each of several translations the alignment of its own pieces."""
    lines = text(12)
    checked = 0
    for line, several in zip(
        lines, translator.translate_nbest(lines, 4, align=True), strict=True
    ):
        scores = translator.score([line] * len(several), [t.text for t in several])
        for translation, score in zip(several, scores, strict=True):
            if translation.tokens == score.tokens:
                assert translation.alignment == translator.alignment(score)
                words = len(translation.text.split())
                assert [pair[1] for pair in translation.alignment] == [*range(words)]
                checked += words > 1
    assert checked > 4


def test_batches_and_padding_change_no_score(translator, monkeypatch):
    """A pair's score is its own, in any window, row and width, with any neighbour."""
    sources, targets = text(20, seed=4), text(20, seed=5)
    sources[3], targets[5] = "the dog " * 8, "a cat " * 9
    expected = list(translator.score(sources, targets))

    def assert_same(found: list[Score]) -> None:
        """Equal within rounding."""
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours.source, ours.tokens) == (theirs.source, theirs.tokens)
            np.testing.assert_allclose(
                ours.token_log_probs, theirs.token_log_probs, atol=1e-4
            )
            np.testing.assert_allclose(ours.attention, theirs.attention, atol=1e-5)

    assert_same(list(translator.score(sources, targets, window_size=3)))
    monkeypatch.setattr(shapes, "_SIZES", (48,))
    monkeypatch.setattr(shapes, "_ROWS", (1, 5))
    assert_same(list(translator.score(sources, targets)))


def test_blank_and_long_sides_are_scored(translator, caplog):
    """A blank target is a single EOS; a long side is cut, and its line named."""
    decode = dataclasses.replace(translator.decode, max_source_tokens=9)
    translator.decode = decode
    found = list(translator.score(["a dog", "", "man"], ["", "cat", "the dog " * 9]))
    assert list(translator.score([], [])) == []
    eos = translator.vocabulary.eos_id
    assert found[0].tokens == found[1].source == (eos,)
    assert found[0].perplexity == pytest.approx(math.exp(-found[0].log_prob))
    assert len(found[2].tokens) == 9 and found[2].tokens[-1] == eos
    (record,) = caplog.records
    assert "line 3 " in record.getMessage()
    with pytest.raises(UserError, match="line 2 has no target"):
        list(translator.score(["a dog", "cat"], ["man"]))


def pieces(line: str) -> list[str]:
    """Pieces separated by spaces, `_` for a word's beginning; EOS at the end."""
    return [*line.replace("_", "\u2581").split(), "</s>"]


def alignment(source: str, target: str, rows: list[list[float]]) -> list:
    """Pairs of words, where EOS's row and column are put beside `rows`."""
    attention = np.full((len(rows) + 1, len(rows[0]) + 1), 0.9)
    attention[:-1, :-1] = rows
    words = pieces(source)[:-1], pieces(target)[:-1]
    found = word_alignment(*words, np.float32(attention))
    assert found == word_alignment(*words, np.float32(attention)[:-1])  # cut off
    return list(map(tuple, found))


def test_words_in_order_align_in_order():
    """One pair for each target word, of words counted from 0, though EOS is looked at.

    Pairs are (source, target), as every tool of alignment writes them.
    """
    rows = (0.1 + 0.6 * np.eye(4)).tolist()
    line = "_a _b _c _d"
    assert alignment(line, line, rows) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert alignment(line, "_x _y", rows[2:]) == [(2, 0), (3, 1)]
    assert alignment(line, line, rows[::-1]) == [(3, 0), (2, 1), (1, 2), (0, 3)]


def test_a_words_pieces_count_together():
    """A source word has its pieces' sum, a target word its pieces' mean.

    The piece that is looked at most may belong to another word.
    """
    source, target = "_un der stand _it", "_ver steht _es"
    rows = [[0.2, 0.2, 0.2, 0.3], [0.2, 0.0, 0.0, 0.5], [0.1, 0.1, 0.1, 0.4]]
    assert alignment(source, target, rows) == [(0, 0), (1, 1)]  # 0.8 to 0.8: the first
    rows[1][3] = 0.6
    assert alignment(source, target, rows) == [(1, 0), (1, 1)]
    rows[1] = [0.0, 0.3, 0.2, 0.4]
    assert alignment(source, target, rows) == [(0, 0), (1, 1)]
    assert alignment("_ a b _c", "_x", [[0.2, 0.2, 0.2, 0.3]]) == [(0, 0)]


def test_short_sentences_align():
    """One word aligns with one; no words with none, and EOS with nothing."""
    assert alignment("_a", "_b", [[0.1]]) == [(0, 0)]
    assert alignment("a b", "c d", [[0.1, 0.1], [0.1, 0.1]]) == [(0, 0)]
    for source, target in (("", "_b"), ("_a", ""), ("", "")):
        shape = (len(pieces(target)), len(pieces(source)))
        attention = np.full(shape, 0.5, np.float32)
        words = pieces(source)[:-1], pieces(target)[:-1]
        assert word_alignment(*words, attention) == []
