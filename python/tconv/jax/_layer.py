"""A layer as the primitives have it, and what follows from it: shapes, the words of a call, and the same by lax."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from .. import _library as lib
from .._layer import of_all_axes

Pair = tuple[int, int]
Numbers = tuple[int, ...]
Shape = tuple[int, ...]

PLATFORMS = {"cpu": lib.BACKEND_CPU, "cuda": lib.BACKEND_CUDA}  # by JAX's names
DTYPES = {"float32": lib.F32, "float64": lib.F64, "float16": lib.F16, "bfloat16": lib.BF16}
# The names of a layer's own axes are the last ones of these.
_AXES = "DHW"


def tensor_axes(layout: int, rank: int) -> Shape:
    """Places of n, c and the layer's own axes."""
    return tuple(range(rank)) if layout == lib.NCHW else (0, rank - 1, *range(1, rank - 1))


def weight_axes(layout: int, rank: int) -> Shape:
    """Places of in, out and the kernel's own axes."""
    if layout == lib.WEIGHT_HWOI:
        return rank - 1, rank - 2, *range(rank - 2)
    return tensor_axes(lib.NHWC if layout == lib.WEIGHT_IHWO else lib.NCHW, rank)


def in_order(values: Sequence[int], axes: Sequence[int]) -> Shape:
    return tuple(values[axis] for axis in axes)


def laid_out(values: Sequence[int], axes: Sequence[int]) -> Shape:
    """The inverse of in_order."""
    return tuple(values[axes.index(axis)] for axis in range(len(axes)))


def _allows_tf32(precision: Any) -> bool:
    """As XLA reads the precision of a convolution for GPUs: one below the highest for both operands, or none given."""
    return precision is None or (isinstance(precision, tuple) and lax.Precision.HIGHEST not in precision)


@dataclasses.dataclass(frozen=True)
class Layer:
    """What tconv_desc has beside extents, of one, two or three axes. The precision is as lax's primitives have it."""

    layout: int
    weight_layout: int
    stride: Numbers
    padding: tuple[Pair, ...]  # of each axis before and after
    output_padding: Numbers
    dilation: Numbers
    groups: int
    precision: Any = None

    @property
    def rank(self) -> int:
        """Axes of its tensors."""
        return len(self.stride) + 2

    @property
    def axes(self) -> Shape:
        """Places of n, c and the layer's own axes."""
        return tensor_axes(self.layout, self.rank)

    @property
    def weight_axes(self) -> Shape:
        """Places of in, out and the kernel's own axes."""
        return weight_axes(self.weight_layout, self.rank)

    def extents(self, of_tensor: Shape) -> Shape:
        """n, c and those of the layer's own axes, of a tensor's shape."""
        return in_order(of_tensor, self.axes)

    def weight_extents(self, of_weights: Shape) -> Shape:
        """in, out of a group, and those of the kernel, of the weights' shape."""
        return in_order(of_weights, self.weight_axes)

    def _margins(self) -> list[int]:
        """What an output axis has beside (in - 1) * stride + dilation * (kernel - 1) + 1."""
        return [more - sum(cut) for more, cut in zip(self.output_padding, self.padding, strict=True)]

    def dst_shape(self, x: Shape, weights: Shape) -> Shape:
        n, _, *inputs = self.extents(x)
        _, channels, *kernel = self.weight_extents(weights)
        outputs = [
            (i - 1) * s + d * (k - 1) + 1 + margin
            for i, s, d, k, margin in zip(inputs, self.stride, self.dilation, kernel, self._margins(), strict=True)
        ]
        return laid_out((n, channels * self.groups, *outputs), self.axes)

    def src_shape(self, dst: Shape, weights: Shape) -> Shape:
        n, _, *outputs = self.extents(dst)
        channels, _, *kernel = self.weight_extents(weights)
        inputs = [
            (o - margin - 1 - d * (k - 1)) // s + 1
            for o, s, d, k, margin in zip(outputs, self.stride, self.dilation, kernel, self._margins(), strict=True)
        ]
        return laid_out((n, channels, *inputs), self.axes)

    def weights_shape(self, dst: Shape, x: Shape) -> Shape:
        _, out_channels, *outputs = self.extents(dst)
        _, in_channels, *inputs = self.extents(x)
        kernel = [
            (o - margin - 1 - (i - 1) * s) // d + 1
            for o, i, s, d, margin in zip(outputs, inputs, self.stride, self.dilation, self._margins(), strict=True)
        ]
        return laid_out((in_channels, out_channels // self.groups, *kernel), self.weight_axes)

    def shapes(self, op: int, first: Shape, second: Shape) -> tuple[Shape, Shape, Shape]:
        """The shapes of src, weights and the result of an operation, by those of its first two operands."""
        if op == lib.OP_FORWARD:
            return first, second, self.dst_shape(first, second)
        if op == lib.OP_BACKWARD_DATA:
            src = self.src_shape(first, second)
            return src, second, src
        weights = self.weights_shape(first, second)
        return second, weights, weights

    def math(self, dtype: Any, platform: str) -> int:
        """How a platform multiplies float32: on the CPU as precisely as can be; on CUDA by TF32, as lax does, unless an
        operand has the highest precision."""
        if platform != "cuda" or dtype.name != "float32" or not _allows_tf32(self.precision):
            return lib.MATH_STRICT
        return lib.MATH_TF32

    def words(self, op: int, dtype: Any, x: Shape, weights: Shape, platform: str) -> tuple[int, ...]:
        """As native/jax_shim.h has them; x and weights are the shapes of the forward layer."""
        n, in_channels, *extents = self.extents(x)
        _, out_channels, *kernel = self.weight_extents(weights)
        (d, h, w), (kd, kh, kw) = of_all_axes(extents, 1), of_all_axes(kernel, 1)
        (sd, sh, sw), (dd, dh, dw) = of_all_axes(self.stride, 1), of_all_axes(self.dilation, 1)
        (front, back), (top, bottom), (left, right) = of_all_axes(self.padding, (0, 0))
        od, oh, ow = of_all_axes(self.output_padding, 0)
        return (
            *(op, DTYPES[dtype.name], self.layout, self.weight_layout),
            *(n, in_channels, h, w, out_channels * self.groups, kh, kw),
            *(sh, sw, top, left, bottom, right, oh, ow, dh, dw, self.groups, self.math(dtype, platform)),
            *(d, kd, sd, dd, front, back, od),
        )

    def by_lax(self, x: jax.Array, weights: jax.Array) -> jax.Array:
        """dst as lax computes it."""
        own = range(3, 1 + self.rank)  # the kernel's own axes, behind those of groups, in and out
        weights = lax.transpose(weights, self.weight_axes)
        in_channels, channels, *kernel = weights.shape
        weights = weights.reshape(self.groups, in_channels // self.groups, channels, *kernel)
        weights = weights.transpose(1, 0, 2, *own).reshape(-1, self.groups * channels, *kernel)
        padding = [
            (d * (k - 1) - before, d * (k - 1) - after + more)
            for d, k, (before, after), more in zip(
                self.dilation, kernel, self.padding, self.output_padding, strict=True
            )
        ]
        names = _AXES[-len(kernel) :]
        layout = f"NC{names}" if self.layout == lib.NCHW else f"N{names}C"
        return lax.conv_general_dilated(
            x,
            lax.rev(weights, range(2, self.rank)),
            (1,) * len(kernel),
            padding,
            self.stride,
            self.dilation,
            (layout, f"IO{names}", layout),
            self.groups,
            precision=self.precision,
        )
