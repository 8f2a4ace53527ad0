"""Concatenations in a graph of torch.compile whose parts are results of layers, which store there themselves.

PyTorch's compiler gives a concatenation memory and has what it generates code for write its part in place; the result
of an operator it copies. The pass has such a concatenation be tconv::cat. To the compiler that is a concatenation, too,
but a layer that is a part of it becomes a call that is given the memory for its result (tconv::conv_transpose_out),
which is a part of the concatenation's. Whether a value is kept for the backward pass is known only when forward and
backward pass are parted, so that the last word is spoken below the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._inductor import ir, lowering
from torch._inductor.virtualized import V

from . import _fusion_record as record
from ._cat_operator import CAT, OUT
from ._fusion_chain import value_of
from ._operator import OPERATORS
from ._post_operator import POST_OPERATORS
from ._reasons import Reason

_AXES = {target: spatial for operators in (OPERATORS, POST_OPERATORS) for spatial, target in operators.items()}
_PYTORCHS = torch.ops.aten.cat.default
_COPIED = "tconv_copied"  # of a layer's node: what _why_not has decided
_OUT_NAME = f"torch.ops.{OUT.namespace}.{OUT.__name__}"


# ------------------------------------------------------------------------------------------------------------ the pass


def join_concatenations(graph: fx.Graph) -> bool:
    """Marks the concatenations that layers may store into. Whether it has changed the graph."""
    changed = False
    for layer in [node for node in graph.nodes if node.op == "call_function" and node.target in _AXES]:
        cats = [user for user in layer.users if user.target in (_PYTORCHS, CAT)]
        if not cats or value_of(layer) is None:
            continue
        why = _why_not(layer, cats)
        if why is not None:
            record.copied(record.name_of(layer), why)
            layer.meta[_COPIED] = True
            continue
        for cat in cats:
            cat.target = CAT
        changed = True
    return changed


def _is_pointwise(node: fx.Node) -> bool:
    return node.target in (_PYTORCHS, CAT) or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _why_not(layer: fx.Node, cats: Sequence[fx.Node]) -> Reason | None:
    """Why a layer's result has to be copied into concatenations; None where the layer may store it there."""
    for user in layer.users:
        if not _is_pointwise(user):  # others may have been told already how it lies
            who = "the program, which returns it" if user.op == "output" else user.name
            return Reason("needed elsewhere", f"it is needed by {who}, too")
    value = value_of(layer)
    rank = value.dim()
    for cat in cats:
        parts: Any = cat.args[0]
        dim = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
        values = [value_of(part) for part in parts]
        if type(dim) is not int or dim % rank > rank - _AXES[layer.target]:
            whole = "planes" if type(dim) is int and dim % rank < rank - 1 else "rows"
            return Reason("columns", f"{cat.name} has parts of {whole}, which layers do not store")
        if any(part is None or part.dtype is not value.dtype or part.device != value.device for part in values):
            return Reason("other dtypes", f"a part of {cat.name} is of another dtype, or elsewhere")
        if any(part.dim() != rank for part in values):
            return Reason("other axes", f"a part of {cat.name} has other axes")
        # Out of such a concatenation the compiler makes none at all on a GPU: those who use it read its parts.
        if value.device.type != "cpu" and all(map(_is_pointwise, cat.users)):
            return Reason("no concatenation", f"only element-wise operators read {cat.name}")
    return None


# -------------------------------------------------------------------------------------------- below PyTorch's compiler


class _Stored(ir.ExternKernelOut):
    """A layer's call with memory for its result. Its tensors come first, as one list."""

    def codegen_args(self) -> list[str]:
        arguments = super().codegen_args()
        count = len(self.inputs)
        return [f"[{', '.join(arguments[:count])}]", *arguments[count:]]


class _Concatenation(ir.ConcatKernel):
    """PyTorch's, in which a layer's call may store as well."""

    @classmethod
    def can_realize_into_without_copy(cls, src: Any, dst: Any = None) -> bool:
        if isinstance(src, ir.StorageBox) and isinstance(src.data, _Stored):
            return isinstance(src.data.layout, ir.FixedLayout)  # not where it is a part of another one
        return super().can_realize_into_without_copy(src, dst)


def _lower_cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    return ir.TensorBox(_Concatenation.create(list(tensors), dim % len(tensors[0].get_size())))


def _why_copied(layer: fx.Node) -> Reason | None:
    """As _why_not, of what is compiled now."""
    if V.graph.cpp_wrapper:
        return Reason("C++", "the program is made as C++, which has no call with memory for a result")
    if any(not _is_pointwise(user) for user in layer.users):
        return Reason("needed elsewhere", "it is needed by the backward pass or elsewhere, too")
    return None


def _of_layer(target: Any, has_post: bool, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """The lowering of a layer's operator: as ever, but where it may store into a concatenation."""
    defaults = [argument.default_value for argument in target._schema.arguments]
    names = [argument.name for argument in target._schema.arguments]

    def lower(*given: Any, **more: Any) -> Any:
        node = V.graph.current_node
        if node.meta.get(_COPIED) or all(user.target is not CAT for user in node.users):
            return otherwise(*given, **more)
        name, why = record.name_of(node), _why_copied(node)
        if why is not None:
            record.copied(name, why)
            return otherwise(*given, **more)
        record.joined(name, ", ".join(user.name for user in node.users if user.target is CAT))
        rest = [more.get(name, default) for name, default in zip(names, defaults, strict=True)][len(given) :]
        input, weight, bias, stride, padding, output_padding, groups, dilation, *of_list = [*given, *rest]
        post, operands = of_list if has_post else ("", ())
        tensors = [tensor for tensor in (input, weight, bias, *operands) if tensor is not None]
        value = node.meta["val"]
        made = _Stored(
            layout=ir.FallbackKernel.tensor_to_layout(value),
            inputs=[ir.ExternKernel.realize_input(tensor) for tensor in tensors],
            constant_args=[bias is not None, stride, padding, output_padding, groups, dilation, post],
            python_kernel_name=_OUT_NAME,
            op_overload=OUT,
        )
        return ir.TensorBox.create(made)

    return lower


def _install() -> None:
    """Tells PyTorch's compiler how to make code of these operators. Programs without tconv::cat are as ever."""
    if CAT in lowering.lowerings:
        return
    for has_post, operators in enumerate((OPERATORS, POST_OPERATORS)):
        for target in operators.values():
            if target not in lowering.lowerings:
                lowering.make_fallback(target, warn=False)
            lowering.lowerings[target] = _of_layer(target, bool(has_post), lowering.lowerings[target])
    lowering.lowerings[CAT] = _lower_cat


_install()
