"""Laws of the loss: closed form, gradient, padding, surplus rows, floors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from transformer.training import LossSums, make_mesh
from transformer.training import smoothed_loss as loss_of_states

B, T, V = 3, 5, 11


@pytest.fixture
def example() -> tuple[jax.Array, jax.Array, jax.Array]:
    """Logits, targets, and weights of sentences of 5, 3 and 0 tokens."""
    keys = jax.random.split(jax.random.key(0))
    logits = 3 * jax.random.normal(keys[0], (B, T, V))
    targets = jax.random.randint(keys[1], (B, T), 0, V)
    return logits, targets, jnp.arange(T) < jnp.array([[5], [3], [0]])


def smoothed_loss(logits, targets, weights, smoothing: float, num_pieces: int):
    """The loss where states times table are just these logits: one state a token."""
    tokens = logits.shape[0] * logits.shape[1]
    one_hot = jnp.eye(tokens).reshape(*logits.shape[:2], tokens)
    table = logits.reshape(tokens, -1).T
    mesh = make_mesh(jax.devices()[:1])
    return loss_of_states(
        one_hot, table, targets, weights, smoothing, num_pieces, "float32", mesh
    )


def soft_targets(targets, smoothing: float, num_pieces: int, rows: int) -> np.ndarray:
    """The distribution that the model shall predict, written out."""
    q = np.zeros((*targets.shape, rows))
    q[..., :num_pieces] = smoothing / num_pieces
    for place, target in np.ndenumerate(targets):
        q[(*place, target)] += 1 - smoothing
    return q


def log_softmax(logits, num_pieces: int) -> np.ndarray:
    """Log-probabilities of the real pieces, in float64."""
    x = np.asarray(logits, np.float64)[..., :num_pieces]
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_sums_against_the_distribution_written_out(example, smoothing: float) -> None:
    """Cross-entropy with a distribution that sums to 1, over real tokens only."""
    logits, targets, weights = example
    q = soft_targets(targets, smoothing, V, V)
    np.testing.assert_allclose(q.sum(axis=-1), 1)
    log_p = log_softmax(logits, V)
    loss = -(q * log_p).sum(axis=-1)[weights].sum()
    nll = -np.take_along_axis(log_p, targets[..., None], -1)[..., 0][weights].sum()
    correct = (np.argmax(log_p, axis=-1) == targets)[weights].sum()
    sums = smoothed_loss(logits, targets, weights, smoothing, V)
    np.testing.assert_allclose(sums, (loss, nll, 8, correct), rtol=1e-6)


def test_without_smoothing_both_losses_are_one_number(example) -> None:
    """Smoothing 0 is plain cross-entropy exactly, not nearly."""
    sums = smoothed_loss(*example, 0.0, V)
    assert sums.loss_sum == sums.nll_sum > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_is_that_of_the_formula(example, smoothing: float) -> None:
    """The hand-written gradient equals softmax minus target, and 0 in padding."""
    logits, targets, weights = example
    gradient = jax.grad(
        lambda x: smoothed_loss(x, targets, weights, smoothing, V).loss_sum
    )(logits)
    q = soft_targets(targets, smoothing, V, V)
    wanted = np.where(weights[..., None], np.exp(log_softmax(logits, V)) - q, 0)
    np.testing.assert_allclose(gradient, wanted, atol=1e-6)
    assert (np.asarray(gradient)[~np.asarray(weights)] == 0).all()


def test_surplus_rows_take_no_part(example) -> None:
    """A table rounded up gives the same loss and gradient, whatever its surplus.

    With smoothing mass on rows that no token has, or in the mean logit, the loss of a
    padded table would be immense.
    """
    logits, targets, weights = example
    masked = jnp.full((B, T, 5), 1e6)
    padded = jnp.concatenate([logits, masked], axis=-1)

    def loss(x):
        return smoothed_loss(x, targets, weights, 0.1, V)

    np.testing.assert_array_equal(loss(padded), loss(logits))
    gradients = [jax.grad(lambda x: loss(x).loss_sum)(x) for x in (padded, logits)]
    np.testing.assert_allclose(gradients[0][..., :V], gradients[1], atol=1e-7)
    assert (gradients[0][..., V:] == 0).all()


def test_padding_columns_change_nothing(example) -> None:
    """Ten columns more, whatever their logits, leave loss and gradient as they were."""
    logits, targets, weights = example
    wide = jnp.concatenate([logits, jnp.full((B, 10, V), 7.0)], axis=1)
    more = jnp.zeros((B, 10), jnp.int32)

    def loss(x, y, w):
        return smoothed_loss(x, y, w, 0.1, V).loss_sum

    one = jax.value_and_grad(loss)(logits, targets, weights)
    other = jax.value_and_grad(loss)(
        wide,
        jnp.concatenate([targets, more], axis=1),
        jnp.concatenate([weights, more > 0], axis=1),
    )
    np.testing.assert_allclose(other[0], one[0], rtol=1e-6)
    np.testing.assert_array_equal(other[1][:, :T], one[1])
    assert (other[1][:, T:] == 0).all()


def test_all_padding_and_no_padding(example) -> None:
    """Neither an empty mask nor a full one is special: other code crashed on both."""
    logits, targets, _ = example
    empty = smoothed_loss(logits, targets, jnp.zeros((B, T), bool), 0.1, V)
    assert empty == LossSums(0, 0, 0, 0)
    full = smoothed_loss(logits, targets, jnp.ones((B, T), bool), 0.1, V)
    assert np.isfinite(full.loss_sum) and full.num_tokens == B * T


@pytest.mark.parametrize(
    ("num_pieces", "floor"), [(32768, 1.36476), (37000, 1.37691), (40960, 1.38708)]
)
def test_floor_of_a_perfect_model(num_pieces: int, floor: float) -> None:
    """A model that predicts the smoothed target exactly pays its entropy."""
    targets = jnp.array([[0, num_pieces - 1]])
    logits = jnp.log(jnp.asarray(soft_targets(targets, 0.1, num_pieces, num_pieces)))
    sums = smoothed_loss(logits, targets, jnp.ones((1, 2), bool), 0.1, num_pieces)
    assert float(sums.loss_sum) / 2 == pytest.approx(floor, abs=1e-5)
    gradient = jax.grad(
        lambda x: smoothed_loss(x, targets, targets >= 0, 0.1, num_pieces).loss_sum
    )(logits)
    np.testing.assert_allclose(gradient, 0, atol=1e-5)


def test_extreme_logits_stay_finite() -> None:
    """No exponential overflows, in the loss or in its gradient."""
    logits = jnp.array([[[1e4, -1e4, 0.0]]])
    targets, weights = jnp.array([[1]]), jnp.array([[True]])
    loss, gradient = jax.value_and_grad(
        lambda x: smoothed_loss(x, targets, weights, 0.0, 3).loss_sum
    )(logits)
    assert loss == 2e4
    np.testing.assert_array_equal(gradient, [[[1, -1, 0]]])


@pytest.fixture
def states() -> tuple[jax.Array, jax.Array]:
    """Decoder outputs and a table with two surplus rows."""
    keys = jax.random.split(jax.random.key(1))
    return jax.random.normal(keys[0], (B, T, 4)), jax.random.normal(keys[1], (V + 2, 4))


def of_states(states, table, targets, weights, devices: int = 1) -> jax.Array:
    """The loss with V pieces, on so many devices."""
    mesh = make_mesh(jax.devices()[:devices])
    return loss_of_states(
        states, table, targets, weights, 0.1, V, "float32", mesh
    ).loss_sum


@pytest.mark.parametrize("at_once", [1, 2 * T * V, 2**24])
def test_parts_change_nothing(
    example, states, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Row by row or all at once: the loss, and both gradients of the product."""
    _, targets, weights = example
    monkeypatch.setattr("transformer.training.loss._LOGITS_AT_ONCE", at_once)

    def plainly(x, table):
        logits = jnp.einsum("btd,vd->btv", x, table)[..., :V]
        q = jnp.asarray(soft_targets(targets, 0.1, V, V), jnp.float32)
        losses = -(q * jax.nn.log_softmax(logits)).sum(axis=-1)
        return jnp.where(weights, losses, 0).sum()

    wanted = jax.value_and_grad(plainly, argnums=(0, 1))(*states)
    found = jax.value_and_grad(of_states, argnums=(0, 1))(*states, targets, weights)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        found,
        wanted,
    )


def test_logits_of_all_positions_are_never_held(
    example, states, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest array of training exists in parts only, and no one-hot beside it."""
    _, targets, weights = example
    monkeypatch.setattr("transformer.training.loss._LOGITS_AT_ONCE", T * V)
    compiled = jax.jit(jax.grad(of_states)).lower(*states, targets, weights).compile()
    text = compiled.as_text()
    assert f"f32[{T},{V}]" in text
    assert f"{B * T},{V}]" not in text and f"{B},{T},{V}]" not in text


def test_half_precision_logits_are_refused(example) -> None:
    """The loss is computed in float32 or not at all."""
    logits, targets, weights = example
    with pytest.raises(TypeCheckError):
        smoothed_loss(logits.astype(jnp.bfloat16), targets, weights, 0.1, V)
