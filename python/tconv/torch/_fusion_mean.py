"""The mean or the sum over an image of what a layer answers, in a graph of torch.compile, without the layer.

A transposed convolution is linear. The sum over all pixels of an output channel is therefore a sum of products: each
weight times the sum of those inputs that the weight is multiplied by, and the bias times the number of pixels. A weight
of tap k is multiplied by the inputs i of an axis for which 0 <= stride * i - padding + dilation * k < output size.
These inputs are a range. Without padding the range of every tap is the whole axis. With padding an axis has a few
ranges: all inputs, all but the first ones, all but the last ones. Taps of one range are added before they are
multiplied.

The condition: A mean or a sum over all axes of the image follows the layer, nothing else uses the layer's output, and
nothing is trained. Between the layer and the mean may stand whatever a sum passes through: factors and terms that are
the same for all pixels of a channel, changes of sign, conversions of a layer of 16 bits, views that leave images and
channels apart, and means or sums over a part of the axes.

The gain: The layer is not computed, and the layer's output is neither written nor read. The input is read once. What is
computed besides has no pixels any more.

The accuracy: Inputs and weights are added in float32 (in float64 for a layer of float64), where the layer in 16 bits
rounds each output, and products are computed in float32. An infinite input gives an infinite sum or NaN, not always the
one that the layer gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from . import _fusion_record as record
from ._fusion_chain import Chain, Writer, arguments_of, erase, is_trained, same_sizes, value_of, writer
from ._fusion_forms import name_of
from ._fusion_sums import as_dtype, taps_of, write_total

_aten = torch.ops.aten
_REDUCTIONS = (_aten.mean.dim, _aten.sum.dim_IntList)
_TERMS = frozenset({"add", "sub", "rsub"})
_FACTORS = frozenset({"mul", "div"})
_VIEWS = frozenset({"view", "reshape", "_unsafe_view", "squeeze", "unsqueeze"})


def replace_mean(graph: fx.Graph, layer: fx.Node) -> bool:
    """Has the mean over the image that follows a layer computed from sums of the layer's input. Whether it has changed
    the graph."""
    emitted: list[fx.Node] = []
    try:
        behind = _write(graph, layer, emitted)
    except Exception:  # a program that keeps its layer is right, too
        record.count("error")
        behind = []
        erase(graph, emitted)
    if not behind:
        return False
    behind[-1].replace_all_uses_with(emitted[-1])
    erase(graph, [layer, *behind])
    record.fused(record.name_of(layer), f"{name_of(behind[-1])} over the image")
    return True


def _write(graph: fx.Graph, layer: fx.Node, emitted: list[fx.Node]) -> list[fx.Node]:
    """Writes what computes the mean. The operators behind the layer that this replaces; none where none is written."""
    if is_trained(graph):
        return []
    arguments = arguments_of(layer)
    input, weight, output = (value_of(node) for node in (*arguments[:2], layer))
    if any(value is None or any(type(size) is not int for size in value.shape) for value in (input, weight, output)):
        return []
    if input.dim() != weight.dim() or 0 in (*input.shape, *output.shape):
        return []
    chain = Chain(layer, weight.dim() - 2)
    behind, taps = _path(chain), taps_of(arguments, output)
    if not behind or taps is None:
        return []
    with graph.inserting_before(behind[-1]):
        write = writer(graph, layer, emitted)
        _write_behind(write, chain, behind, write_total(write, arguments, output, taps, _of_sums(chain)))
    return behind


# --------------------------------------------------------------------------------------------------- what is looked for


def _path(chain: Chain) -> list[fx.Node]:
    """The operators behind a layer, one after another, up to the reduction that leaves one number of each image and
    channel, or less. Empty where another operator is on the way, or something else uses one of the values."""
    path: list[fx.Node] = []
    value = chain.layer
    while len(value.users) == 1:
        (user,) = value.users
        if user.op != "call_function" or value_of(user) is None:
            break
        path.append(user)
        axes, shape = _axes_of(user, chain), value_of(value).shape
        of_image = [axis for axis in axes if axis > 1]
        if of_image and _count(shape, set(range(2, len(shape))) - set(axes)) == 1:
            return path
        if not (_commutes(user, value, chain) if not axes else of_image == axes):
            break
        value = user
    return []


def _count(shape: Sequence[int], axes: Any) -> int:
    return math.prod(shape[axis] for axis in axes)


def _axes_of(node: fx.Node, chain: Chain) -> list[int]:
    """The axes of a mean or a sum; none where it is something else, or of more digits than the layer's sums."""
    if node.target not in _REDUCTIONS or value_of(node).dtype not in (chain.dtype, _of_sums(chain)):
        return []
    source, axes, *_ = arguments_of(node)
    return [axis % value_of(source).dim() for axis in axes or ()]


def _of_sums(chain: Chain) -> torch.dtype:
    return torch.float64 if chain.dtype is torch.float64 else torch.float32


def _commutes(user: fx.Node, value: fx.Node, chain: Chain) -> bool:
    """Whether the sum over the image of what comes out follows from the sum of the value."""
    before, after, name = value_of(value), value_of(user), name_of(user)
    if chain.is_conversion(user) or name == "neg":
        return True
    if name in _VIEWS:
        return before.dtype is after.dtype and same_sizes(before.shape[:2], after.shape[:2])
    if name not in _TERMS | _FACTORS or len(user.args) != 2 or user.args.count(value) != 1:
        return False
    if (user.kwargs and name in _FACTORS) or (name == "div" and user.args[0] is not value):
        return False
    other: Any = user.args[1] if user.args[0] is value else user.args[0]
    if isinstance(other, (int, float)) and not isinstance(other, bool):
        return math.isfinite(other) and (name != "div" or other != 0)
    constant = value_of(other)
    if constant is None or not constant.dtype.is_floating_point or constant.device != after.device:
        return False
    image = constant.shape[max(0, constant.dim() - before.dim() + 2) :]
    of_dtype = torch.promote_types(constant.dtype, _of_sums(chain)) is _of_sums(chain)
    return of_dtype and set(image) <= {1} and same_sizes(before.shape, after.shape)


def _write_behind(write: Writer, chain: Chain, path: list[fx.Node], total: fx.Node) -> fx.Node:
    """What the operators behind a layer make of the sum over the image. A term counts as often as there are pixels."""
    value, pixels = chain.layer, math.prod(chain.result.shape[2:])
    for node in path:
        shape, name, axes = value_of(value).shape, name_of(node), _axes_of(node, chain)
        if axes:
            total = write(_aten.sum.dim_IntList, total, axes, arguments_of(node)[2])
            pixels //= _count(shape, [axis for axis in axes if axis > 1])
            if name == "mean":
                total = write(_aten.div.Tensor, total, _count(shape, axes))
        elif name in _VIEWS:
            images, channels, *image = value_of(node).shape
            total = write(_aten.reshape.default, total, [images, channels, *[1] * len(image)])
        elif name == "neg":
            total = write(node.target, total)
        elif name in _TERMS | _FACTORS:
            first = node.args[0] is value
            other: Any = node.args[1 if first else 0]
            if isinstance(other, fx.Node):
                other = as_dtype(write, other, _of_sums(chain))
            if name in _TERMS:
                other = write(_aten.mul.Tensor, other, pixels) if isinstance(other, fx.Node) else other * pixels
            total = write(node.target, *((total, other) if first else (other, total)), **node.kwargs)
        value = node
    return as_dtype(write, total, value_of(value).dtype)
