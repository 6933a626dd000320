"""Matrix products: the one place that knows the compute dtype."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def product(
    spec: str, left: Float[Array, "..."], right: Float[Array, "..."], dtype: str
) -> Float[Array, "..."]:
    """`einsum(spec, left, right)` with operands in `dtype` and a float32 result.

    In bfloat16 both operands are rounded, and the sum runs in float32: the form that
    matrix units of accelerators compute. Both gradients are products of the same
    form. Every index of `spec` must stand in exactly two of its three terms, or in all
    three, so that a gradient is an einsum with the terms exchanged.
    """
    return jnp.einsum(
        spec,
        left.astype(dtype),
        right.astype(dtype),
        preferred_element_type=jnp.float32,
    )


def _product_forward(spec, left, right, dtype):  # type: ignore[no-untyped-def]
    return product(spec, left, right, dtype), (left.astype(dtype), right.astype(dtype))


def _product_backward(spec, dtype, operands, gradient):  # type: ignore[no-untyped-def]
    left, right = operands
    inputs, output = spec.split("->")
    left_term, right_term = inputs.split(",")
    return (
        product(f"{output},{right_term}->{left_term}", gradient, right, dtype),
        product(f"{output},{left_term}->{right_term}", gradient, left, dtype),
    )


product.defvjp(_product_forward, _product_backward)
