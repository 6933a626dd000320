"""Laws of an update: one answer for any devices and parts, padding, bad numbers."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import Config
from transformer.data.pipeline import Batch
from transformer.errors import UserError
from transformer.model import Transformer
from transformer.training import (
    StepMetrics,
    TrainState,
    check_divisible,
    initial_state,
    learning_rate,
    make_eval_step,
    make_mesh,
    make_train_step,
)

VOCAB = 50

# Short and long sentences such that each device and each part has its own number of
# tokens: means of means would weigh the short ones too much.
LENGTHS = [2, 2, 12, 12, 2, 3, 12, 1]
ROUGH = {"dropout": 0.3, "accumulation_steps": 2}


def changed(config: Config, **keys: object) -> Config:
    """The configuration with other values, each in the section that has the key."""
    parts = {}
    for section in ("model", "data", "train"):
        old = getattr(config, section)
        mine = {k: v for k, v in keys.items() if hasattr(old, k)}
        parts[section] = dataclasses.replace(old, **mine)
    return dataclasses.replace(config, **parts)


@functools.cache
def train_step(config: Config, devices: int) -> Callable:
    """The compiled update, compiled once for all tests."""
    return make_train_step(config, VOCAB, make_mesh(jax.devices()[:devices]))


@functools.cache
def eval_step(config: Config, devices: int) -> Callable:
    """The compiled evaluation, compiled once for all tests."""
    return make_eval_step(config, VOCAB, make_mesh(jax.devices()[:devices]))


def update(
    config: Config, batch: Batch, devices: int = 1, steps: int = 1
) -> tuple[TrainState, StepMetrics]:
    """The state after a few updates on the same batch, and what the last reports."""
    state = initial_state(config, VOCAB)
    for _ in range(steps):
        state, metrics = train_step(config, devices)(state, batch)
    return jax.device_get((state, metrics))


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """The tiny model with rows for four devices and two parts, or the reverse."""
    return changed(tiny_config, rows_multiple=8)


def test_same_seed_same_start(config: Config, assert_same) -> None:
    """The first state is a function of the seed, and another seed's differs."""
    assert_same(initial_state(config, VOCAB), initial_state(config, VOCAB))
    one = initial_state(config, VOCAB)
    other = initial_state(changed(config, seed=1), VOCAB)
    assert (one.key != other.key).any()
    assert (one.params["embedding"] != other.params["embedding"]).any()


def test_state_holds_arrays_only(config: Config) -> None:
    """A checkpoint of it is a checkpoint of arrays, of plain types."""
    for leaf in jax.tree.leaves(initial_state(config, VOCAB)):
        assert isinstance(leaf, jax.Array)
        assert leaf.dtype in (jnp.float32, jnp.int32, jnp.uint32)


def test_first_update_changes_every_parameter(config: Config, make_batch) -> None:
    """Elsewhere the first update had rate 0 and did nothing."""
    before = jax.device_get(initial_state(config, VOCAB))
    after, metrics = update(config, make_batch(LENGTHS))
    moved = jax.tree.map(lambda a, b: (a != b).any(), before.params, after.params)
    assert all(jax.tree.leaves(moved))
    assert after.step == 1 and bool(metrics.finite)


def test_gradient_is_of_the_mean_over_all_tokens(
    config: Config, make_batch, assert_close
) -> None:
    """Sum of token losses over number of tokens, EOS counted: written out once."""
    batch = Batch(*map(jnp.asarray, make_batch(LENGTHS)))

    def mean_loss(params):
        states, table = Transformer(config.model, VOCAB).apply(
            {"params": params},
            *(batch.source, batch.source_segments, batch.source_positions),
            *(batch.target_inputs, batch.target_segments, batch.target_positions),
            deterministic=True,
            method="before_logits",
        )
        log_p = jax.nn.log_softmax(states @ table.T)
        hits = jnp.take_along_axis(log_p, batch.targets[..., None], axis=-1)[..., 0]
        losses = -0.9 * hits - 0.1 * log_p.mean(axis=-1)
        return jnp.where(batch.target_segments > 0, losses, 0).sum() / sum(LENGTHS)

    loss, gradient = jax.jit(jax.value_and_grad(mean_loss))(
        initial_state(config, VOCAB).params
    )
    state, metrics = update(config, batch)
    # After one update Adam's first moment is (1 - b1) times the gradient.
    moment = jax.tree.map(lambda m: m / (1 - config.train.adam_b1), first_moment(state))
    assert_close(gradient, moment, 1e-5)
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in jax.tree.leaves(gradient)))
    np.testing.assert_allclose(metrics.grad_norm, norm, rtol=1e-5)
    assert metrics.sums.num_tokens == sum(LENGTHS)
    np.testing.assert_allclose(metrics.sums.loss_sum / sum(LENGTHS), loss, rtol=1e-5)


