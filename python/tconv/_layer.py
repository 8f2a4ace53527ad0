"""From shapes and strides to tconv_desc: what the functions for arrays and for PyTorch share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _errors
from . import _library as lib

Shape = Sequence[int]
Numbers = tuple[int, ...]
Pair = tuple[int, int]
# stride, padding (of each axis before and after), output_padding, groups, dilation; of 1, 2 or 3 spatial axes
Arguments = tuple[Numbers, tuple[Pair, ...], Numbers, int, Numbers]

# The tensors of a layer have the axes n, c, its weights i, o, and then come the spatial ones, the last of planes, rows
# and columns. Everything here goes by that rank. tconv_desc has all three, and what a layer does not have is 1 there.
_SPATIAL = 3


def lies_in(layout: int, shape: Shape, strides: Shape) -> bool:
    """Whether tconv reads and writes a tensor as it lies: images and channels (NCHW) or images and pixels (NHWC) may be
    further apart than dense, so that no element stands for two. Strides count elements; that of an extent of 1 is of no
    account."""
    if 0 in shape:
        return True
    n, c, *extents = shape
    of_n, of_c, *steps = strides
    pixels = math.prod(extents)
    if layout == lib.NCHW:
        of_c = pixels if c == 1 else of_c
        inner = of_c >= pixels and _are_dense(extents, steps, 1)
        return inner and (n == 1 or of_n >= (c - 1) * of_c + pixels)
    # the distance of pixels is the stride of the last axis that has several
    of_pixel = next((step for extent, step in zip(extents[::-1], steps[::-1], strict=True) if extent > 1), c)
    inner = (c == 1 or of_c == 1) and of_pixel >= c and _are_dense(extents, steps, of_pixel)
    return inner and (n == 1 or of_n >= (pixels - 1) * of_pixel + c)


def _are_dense(extents: Shape, strides: Shape, distance: int) -> bool:
    """Whether the axes follow each other without a gap, the elements of the last one at this distance."""
    for extent, stride in zip(reversed(extents), reversed(strides), strict=True):
        if extent != 1 and stride != distance:
            return False
        distance *= extent
    return True


def lies_as(shape: Shape, strides: Shape) -> list[int]:
    """The layouts in which a tensor lies: both where it has one channel or one pixel. Strides are empty where nothing
    can be read by them."""
    return [layout for layout in (lib.NCHW, lib.NHWC) if strides and lies_in(layout, shape, strides)]


def choose_layout(of_x: Sequence[int], of_out: Sequence[int]) -> int:
    """The layout of a layer whose x and out lie in these: one of both where there is one, else that of x, which is
    copied where it lies in none; NCHW where nothing tells."""
    common = [layout for layout in of_x if layout in of_out]
    return (common or list(of_x) or list(of_out) or [lib.NCHW])[0]


def channels_last(rank: int) -> Numbers:
    """The axes of a tensor in the order in which NHWC has them, slowest first."""
    return (0, *range(2, rank), 1)


def weight_layout(shape: Shape, strides: Shape) -> int | None:
    """The layout in which weights are dense as they lie; None where there is none."""
    kernel = range(2, len(shape))
    orders = {lib.WEIGHT_IOHW: (0, 1, *kernel), lib.WEIGHT_IHWO: (0, *kernel, 1), lib.WEIGHT_HWOI: (*kernel, 1, 0)}
    for layout, order in orders.items():
        if _are_dense([shape[axis] for axis in order], [strides[axis] for axis in order], 1):
            return layout
    return None


def strides_that_count(shape: Shape, strides: Shape) -> Numbers:
    """Strides as tconv_desc has them: 0, its word for dense, for extents of 1 and where there are no elements."""
    if 0 in shape:
        return (0,) * len(shape)
    return tuple(0 if extent == 1 else stride for extent, stride in zip(shape, strides, strict=True))


def with_batch(batched: bool, values: Shape, value: int) -> Numbers:
    """A shape or strides with those of the images, which a single image lacks."""
    return tuple(values) if batched else (value, *values)


def without_batch(batched: bool, values: Shape) -> Numbers:
    """A shape or strides as the caller has them, from those with images."""
    return tuple(values) if batched else tuple(values[1:])


def dense_strides(shape: Shape, layout: int) -> Numbers:
    """As strides_that_count has them."""
    strides, distance = [0] * len(shape), 1
    for axis in reversed(range(len(shape)) if layout == lib.NCHW else channels_last(len(shape))):
        strides[axis] = distance
        distance *= shape[axis]
    return strides_that_count(shape, strides)


def make_desc(x_shape: Shape, weight_shape: Shape, arguments: Arguments, dtype: int, precision: int) -> lib.Desc:
    """The layer, its tensors dense and NCHW."""
    if weight_shape[0] != x_shape[1]:
        raise _errors.invalid(
            "weight", f"weight.shape[0] = {weight_shape[0]}: must be the channels of x, {x_shape[1]} (x.shape[1])"
        )
    stride, padding, output_padding, groups, dilation = arguments
    if groups < 1 or x_shape[1] % groups:
        raise _errors.invalid(
            "groups", f"groups = {groups}: must be at least 1 and divide the channels of x, {x_shape[1]} (x.shape[1])"
        )
    desc = lib.new_desc()
    desc.batch, desc.in_channels, *extents = x_shape
    desc.in_d, desc.in_h, desc.in_w = of_all_axes(extents, 1)
    desc.out_channels = weight_shape[1] * groups
    desc.kernel_d, desc.kernel_h, desc.kernel_w = of_all_axes(weight_shape[2:], 1)
    desc.stride_d, desc.stride_h, desc.stride_w = of_all_axes(stride, 1)
    front, rows, columns = of_all_axes(padding, (0, 0))
    desc.pad_front, desc.pad_back = front
    desc.pad_top, desc.pad_bottom = rows
    desc.pad_left, desc.pad_right = columns
    desc.output_padding_d, desc.output_padding_h, desc.output_padding_w = of_all_axes(output_padding, 0)
    desc.dilation_d, desc.dilation_h, desc.dilation_w = of_all_axes(dilation, 1)
    desc.groups, desc.dtype, desc.math = groups, dtype, precision
    return desc


def of_all_axes(values: Sequence[Any], neutral: Any) -> tuple[Any, Any, Any]:
    """Of planes, rows and columns, with what changes nothing for those that a layer does not have."""
    planes, rows, columns = (*[neutral] * (_SPATIAL - len(values)), *values)
    return planes, rows, columns


def give_strides(desc: lib.Desc, tensor: str, strides: Shape) -> None:
    """Tells the library how "src", "dst" or "addend" lies, by strides that count."""
    n, c, *steps = strides
    planes, rows, columns = of_all_axes(steps, 0)
    getattr(desc, f"{tensor}_strides")[:] = n, c, rows, columns
    setattr(desc, f"{tensor}_stride_d", planes)


def output_shape(desc: lib.Desc, rank: int) -> Numbers:
    """The shape of the result of a layer of this rank; raises what is wrong with desc."""
    n, c, *extents = lib.output_shape3d(desc)
    return (n, c, *extents[_SPATIAL + 2 - rank :])
