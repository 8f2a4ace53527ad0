"""The operators torch.ops.tconv.conv_transpose1d and conv_transpose2d, which torch.compile, torch.export, modes and
tracers see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._compute import PYTORCHS, compute, find_layer


def gradients(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    arguments: Sequence[Any],
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input, weight and bias that are wanted, for the operator. They are PyTorch's, as those of eager
    calls are, and can be differentiated again. The arguments are stride, padding, output padding and dilation as
    lists, one number for each spatial axis, groups before the last."""
    stride, padding, output_padding, groups, dilation = arguments
    unbatched = input.dim() < weight.dim()
    if unbatched:
        grad, input = grad.unsqueeze(0), input.unsqueeze(0)
    grad_input, grad_weight, grad_bias = torch.ops.aten.convolution_backward.default(
        grad, input, weight, bias_sizes, stride, padding, dilation, True, output_padding, groups, wanted
    )
    if unbatched and grad_input is not None:
        grad_input = grad_input.squeeze(0)
    return grad_input, grad_weight, grad_bias


def as_list(value: Any, spatial: int) -> list[Any]:
    return [value] * spatial if isinstance(value, int) else list(value)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, weight, bias, stride, padding, output_padding, groups, dilation = inputs
    ctx.save_for_backward(input, weight)
    ctx.bias_sizes = None if bias is None else bias.shape
    spatial = weight.dim() - 2
    stride, padding, output_padding, dilation = (
        as_list(value, spatial) for value in (stride, padding, output_padding, dilation)
    )
    ctx.arguments = (stride, padding, output_padding, groups, dilation)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    input, weight = ctx.saved_tensors
    needed = ctx.needs_input_grad  # of the arguments that were given, which bias need not be
    wanted = (needed[0], needed[1], ctx.bias_sizes is not None and needed[2])
    return *gradients(grad, input, weight, ctx.bias_sizes, ctx.arguments, wanted), None, None, None, None, None


# ------------------------------------------------------------------------------------------------------- the operators

# Kept as long as the module is: the registrations go when it does.
_library = torch.library.Library("tconv", "DEF")


def _autocast(device_type: str, *tensors: Tensor | None) -> list[Any]:
    """PyTorch's rule for convolutions under autocast: everything in the lower precision, but for float64."""
    dtype = torch.get_autocast_dtype(device_type)
    return [
        tensor
        if tensor is None
        or tensor.dtype is dtype
        or tensor.dtype is torch.float64
        or not tensor.is_floating_point()
        or not (tensor.is_cuda if device_type == "cuda" else tensor.is_cpu)
        else tensor.to(dtype)
        for tensor in tensors
    ]


def _define(spatial: int) -> Any:
    """tconv::conv_transpose1d or conv_transpose2d, with its rules."""
    name = f"conv_transpose{spatial}d"
    _library.define(
        f"{name}(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{spatial}] stride=1, "
        f"SymInt[{spatial}] padding=0, SymInt[{spatial}] output_padding=0, SymInt groups=1, "
        f"SymInt[{spatial}] dilation=1) -> Tensor",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    operator = getattr(torch.ops.tconv, name).default
    pytorchs = PYTORCHS[spatial]

    def kernel(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sequence[int] = (1,) * spatial,
        padding: Sequence[int] = (0,) * spatial,
        output_padding: Sequence[int] = (0,) * spatial,
        groups: int = 1,
        dilation: Sequence[int] = (1,) * spatial,
    ) -> Tensor:
        layer = find_layer(input, weight, bias, stride, padding, output_padding, groups, dilation)
        answer = None if layer is None else compute(layer, input, weight, bias)
        if answer is None:
            return pytorchs(input, weight, bias, stride, padding, output_padding, groups, dilation)
        return answer

    def autocast_kernel(device_type: str) -> Any:
        key = getattr(torch._C.DispatchKey, f"Autocast{device_type.upper()}")

        def cast(input: Tensor, weight: Tensor, bias: Tensor | None = None, *arguments: Any) -> Tensor:
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return operator(*_autocast(device_type, input, weight, bias), *arguments)

        return cast

    _library.impl(name, kernel, "CPU")
    _library.impl(name, kernel, "CUDA")
    _library.impl(name, autocast_kernel("cpu"), "AutocastCPU")
    _library.impl(name, autocast_kernel("cuda"), "AutocastCUDA")
    torch.library.register_fake(f"tconv::{name}", pytorchs, lib=_library)
    torch.library.register_autograd(f"tconv::{name}", _backward, setup_context=_setup_context, lib=_library)
    return operator


# The operators by the number of spatial axes.
OPERATORS = {spatial: _define(spatial) for spatial in (1, 2)}
