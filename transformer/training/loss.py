"""The loss (section 5.4): cross-entropy with label smoothing, as sums."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Float32, Int

from transformer.model.products import product

_LOGITS_AT_ONCE = 2**24  # 64 MB of them: large products, little memory


class LossSums(NamedTuple):
    """Sums over target tokens; divide by `num_tokens`, over all devices and parts.

    `loss_sum` is smoothed; `nll_sum` is not, in nats, and makes the perplexity.
    """

    loss_sum: Float[Array, ""]
    nll_sum: Float[Array, ""]
    num_tokens: Float[Array, ""]
    num_correct: Float[Array, ""]


class _Gradients(NamedTuple):
    """Those of `loss_sum`."""

    states: Float[Array, "*T D"]
    table: Float[Array, "R D"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6, 7))
def smoothed_loss(
    states: Float32[Array, "B T D"],
    table: Float32[Array, "R D"],
    targets: Int[Array, "B T"],
    weights: Bool[Array, "B T"],
    smoothing: float,
    num_pieces: int,
    dtype: str,
    mesh: Mesh,
) -> LossSums:
    """Cross-entropy against (1 - e) on the target and e / V on each of V pieces.

    The logits are `states` times the first V = `num_pieces` rows of the table; surplus
    rows take no part. In closed form, logsumexp - (1 - e) * target logit - e * mean
    logit: no one-hot. The entropy of the smoothed target is not subtracted, so a
    perfect model of 37,000 pieces has a loss of 1.377 nats at e = 0.1.

    Logits of a few rows are held at a time, and where a gradient is asked for, it is
    computed from them there and then: softmax minus target. Only `loss_sum` has a
    gradient. Each device of the mesh's axis "data" takes its own rows.

    Departure: the authors' code put e / (V - 1) on every id but the target, padding
    included, and subtracted the entropy.
    """
    sums, _ = _shared_out(
        states, table, targets, weights, smoothing, num_pieces, dtype, mesh, False
    )
    return sums


def _forward(states, table, targets, weights, *settings):  # type: ignore[no-untyped-def]
    return _shared_out(states, table, targets, weights, *settings, True)


def _backward(smoothing, num_pieces, dtype, mesh, gradients, cotangent):  # type: ignore[no-untyped-def]
    scaled = jax.tree.map(lambda g: g * cotangent.loss_sum, gradients)
    return scaled.states, scaled.table, None, None


smoothed_loss.defvjp(_forward, _backward)


def _shared_out(
    states: Float[Array, "B T D"],
    table: Float[Array, "R D"],
    targets: Int[Array, "B T"],
    weights: Bool[Array, "B T"],
    smoothing: float,
    num_pieces: int,
    dtype: str,
    mesh: Mesh,
    with_gradients: bool,
) -> tuple[LossSums, _Gradients | None]:
    """Every device sums over its rows; then the sums are summed, once."""

    def on_one_device(states, table, targets, weights):  # type: ignore[no-untyped-def]
        sums, gradients = _in_turn(
            states,
            table,
            targets,
            weights,
            smoothing,
            num_pieces,
            dtype,
            with_gradients,
        )
        sums = jax.lax.psum(sums, "data")
        if gradients is None:
            return sums, None
        total = jax.lax.psum(gradients.table, "data")
        return sums, gradients._replace(table=total)

    rows, everywhere = PartitionSpec("data"), PartitionSpec()
    of_gradients: Any = (rows, everywhere)
    return jax.shard_map(
        on_one_device,
        mesh=mesh,
        in_specs=(rows, everywhere, rows, rows),
        out_specs=(
            everywhere,
            _Gradients(*of_gradients) if with_gradients else None,
        ),
        check_vma=False,
    )(states, table, targets, weights)


def _in_turn(
    states: Float[Array, "B T D"],
    table: Float[Array, "R D"],
    targets: Int[Array, "B T"],
    weights: Bool[Array, "B T"],
    smoothing: float,
    num_pieces: int,
    dtype: str,
    with_gradients: bool,
) -> tuple[LossSums, _Gradients | None]:
    """Sums, and gradients if asked for, over parts of the rows, one after another."""
    num_rows, length, depth = states.shape
    most = max(1, _LOGITS_AT_ONCE // (length * num_pieces))
    at_once = max(n for n in range(1, num_rows + 1) if num_rows % n == 0 and n <= most)
    parts = jax.tree.map(
        lambda a: a.reshape(num_rows // at_once, at_once * length, *a.shape[2:]),
        (states, targets, weights),
    )
    pieces = table[:num_pieces]

    def add_part(total: tuple, part: tuple) -> tuple[tuple, Array | None]:
        states, targets, weights = part
        sums, gradients = _tokens(
            states, targets, weights, pieces, smoothing, dtype, with_gradients
        )
        of_table = None if gradients is None else gradients.table
        total = jax.tree.map(jnp.add, total, (sums, of_table))
        return total, None if gradients is None else gradients.states

    zeros = LossSums(*(jnp.zeros(()) for _ in LossSums._fields))
    start = (zeros, jnp.zeros_like(pieces) if with_gradients else None)
    (sums, of_table), of_states = jax.lax.scan(add_part, start, parts)
    if of_table is None or of_states is None:
        return sums, None
    surplus = [(0, table.shape[0] - num_pieces), (0, 0)]
    return sums, _Gradients(of_states.reshape(states.shape), jnp.pad(of_table, surplus))


def _tokens(
    states: Float[Array, "T D"],
    targets: Int[Array, "T"],
    weights: Bool[Array, "T"],
    pieces: Float[Array, "V D"],
    smoothing: float,
    dtype: str,
    with_gradients: bool,
) -> tuple[LossSums, _Gradients | None]:
    """Sums and gradients over tokens whose logits are held at once."""
    logits = product("td,vd->tv", states, pieces, dtype)
    top = logits.max(axis=-1)
    exponentials = jnp.exp(logits - top[:, None])
    total = exponentials.sum(axis=-1)
    log_total = top + jnp.log(total)
    target = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    nll = log_total - target
    losses = nll
    if smoothing:
        losses = log_total - (1 - smoothing) * target - smoothing * logits.mean(axis=-1)
    hits = jnp.argmax(logits, axis=-1) == targets
    sums = LossSums(
        *(
            jnp.where(weights, values, 0).sum(dtype=jnp.float32)
            for values in (losses, nll, jnp.ones_like(nll), hits)
        )
    )
    if not with_gradients:
        return sums, None
    is_target = jnp.arange(len(pieces)) == targets[:, None]
    wanted = (1 - smoothing) * is_target + smoothing / len(pieces)
    error = exponentials / total[:, None] - wanted
    error = jnp.where(weights[:, None], error, 0)
    return sums, _Gradients(
        states=product("tv,vd->td", error, pieces, dtype),
        table=product("tv,td->vd", error, states, dtype),
    )
