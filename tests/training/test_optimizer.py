"""Laws of the learning rate and of Adam: the paper's numbers, steps from 1."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.config import TrainConfig
from transformer.training import adam, learning_rate


@pytest.fixture
def paper(tiny_config) -> TrainConfig:
    """Warm-up and factor of the paper."""
    return dataclasses.replace(
        tiny_config.train, warmup_steps=4000, learning_rate_factor=1.0
    )


def rates_used(config: TrainConfig, d_model: int, num_steps: int) -> list[float]:
    """What Adam really subtracts: with a constant gradient of 1 it is the rate."""
    optimizer = adam(config, d_model)
    params = jnp.ones(())
    state = optimizer.init(params)
    rates = []
    for _ in range(num_steps):
        update, state = optimizer.update(jnp.ones(()), state, params)
        rates.append(-float(update))
    return rates


@pytest.mark.parametrize(
    ("d_model", "step", "rate"),
    [
        (512, 1, 1.74693e-7),
        (512, 2, 3.49386e-7),
        (512, 4000, 6.98771e-4),
        (512, 16000, 3.49386e-4),
        (512, 100_000, 1.39754e-4),
        (1024, 4000, 4.94106e-4),
        (1024, 300_000, 5.70544e-5),
    ],
)
def test_rates_of_the_paper(paper, d_model: int, step: int, rate: float) -> None:
    """The schedule's numbers, the factor d_model^-0.5 included, which others forgot."""
    assert float(learning_rate(step, paper, d_model)) == pytest.approx(rate, rel=1e-5)


def test_adam_takes_the_first_rate_at_the_first_update(paper) -> None:
    """Neither a wasted update at rate 0 nor the same rate twice."""
    used = rates_used(paper, 512, 3)
    np.testing.assert_allclose(used, np.arange(1, 4) * 1.74693e-7, rtol=1e-4)


def test_rate_rises_to_the_end_of_warm_up_and_falls_after(paper) -> None:
    """The peak is at the update that the configuration names."""
    rates = np.asarray([learning_rate(s, paper, 512) for s in range(3990, 4011)])
    assert rates.argmax() == 10
    assert (np.diff(rates[:11]) > 0).all() and (np.diff(rates[10:]) < 0).all()


@pytest.mark.parametrize("warmup", [0, 1])
def test_no_warm_up_is_plain_decay(paper, warmup: int) -> None:
    """Warm-up 0 divided by zero elsewhere; here both start at the top and fall."""
    config = dataclasses.replace(paper, warmup_steps=warmup)
    wanted = 512**-0.5 * np.arange(1, 6) ** -0.5
    np.testing.assert_allclose(rates_used(config, 512, 5), wanted, rtol=1e-4)


def test_factor_scales_every_rate(paper) -> None:
    """`learning_rate_factor` multiplies the whole curve."""
    double = dataclasses.replace(paper, learning_rate_factor=2.0)
    np.testing.assert_allclose(
        rates_used(double, 512, 3), 2 * np.asarray(rates_used(paper, 512, 3)), rtol=1e-5
    )


def test_adam_has_the_configured_decays_and_epsilon(paper) -> None:
    """b1, b2 and epsilon each reach the update, checked against Adam written out."""
    config = dataclasses.replace(paper, adam_b1=0.8, adam_b2=0.95, adam_eps=0.1)
    optimizer = adam(config, 512)
    params = jnp.array([1.0, -2.0])
    state = optimizer.init(params)
    first = second = np.zeros(2)
    wanted = np.asarray(params, np.float64)
    for step, gradient in enumerate([[0.5, 1.0], [-0.2, 3.0]], start=1):
        update, state = optimizer.update(jnp.asarray(gradient), state, params)
        params = optax.apply_updates(params, update)
        first = 0.8 * first + 0.2 * np.asarray(gradient)
        second = 0.95 * second + 0.05 * np.asarray(gradient) ** 2
        scale = np.sqrt(second / (1 - 0.95**step)) + 0.1
        rate = 512**-0.5 * step * 4000**-1.5
        change = first / (1 - 0.8**step) / scale
        wanted = wanted - rate * change
        np.testing.assert_allclose(update, -rate * change, rtol=1e-5)
    np.testing.assert_allclose(params, wanted, rtol=1e-6)
