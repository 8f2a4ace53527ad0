"""tconv.jax.conv_transpose: from lax's arguments to a primitive, or to lax where tconv has no such layer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax import lax
from jax._src.lax.lax import canonicalize_precision  # has no public name

from .. import _library as lib
from . import _padding
from ._layer import DTYPES, Layer, in_order, laid_out, tensor_axes
from ._primitives import forward_bias_p, forward_p, spread

# lax.conv_transpose's, by rank.
_DIMENSION_NUMBERS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """All but the arrays, hashable. The padding is as it was given."""

    strides: tuple[int, ...]
    padding: _padding.Padding
    rhs_dilation: tuple[int, ...] | None
    dimension_numbers: Any
    transpose_kernel: bool
    precision: Any
    preferred_element_type: Any
    use_consistent_padding: bool
    feature_group_count: int


def _transposed(array: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    return array if axes == tuple(range(len(axes))) else lax.transpose(array, axes)


def _varying_alike(*arrays: jax.Array) -> list[jax.Array]:
    """The operands of a primitive, all varying over the same axes of the mesh inside of shard_map: JAX then sums the
    gradients of operands that are the same on every device."""
    axes = [_varying(jax.typeof(array)) for array in arrays]
    every = frozenset().union(*axes)
    return [_vary(array, tuple(sorted(every - own))) for array, own in zip(arrays, axes, strict=True)]


def _varying(of: Any) -> frozenset[str]:
    """The axes of the mesh over which an array of this type varies, by the names of newer and older versions of JAX."""
    axes: Iterable[str] = getattr(of, "vma", ())
    return frozenset(getattr(getattr(of, "manual_axis_type", None), "varying", axes))


def _vary(array: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    if not axes:
        return array
    if hasattr(lax, "pcast"):
        return lax.pcast(array, axes, to="varying")
    return getattr(lax, "pvary")(array, axes)  # noqa: B009, JAX before 0.9


@functools.partial(jax.jit, static_argnums=0, inline=True)
def convolve(arguments: Arguments, lhs: jax.Array, rhs: jax.Array, bias: jax.Array | None) -> jax.Array:
    numbers = arguments.dimension_numbers
    numbers = lax.conv_dimension_numbers(
        lhs.shape, rhs.shape, _DIMENSION_NUMBERS.get(lhs.ndim) if numbers is None else numbers
    )
    spatial = lhs.ndim - 2
    for name in ("strides", "padding", "rhs_dilation"):
        given = getattr(arguments, name)
        if not isinstance(given, str | None) and len(given) != spatial:
            raise ValueError(
                f"conv_transpose {name} must have one element for each of the {spatial} spatial axes, but is {given}."
            )
    dilation = (1,) * spatial if arguments.rhs_dilation is None else arguments.rhs_dilation
    kernel = in_order(rhs.shape, numbers.rhs_spec)[2:]
    padding = _padding.resolve(arguments.padding, kernel, arguments.strides, dilation, arguments.use_consistent_padding)
    by_lax = functools.partial(
        _by_lax, dataclasses.replace(arguments, padding=padding, rhs_dilation=dilation, dimension_numbers=numbers)
    )
    result = jax.eval_shape(by_lax, lhs, rhs)  # raises what lax does
    channels = numbers.out_spec[1]
    if bias is not None and bias.shape != (result.shape[channels],):
        raise ValueError(
            f"conv_transpose bias must have one element for each output feature, but has shape {bias.shape} where "
            f"there are {result.shape[channels]} output features."
        )
    layer = _layer_of(arguments, padding, dilation, numbers, kernel)
    if layer is None or result.dtype.name not in DTYPES or 0 in (*lhs.shape, *rhs.shape, *result.shape):
        y = by_lax(lhs, rhs)
        return y if bias is None else y + spread(bias, jax.typeof(y), channels)
    # A wider result is that of wider operands, whose products are the same.
    x, weights = (array.astype(result.dtype) for array in (lhs, rhs))
    x = _placed(x, numbers.lhs_spec, layer.layout)
    weights = _weights(weights, numbers.rhs_spec, arguments.transpose_kernel, layer)
    if bias is None:
        y = forward_p.bind(*_varying_alike(x, weights), layer=layer)
    else:
        y = forward_bias_p.bind(*_varying_alike(x, weights, bias.astype(result.dtype)), layer=layer)
    return _returned(y, numbers.out_spec, layer.layout)


def _by_lax(arguments: Arguments, lhs: jax.Array, rhs: jax.Array) -> jax.Array:
    """The padding is that of the dilated input."""
    numbers = arguments.dimension_numbers
    if arguments.transpose_kernel:
        rhs = lax.rev(rhs, numbers.rhs_spec[2:]).swapaxes(*numbers.rhs_spec[:2])
    return lax.conv_general_dilated(
        lhs,
        rhs,
        (1,) * (lhs.ndim - 2),
        arguments.padding,
        arguments.strides,
        arguments.rhs_dilation,
        numbers,
        feature_group_count=arguments.feature_group_count,
        precision=arguments.precision,
        preferred_element_type=arguments.preferred_element_type,
    )


def _layer_of(
    arguments: Arguments, padding: Any, dilation: tuple[int, ...], numbers: Any, kernel: Sequence[int]
) -> Layer | None:
    """Of one, two or three axes; None where tconv has no such layer."""
    if len(kernel) not in (1, 2, 3) or min(kernel) < 1:
        return None
    of_axes: list[Any] = []
    for pads, k, s, d in zip(padding, kernel, arguments.strides, dilation, strict=True):
        found = _padding.cut(pads, k, s, d)
        if found is None:
            return None
        of_axes.append((*found, s, d))
    cut, more, stride, dilations = zip(*of_axes, strict=True)
    last = all(spec[1] == len(spec) - 1 for spec in (numbers.lhs_spec, numbers.out_spec))
    return Layer(
        layout=lib.NHWC if last else lib.NCHW,
        weight_layout=_weight_layout(arguments, numbers.rhs_spec),
        stride=stride,
        padding=cut,
        output_padding=more,
        dilation=dilations,
        groups=arguments.feature_group_count,
        precision=canonicalize_precision(arguments.precision),
    )


def _weight_layout(arguments: Arguments, spec: Sequence[int]) -> int:
    """The one whose fastest axis is the kernel's own, so that a kernel that has to be flipped is moved in runs."""
    out, into = spec[:2] if not arguments.transpose_kernel else spec[1::-1]
    fastest = len(spec) - 1
    if arguments.feature_group_count > 1 or fastest not in (out, into):
        return lib.WEIGHT_IOHW
    return lib.WEIGHT_IHWO if fastest == out else lib.WEIGHT_HWOI


