"""Laws of the network: shapes of the paper, causality, padding, caches, counts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from transformer.config import Config, ModelConfig
from transformer.model import (
    Transformer,
    initial_variables,
    parameter_count,
    stacked_attention,
)

VOCAB = 50


@pytest.fixture
def model_config(tiny_config: Config) -> ModelConfig:
    """One layer with d_k, d_v and d_model / h all different."""
    return dataclasses.replace(tiny_config.model, d_k=8, d_v=12)


def rows(key: int, batch: int, length: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Random tokens with one full-length sentence a row."""
    tokens = jax.random.randint(jax.random.key(key), (batch, length), 4, VOCAB)
    positions = jnp.broadcast_to(jnp.arange(length), tokens.shape)
    return tokens, jnp.ones_like(tokens), positions


@functools.cache
def initial(config: ModelConfig, vocab_size: int = VOCAB):
    """Parameters, drawn once per configuration."""
    return initial_variables(config, vocab_size, jax.random.key(0))


@functools.partial(jax.jit, static_argnums=0)
def logits(config: ModelConfig, variables: dict, source, target):
    """The model's logits on rows, without dropout."""
    model = Transformer(config, VOCAB)
    return model.apply(variables, *source, *target, deterministic=True)


PAPER_COUNTS = [
    ({}, 63_045_632),
    ({"num_heads": 1, "d_k": 512, "d_v": 512}, 63_045_632),
    ({"num_heads": 4, "d_k": 128, "d_v": 128}, 63_045_632),
    ({"num_heads": 16, "d_k": 32, "d_v": 32}, 63_045_632),
    ({"num_heads": 32, "d_k": 16, "d_v": 16}, 63_045_632),
    ({"d_k": 16}, 55_967_744),
    ({"d_k": 32}, 58_327_040),
    ({"num_layers": 2}, 33_644_544),
    ({"num_layers": 4}, 48_345_088),
    ({"num_layers": 8}, 77_746_176),
    ({"d_model": 256, "d_k": 32, "d_v": 32}, 26_816_512),
    ({"d_model": 1024, "d_k": 128, "d_v": 128}, 163_815_424),
    ({"d_ff": 1024}, 50_450_432),
    ({"d_ff": 4096}, 88_236_032),
    ({"positions": "learned"}, 63_045_632 + 2 * 256 * 512),
    ({"d_model": 1024, "d_ff": 4096, "num_heads": 16}, 214_171_648),
]


@pytest.mark.parametrize(("knobs", "count"), PAPER_COUNTS)
def test_parameter_counts_of_table_3(knobs, count):
    """Each knob changes what the paper's equations say, at 37,000 pieces."""
    config = Config.from_dict(base.get_config())
    assert parameter_count(dataclasses.replace(config.model, **knobs), 37000) == count


def test_untied_tables_and_later_options_count():
    """Untying adds two tables; biases and pre-norm add what they should."""
    model = Config.from_dict(base.get_config()).model
    tied = parameter_count(model, 1000)
    untied = parameter_count(dataclasses.replace(model, tie_embeddings=False), 1000)
    assert untied - tied == 2 * 1000 * 512
    biased = parameter_count(dataclasses.replace(model, attention_bias=True), 1000)
    assert biased - tied == 18 * 4 * 512
    pre = parameter_count(dataclasses.replace(model, norm="pre"), 1000)
    assert pre - tied == 2 * 2 * 512


def test_initial_loss_is_that_of_unit_variance_logits(model_config):
    """The table's N(0, 1/d) and post-norm give a first loss of ln V + 0.5."""
    model = dataclasses.replace(model_config, d_model=128)
    variables = initial(model, 2000)
    apply = jax.jit(
        functools.partial(Transformer(model, 2000).apply, deterministic=True)
    )
    out = apply(variables, *rows(1, 8, 16), *rows(2, 8, 16))
    assert 0.8 < float(out.std()) < 1.2
    labels = jax.random.randint(jax.random.key(3), (8, 16), 0, 2000)
    log_probs = jnp.take_along_axis(jax.nn.log_softmax(out), labels[..., None], -1)
    assert abs(-float(log_probs.mean()) - (np.log(2000) + 0.5)) < 0.2


