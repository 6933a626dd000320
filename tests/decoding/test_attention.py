"""What a sentence's attention shows is what its translation looked at."""

import dataclasses

import jax
import numpy as np
import pytest

from transformer.config import Config
from transformer.data import Vocabulary
from transformer.decoding import Translator, sentence_attention
from transformer.errors import UserError
from transformer.model import initial_variables


@pytest.fixture
def translator(tiny_config: Config) -> Translator:
    """A random model that stops after three tokens more than its source."""
    config = dataclasses.replace(
        tiny_config,
        model=dataclasses.replace(tiny_config.model, num_layers=2),
        data=dataclasses.replace(tiny_config.data, vocab_size=290),
        decode=dataclasses.replace(tiny_config.decode, max_extra_tokens=3),
    )
    vocabulary = Vocabulary.train(["the cat sees the old dog"] * 9, config.data)
    variables = initial_variables(config.model, len(vocabulary), jax.random.key(0))
    return Translator(config, vocabulary, variables["params"])


def test_rows_are_generated_tokens_and_columns_source_tokens(translator):
    """Axes swapped, or labels of the input, gave plausible wrong pictures elsewhere."""
    line = "the dog sees"
    found = sentence_attention(translator, line)
    (translation,) = translator.translate([line])
    vocabulary = translator.vocabulary
    assert found.text == translation.text
    assert found.target == vocabulary.pieces(translation.tokens)
    source = [*vocabulary.encode(line), vocabulary.eos_id]
    assert found.source == vocabulary.pieces(source)
    rows, columns = len(found.target), len(found.source)
    assert rows != columns
    heads = translator.config.model.num_heads
    assert found.encoder.shape == (2, heads, columns, columns)
    assert found.decoder_self.shape == (2, heads, rows, rows)
    assert found.decoder_cross.shape == (2, heads, rows, columns)
    for weights in (found.encoder, found.decoder_self, found.decoder_cross):
        np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert not np.triu(found.decoder_self, 1).any()


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_a_long_line_is_cut_as_its_translation_was(translator, positions):
    """What was not translated is not shown either; EOS stands at the end."""
    config = dataclasses.replace(
        translator.config.model, positions=positions, max_positions=12
    )
    variables = initial_variables(config, len(translator.vocabulary), jax.random.key(0))
    changed = Translator(
        dataclasses.replace(translator.config, model=config),
        translator.vocabulary,
        variables["params"],
        dataclasses.replace(translator.decode, max_source_tokens=14),
    )
    found = sentence_attention(changed, "the dog " * 30)
    assert len(found.source) == (14 if positions == "sinusoidal" else 12)
    assert found.source[-1] == "</s>"


def test_a_blank_line_is_refused(translator):
    """There is nothing to look at."""
    with pytest.raises(UserError, match="blank"):
        sentence_attention(translator, " ")
