"""The sum over an image of what a layer answers, from sums of the layer's input, as nodes of a graph of torch.compile.
_fusion_mean.py says why this is the same and when it is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ._fusion_chain import Writer, value_of
from ._operator import as_list

_aten, _prims = torch.ops.aten, torch.ops.prims
# The most ranges of an axis: each is a sum of its own in the loop over the input.
_MOST_RANGES = 16
# Up to so many products are element-wise ones and a sum, which no setting rounds to TF32. More of them are a product of
# matrices, which is many times as fast. A program that allows TF32 has it there, too.
_MOST_PRODUCTS = 1 << 22

Range = tuple[int, int]  # a first index and the one behind the last
Taps = dict[Range, Range]  # the ranges of an axis's inputs that are summed, with their taps


def taps_of(arguments: Sequence[Any], output: Any) -> list[Taps] | None:
    """What is summed of each axis of the image; None where an axis has too many ranges, or none."""
    spatial = output.dim() - 2
    strides, paddings, dilations = (as_list(arguments[i], spatial) for i in (3, 4, 7))
    sizes = (value_of(arguments[0]).shape[2:], output.shape[2:], value_of(arguments[1]).shape[2:])
    axes = [_taps(*of_axis) for of_axis in zip(*sizes, strides, paddings, dilations, strict=True)]
    return axes if all(0 < len(taps) <= _MOST_RANGES for taps in axes) else None


def _taps(size: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> Taps:
    """The ranges of an axis's inputs that a tap takes to an output, with their taps, which lie side by side."""
    found: Taps = {}
    for tap in range(kernel):
        at = dilation * tap - padding  # the output that the first input adds to
        inputs = max(0, -(at // stride)), min(size, (outputs - 1 - at) // stride + 1)
        if inputs[0] < inputs[1]:
            found[inputs] = found.get(inputs, (tap, tap))[0], tap + 1
    return found


def write_total(write: Writer, arguments: Sequence[Any], output: Any, axes: list[Taps], dtype: torch.dtype) -> fx.Node:
    """The sum over the image of a layer's output, with axes of one pixel."""
    input, weight, bias, *_, groups, _ = arguments
    images, channels, *image = output.shape
    for axis, taps in reversed([*enumerate(axes, 2)]):
        input = _write_ranges(write, as_dtype(write, input, dtype), axis, list(taps))
        weight = _write_ranges(write, as_dtype(write, weight, dtype), axis, list(taps.values()))
    pairs = math.prod(map(len, axes))
    each, count = value_of(weight).shape[0] // groups, channels // groups  # of a group
    weight = write(_aten.reshape.default, weight, [groups, each, count, pairs])
    if images * channels * each * pairs <= _MOST_PRODUCTS:
        input = write(_aten.reshape.default, input, [images, groups, each, 1, pairs])
        total = write(_aten.sum.dim_IntList, write(_aten.mul.Tensor, input, weight), [2, 4])
    else:
        weight = write(_aten.permute.default, weight, [0, 1, 3, 2])
        weight = write(_aten.reshape.default, weight, [groups, each * pairs, count])
        input = write(_aten.reshape.default, input, [images, groups, each * pairs])
        total = write(_aten.bmm.default, write(_aten.permute.default, input, [1, 0, 2]), weight)
        total = write(_aten.permute.default, total, [1, 0, 2])
    total = write(_aten.reshape.default, total, [images, channels])
    if bias is not None:
        term = write(_aten.mul.Tensor, as_dtype(write, bias, dtype), math.prod(image))
        total = write(_aten.add.Tensor, total, term)
    return write(_aten.reshape.default, total, [images, channels, *[1] * len(image)])


def as_dtype(write: Writer, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    same = value_of(node).dtype is dtype
    return node if same else write(_prims.convert_element_type.default, node, dtype)


def _write_ranges(write: Writer, node: fx.Node, axis: int, ranges: list[Range]) -> fx.Node:
    """The sums over ranges of an axis, side by side. What is outside of a range becomes 0, for sums that are over the
    whole axis PyTorch's compiler computes in one loop, which reads the tensor once."""
    value, sums = value_of(node), []
    size, dtype, device = value.shape[axis], value.dtype, value.device
    if ranges == [(i, i + 1) for i in range(size)]:
        return node
    if ranges != [(0, size)]:
        zero = write(_aten.full.default, [], 0.0, dtype=dtype, device=device)
        more = {"start": 0, "step": 1, "dtype": torch.int64, "device": device, "requires_grad": False}
        index = write(_prims.iota.default, size, **more)
        index = write(_aten.reshape.default, index, [size, *[1] * (value.dim() - axis - 1)])
    for first, end in ranges:
        part = node
        if first > 0:
            part = write(_aten.where.self, write(_aten.ge.Scalar, index, first), part, zero)
        if end < size:
            part = write(_aten.where.self, write(_aten.lt.Scalar, index, end), part, zero)
        sums.append(write(_aten.sum.dim_IntList, part, [axis], True))
    return sums[0] if len(sums) == 1 else write(_aten.cat.default, sums, axis)