def test_decoder_is_causal(model_config):
    """No logit depends on a later target input; each depends on its own."""
    variables = initial(model_config)
    source, target = rows(1, 1, 5), rows(2, 1, 6)
    full = logits(model_config, variables, source, target)
    for position in range(6):
        changed = (target[0].at[0, position].set(3), *target[1:])
        out = logits(model_config, variables, source, changed)
        difference = np.abs(out - full).max(axis=(0, 2))
        assert not difference[:position].any()
        assert difference[position] > 1e-3


def test_every_source_token_reaches_every_target(model_config):
    """The encoder is not causal, and the decoder sees all of it."""
    variables = initial(model_config)
    source, target = rows(1, 1, 5), rows(2, 1, 6)
    full = logits(model_config, variables, source, target)
    for position in range(5):
        changed = (source[0].at[0, position].set(3), *source[1:])
        out = logits(model_config, variables, changed, target)
        assert float(jnp.abs(out - full).max(axis=2).min()) > 1e-5


def test_padding_changes_nothing(model_config):
    """Real positions have the same logits however wide the row.

    Elsewhere, padding leaked in where one of the three attentions had no mask.
    """
    variables = initial(model_config)
    source, target = rows(1, 3, 5), rows(2, 3, 6)
    padded = [tuple(jnp.pad(a, ((0, 0), (0, 9))) for a in s) for s in (source, target)]
    plain = logits(model_config, variables, source, target)
    wide = logits(model_config, variables, *padded)[:, :6]
    np.testing.assert_allclose(wide, plain, atol=1e-5)