def first_moment(state: TrainState) -> dict:
    """Adam's running mean of the gradient."""
    return state.opt_state[0].mu


@pytest.mark.parametrize(("devices", "parts"), [(4, 1), (1, 4), (2, 2)])
def test_devices_and_parts_change_nothing(
    config: Config, make_batch, assert_close, devices: int, parts: int
) -> None:
    """One update is one update, however its rows are shared out.

    A mean of the parts' means made short sentences weigh too much elsewhere.
    """
    batch = make_batch(LENGTHS)
    one, wanted = update(config, batch)
    other, found = update(changed(config, accumulation_steps=parts), batch, devices)
    assert_close(first_moment(one), first_moment(other), 1e-5)
    assert_close(one.params, other.params, 1e-5)
    np.testing.assert_allclose(found.sums, wanted.sums, rtol=1e-5)
    np.testing.assert_allclose(found.grad_norm, wanted.grad_norm, rtol=1e-5)


def test_schedule_counts_updates_not_parts(config: Config, make_batch) -> None:
    """With accumulation, warm-up still ends at the update that the key names."""
    config = changed(config, accumulation_steps=4)
    state, batch, rates = initial_state(config, VOCAB), make_batch(LENGTHS), []
    for _ in range(20):
        state, metrics = train_step(config, 1)(state, batch)
        rates.append(float(metrics.learning_rate))
    assert np.argmax(rates) + 1 == config.train.warmup_steps == 10
    wanted = [learning_rate(s, config.train, config.model.d_model) for s in (1, 20)]
    np.testing.assert_allclose([rates[0], rates[-1]], wanted, rtol=1e-6)
    counts = [a for a in jax.tree.leaves(state.opt_state) if a.dtype == jnp.int32]
    assert counts and all(count == 20 for count in (*counts, state.step))


def test_reported_rate_is_the_rate_used(config: Config, make_batch) -> None:
    """Adam's first step moves a parameter by the rate itself, where g >> epsilon."""
    before = jax.device_get(initial_state(config, VOCAB))
    after, metrics = update(config, make_batch(LENGTHS))
    moves = jax.tree.map(lambda a, b: np.abs(a - b).max(), before.params, after.params)
    np.testing.assert_allclose(
        max(jax.tree.leaves(moves)), metrics.learning_rate, rtol=1e-3
    )


def test_loss_falls_on_a_batch_seen_again(config: Config, make_batch) -> None:
    """Training trains: thirty updates learn one batch by heart."""
    _, first = update(config, make_batch(LENGTHS))
    _, last = update(config, make_batch(LENGTHS), steps=30)
    assert last.sums.nll_sum < first.sums.nll_sum / 2
    assert last.sums.num_correct > first.sums.num_correct


def test_padding_is_not_there(config: Config, make_batch, assert_close) -> None:
    """Rows and columns of padding give neither NaN nor a trace in loss and gradient.

    A softmax over no keys made everything NaN elsewhere.
    """
    batch = make_batch(LENGTHS)
    more = Batch(*(np.pad(a, [(0, 8), (0, 10)]) for a in batch))
    one, wanted = update(config, batch)
    other, found = update(config, more)
    np.testing.assert_allclose(found.sums, wanted.sums, rtol=1e-6)
    assert_close(first_moment(one), first_moment(other), 1e-5)
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(other))


def test_a_sentence_with_an_empty_source_is_finite(config: Config, make_batch) -> None:
    """A target whose source is all padding has nothing to attend to; still no NaN."""
    batch = make_batch(LENGTHS)
    segments = batch.source_segments.copy()
    segments[0] = 0
    state, metrics = update(config, batch._replace(source_segments=segments))
    assert bool(metrics.finite)
    assert all(np.isfinite(a).all() for a in jax.tree.leaves(state))


def test_loss_that_is_not_finite_changes_no_weight(
    config: Config, make_batch, assert_same
) -> None:
    """The state after a bad step has the good weights, so none is saved spoilt."""
    state = initial_state(config, VOCAB)
    huge = state.params | {"embedding": state.params["embedding"].at[7].set(3e38)}
    before = jax.device_get((huge, state.opt_state))
    state = state._replace(params=huge)
    batch = make_batch(LENGTHS)
    source = np.where(batch.source_segments > 0, 7, batch.source)
    state, metrics = train_step(config, 1)(state, batch._replace(source=source))
    assert not bool(metrics.finite)
    assert_same(jax.device_get((state.params, state.opt_state)), before)


def test_batch_of_padding_alone_is_no_update(
    config: Config, make_batch, assert_same
) -> None:
    """No tokens, no mean: reported as not finite, never counted as loss 0."""
    before = jax.device_get(initial_state(config, VOCAB))
    after, metrics = update(config, Batch(*map(np.zeros_like, make_batch(LENGTHS))))
    assert not bool(metrics.finite) and metrics.sums.num_tokens == 0
    assert_same(after.params, before.params)


