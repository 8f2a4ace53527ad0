"""Layers whose result is reduced over its channels: softmax, normalization, the least or the largest of a pixel. What
follows such a layer reads a pixel's channels one after another, which is fast where they lie side by side. So the
layer gets its input in channels_last, and answers in channels_last, as the operators do (torch.Tag.flexible_layout):
the input is copied, which is smaller than the result or about as large, and PyTorch's compiler reads the result as it
lies. Strides of what the program returns are those that they were."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ._formats import memory_format
from ._fusion_chain import is_trained, value_of
from ._gradients import strides_of

_aten = torch.ops.aten
# Reductions, whose axes are their second argument.
_REDUCTIONS = {
    _aten.sum.dim_IntList,
    _aten.mean.dim,
    _aten.amax.default,
    _aten.amin.default,
    _aten.max.dim,
    _aten.min.dim,
    _aten.argmax.default,
    _aten.argmin.default,
    _aten.prod.dim_int,
    _aten.var.correction,
    _aten.var_mean.correction,
    _aten._softmax.default,
    _aten._log_softmax.default,
}
# Layers get another layout than their program has on these devices alone. The CPU reads either layout as fast.
DEVICES = ("cuda",)
# The fewest channels whose lying side by side is worth a copy.
_LEAST_CHANNELS = 16
# How far a reduction may be behind a layer, in element-wise operators.
_FAR = 16


def _is_pointwise(node: fx.Node) -> bool:
    target: Any = node.target
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.pointwise in target.tags


def _reduces_channels(node: fx.Node, rank: int) -> bool:
    if node.target not in _REDUCTIONS or len(node.args) < 2:
        return False
    axes: Any = node.args[1]
    if isinstance(axes, int):
        axes = [axes]
    return isinstance(axes, (list, tuple)) and [axis % rank for axis in axes if isinstance(axis, int)] == [1]


def _is_reduced(layer: fx.Node) -> bool:
    """Whether a reduction over channels is behind the layer, with element-wise operators alone between."""
    shape = value_of(layer).shape
    seen, front = {layer}, [layer]
    for _ in range(_FAR):
        following = []
        for user in (user for node in front for user in node.users):
            if user.op != "call_function" or user in seen:
                continue
            seen.add(user)
            if _reduces_channels(user, len(shape)):
                return True
            value = value_of(user)
            if _is_pointwise(user) and value is not None and value.shape == shape:
                following.append(user)
        front = following
    return False


def _keep_strides_of_results(graph: fx.Graph, layers: list[fx.Node], order: Any) -> None:
    """Has what the program returns of these layers lie as it did: PyTorch asks the changed program again."""
    reached = set(layers)
    for node in graph.nodes:
        if any(source in reached for source in node.all_input_nodes):
            reached.add(node)
    output = next(node for node in graph.nodes if node.op == "output")

    def kept(node: fx.Node) -> fx.Node:
        value = value_of(node) if node in reached else None
        if value is None or any(type(number) is not int for number in (*value.shape, *value.stride())):
            return node
        made = graph.call_function(order, (node, list(value.stride())))
        made.meta = dict(node.meta)
        return made

    with graph.inserting_before(output):
        output.args = fx.map_arg(output.args, kept)


def lay_channels_inside(graph: fx.Graph, layers: list[fx.Node]) -> bool:
    """Has these layers read and write channels_last where what follows wants that. Whether it has changed the graph."""
    order = getattr(getattr(torch.ops.prims, "inductor_force_stride_order", None), "default", None)
    if order is None or is_trained(graph):
        return False
    changed = []
    for layer in layers:
        source: Any = layer.args[0]
        input, result = value_of(source), value_of(layer)
        if input is None or result is None or input.dim() < 4 or input.device.type not in DEVICES:
            continue
        if any(type(size) is not int for size in (*input.shape, *result.shape)):
            continue
        if not (input.is_contiguous() and result.is_contiguous()) or result.shape[1] < _LEAST_CHANNELS:
            continue
        if input.numel() > result.numel() or not _is_reduced(layer):
            continue
        with input.fake_mode:
            lying = input.clone(memory_format=memory_format(True, input.dim()))
        with graph.inserting_before(layer):
            copied = graph.call_function(order, (source, strides_of(input.shape, True)))
            copied.meta = {**source.meta, "val": lying}
        layer.update_arg(0, copied)
        changed.append(layer)
    if changed:
        _keep_strides_of_results(graph, changed, order)
    return bool(changed)
