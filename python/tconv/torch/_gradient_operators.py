"""The operators of the gradients, torch.ops.tconv.conv_transpose2d_backward_data and conv_transpose2d_backward_weights,
and those of 1-D and 3-D layers: what torch.compile, modes, transforms and tracers see of a backward pass.

Sizes are among their arguments, and so is whether the result lies channels_last. Nothing is inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _derivatives, _gradients, _native
from ._batching import batched_data, batched_weights
from ._compute import PYTORCHS
from ._derivatives import have_derivatives, may_have_derivatives
from ._formats import memory_format
from ._raised import raising
from ._tools import conv_flop_count, count_flops

_below_autograd = torch._C._after_autograd_keyset
# Kept as long as the module is: the registrations go when it does.
_library = torch.library.Library("tconv", "FRAGMENT")
# As in _operator.py.
kernels: list[tuple[str, str, Any, Any]] = []


def _define(
    name: str,
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    has_derivatives: Callable[[Sequence[Tensor | None]], bool],
    differentiable: Callable[..., Any],
    batched: Callable[..., Any],
    flops: Callable[..., int],
) -> Any:
    """An operator whose first two arguments are tensors, with its rules. differentiable computes it with a graph."""
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))
    operator = raising(getattr(torch.ops.tconv, name).default)

    def autograd_kernel(keys: Any, *arguments: Any) -> Any:
        if has_derivatives(arguments[:2]):
            return differentiable(*arguments)
        return operator.redispatch(keys & _below_autograd, *arguments)

    kernels.append((name, schema, kernel, autograd_kernel))
    torch.library.register_fake(f"tconv::{name}", fake, lib=_library)
    _library.impl(name, autograd_kernel, "Autograd", with_keyset=True)
    torch.library.register_vmap(f"tconv::{name}", batched(operator), lib=_library)
    count_flops(getattr(torch.ops.tconv, name), flops)
    return operator


def _new(like: Tensor, shape: Sequence[int], channels_last: bool) -> Tensor:
    lying = memory_format(channels_last, len(shape))
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=lying)


def _check_axes(stride: Sequence[int], **tensors: Tensor | None) -> None:
    axes = len(stride) + 2
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dim() != axes:
            raise RuntimeError(f"{name} has {tensor.dim()} axes: must have {axes}")


# -------------------------------------------------------------------------------------------- the gradient of the input


def _data(
    diff_dst: Tensor,
    weight: Tensor,
    in_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    channels_last: bool,
) -> Tensor:
    _check_axes(stride, diff_dst=diff_dst, weight=weight)
    arguments = (diff_dst, weight, in_size, stride, padding, groups, dilation, channels_last)
    found = _gradients.find_data(*arguments)
    answer = _gradients.compute_data(found, diff_dst, weight)
    if answer is None:
        return data_by_pytorch(*arguments)
    _native.table.put_gradient(found, None)
    return answer


def data_by_pytorch(
    diff_dst: Tensor,
    weight: Tensor,
    in_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    channels_last: bool,
) -> Tensor:
    """PyTorch's operator reads of the input its shape alone."""
    input = _new(diff_dst, (diff_dst.shape[0], weight.shape[0], *in_size), channels_last)
    output_padding = _gradients.left_over(diff_dst.shape, input.shape, weight.shape, stride, padding, dilation)
    mask = [True, False, False]
    result, *_ = _gradients.by_pytorch(
        diff_dst, input, weight, None, stride, padding, dilation, True, output_padding, groups, mask
    )
    return _as(result, channels_last)


def _fake_data(diff_dst: Tensor, weight: Tensor, in_size: Sequence[int], stride: Sequence[int], *rest: Any) -> Tensor:
    _check_axes(stride, diff_dst=diff_dst, weight=weight)
    return _new(diff_dst, (diff_dst.shape[0], weight.shape[0], *in_size), rest[-1])


def _flops_of_data(diff_dst: Any, weight: Any, *rest: Any, out_shape: Any, **more: Any) -> int:
    """As PyTorch counts its own."""
    return conv_flop_count(list(diff_dst), list(weight), list(out_shape), transposed=False)


def _define_data(spatial: int) -> Any:
    schema = (
        f"(Tensor diff_dst, Tensor weight, SymInt[{spatial}] in_size, SymInt[{spatial}] stride, "
        f"SymInt[{spatial}] padding, SymInt groups, SymInt[{spatial}] dilation, bool channels_last) -> Tensor"
    )
    name = f"conv_transpose{spatial}d_backward_data"
    rules = (_data, _fake_data, may_have_derivatives, _derivatives.backward_data, batched_data, _flops_of_data)
    return _define(name, schema, *rules)


# ----------------------------------------------------------------------------------- the gradients of weight and bias


