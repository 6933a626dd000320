"""One update (section 5), as one compiled function over a mesh of devices."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float

from transformer.config import Config
from transformer.data.pipeline import Batch
from transformer.errors import UserError
from transformer.model import Transformer
from transformer.training.loss import LossSums, smoothed_loss
from transformer.training.optimizer import adam, learning_rate
from transformer.training.state import TrainState


class StepMetrics(NamedTuple):
    """What one update reports; sums are over all of its target tokens."""

    sums: LossSums
    grad_norm: Float[Array, ""]
    learning_rate: Float[Array, ""]
    finite: Bool[Array, ""]


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]
EvalStep = Callable[[dict[str, Any], Batch], LossSums]


def make_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """All devices along the axis "data"; the axis "model" has one."""
    devices = jax.devices() if devices is None else devices
    return Mesh(np.asarray(devices).reshape(-1, 1), ("data", "model"))


def check_divisible(config: Config, mesh: Mesh) -> None:
    """Refuses rows that devices and accumulation parts cannot share out equally."""
    rows, parts = config.data.rows_multiple, config.train.accumulation_steps
    devices = mesh.shape["data"]
    if rows % (devices * parts):
        raise UserError(
            f"data.rows_multiple is {rows}, which {devices} devices times "
            f"train.accumulation_steps={parts} do not divide: make it a multiple of "
            f"{devices * parts}"
        )


def replicated(mesh: Mesh) -> NamedSharding:
    """The same value on every device."""
    return NamedSharding(mesh, PartitionSpec())


def by_rows(mesh: Mesh) -> NamedSharding:
    """A batch's rows divided among the devices."""
    return NamedSharding(mesh, PartitionSpec("data"))


def make_train_step(config: Config, vocab_size: int, mesh: Mesh) -> TrainStep:
    """The compiled update. The state is donated: use the returned one only.

    The gradient is that of the summed loss divided by the number of target tokens, over
    all devices and accumulation parts together. Where the loss or the gradient is not
    finite, parameters and moments stay as they were and `finite` is False.
    """
    check_divisible(config, mesh)
    optimizer = adam(config.train, config.model.d_model)
    loss_sums = _loss_function(config, vocab_size, mesh)

    def loss(params: dict, batch: Batch, key: Array) -> tuple[Array, LossSums]:
        sums = loss_sums(params, batch, config.train.label_smoothing, key)
        return sums.loss_sum, sums

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
        sums, gradient = _accumulated(
            jax.grad(loss, has_aux=True), state.params, batch, key, config
        )
        gradient = jax.tree.map(lambda g: g / sums.num_tokens, gradient)
        norm = optax.tree.norm(gradient)
        finite = jnp.isfinite(norm) & jnp.isfinite(sums.loss_sum)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old),
            (params, opt_state),
            (state.params, state.opt_state),
        )
        step = state.step + 1
        rate = learning_rate(step, config.train, config.model.d_model)
        new_state = TrainState(step, params, opt_state, state.key)
        return new_state, StepMetrics(sums, norm, rate, finite)

    return jax.jit(
        train_step,
        in_shardings=(replicated(mesh), by_rows(mesh)),
        out_shardings=replicated(mesh),
        donate_argnums=0,
    )


def make_eval_step(config: Config, vocab_size: int, mesh: Mesh) -> EvalStep:
    """The compiled sums of the unsmoothed loss, without dropout."""
    loss_sums = _loss_function(config, vocab_size, mesh)

    def eval_step(params: dict[str, Any], batch: Batch) -> LossSums:
        return loss_sums(params, batch, 0.0, None)

    return jax.jit(
        eval_step,
        in_shardings=(replicated(mesh), by_rows(mesh)),
        out_shardings=replicated(mesh),
    )


def _loss_function(
    config: Config, vocab_size: int, mesh: Mesh
) -> Callable[[dict[str, Any], Batch, float, Array | None], LossSums]:
    """The summed loss of a batch; with dropout where there is a key."""
    model = Transformer(config.model, vocab_size)

    def loss_sums(
        params: dict[str, Any], batch: Batch, smoothing: float, key: Array | None
    ) -> LossSums:
        states, table = model.apply(
            {"params": params},
            *_inputs(batch),
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
            method="before_logits",
        )
        # The batch's arrays live on devices by now.
        targets = cast(Array, batch.targets)
        weights = cast(Array, batch.target_segments > 0)
        return smoothed_loss(
            states,
            table,
            targets,
            weights,
            smoothing,
            vocab_size,
            config.model.dtype,
            mesh,
        )

    return loss_sums


def _inputs(batch: Batch) -> tuple[Any, ...]:
    """The model's arguments, in its order."""
    return (
        batch.source,
        batch.source_segments,
        batch.source_positions,
        batch.target_inputs,
        batch.target_segments,
        batch.target_positions,
    )


def _accumulated(
    gradient_of: Callable, params: dict, batch: Batch, key: Array, config: Config
) -> tuple[LossSums, dict]:
    """Sums and summed gradient over the parts of a batch, one part after another."""
    parts = config.train.accumulation_steps
    if parts == 1:
        gradient, sums = gradient_of(params, batch, key)
        return sums, gradient
    # Part p has the rows p, p + parts, ...: every device keeps the rows that it holds.
    stacked = jax.tree.map(
        lambda a: a.reshape(-1, parts, *a.shape[1:]).swapaxes(0, 1), batch
    )

    def add_part(total: tuple, part: tuple) -> tuple[tuple, None]:
        index, rows = part
        gradient, sums = gradient_of(params, rows, jax.random.fold_in(key, index))
        return jax.tree.map(jnp.add, total, (sums, gradient)), None

    zeros = (
        LossSums(*(jnp.zeros(()) for _ in LossSums._fields)),
        jax.tree.map(jnp.zeros_like, params),
    )
    total, _ = jax.lax.scan(add_part, zeros, (jnp.arange(parts), stacked))
    return total
