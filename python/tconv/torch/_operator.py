"""The operators torch.ops.tconv.conv_transpose1d, conv_transpose2d and conv_transpose3d, which torch.compile,
torch.export, modes, transforms and tracers see. Their derivatives are in _derivatives.py, the operators of their
gradients in _gradient_operators.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _derivatives, _native
from ._batching import batched
from ._compute import PYTORCHS, compute, find_layer
from ._derivatives import may_have_derivatives
from ._portable import is_onnx_export
from ._raised import raising
from ._reasons import DTYPES
from ._tools import conv_flop_count, count_flops

_below_autograd = torch._C._after_autograd_keyset
_dispatch_modes = torch._C._len_torch_dispatch_stack


def as_list(value: Any, spatial: int) -> list[Any]:
    """One number for each axis, of a number, or a sequence of that or of one for each."""
    if isinstance(value, int):
        return [value] * spatial
    return list(value) * (spatial if len(value) == 1 else 1)


def _flops(input: Sequence[int], weight: Sequence[int], *rest: Any, out_shape: Sequence[int], **more: Any) -> int:
    """As PyTorch counts its own. Its formula wants an axis of images, which the operator's input need not have."""
    images = input if len(input) == len(weight) else (1, *input)
    return conv_flop_count(list(images), list(weight), list(out_shape), transposed=True)


# ------------------------------------------------------------------------------------------------------- the operators

# Kept as long as the module is: the registrations go when it does.
_library = torch.library.Library("tconv", "DEF")
# Names, schemas, and the kernels in Python on the CPU and CUDA, which _shim_operators.py registers, and of autograd.
kernels: list[tuple[str, str, Any, Any]] = []


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
    """tconv::conv_transpose1d, conv_transpose2d or conv_transpose3d, with its rules."""
    name = f"conv_transpose{spatial}d"
    schema = (
        f"(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{spatial}] stride=1, SymInt[{spatial}] padding=0, "
        f"SymInt[{spatial}] output_padding=0, SymInt groups=1, SymInt[{spatial}] dilation=1) -> Tensor"
    )
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))
    operator = raising(getattr(torch.ops.tconv, name).default)
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
        if layer is None or answer is None:
            return pytorchs(input, weight, bias, stride, padding, output_padding, groups, dilation)
        _native.table.put(layer)
        return answer

    def autograd_kernel(
        keys: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sequence[int] = (1,) * spatial,
        padding: Sequence[int] = (0,) * spatial,
        output_padding: Sequence[int] = (0,) * spatial,
        groups: int = 1,
        dilation: Sequence[int] = (1,) * spatial,
    ) -> Tensor:
        arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation)
        if input.dtype not in DTYPES or (_dispatch_modes() and is_onnx_export()):
            return pytorchs(*arguments)
        if not may_have_derivatives(arguments[:3]):
            return operator.redispatch(keys & _below_autograd, *arguments)
        if input.dim() == spatial + 1:
            return operator(input.unsqueeze(0), *arguments[1:]).squeeze(0)
        stride, padding, output_padding, dilation = (
            as_list(value, spatial) for value in (stride, padding, output_padding, dilation)
        )
        return _derivatives.forward(input, weight, bias, stride, padding, output_padding, groups, dilation)

    def autocast_kernel(device_type: str) -> Any:
        key = getattr(torch._C.DispatchKey, f"Autocast{device_type.upper()}")

        def cast(input: Tensor, weight: Tensor, bias: Tensor | None = None, *arguments: Any) -> Tensor:
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return operator(*_autocast(device_type, input, weight, bias), *arguments)

        return cast

    kernels.append((name, schema, kernel, autograd_kernel))
    _library.impl(name, autocast_kernel("cpu"), "AutocastCPU")
    _library.impl(name, autocast_kernel("cuda"), "AutocastCUDA")
    torch.library.register_fake(f"tconv::{name}", pytorchs, lib=_library)
    _library.impl(name, autograd_kernel, "Autograd", with_keyset=True)
    torch.library.register_vmap(f"tconv::{name}", batched(operator, spatial), lib=_library)
    count_flops(getattr(torch.ops.tconv, name), _flops)
    return operator


# The operators by the number of spatial axes.
OPERATORS = {spatial: _define(spatial) for spatial in PYTORCHS}
_derivatives.FORWARD.update(OPERATORS)