def _placed(x: jax.Array, spec: Sequence[int], layout: int) -> jax.Array:
    """An operand of these axes n, c and spatial ones, as the layer has it."""
    return _transposed(x, laid_out(spec, tensor_axes(layout, len(spec))))


def _returned(y: jax.Array, spec: Sequence[int], layout: int) -> jax.Array:
    """The inverse of _placed."""
    return _transposed(y, laid_out(tensor_axes(layout, len(spec)), spec))


def _weights(rhs: jax.Array, spec: Sequence[int], transpose_kernel: bool, layer: Layer) -> jax.Array:
    """A kernel of lax's as the layer's weights: lax does not flip, and has the input channels of a group beside all
    output channels; tconv flips, and has all input channels beside the output channels of a group."""
    out, into, *spatial = spec
    if transpose_kernel:
        out, into = into, out
    else:
        rhs = lax.rev(rhs, spatial)
    weights = _transposed(rhs, (into, out, *spatial))
    if layer.groups > 1:
        channels, outputs, *kernel = weights.shape
        weights = weights.reshape(channels, layer.groups, outputs // layer.groups, *kernel)
        weights = weights.swapaxes(0, 1).reshape(channels * layer.groups, outputs // layer.groups, *kernel)
    return _transposed(weights, laid_out(range(len(spec)), layer.weight_axes))
