"""The operators torch.ops.tconv.conv_transpose1d and conv_transpose2d, which torch.compile, torch.export, modes,
transforms and tracers see.

Their derivatives are those of aten::convolution, and by PyTorch's own C++ code: backward, forward and mixed, of every
order, under torch.func as without it. The autograd kernel calls PyTorch's function with a dispatch key included that
lies right below autograd, and the kernel of aten::convolution there hands on to the operator, so that everything below
autograd (the next of torch.func's transforms, tracers, modes) sees the operator and not aten::convolution. An
autograd.Function, which is what torch.library.register_autograd makes, has no forward derivatives and no torch.func.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import conv_flop_count, register_flop_formula

from ._batching import batched
from ._compute import PYTORCHS, compute, find_layer
from ._portable import is_onnx_export
from ._reasons import PLAIN

# The dispatch key is that of conjugated tensors; _handed_on tells theirs from the operator's.
_INSIDE = torch._C.DispatchKey.Conjugate
_INSIDE_SET = torch._C.DispatchKeySet(_INSIDE)
_exclude = torch._C._ExcludeDispatchKeyGuard
_below_autograd = torch._C._after_autograd_keyset
_grad_enabled = torch.is_grad_enabled
_transforms = torch._C._functorch.peek_interpreter_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_unpack_dual = torch._C._VariableFunctions._unpack_dual


def as_list(value: Any, spatial: int) -> list[Any]:
    return [value] * spatial if isinstance(value, int) else list(value)


def _with_inside() -> Any:
    """A context with the dispatch key included. torch.func's transforms exclude it."""
    if torch._C._dispatch_tls_is_dispatch_key_excluded(_INSIDE):
        included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        return torch._C._ForceDispatchKeyGuard(included | _INSIDE_SET, excluded - _INSIDE_SET)
    return torch._C._IncludeDispatchKeyGuard(_INSIDE)


def _handed_on(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """aten::convolution below the operator's autograd kernel, and that of conjugated tensors, which is PyTorch's."""
    with _exclude(_INSIDE_SET):
        if transposed and not (input.is_conj() or weight.is_conj() or (bias is not None and bias.is_conj())):
            operator = OPERATORS[weight.dim() - 2]
            return operator(input, weight, bias, stride, padding, output_padding, groups, dilation)
        return torch.convolution(
            input.resolve_conj(),
            weight.resolve_conj(),
            None if bias is None else bias.resolve_conj(),
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups,
        )


_aten = torch.library.Library("aten", "IMPL")
_aten.impl("convolution", _handed_on, _INSIDE.name)


def _may_have_derivatives(tensors: Sequence[Tensor | None]) -> bool:
    """Whether one of them has a gradient to come or a tangent. Looking for a tangent takes a view, which modes and
    subclasses would see; with these the answer is yes. The level of forward_ad is no answer: programs that
    torch.compile makes enter it without telling Python."""
    if _transforms() is not None or _dispatch_modes():
        return True
    wanted = _grad_enabled()
    return any(
        tensor is not None
        and (type(tensor) not in PLAIN or (wanted and tensor.requires_grad) or _unpack_dual(tensor, 0)[1] is not None)
        for tensor in tensors
    )


def _flops(input: Sequence[int], weight: Sequence[int], *rest: Any, out_shape: Sequence[int], **more: Any) -> int:
    """As PyTorch counts its own. Its formula wants an axis of images, which the operator's input need not have."""
    images = input if len(input) == len(weight) else (1, *input)
    return conv_flop_count(list(images), list(weight), list(out_shape), transposed=True)


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

    def autograd_kernel(keys: Any, *arguments: Any) -> Tensor:
        if _dispatch_modes() and is_onnx_export():
            return pytorchs(*arguments)
        if _may_have_derivatives(arguments[:3]):
            with _with_inside():
                return pytorchs(*arguments)
        return operator.redispatch(keys & _below_autograd, *arguments)

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
    _library.impl(name, autograd_kernel, "Autograd", with_keyset=True)
    torch.library.register_vmap(f"tconv::{name}", batched(operator, spatial), lib=_library)
    register_flop_formula(getattr(torch.ops.tconv, name))(_flops)
    return operator


# The operators by the number of spatial axes.
OPERATORS = {spatial: _define(spatial) for spatial in (1, 2)}