def test_dropout_differs_by_step_and_is_the_same_again(
    config: Config, make_batch, assert_same
) -> None:
    """The masks are a function of key and step: repeated exactly, never reused."""
    config, batch = changed(config, **ROUGH), make_batch(LENGTHS)
    one = update(config, batch, devices=4)
    assert_same(update(config, batch, devices=4), one)
    later = initial_state(config, VOCAB)._replace(step=jnp.asarray(7, jnp.int32))
    _, metrics = train_step(config, 4)(later, batch)
    assert metrics.sums.loss_sum != one[1].sums.loss_sum


def test_dropout_differs_between_rows_devices_and_parts(
    config: Config, make_batch
) -> None:
    """One sentence has another mask in every row, wherever that is computed."""
    config = changed(config, **ROUGH)
    equal = Batch(*(np.repeat(a[:1], 8, axis=0) for a in make_batch([12] * 8)))
    losses = set()
    for row in range(8):
        alone = (np.arange(8) == row)[:, None]
        batch = Batch(*(np.where(alone, a, 0) for a in equal))
        losses.add(float(update(config, batch, devices=4)[1].sums.loss_sum))
    assert len(losses) == 8


def test_bfloat16_stays_near_float32(config: Config, make_batch) -> None:
    """Padding and causal masks together gave NaN in half precision elsewhere."""
    config = changed(config, learning_rate_factor=0.05)
    half = changed(config, dtype="bfloat16")
    batch = make_batch(LENGTHS)
    _, one = update(config, batch, steps=50)
    state, other = update(half, batch, steps=50)
    assert bool(other.finite)
    np.testing.assert_allclose(other.sums.loss_sum, one.sums.loss_sum, rtol=0.02)
    assert all(a.dtype == np.float32 for a in jax.tree.leaves(state.params))


@pytest.mark.parametrize(("devices", "parts"), [(4, 1), (2, 2), (1, 3), (4, 4)])
def test_rows_that_cannot_be_shared_out_are_refused(
    config: Config, devices: int, parts: int
) -> None:
    """Before anything is compiled, with both numbers, instead of a reshape error."""
    config = changed(config, rows_multiple=6, accumulation_steps=parts)
    mesh = make_mesh(jax.devices()[:devices])
    if 6 % (devices * parts) == 0:
        check_divisible(config, mesh)
        return
    for check in (check_divisible, lambda c, m: make_train_step(c, VOCAB, m)):
        with pytest.raises(UserError, match="rows_multiple is 6") as caught:
            check(config, mesh)
        assert f"{devices} devices" in str(caught.value)
        assert f"multiple of {devices * parts}" in str(caught.value)


def test_evaluation_is_the_same_on_any_devices(config: Config, make_batch) -> None:
    """Also for a last batch that is mostly padding: 59 pairs or 1 pair in 64 rows."""
    params = initial_state(config, VOCAB).params
    for lengths in ([5] * 59 + [0] * 5, [5] + [0] * 63):
        batch = make_batch(lengths)
        one = eval_step(config, 1)(params, batch)
        many = eval_step(config, 4)(params, batch)
        np.testing.assert_allclose(many, one, rtol=1e-5)
        assert one.num_tokens == sum(lengths)


def test_evaluation_does_not_depend_on_the_batch(config: Config, make_batch) -> None:
    """Sums, not means: perplexity is one number for any batch size."""
    params = initial_state(config, VOCAB).params
    batch = make_batch(LENGTHS)
    whole = eval_step(config, 1)(params, batch)
    parts = [
        eval_step(config, 1)(params, Batch(*(a[i : i + 1] for a in batch)))
        for i in range(8)
    ]
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-5)


def test_evaluation_knows_no_smoothing_and_no_dropout(
    config: Config, make_batch, assert_same
) -> None:
    """Perplexities of runs with other training settings can be compared."""
    params = initial_state(config, VOCAB).params
    batch = make_batch(LENGTHS)
    plain = changed(config, label_smoothing=0.0)
    rough = changed(config, label_smoothing=0.3, dropout=0.3)
    one = eval_step(plain, 1)(params, batch)
    assert_same(one, eval_step(rough, 1)(params, batch))
    assert_same(one, eval_step(rough, 1)(params, batch))
    assert one.loss_sum == one.nll_sum


def test_initial_loss_is_that_of_a_guess(config: Config, make_batch) -> None:
    """About ln V nats per token, plus half the variance of the logits, which is 1."""
    sums = eval_step(config, 1)(
        initial_state(config, VOCAB).params, make_batch([9] * 8)
    )
    mean = float(sums.nll_sum / sums.num_tokens)
    assert np.log(VOCAB) - 0.2 < mean < np.log(VOCAB) + 1.2
