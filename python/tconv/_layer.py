"""From shapes and strides to tconv_desc: what the functions for arrays and for PyTorch share."""

from __future__ import annotations

from collections.abc import Sequence

from . import _errors
from . import _library as lib

Shape = Sequence[int]
Pair = tuple[int, int]
# stride, padding (top and bottom, left and right), output_padding, groups, dilation
Arguments = tuple[Pair, tuple[Pair, Pair], Pair, int, Pair]

# The axes i, o, h, w of the weights, slowest first.
_WEIGHT_ORDERS = {lib.WEIGHT_IOHW: (0, 1, 2, 3), lib.WEIGHT_IHWO: (0, 2, 3, 1), lib.WEIGHT_HWOI: (2, 3, 1, 0)}


def lies_in(layout: int, shape: Shape, strides: Shape) -> bool:
    """Whether tconv reads and writes a tensor as it lies: images and channels (NCHW) or images and pixels (NHWC) may be
    further apart than dense, so that no element stands for two. Strides count elements; that of an extent of 1 is of no
    account."""
    if 0 in shape:
        return True
    (n, c, h, w), (sn, sc, sh, sw) = shape, strides
    if layout == lib.NCHW:
        plane = h * w
        sc = plane if c == 1 else sc
        inner = (w == 1 or sw == 1) and (h == 1 or sh == w) and sc >= plane
        return inner and (n == 1 or sn >= (c - 1) * sc + plane)
    if w == 1:  # the distance of pixels is that of rows
        sw = sh if h > 1 else c
    inner = (c == 1 or sc == 1) and sw >= c and (h == 1 or sh == w * sw)
    return inner and (n == 1 or sn >= (h * w - 1) * sw + c)


def lies_as(shape: Shape, strides: Shape) -> list[int]:
    """The layouts in which a tensor lies: both where it has one channel or one pixel. Strides are empty where nothing
    can be read by them."""
    return [layout for layout in (lib.NCHW, lib.NHWC) if strides and lies_in(layout, shape, strides)]


def choose_layout(of_x: Sequence[int], of_out: Sequence[int]) -> int:
    """The layout of a layer whose x and out lie in these: one of both where there is one, else that of x, which is
    copied where it lies in none; NCHW where nothing tells."""
    common = [layout for layout in of_x if layout in of_out]
    return (common or list(of_x) or list(of_out) or [lib.NCHW])[0]


def weight_layout(shape: Shape, strides: Shape) -> int | None:
    """The layout in which weights are dense as they lie; None where there is none."""
    for layout, order in _WEIGHT_ORDERS.items():
        dense = 1
        for axis in reversed(order):
            if shape[axis] != 1 and strides[axis] != dense:
                break
            dense *= shape[axis]
        else:
            return layout
    return None


def strides_that_count(shape: Shape, strides: Shape) -> tuple[int, ...]:
    """Strides as tconv_desc has them: 0, its word for dense, for extents of 1 and where there are no elements."""
    if 0 in shape:
        return (0,) * len(shape)
    return tuple(0 if extent == 1 else stride for extent, stride in zip(shape, strides, strict=True))


def missing_axes(spatial: int, has_batch: bool) -> tuple[int, ...]:
    """Which of n, c, h, w a tensor of a layer lacks, ascending. A 1-D layer is computed as a 2-D one of height 1."""
    return (() if has_batch else (0,)) + ((2,) if spatial == 1 else ())


def with_axes(missing: Sequence[int], values: Sequence[int], value: int) -> tuple[int, ...]:
    """A shape or strides of a tensor that lacks these axes, with the value at each."""
    whole = list(values)
    for axis in missing:
        whole.insert(axis, value)
    return tuple(whole)


def without_axes(missing: Sequence[int], values: Sequence[int]) -> tuple[int, ...]:
    return tuple(value for axis, value in enumerate(values) if axis not in missing)


def dense_strides(shape: Shape, layout: int) -> tuple[int, ...]:
    """As strides_that_count has them."""
    _, ch, h, w = shape
    strides = (ch * h * w, h * w, w, 1) if layout == lib.NCHW else (h * w * ch, 1, w * ch, ch)
    return strides_that_count(shape, strides)


def make_desc(x_shape: Shape, weight_shape: Shape, arguments: Arguments, dtype: int, math: int) -> lib.Desc:
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
    desc.batch, desc.in_channels, desc.in_h, desc.in_w = x_shape
    desc.out_channels = weight_shape[1] * groups
    desc.kernel_h, desc.kernel_w = weight_shape[2:]
    desc.stride_h, desc.stride_w = stride
    (desc.pad_top, desc.pad_bottom), (desc.pad_left, desc.pad_right) = padding
    desc.output_padding_h, desc.output_padding_w = output_padding
    desc.dilation_h, desc.dilation_w = dilation
    desc.groups, desc.dtype, desc.math = groups, dtype, math
    return desc
