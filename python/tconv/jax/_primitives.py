"""The primitives: the layer and both its gradients, each bilinear. The transposes of one are the other two,
which gives derivatives of every order in both modes. The layer with a bias has the derivatives of the layer.

On the CPU a primitive is a call of tconv, and on CUDA where the library has that backend and a GPU. Elsewhere it is
lax's convolution.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
from jax import lax
from jax._src import dispatch  # has no public name: see the end of this file
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from .. import _library as lib
from . import _sharding, _shim
from ._layer import PLATFORMS, Layer

Operands = Sequence[Any]


def _primitive(name: str) -> Any:
    return jax.extend.core.Primitive(name)


forward_p = _primitive("tconv_forward")  # src, weights -> dst
forward_bias_p = _primitive("tconv_forward_bias")  # src, weights, bias -> dst
data_p = _primitive("tconv_backward_data")  # diff_dst, weights -> diff_src
weights_p = _primitive("tconv_backward_weights")  # diff_dst, src -> diff_weights

OPERATIONS = {
    forward_p: lib.OP_FORWARD,
    forward_bias_p: lib.OP_FORWARD,
    data_p: lib.OP_BACKWARD_DATA,
    weights_p: lib.OP_BACKWARD_WEIGHTS,
}


# ----------------------------------------------------------------------------------------------------- what is computed


def spread(bias: jax.Array, like: Any, channels: int) -> jax.Array:
    """The bias along the axis of channels of a result of this type. The bias goes through f32 (or f64), so that its
    gradient is summed there."""
    wide = bias.astype(jnp.promote_types(like.dtype, jnp.float32))
    split = like.sharding if any(like.sharding.spec) else None
    return lax.broadcast_in_dim(wide, like.shape, (channels,), out_sharding=split).astype(like.dtype)


def _spread(bias: jax.Array, like: Any, layer: Layer) -> jax.Array:
    return spread(bias, like, layer.axes[1])


def _by_lax(primitive: Any, *operands: jax.Array, layer: Layer) -> jax.Array:
    """The same by lax, whose derivatives are the gradients."""
    op, (first, second, *rest) = OPERATIONS[primitive], operands
    if op == lib.OP_FORWARD:
        y = layer.by_lax(first, second)
        return y + _spread(rest[0], jax.typeof(y), layer) if rest else y
    shape = jax.ShapeDtypeStruct(layer.shapes(op, first.shape, second.shape)[2], first.dtype)
    if op == lib.OP_BACKWARD_DATA:
        return jax.linear_transpose(lambda x: layer.by_lax(x, second), shape)(first)[0]
    return jax.linear_transpose(lambda weights: layer.by_lax(second, weights), shape)(first)[0]


def _on(platform: str, primitive: Any, *operands: jax.Array, layer: Layer) -> jax.Array:
    """By tconv, if the library serves the platform here."""
    if _shim.missing(platform):
        return _by_lax(primitive, *operands, layer=layer)
    return _sharding.partitioned(OPERATIONS[primitive], layer, platform, len(operands))(*operands)


def _abstract(primitive: Any, *operands: Any, layer: Layer) -> Any:
    """The result's type: what the first operand's has beside its shape. Every device has all gradients of weights."""
    shape = layer.shapes(OPERATIONS[primitive], operands[0].shape, operands[1].shape)[2]
    mesh, spec = operands[0].sharding.mesh, operands[0].sharding.spec[:1] if primitive is not weights_p else ()
    sharding = NamedSharding(mesh, PartitionSpec(*spec, *[None] * (len(shape) - len(spec))))
    return operands[0].update(shape=shape, weak_type=False, sharding=sharding)


# ---------------------------------------------------------------------------------------------------------------- vmap


def _to_front(operand: jax.Array, axis: int | None, size: int) -> jax.Array:
    return jnp.broadcast_to(operand, (size, *operand.shape)) if axis is None else jnp.moveaxis(operand, axis, 0)


def _fold(operand: jax.Array, axis: int) -> jax.Array:
    """The first axis and the one that comes to stand at `axis` as one, there."""
    moved = jnp.moveaxis(operand, 0, axis)
    return moved.reshape(*moved.shape[:axis], -1, *moved.shape[axis + 2 :])


def _unfold(result: jax.Array, axis: int, size: int) -> jax.Array:
    split = result.reshape(*result.shape[:axis], size, -1, *result.shape[axis + 1 :])
    return jnp.moveaxis(split, axis, 0)


def _in_two_steps(x: jax.Array, weights: jax.Array, bias: jax.Array, layer: Layer) -> jax.Array:
    y = forward_p.bind(x, weights, layer=layer)
    return y + _spread(bias, jax.typeof(y), layer)


def _batch(primitive: Any, operands: Operands, axes: Sequence[Any], *, layer: Layer) -> tuple[jax.Array, int]:
    """Over images alone the new axis goes into the batch. Over weights too it goes into the groups, where channels are
    the slowest axis of an image and of the weights; else one call follows another."""
    (size,) = {operand.shape[axis] for operand, axis in zip(operands, axes, strict=True) if axis is not None}
    if primitive is forward_bias_p and any(axis is not None for axis in axes[1:]):
        return jax.vmap(functools.partial(_in_two_steps, layer=layer), in_axes=tuple(axes))(*operands), 0
    if primitive is not weights_p and axes[1] is None:
        first = _fold(_to_front(operands[0], axes[0], size), 0)
        return _unfold(primitive.bind(first, *operands[1:], layer=layer), 0, size), 0
    if layer.layout == lib.NCHW and layer.weight_layout == lib.WEIGHT_IOHW:
        # of images the axis of channels, of weights that of input channels, of which a group has some
        places = {forward_p: (1, 0, 1), data_p: (1, 0, 1), weights_p: (1, 1, 0)}[primitive]
        folded = [
            _fold(_to_front(operand, axis, size), place)
            for operand, axis, place in zip(operands, axes, places[:2], strict=True)
        ]
        grouped = dataclasses.replace(layer, groups=layer.groups * size)
        return _unfold(primitive.bind(*folded, layer=grouped), places[2], size), 0
    mapped = [
        operand if axis is None else jnp.moveaxis(operand, axis, 0)
        for operand, axis in zip(operands, axes, strict=True)
    ]

    def one(parts: Operands) -> jax.Array:
        given = iter(parts)
        whole = [operand if axis is None else next(given) for operand, axis in zip(mapped, axes, strict=True)]
        return primitive.bind(*whole, layer=layer)

    return lax.map(one, [operand for operand, axis in zip(mapped, axes, strict=True) if axis is not None]), 0


# --------------------------------------------------------------------------------------------------------- derivatives


ad.defbilinear(
    forward_p,
    lambda ct, x, weights, **layer: data_p.bind(ct, weights, **layer),
    lambda ct, x, weights, **layer: weights_p.bind(ct, x, **layer),
)
ad.defbilinear(
    data_p,
    lambda ct, diff_dst, weights, **layer: forward_p.bind(ct, weights, **layer),
    lambda ct, diff_dst, weights, **layer: weights_p.bind(diff_dst, ct, **layer),
)
ad.defbilinear(
    weights_p,
    lambda ct, diff_dst, x, **layer: forward_p.bind(x, ct, **layer),
    lambda ct, diff_dst, x, **layer: data_p.bind(diff_dst, ct, **layer),
)
ad.defjvp(
    forward_bias_p,
    lambda tangent, x, weights, bias, **layer: forward_p.bind(tangent, weights, **layer),
    lambda tangent, x, weights, bias, **layer: forward_p.bind(x, tangent, **layer),
    lambda tangent, x, weights, bias, layer: _spread(
        tangent, _abstract(forward_p, *map(jax.typeof, (x, weights)), layer=layer), layer
    ),
)

for _each in OPERATIONS:
    _each.def_impl(jax.jit(_each.bind, static_argnames="layer"))
    _each.def_abstract_eval(functools.partial(_abstract, _each))
    batching.primitive_batchers[_each] = functools.partial(_batch, _each)
    mlir.register_lowering(_each, mlir.lower_fun(functools.partial(_by_lax, _each), multiple_results=False))
    for _platform in PLATFORMS:
        mlir.register_lowering(
            _each, mlir.lower_fun(functools.partial(_on, _platform, _each), multiple_results=False), platform=_platform
        )
    dispatch.prim_requires_devices_during_lowering.add(_each)  # how a call is split is decided by custom_partitioning
