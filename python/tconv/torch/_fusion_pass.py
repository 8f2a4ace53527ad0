"""The pass over graphs of torch.compile that puts what follows a layer into the layer's call, computes a mean over the
image without the layer, and, where it is asked to, puts tconv's layers in place of PyTorch's. It runs over the joint
graph of forward and backward pass, before PyTorch parts the two: what is fused is decided where all that needs a value
is seen."""

from __future__ import annotations

import hashlib
import pathlib
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.virtualized import V

from .. import _library as lib
from .._version import VERSION
from ..post import PostOp
from . import _fusion_record as record
from ._fusion_backward import Rewrite
from ._fusion_chain import Chain, Found, arguments_of, erase, same_sizes, value_of, writer
from ._fusion_layout import lay_channels_inside
from ._fusion_mean import replace_mean
from ._fusion_replace import replace_convolutions
from ._fusion_vectors import Emitter
from ._operator import OPERATORS
from ._post_list import WITH_OPERAND, as_text
from ._post_operator import POST_OPERATORS
from ._reasons import SLOWER, Reason, gains_with_layer

try:
    from ._fusion_cat import join_concatenations
except (ImportError, AttributeError):  # of what a PyTorch to come has otherwise

    def join_concatenations(graph: fx.Graph) -> bool:
        return False


_LAYERS = {operator: spatial for spatial, operator in OPERATORS.items()}


class FusionPass(CustomGraphPass):
    """The pass, behind those that were set before."""

    def __init__(self, before: Any = None, replace: bool = False) -> None:
        self.before = tuple(before) if isinstance(before, (list, tuple)) else () if before is None else (before,)
        self.replace = replace

    def __call__(self, graph: fx.Graph) -> None:
        for each in self.before:
            each(graph)
        changed = replace_convolutions(graph) if self.replace else False
        layers = [node for node in graph.nodes if node.op == "call_function" and node.target in _LAYERS]
        for layer in layers:
            changed |= replace_mean(graph, layer) or _fuse(graph, layer)
        changed |= join_concatenations(graph)
        both = (*_LAYERS, *POST_OPERATORS.values())
        changed |= lay_channels_inside(graph, [node for node in graph.nodes if node.target in both])
        if changed:
            from torch._inductor.pattern_matcher import stable_topological_sort

            stable_topological_sort(graph)
            graph.lint()

    def uuid(self) -> Any:
        """By the sources of the pass; None, and with it no cache, where a pass before it has none."""
        others = []
        for each in self.before:
            uuid = each.uuid() if isinstance(each, CustomGraphPass) else None
            if uuid is None:
                return None
            others.append(uuid)
        return ("tconv", VERSION, _hash_of_sources(), self.replace, *others)


def _hash_of_sources() -> str:
    global _hash
    if not _hash:
        made = hashlib.sha256()
        for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
            made.update(path.read_bytes())
        _hash = made.hexdigest()
    return _hash


_hash = ""


def without(passes: Any) -> Any:
    """What was set before this pass; what is set, where that is another."""
    if not isinstance(passes, FusionPass):
        return passes
    before = passes.before
    return None if not before else before[0] if len(before) == 1 else list(before)


# ------------------------------------------------------------------------------------------------------------ one layer


def _fuse(graph: fx.Graph, layer: fx.Node) -> bool:
    """Fuses what follows a layer; whether that has changed the graph."""
    name = record.name_of(layer)
    if value_of(layer) is None:
        record.left(name, Reason("no shapes", "the graph has no shapes for it"))
        return False
    chain = Chain(layer, _LAYERS[layer.target])
    try:
        found = chain.grow()
        if found is None:
            record.left(name, chain.why)
            return False
        if V.aot_compilation and not any(step.kind in WITH_OPERAND for step in found.steps):
            record.left(name, Reason("C++", "AOTInductor passes an operator no empty list of tensors"))
            return False
        value = chain.result
        if not gains_with_layer((step.kind for step in found.steps), value.device.type, value.dtype, compiled=True):
            record.left(name, SLOWER)
            return False
        made = _emit(graph, chain, found)
    except Exception as error:  # a program that is not fused is right, too
        record.left(name, Reason("error", f"{type(error).__name__}: {error}"))
        return False
    if isinstance(made, Reason):
        record.left(name, made)
        return False
    _put(graph, chain, found, made)
    record.fused(name, _text(found))
    return True


def _text(found: Found) -> str:
    return as_text([PostOp(step.kind, step.alpha, step.beta) for step in found.steps])


def _emit(graph: fx.Graph, chain: Chain, found: Found) -> fx.Node | Reason:
    """The operator with post-ops, before the last node that it computes."""
    layer = chain.layer
    emitted: list[fx.Node] = []
    call = writer(graph, layer, emitted)
    try:
        with graph.inserting_before(found.value):
            emitter = Emitter(call, chain.channels, chain.dtype)
            operands = []
            for step in found.steps:
                if step.kind == lib.POST_ADD_TENSOR:
                    operands.append(step.tensor)
                elif step.vectors:
                    operands.append(emitter.operand(step.vectors))
            made = call(POST_OPERATORS[chain.spatial], *arguments_of(layer), _text(found), operands)
        value, expected = made.meta["val"], value_of(found.value)
        if value.dtype is expected.dtype and same_sizes(value.shape, expected.shape):
            if same_sizes(value.stride(), expected.stride()):
                return made
    except Exception:
        erase(graph, emitted)
        raise
    erase(graph, emitted)
    return Reason("strides", f"{found.value.name} behind it lies in other strides")


def _put(graph: fx.Graph, chain: Chain, found: Found, made: fx.Node) -> None:
    """Has the program use the new node, and drops what is computed no more."""
    found.value.replace_all_uses_with(made)
    for rewrite in found.rewrites:
        _apply(graph, rewrite, made)
    gone = {*found.nodes, chain.layer}
    for node in reversed([node for node in graph.nodes if node in gone]):
        if not node.users:
            graph.erase_node(node)


def _apply(graph: fx.Graph, rewrite: Rewrite, made: fx.Node) -> None:
    node = rewrite.node
    if rewrite.alpha is None:
        if isinstance(node.args[0], fx.Node) and node.args[0] is not made:
            node.replace_input_with(node.args[0], made)
        return
    # exp(z) of what is below 0, where the result is alpha * (exp(z) - 1)
    with graph.inserting_before(node):
        result = graph.call_function(torch.ops.aten.add.Tensor, (made, rewrite.alpha))
        result.meta = dict(node.meta)
        if rewrite.alpha != 1:
            result = graph.call_function(torch.ops.aten.div.Tensor, (result, rewrite.alpha))
            result.meta = dict(node.meta)
    node.replace_all_uses_with(result)
    graph.erase_node(node)
