"""Laws of the network's parts: positions, attention, products, dropout."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.attention import attention_weights, segment_mask
from transformer.model.dropout import keep_mask
from transformer.model.positions import sinusoids
from transformer.model.products import product


def test_sinusoids_are_the_papers():
    """Interleaved, exponent 2i/d: the golden values of section 3.5's formula."""
    np.testing.assert_allclose(
        sinusoids(jnp.array([1]), 4)[0],
        [0.841471, 0.540302, 0.01, 0.99995],
        atol=1e-6,
    )
    table = sinusoids(jnp.arange(101), 512)
    np.testing.assert_allclose(
        table[1, :4], [0.841471, 0.540302, 0.821856, 0.569695], atol=1e-6
    )
    np.testing.assert_allclose(table[100, 256:258], [0.841471, 0.540302], atol=1e-5)


def test_shifting_a_position_is_a_rotation():
    """PE(pos + k) is a linear function of PE(pos): 2x2 rotations."""
    table = np.asarray(sinusoids(jnp.arange(40), 8), np.float64).reshape(40, 4, 2)
    angles = 5 * 10000.0 ** (-np.arange(0, 8, 2) / 8)
    sine, cosine = table[:-5, :, 0], table[:-5, :, 1]
    turned = np.stack(
        [
            sine * np.cos(angles) + cosine * np.sin(angles),
            cosine * np.cos(angles) - sine * np.sin(angles),
        ],
        axis=-1,
    )
    np.testing.assert_allclose(table[5:], turned, atol=1e-5)


def test_attention_example():
    """Raw scores (0, 2, 2) with d_k = 2 give 10.84, 44.58 and 44.58 percent."""
    queries = jnp.array([[0.0, 2.0]])[None, None]
    keys = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).T[None, None]
    mask = jnp.ones((1, 1, 1, 3), bool)
    weights = attention_weights(queries, keys, mask, "float32")[0, 0, 0]
    np.testing.assert_allclose(weights, [0.10838, 0.44581, 0.44581], atol=1e-4)


def test_attention_is_a_loop_over_positions():
    """The einsum equals equation 1 written out in NumPy."""
    draw = np.random.default_rng(0)
    queries, keys = draw.normal(size=(2, 2, 3, 4, 5)).astype(np.float32)
    mask = draw.random((2, 1, 4, 4)) < 0.7
    mask[..., 0] = True
    got = attention_weights(
        *map(jnp.asarray, (queries, keys.swapaxes(2, 3), mask)), "float32"
    )
    for b, h, t in np.ndindex(2, 3, 4):
        scores = keys[b, h] @ queries[b, h, t] / np.sqrt(5)
        scores = np.where(mask[b, 0, t], scores, -np.inf)
        expected = np.exp(scores - scores.max())
        np.testing.assert_allclose(got[b, h, t], expected / expected.sum(), atol=1e-6)


def test_segments_attend_within_themselves_only():
    """A hand-written mask: segments 1 1 2 and padding against 1 2 2 and padding."""
    mask = segment_mask(jnp.array([[1, 1, 2, 0]]), jnp.array([[1, 2, 2, 0]]))[0, 0]
    expected = [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(mask, np.array(expected, bool))


@pytest.mark.parametrize(
    ("spec", "left", "right"),
    [
        ("bsd,dhk->bhsk", (2, 3, 4), (4, 2, 5)),
        ("bhtk,bhsk->bhts", (2, 2, 3, 4), (2, 2, 5, 4)),
        ("btd,vd->btv", (2, 3, 4), (6, 4)),
    ],
)
def test_product_gradients_are_those_of_einsum(spec, left, right):
    """The custom gradient is the true one in float32 and close to it in bfloat16."""
    draw = np.random.default_rng(0)
    a, b = (jnp.asarray(draw.normal(size=s), jnp.float32) for s in (left, right))

    def gradients(multiply):
        return jax.grad(lambda a, b: jnp.sin(multiply(a, b)).sum(), (0, 1))(a, b)

    expected = gradients(functools.partial(jnp.einsum, spec))
    for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 0.1)):
        got = gradients(lambda a, b, dtype=dtype: product(spec, a, b, dtype))
        for one, other in zip(got, expected, strict=True):
            assert one.dtype == jnp.float32
            np.testing.assert_allclose(one, other, atol=tolerance)


def test_bfloat16_products_have_float32_results():
    """Operands are rounded, sums are not."""
    ones = jnp.ones((1, 4096))
    out = product("ij,kj->ik", ones, ones, "bfloat16")
    assert out.dtype == jnp.float32
    assert float(out[0, 0]) == 4096.0
    spiked = ones.at[0, 0].set(1 / 512)
    assert float(product("ij,kj->ik", spiked, ones, "bfloat16")[0, 0]) == 4095 + 1 / 512


def test_dropout_masks_are_independent():
    """Seeds that differ in one bit, or by a shift, give unrelated masks at the rate."""
    shape = (64, 512)
    masks = [
        np.asarray(keep_mask(jnp.array(seed, jnp.uint32), shape, 0.3))
        for seed in ((0, 0), (1, 0), (0, 1), (512, 0), (0, 512), (2**31, 7))
    ]
    for mask in masks:
        assert abs(mask.mean() - 0.7) < 0.01
        # Neighbours in a row, in a column, and in the flat order are independent.
        flat = mask.ravel()
        for lag in (1, 2, 64, 512, 513):
            assert abs(np.corrcoef(flat[lag:], flat[:-lag])[0, 1]) < 0.03
    for i, one in enumerate(masks):
        for other in masks[:i]:
            for shift in (0, 1, 512):
                rolled = np.roll(other.ravel(), shift)
                assert abs(np.corrcoef(one.ravel(), rolled)[0, 1]) < 0.03