def _shape_of_weight(input: Tensor | None, diff_dst: Tensor, kernel_size: Sequence[int], groups: int) -> Any:
    if input is None:
        raise RuntimeError("input is None: must be there where the gradient of the weight is wanted")
    if input.shape[0] != diff_dst.shape[0]:
        raise RuntimeError(f"input has {input.shape[0]} images, diff_dst {diff_dst.shape[0]}: must be the same")
    if groups < 1:
        raise RuntimeError(f"groups = {groups}: must be at least 1")
    return (input.shape[1], diff_dst.shape[1] // groups, *kernel_size)


def _weights(
    input: Tensor | None,
    diff_dst: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    wanted: Sequence[bool],
    channels_last: bool,
) -> tuple[Tensor, Tensor]:
    """Those that are not wanted have no elements."""
    _check_axes(stride, input=input, diff_dst=diff_dst)
    sizes = (kernel_size, stride, padding, groups, dilation)
    if not (wanted[0] or wanted[1]):
        return _all_there(diff_dst, (None, None))
    if wanted[0]:
        shape = _shape_of_weight(input, diff_dst, kernel_size, groups)
        assert input is not None
        found = _gradients.find_weights(input, diff_dst, *sizes, _gradients.strides_of(shape, channels_last))
        answer = _gradients.compute_weights(found, input, diff_dst, wanted[1])
    else:
        found = _gradients.find_bias(diff_dst)
        answer = _gradients.compute_weights(found, None, diff_dst, True)
    if answer is None:
        return weights_by_pytorch(input, diff_dst, *sizes, wanted, channels_last)
    _native.table.put_gradient(None, found)
    return _all_there(diff_dst, answer)


def _all_there(like: Tensor, gradients: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    weights, bias = (like.new_empty(0) if tensor is None else tensor for tensor in gradients)
    return weights, bias


def weights_by_pytorch(
    input: Tensor | None,
    diff_dst: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    wanted: Sequence[bool],
    channels_last: bool,
) -> tuple[Tensor, Tensor]:
    """PyTorch's operator reads of the weight its shape alone."""
    if not wanted[0]:
        bias = _derivatives.bias_gradient(diff_dst) if wanted[1] else None
        return _all_there(diff_dst, (None, bias))
    shape = _shape_of_weight(input, diff_dst, kernel_size, groups)
    assert input is not None
    weight = _new(diff_dst, shape, channels_last)
    output_padding = _gradients.left_over(diff_dst.shape, input.shape, shape, stride, padding, dilation)
    bias_sizes, mask = [diff_dst.shape[1]], [False, True, wanted[1]]
    _, weights, bias = _gradients.by_pytorch(
        diff_dst, input, weight, bias_sizes, stride, padding, dilation, True, output_padding, groups, mask
    )
    return _all_there(diff_dst, (_as(weights, channels_last), bias))


def _as(tensor: Tensor, channels_last: bool) -> Tensor:
    return tensor.contiguous(memory_format=memory_format(channels_last, tensor.dim()))


def _fake_weights(
    input: Tensor | None,
    diff_dst: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    wanted: Sequence[bool],
    channels_last: bool,
) -> tuple[Tensor, Tensor]:
    _check_axes(stride, input=input, diff_dst=diff_dst)
    weights, bias = diff_dst.new_empty(0), diff_dst.new_empty(diff_dst.shape[1] if wanted[1] else 0)
    if wanted[0]:
        weights = _new(diff_dst, _shape_of_weight(input, diff_dst, kernel_size, groups), channels_last)
    return weights, bias


def _differentiable_weights(
    input: Tensor | None,
    diff_dst: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    wanted: Sequence[bool],
    channels_last: bool,
) -> tuple[Tensor, Tensor]:
    """Two calls where one would do, were they not differentiated."""
    weights, bias = diff_dst.new_empty(0), diff_dst.new_empty(0)
    if wanted[0]:
        _shape_of_weight(input, diff_dst, kernel_size, groups)
        assert input is not None
        sizes = (kernel_size, stride, padding, groups, dilation)
        weights = _derivatives.backward_weights(input, diff_dst, *sizes, channels_last)
    if wanted[1]:
        bias = _derivatives.bias_gradient(diff_dst)
    return weights, bias


def _flops_of_weights(input: Any, diff_dst: Any, *rest: Any, out_shape: Any, **more: Any) -> int:
    """As PyTorch counts its own: those of a convolution of the output's gradient by the input."""
    if not rest[-2][0]:
        return 0
    x, w, out = ([shape[1], shape[0], *shape[2:]] for shape in (diff_dst, input, out_shape[0]))
    return conv_flop_count(x, w, out, transposed=False)


def _define_weights(spatial: int) -> Any:
    schema = (
        f"(Tensor? input, Tensor diff_dst, SymInt[{spatial}] kernel_size, SymInt[{spatial}] stride, "
        f"SymInt[{spatial}] padding, SymInt groups, SymInt[{spatial}] dilation, bool[2] wanted, bool channels_last) "
        "-> (Tensor, Tensor)"
    )
    name = f"conv_transpose{spatial}d_backward_weights"
    rules = (_weights, _fake_weights, have_derivatives, _differentiable_weights, batched_weights, _flops_of_weights)
    return _define(name, schema, *rules)


# The operators by the number of spatial axes.
DATA_OPERATORS = {spatial: _define_data(spatial) for spatial in PYTORCHS}
WEIGHTS_OPERATORS = {spatial: _define_weights(spatial) for spatial in PYTORCHS}
_derivatives.DATA.update(DATA_OPERATORS)
_derivatives.WEIGHTS.update(WEIGHTS_OPERATORS)
