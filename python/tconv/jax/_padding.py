"""lax.conv_transpose's padding, and what it is to tconv.

lax dilates the input by the stride, pads the dilated input and correlates; tconv scatters, and cuts its padding off
the output. With e = dilation * (kernel - 1), an axis that lax pads by (a, b) is cut by e - a at its beginning and by
e - b at its end; what b has above e is output padding.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

Pair = tuple[int, int]
Padding = str | tuple[Pair, ...]


def numbers(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(operator.index, values))


def pairs(padding: str | Sequence[Sequence[int]]) -> Padding:
    """As it was given, but hashable."""
    return padding if isinstance(padding, str) else tuple((before, after) for before, after in map(numbers, padding))


def resolve(
    padding: Padding, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], consistent: bool
) -> Padding:
    """The padding of the dilated input, by lax's rules for names, and for the padding of the convolution whose
    transpose this is (use_consistent_padding). Other names are left to lax, which refuses them."""
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            return padding
    elif not consistent:
        return padding
    extents = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    of_axes: Sequence[str | Pair] = [padding] * len(stride) if isinstance(padding, str) else padding
    return tuple(_of_axis(*axis) for axis in zip(of_axes, extents, stride, strict=True))


def _of_axis(padding: str | Pair, extent: int, stride: int) -> Pair:
    if not isinstance(padding, str):
        return extent - padding[0], extent - padding[1]
    if padding == "VALID":
        return extent, max(extent, stride - 1)
    total = extent + stride - 1
    before = extent if stride > extent else (total + 1) // 2
    return before, total - before


def cut(padding: Pair, kernel: int, stride: int, dilation: int) -> tuple[Pair, int] | None:
    """tconv's padding and output padding of an axis; None where tconv has none such."""
    extent = dilation * (kernel - 1)
    before, after = extent - padding[0], extent - padding[1]
    more = max(-after, 0)
    if before < 0 or more >= max(stride, dilation):
        return None
    return (before, max(after, 0)), more