def test_packed_sentences_do_not_see_each_other(model_config):
    """Two pairs in one row have the logits of two rows."""
    variables = initial(model_config)
    source, target = rows(1, 2, 5), rows(2, 2, 6)
    plain = logits(model_config, variables, source, target)

    def pack(side):
        tokens, ones, positions = (a.reshape(1, -1) for a in side)
        segments = jnp.repeat(jnp.arange(1, 3), tokens.shape[1] // 2)[None]
        del ones
        return tokens, segments, positions

    packed = logits(model_config, variables, pack(source), pack(target))
    np.testing.assert_allclose(packed.reshape(plain.shape), plain, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_row_of_padding_stays_finite(model_config, dtype):
    """A fully masked row gave NaN, then NaN gradients, with masks of minus infinity."""
    config = dataclasses.replace(model_config, dtype=dtype)
    variables = initial(config)
    source, target = rows(1, 2, 5), rows(2, 2, 6)
    empty = [tuple(a.at[1].set(0) for a in side) for side in (source, target)]

    def loss(variables):
        out = logits(config, variables, *empty)
        return jnp.where(empty[1][1][..., None] > 0, out, 0).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(variables)
    assert jnp.isfinite(value)
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(gradient))
    alone = [tuple(a[:1] for a in side) for side in (source, target)]
    both = logits(config, variables, *empty)[:1]
    np.testing.assert_allclose(both, logits(config, variables, *alone), atol=1e-6)


@pytest.mark.parametrize(
    ("norm", "positions"), [("post", "sinusoidal"), ("pre", "learned")]
)
def test_cached_steps_equal_the_whole_sequence(model_config, norm, positions):
    """decode_step after decode_step gives the logits of decode, per hypothesis.

    Also where a hypothesis goes on from another's past, where places of a past that
    none has any more are taken again, and where two sentences are at different
    positions. Elsewhere caches were not reordered with their hypotheses: a good loss, a
    poor BLEU.
    """
    config = dataclasses.replace(
        model_config, norm=norm, positions=positions, max_positions=8
    )
    variables = initial(config)
    model = Transformer(config, VOCAB)
    source = rows(1, 2, 5)
    source = (source[0], source[1].at[1, 3:].set(0), source[2])
    beam, length, late = 3, 8, 2  # sentence 1 begins two steps after sentence 0
    num_places = 15
    texts = np.zeros((2, beam, length), np.int32)  # of the hypotheses so far
    seen = np.zeros((2, beam, num_places), bool)  # the places of a hypothesis's past
    written = []
    drawn = np.asarray(rows(2, 6, 7)[0]).reshape(2, beam, 7)
    draw = np.random.default_rng(0)
    takeovers = draw.integers(0, beam, (7, 2, beam))

    @jax.jit
    def remember(variables):
        encoded = model.apply(variables, *source, deterministic=True, method="encode")
        return model.apply(variables, encoded, method="memory")

    memory = remember(variables)
    cache = model.empty_cache(2, num_places)
    decode_step = jax.jit(functools.partial(model.apply, method="decode_step"))
    for step in range(7):
        at = np.maximum([step, step - late], 0)
        if step == late:
            seen[1] = False
        for b in range(2):
            texts[b] = texts[b, takeovers[step, b]]
            seen[b] = seen[b, takeovers[step, b]]
            texts[b, :, at[b]] = drawn[b, :, step]
        free = [np.flatnonzero(~seen[b].any(axis=0)) for b in range(2)]
        places = np.stack([draw.permutation(f)[:beam] for f in free])
        written.append(places)
        for b in range(2):
            seen[b, np.arange(beam), places[b]] = True
        out, cache = decode_step(
            variables,
            jnp.asarray(drawn[:, :, step]),
            jnp.asarray(at),
            jnp.asarray(places),
            cache,
            jnp.asarray(seen),
            memory,
            source[1] > 0,
        )
        for k in range(beam):
            target = jnp.asarray(texts[:, k]), *rows(0, 2, length)[1:]
            whole = logits(config, variables, source, target)
            for b in range(2):
                if step >= late or b == 0:
                    np.testing.assert_allclose(out[b, k], whole[b, at[b]], atol=1e-4)
    assert len(np.unique(np.stack(written)[:, 0])) < 7 * beam


def test_attention_weights_come_from_the_same_code(model_config):
    """Every layer and head of all three kinds; rows sum to one; masks hold."""
    model_config = dataclasses.replace(model_config, num_layers=2)
    variables = initial(model_config)
    source, target = rows(1, 2, 5), rows(2, 2, 9)
    model = Transformer(model_config, VOCAB)
    apply = functools.partial(model.apply, deterministic=True, mutable=["attention"])
    out, sown = jax.jit(apply)(variables, *source, *target)
    plain = logits(model_config, variables, source, target)
    np.testing.assert_allclose(out, plain, atol=1e-6)
    weights = stacked_attention(sown["attention"])
    heads = model_config.num_heads
    assert weights["encoder"].shape == (2, 2, heads, 5, 5)
    assert weights["decoder_self"].shape == (2, 2, heads, 9, 9)
    assert weights["decoder_cross"].shape == (2, 2, heads, 9, 5)
    for array in weights.values():
        np.testing.assert_allclose(array.sum(-1), 1, atol=1e-5)
    assert float(jnp.triu(weights["decoder_self"], 1).max()) == 0


def test_fused_attention_is_the_same_function(model_config):
    """JAX's dot_product_attention gives the einsum's logits."""
    config = dataclasses.replace(model_config, d_k=8, d_v=8)
    variables = initial(config)
    source, target = rows(1, 2, 5), rows(2, 2, 6)
    plain = logits(config, variables, source, target)
    fused = dataclasses.replace(config, attention="dot_product")
    np.testing.assert_allclose(
        logits(fused, variables, source, target), plain, atol=1e-5
    )


def test_surplus_rows_get_no_probability(model_config):
    """A table rounded up has rows that no softmax sees."""
    config = dataclasses.replace(model_config, vocab_rows_multiple=64)
    variables = initial(config)
    out = logits(config, variables, rows(1, 1, 3), rows(2, 1, 3))
    assert out.shape[-1] == 64
    assert float(jax.nn.softmax(out)[..., VOCAB:].max()) == 0


def test_dropout_differs_by_key_and_is_off_when_deterministic(model_config):
    """Noise left on at inference made scores differ from run to run elsewhere."""
    config = dataclasses.replace(model_config, dropout=0.3)
    variables = initial(config)
    source, target = rows(1, 1, 5), rows(2, 1, 6)

    model = Transformer(config, VOCAB)
    apply = jax.jit(functools.partial(model.apply, deterministic=False))

    def noisy(key):
        rngs = {"dropout": jax.random.key(key)}
        return apply(variables, *source, *target, rngs=rngs)

    assert float(jnp.abs(noisy(0) - noisy(1)).max()) > 0.01
    np.testing.assert_array_equal(noisy(0), noisy(0))
    np.testing.assert_array_equal(
        logits(config, variables, source, target),
        logits(model_config, variables, source, target),
    )
