"""The loss (section 5.4): cross-entropy with label smoothing, as sums."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int


class LossSums(NamedTuple):
    """Sums over target tokens; divide by `num_tokens`, over all devices and parts.

    `loss_sum` is smoothed; `nll_sum` is not, in nats, and makes the perplexity.
    """

    loss_sum: Float[Array, ""]
    nll_sum: Float[Array, ""]
    num_tokens: Float[Array, ""]
    num_correct: Float[Array, ""]


def smoothed_loss(
    logits: Float32[Array, "B T V"],
    targets: Int[Array, "B T"],
    weights: Bool[Array, "B T"],
    smoothing: float,
    num_pieces: int,
) -> LossSums:
    """Cross-entropy against (1 - e) on the target and e / V on each of V pieces.

    In closed form, logsumexp - (1 - e) * target logit - e * mean logit: no one-hot. V
    is `num_pieces`; a table's surplus rows (with logits near minus infinity) take no
    part. The entropy of the smoothed target is not subtracted, so a perfect model of
    37,000 pieces has a loss of 1.377 nats at e = 0.1.

    Departure: the authors' code put e / (V - 1) on every id but the target, padding
    included, and subtracted the entropy.
    """
    losses, nll = _token_losses(logits, targets, smoothing, num_pieces)
    hits = jnp.argmax(logits, axis=-1) == targets

    def total(values: Array) -> Float[Array, ""]:
        return jnp.where(weights, values, 0).sum(dtype=jnp.float32)

    return LossSums(
        total(losses), total(nll), total(jnp.ones_like(nll)), total(hits * 1.0)
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _token_losses(
    logits: Float[Array, "B T V"],
    targets: Int[Array, "B T"],
    smoothing: float,
    num_pieces: int,
) -> tuple[Float[Array, "B T"], Float[Array, "B T"]]:
    """Smoothed and plain loss of each position, in nats."""
    losses, nll, _ = _forward(logits, targets, smoothing, num_pieces)
    return losses, nll


def _forward(logits, targets, smoothing, num_pieces):  # type: ignore[no-untyped-def]
    log_total = jax.nn.logsumexp(logits, axis=-1)
    target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    if smoothing == 0:
        mean = target
    else:
        real = jnp.arange(logits.shape[-1]) < num_pieces
        mean = jnp.where(real, logits, 0).sum(axis=-1) / num_pieces
    losses = log_total - (1 - smoothing) * target - smoothing * mean
    return losses, log_total - target, log_total


def _token_losses_forward(logits, targets, smoothing, num_pieces):  # type: ignore[no-untyped-def]
    losses, nll, log_total = _forward(logits, targets, smoothing, num_pieces)
    return (losses, nll), (logits, targets, log_total)


def _token_losses_backward(smoothing, num_pieces, kept, gradients):  # type: ignore[no-untyped-def]
    """Softmax minus the (smoothed) target, elementwise: fuses, and scatters nothing."""
    logits, targets, log_total = kept
    of_loss, of_nll = gradients
    pieces = jnp.arange(logits.shape[-1])
    hit = (pieces == targets[..., None]).astype(jnp.float32)
    smooth = jnp.where(pieces < num_pieces, smoothing / num_pieces, 0)
    softmax = jnp.exp(logits - log_total[..., None])
    return (
        of_loss[..., None] * (softmax - (1 - smoothing) * hit - smooth)
        + of_nll[..., None] * (softmax - hit),
        None,
    )


_token_losses.defvjp(_token_losses_forward, _token_losses_backward)
