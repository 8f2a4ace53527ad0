"""PyTorch's transposed convolutions in a graph of torch.compile, as tconv's: forward and backward."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ._formats import lies_channels_last
from ._fusion_chain import same_sizes, value_of
from ._gradient_operators import DATA_OPERATORS, WEIGHTS_OPERATORS
from ._operator import OPERATORS
from ._reasons import DEVICES, DTYPES

_FORWARD = torch.ops.aten.convolution.default
_BACKWARD = torch.ops.aten.convolution_backward.default
_OF_VALUE = ("val", "tensor_meta", "eager_input_vals", "arg_kwarg_vals")


def replace_convolutions(graph: fx.Graph) -> bool:
    """Whether there was one."""
    changed = False
    for node in list(graph.nodes):
        if node.op != "call_function" or node.kwargs:
            continue
        if node.target is _FORWARD and node.args[6]:
            changed |= _replace_forward(graph, node)
        elif node.target is _BACKWARD and node.args[7]:
            changed |= _replace_backward(graph, node)
    return changed


def _is_taken(sizes: Sequence[Any], *tensors: Any) -> bool:
    """Whether such tensors, and numbers that are lists of one for each axis, are tconv's."""
    values = [value_of(tensor) for tensor in tensors if tensor is not None]
    first = values[0]
    if any(value is None or value.layout is not torch.strided for value in values):
        return False
    if first.device.type not in DEVICES or first.dtype not in DTYPES or first.dim() - 2 not in OPERATORS:
        return False
    if any(value.dtype is not first.dtype or value.device != first.device for value in values):
        return False
    return all(len(size) == first.dim() - 2 and all(type(number) is int for number in size) for size in sizes)


def _call(graph: fx.Graph, like: fx.Node, target: Any, *arguments: Any) -> fx.Node:
    node = graph.call_function(target, arguments)
    node.meta = {key: value for key, value in like.meta.items() if key not in _OF_VALUE}
    values = fx.map_arg(arguments, lambda each: each.meta["val"])
    with value_of(arguments[1]).fake_mode:
        node.meta["val"] = target(*values)
    return node


def _same(made: fx.Node, node: fx.Node) -> bool:
    ours, theirs = value_of(made), value_of(node)
    return same_sizes(ours.shape, theirs.shape) and same_sizes(ours.stride(), theirs.stride())


def _replace_forward(graph: fx.Graph, node: fx.Node) -> bool:
    arguments: Any = node.args
    input, weight, bias, stride, padding, dilation, _, output_padding, groups = arguments
    if not _is_taken((stride, padding, dilation, output_padding), input, weight, bias):
        return False
    with graph.inserting_before(node):
        target = OPERATORS[len(stride)]
        made = _call(graph, node, target, input, weight, bias, stride, padding, output_padding, groups, dilation)
    if not _same(made, node):
        graph.erase_node(made)
        return False
    node.replace_all_uses_with(made)
    graph.erase_node(node)
    return True


def _replace_backward(graph: fx.Graph, node: fx.Node) -> bool:
    arguments: Any = node.args
    cotangent, input, weight, _, stride, padding, dilation, _, output_padding, groups, _ = arguments
    if not _is_taken((stride, padding, dilation, output_padding), cotangent, input, weight):
        return False
    parts: dict[Any, fx.Node] = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    in_size, kernel_size = list(value_of(input).shape[2:]), list(value_of(weight).shape[2:])
    if len(parts) != len(node.users) or any(type(size) is not int for size in (*in_size, *kernel_size)):
        return False
    rest = (stride, padding, groups, dilation)
    made: dict[int, fx.Node] = {}
    emitted: list[fx.Node] = []
    with graph.inserting_before(node):
        if 0 in parts:
            lying = value_of(parts[0])
            data = DATA_OPERATORS[len(stride)]
            made[0] = _call(graph, node, data, cotangent, weight, in_size, *rest, lies_channels_last(lying))
            emitted.append(made[0])
        if 1 in parts or 2 in parts:
            lying = value_of(parts[1]) if 1 in parts else value_of(weight)
            weights = WEIGHTS_OPERATORS[len(stride)]
            both = [1 in parts, 2 in parts]
            found = _call(graph, node, weights, input, cotangent, kernel_size, *rest, both, lies_channels_last(lying))
            emitted.append(found)
            for i in (1, 2):
                if i in parts:
                    made[i] = graph.call_function(operator.getitem, (found, i - 1))
                    made[i].meta = {**parts[i].meta, "val": found.meta["val"][i - 1]}
                    emitted.append(made[i])
    if not all(_same(made[i], parts[i]) for i in made):
        for each in reversed(emitted):
            graph.erase_node(each)
        return False
    for i, part in parts.items():
        part.replace_all_uses_with(made[i])
        graph.erase_node(part)
    graph.erase_node(node)
    return True
