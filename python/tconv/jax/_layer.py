"""A layer as the primitives have it, and what follows from it: shapes, the words of a call, and the same by lax."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from jax import lax

from .. import _library as lib

Pair = tuple[int, int]
Shape = tuple[int, ...]

PLATFORMS = {"cpu": lib.BACKEND_CPU, "cuda": lib.BACKEND_CUDA}  # by JAX's names
DTYPES = {"float32": lib.F32, "float64": lib.F64, "float16": lib.F16, "bfloat16": lib.BF16}
# Places of n, c, h and w by layout, and of in, out, h and w by weight layout.
TENSOR_AXES = {lib.NCHW: (0, 1, 2, 3), lib.NHWC: (0, 3, 1, 2)}
WEIGHT_AXES = {lib.WEIGHT_IOHW: (0, 1, 2, 3), lib.WEIGHT_IHWO: (0, 3, 1, 2), lib.WEIGHT_HWOI: (3, 2, 0, 1)}
_TENSOR_NAMES = {lib.NCHW: "NCHW", lib.NHWC: "NHWC"}


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
    """What tconv_desc has beside extents. The precision is as lax's primitives have it."""

    layout: int
    weight_layout: int
    stride: Pair
    padding: tuple[Pair, Pair]  # top and bottom, left and right
    output_padding: Pair
    dilation: Pair
    groups: int
    precision: Any = None

    def extents(self, of_tensor: Shape) -> Shape:
        """n, c, h, w of a tensor's shape."""
        return in_order(of_tensor, TENSOR_AXES[self.layout])

    def weight_extents(self, of_weights: Shape) -> Shape:
        """in, out of a group, h, w of the weights' shape."""
        return in_order(of_weights, WEIGHT_AXES[self.weight_layout])

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
        return laid_out((n, channels * self.groups, *outputs), TENSOR_AXES[self.layout])

    def src_shape(self, dst: Shape, weights: Shape) -> Shape:
        n, _, *outputs = self.extents(dst)
        channels, _, *kernel = self.weight_extents(weights)
        inputs = [
            (o - margin - 1 - d * (k - 1)) // s + 1
            for o, s, d, k, margin in zip(outputs, self.stride, self.dilation, kernel, self._margins(), strict=True)
        ]
        return laid_out((n, channels, *inputs), TENSOR_AXES[self.layout])

    def weights_shape(self, dst: Shape, x: Shape) -> Shape:
        _, out_channels, *outputs = self.extents(dst)
        _, in_channels, *inputs = self.extents(x)
        kernel = [
            (o - margin - 1 - (i - 1) * s) // d + 1
            for o, i, s, d, margin in zip(outputs, inputs, self.stride, self.dilation, self._margins(), strict=True)
        ]
        return laid_out((in_channels, out_channels // self.groups, *kernel), WEIGHT_AXES[self.weight_layout])

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
        n, in_channels, h, w = self.extents(x)
        _, out_channels, *kernel = self.weight_extents(weights)
        (top, bottom), (left, right) = self.padding
        return (
            *(op, DTYPES[dtype.name], self.layout, self.weight_layout),
            *(n, in_channels, h, w, out_channels * self.groups, *kernel),
            *(*self.stride, top, left, bottom, right, *self.output_padding, *self.dilation, self.groups),
            self.math(dtype, platform),
        )

    def by_lax(self, x: jax.Array, weights: jax.Array) -> jax.Array:
        """dst as lax computes it."""
        weights = lax.transpose(weights, WEIGHT_AXES[self.weight_layout])
        in_channels, channels, *kernel = weights.shape
        weights = weights.reshape(self.groups, in_channels // self.groups, channels, *kernel)
        weights = weights.transpose(1, 0, 2, 3, 4).reshape(-1, self.groups * channels, *kernel)
        padding = [
            (d * (k - 1) - before, d * (k - 1) - after + more)
            for d, k, (before, after), more in zip(
                self.dilation, kernel, self.padding, self.output_padding, strict=True
            )
        ]
        layout = _TENSOR_NAMES[self.layout]
        return lax.conv_general_dilated(
            x,
            lax.rev(weights, (2, 3)),
            (1, 1),
            padding,
            self.stride,
            self.dilation,
            (layout, "IOHW", layout),
            self.groups,
            precision=self.precision,
        )
