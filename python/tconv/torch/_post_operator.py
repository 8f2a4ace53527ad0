"""The operators torch.ops.tconv.conv_transpose2d_post and those of 1-D and 3-D layers: a layer with its post-ops, which
the graph pass for torch.compile puts into programs (_fusion.py). They take the list as text, and the tensor of each
step that has one, with Snake's two in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _library as lib
from ..post import PostOp
from . import _native
from . import _reasons as reasons
from ._compute import PYTORCHS, compute, find
from ._derivatives import have_derivatives
from ._operator import OPERATORS, _flops
from ._post import as_operand, followed_by
from ._post_list import PostList, of_text
from ._raised import raising
from ._reasons import Reason
from ._tools import count_flops

_below_autograd = torch._C._after_autograd_keyset

# Kept as long as the module is: the registrations go when it does.
_library = torch.library.Library("tconv", "FRAGMENT")
# Names, schemas for the shim, and the kernels in Python on the CPU and CUDA, which _shim_operators.py registers, and of
# autograd.
kernels: list[tuple[str, str, Any, Any]] = []


def with_operands(posts: PostList, operands: Sequence[Tensor]) -> list[PostOp]:
    """The steps with the tensors that the operator was given."""
    if len(operands) != sum(at is not None for at in posts.operands):
        raise ValueError(f"operands has {len(operands)} tensors: must have one for each post-op that takes one")
    steps = []
    for step, at in zip(posts.steps, posts.operands, strict=True):
        tensors: Sequence[Tensor] = () if at is None else (operands[at],)
        if step.kind == lib.POST_SNAKE:
            tensors = tensors[0].reshape(2, -1).unbind()
        steps.append(PostOp(step.kind, step.alpha, step.beta, tuple(tensors)))
    return steps


def one_after_the_other(
    spatial: int, layer: Any, arguments: Sequence[Any], post: str, operands: Sequence[Tensor]
) -> Tensor:
    """The layer by the function of this name, and PyTorch's functions after it."""
    return followed_by(layer(*arguments), with_operands(of_text(post), operands), spatial)


def in_one_call(
    spatial: int,
    arguments: tuple[Any, ...],
    posts: PostList | None,
    operands: Sequence[Tensor],
    into: Tensor | None = None,
) -> Tensor | None:
    """The layer and its post-ops, if it has any, by one call of the library, into this memory, if there is any; None
    where PyTorch computes it, which is counted."""
    input, weight, bias, stride, padding, output_padding, groups, dilation = arguments
    at_operands: Sequence[int | None] = () if posts is None else posts.operands
    if len(operands) != sum(at is not None for at in at_operands):
        raise ValueError(f"operands has {len(operands)} tensors: the list of post-ops takes another number")
    addend = None if posts is None or posts.addend is None else operands[posts.operands[posts.addend] or 0]
    if addend is not None and (addend.dtype is not input.dtype or addend.device != input.device):
        return None
    layer = find(input, weight, bias, stride, padding, output_padding, groups, dilation, posts, addend, into)
    if isinstance(layer, Reason):
        reasons.passed_on(layer)
        return None
    channels = layer.shape[-spatial - 1]
    by_step = [
        None if at is None or posts is None else as_operand(layer, posts.steps[i], i, operands[at], input, channels)
        for i, at in enumerate(at_operands)
    ]
    answer = compute(layer, input, weight, bias, by_step, into)
    if answer is not None and into is None:
        if all(at is None or by_step[i] is operands[at] for i, at in enumerate(at_operands)):
            _native.table.put(layer, at_operands)
    return answer


def _as_str(post: str | Sequence[int]) -> str:
    """A list as text, which the shim passes on as bytes (native/torch_calls.h)."""
    return post if isinstance(post, str) else bytes(post).decode()


def _define(spatial: int) -> Any:
    name = f"conv_transpose{spatial}d_post"
    numbers = f"SymInt[{spatial}]"
    schema = (
        f"(Tensor input, Tensor weight, Tensor? bias, {numbers} stride, {numbers} padding, {numbers} output_padding, "
        f"SymInt groups, {numbers} dilation, str post, Tensor[] operands) -> Tensor"
    )
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))
    operator = raising(getattr(torch.ops.tconv, name).default)
    pytorchs, layers = PYTORCHS[spatial], OPERATORS[spatial]

    def kernel(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        output_padding: Sequence[int],
        groups: int,
        dilation: Sequence[int],
        post: str | Sequence[int],
        operands: Sequence[Tensor],
    ) -> Tensor:
        arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation)
        post = _as_str(post)
        answer = in_one_call(spatial, arguments, of_text(post), operands)
        return one_after_the_other(spatial, pytorchs, arguments, post, operands) if answer is None else answer

    def autograd_kernel(keys: Any, *arguments: Any) -> Tensor:
        *of_layer, post, operands = arguments
        post = _as_str(post)
        if have_derivatives((*of_layer[:3], *operands)):
            return one_after_the_other(spatial, layers, of_layer, post, operands)
        return operator.redispatch(keys & _below_autograd, *of_layer, post, operands)

    def fake(*arguments: Any) -> Tensor:
        return pytorchs(*arguments[:8])

    def batched(*arguments: Any) -> Tensor:
        *of_layer, post, operands = arguments
        return one_after_the_other(spatial, layers, of_layer, post, operands)

    kernels.append((name, schema.replace("str post", "int[] post"), kernel, autograd_kernel))
    torch.library.register_fake(f"tconv::{name}", fake, lib=_library)
    _library.impl(name, autograd_kernel, "Autograd", with_keyset=True)
    _library.impl(name, batched, "FuncTorchBatched")
    count_flops(getattr(torch.ops.tconv, name), _flops)
    return operator


# The operators by the number of spatial axes.
POST_OPERATORS = {spatial: _define(spatial) for spatial in PYTORCHS}
