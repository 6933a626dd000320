"""Perplexity is one quotient of two totals, whatever the batches."""

import dataclasses
import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.data import (
    Batch,
    ParallelText,
    Vocabulary,
    evaluation_batches,
    tokenize,
)
from transformer.evaluation import Perplexity, perplexity
from transformer.model import Transformer, initial_variables
from transformer.training import LossSums, make_eval_step, make_mesh

WORDS = "a the dog cat sees bites old big man".split()


def test_it_is_the_unsmoothed_mean_per_subword_for_any_batches(tiny_config, tmp_path):
    """Exp of total NLL over total tokens, EOS counted, as one sentence at a time gives.

    Elsewhere it was a mean of batch means, or of the smoothed loss, or of 20 batches.
    """
    draw = random.Random(0)
    lines = [" ".join(draw.choices(WORDS, k=1 + i % 3)) for i in range(13)]
    vocabulary = Vocabulary.train(lines, tiny_config.data)
    text = ParallelText(lines, lines[::-1], "source", "target")
    corpus = tokenize(text, vocabulary, None, tmp_path)
    variables = initial_variables(tiny_config.model, len(vocabulary), jax.random.key(0))
    eval_step = make_eval_step(
        tiny_config, len(vocabulary), make_mesh(jax.devices()[:1])
    )
    found = []
    for tokens_per_batch in (64, 512):
        data = dataclasses.replace(
            tiny_config.data, tokens_per_batch=tokens_per_batch, bucket_widths=(16, 32)
        )
        batches = [b for _, b in evaluation_batches(corpus, vocabulary, data)]
        found.append(perplexity(eval_step, variables["params"], batches))
    assert len(batches) < 13
    model = Transformer(tiny_config.model, len(vocabulary))
    total, count = 0.0, 0
    for i in range(len(corpus)):
        source, target = (jnp.asarray(side)[None] for side in corpus.pair(i))
        inputs = jnp.insert(target[:, :-1], 0, vocabulary.bos_id, axis=1)
        rows = [
            array
            for tokens in (source, inputs)
            for array in (tokens, tokens * 0 + 1, jnp.arange(tokens.size)[None])
        ]
        logits = np.asarray(model.apply(variables, *rows, deterministic=True))[0]
        real = logits.astype(np.float64)
        log_probs = real - np.log(np.exp(real).sum(axis=-1, keepdims=True))
        total -= log_probs[np.arange(target.size), target[0]].sum()
        count += target.size
    for report in found:
        assert report.num_tokens == count
        assert report.nll == pytest.approx(total / count, rel=1e-5)
        assert report.perplexity == pytest.approx(math.exp(total / count), rel=1e-5)


def test_batches_weigh_by_their_tokens():
    """One token at 3 nats and three at 1 make 1.5 nats, not 2."""

    def sums_of(nll: float, tokens: float) -> LossSums:
        """What a step reports; the smoothed loss is of no interest."""
        return LossSums(*(jnp.asarray(x) for x in (9.0, nll, tokens, 0.0)))

    batch = Batch(*[np.zeros((1, 1), np.int32)] * 7)
    sums = iter([sums_of(3.0, 1.0), sums_of(3.0, 3.0)])
    report = perplexity(lambda *_: next(sums), {}, [batch, batch])
    assert report == Perplexity(1.5, 4)
    assert report.perplexity == pytest.approx(math.exp(1.5))


def test_a_hopeless_model_has_infinite_perplexity():
    """A number too large for a float is no crash."""
    assert Perplexity(1e4, 1).perplexity == math.inf
