"""The derivatives of a layer, of every order and of both modes.

The layer, the gradient of its input and that of its weight are faces of one trilinear form: each is linear in both of
its operands, and the gradients of one are the other two (docs/python.md has the table). Reverse mode is a node of
PyTorch's own, that of aten::convolution_overrideable: PyTorch has this operator for backends beside its own, and on the
CPU and on CUDA no kernel for it. Its node keeps both operands and the arguments and calls
aten::convolution_backward_overrideable, whose kernels are in _backward.py; what the gradients are is said here. So no
autograd.Function is needed, which would cost more than PyTorch's node and know no torch.func.

transposed = True is the layer itself. The other two come with transposed = False, and their sizes in place of
output_padding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from ._formats import lies_channels_last
from ._gradients import left_over
from ._reasons import PLAIN

_node = torch.ops.aten.convolution_overrideable.default
_DATA, _WEIGHTS = 0, 1

# The dispatch key is that of conjugated tensors, right below autograd: the kernel of the node's operator there hands on
# to tconv's operator, so that everything below autograd (the next of torch.func's transforms, tracers, modes) sees it.
_INSIDE = torch._C.DispatchKey.Conjugate
_INSIDE_SET = torch._C.DispatchKeySet(_INSIDE)
_exclude = torch._C._ExcludeDispatchKeyGuard
_unpack_dual = torch._C._VariableFunctions._unpack_dual
_make_dual = torch._C._VariableFunctions._make_dual
_transforms = torch._C._functorch.peek_interpreter_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_grad_enabled = torch.is_grad_enabled

Operators = dict[int, Callable[..., Any]]
# By the number of spatial axes; _operator.py and _gradient_operators.py fill them in.
FORWARD: Operators = {}
DATA: Operators = {}
WEIGHTS: Operators = {}


def may_have_derivatives(tensors: Sequence[Tensor | None]) -> bool:
    """Whether one of them has a gradient to come or a tangent. Looking for a tangent takes a view, which modes and
    subclasses would see; with these the answer is yes. The level of forward_ad is no answer: programs that
    torch.compile makes enter it without telling Python."""
    if _transforms() is not None or _dispatch_modes():
        return True
    wanted = _grad_enabled()
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in PLAIN or (wanted and tensor.requires_grad) or _unpack_dual(tensor, 0)[1] is not None:
            return True
    return False


def have_derivatives(tensors: Sequence[Tensor | None]) -> bool:
    """The same, for certain. Modes and subclasses see the views."""
    wanted = _grad_enabled()
    return any(
        tensor is not None and ((wanted and tensor.requires_grad) or _unpack_dual(tensor, 0)[1] is not None)
        for tensor in tensors
    )


# --------------------------------------------------------------------------------------------- the three, with a graph


def forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """The layer of images."""

    def call(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return _with_node(input, weight, bias, stride, padding, dilation, True, output_padding, groups)

    try:
        return call(input, weight, bias)
    except NotImplementedError:
        tangent = _sum_of_products(call, input, weight)
        of_bias = None if bias is None else _unpack_dual(bias, 0)[1]
        if of_bias is not None:
            along_channels = of_bias.reshape(-1, *[1] * (weight.dim() - 2))
            tangent = along_channels if tangent is None else tangent + along_channels
        return _dual(_without_tangents(call, input, weight, bias), tangent)


def backward_data(
    diff_dst: Tensor,
    weight: Tensor,
    in_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    channels_last: bool,
) -> Tensor:
    sizes = [*in_size, int(channels_last), _DATA]
    return _bilinear(diff_dst, weight, stride, padding, dilation, sizes, groups)


def backward_weights(
    input: Tensor,
    diff_dst: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    channels_last: bool,
) -> Tensor:
    """The gradient of the weight alone; that of the bias is a sum."""
    sizes = [*kernel_size, int(channels_last), _WEIGHTS]
    return _bilinear(input, diff_dst, stride, padding, dilation, sizes, groups)


def bias_gradient(diff_dst: Tensor) -> Tensor:
    return diff_dst.sum([0, *range(2, diff_dst.dim())])


def _bilinear(
    first: Tensor,
    second: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    sizes: Sequence[int],
    groups: int,
) -> Tensor:
    def call(first: Tensor, second: Tensor) -> Tensor:
        return _with_node(first, second, None, stride, padding, dilation, False, sizes, groups)

    try:
        return call(first, second)
    except NotImplementedError:
        return _dual(_without_tangents(call, first, second), _sum_of_products(call, first, second))


def _with_node(*arguments: Any) -> Tensor:
    """PyTorch raises NotImplementedError where a tensor has a tangent, before anything is computed."""
    with _with_inside():
        return _node(*arguments)


def _with_inside() -> Any:
    """A context with the dispatch key included. torch.func's transforms exclude it."""
    if torch._C._dispatch_tls_is_dispatch_key_excluded(_INSIDE):
        included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        return torch._C._ForceDispatchKeyGuard(included | _INSIDE_SET, excluded - _INSIDE_SET)
    return torch._C._IncludeDispatchKeyGuard(_INSIDE)


def _handed_on(
    first: Tensor,
    second: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    sizes: Sequence[int],
    groups: int,
) -> Tensor:
    """aten::convolution_overrideable below autograd."""
    spatial = len(stride)
    forward_mode = _thread.is_off or torch._C._is_fwd_grad_enabled()
    _thread.is_off = False
    with _exclude(_INSIDE_SET), forward_ad._set_fwd_grad_enabled(forward_mode):
        if transposed:
            return FORWARD[spatial](first, second, bias, stride, padding, sizes, groups, dilation)
        *sizes, channels_last, operation = sizes
        rest = (sizes, stride, padding, groups, dilation)
        if operation == _DATA:
            return DATA[spatial](first, second, *rest, bool(channels_last))
        return WEIGHTS[spatial](first, second, *rest, [True, False], bool(channels_last))[0]


# -------------------------------------------------------------------------------------------------------- forward mode


class _Thread(threading.local):
    def __init__(self) -> None:
        self.is_off = False  # forward mode, for the sake of the node alone


_thread = _Thread()


def _without_tangents(call: Callable[..., Tensor], *tensors: Tensor | None) -> Tensor:
    """The call with forward mode off, so that the node takes tensors with tangents: it keeps them, and a gradient that
    is computed of them has a tangent, too."""
    _thread.is_off = True
    try:
        with forward_ad._set_fwd_grad_enabled(False):
            return call(*tensors)
    finally:
        _thread.is_off = False


def _sum_of_products(call: Callable[[Tensor, Tensor], Tensor], first: Tensor, second: Tensor) -> Tensor | None:
    """The tangent of what is linear in both. Zeros that have no memory are passed over."""
    (a, of_a), (b, of_b) = _unpack_dual(first, 0), _unpack_dual(second, 0)
    parts = []
    if of_a is not None and not of_a._is_zerotensor():
        parts.append(call(of_a, b))
    if of_b is not None and not of_b._is_zerotensor():
        parts.append(call(a, of_b))
    return None if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _dual(primal: Tensor, tangent: Tensor | None) -> Tensor:
    return primal if tangent is None else _make_dual(primal, tangent.expand(primal.shape), level=0)


# -------------------------------------------------------------------------------------------------------- reverse mode


def gradients_of(
    cotangent: Tensor,
    first: Tensor,
    second: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    sizes: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """aten::convolution_backward_overrideable by tconv's operators, which have derivatives themselves."""
    spatial = len(stride)
    forward, data, weights = FORWARD[spatial], DATA[spatial], WEIGHTS[spatial]
    rest = (stride, padding, groups, dilation)
    answers: list[Tensor | None] = [None, None, None]
    if transposed:
        if wanted[0]:
            channels_last = lies_channels_last(first) or lies_channels_last(second)
            answers[0] = data(cotangent, second, first.shape[2:], *rest, channels_last)
        if wanted[1] or wanted[2]:
            both = list(wanted[1:])
            found = weights(
                first if wanted[1] else None, cotangent, second.shape[2:], *rest, both, lies_channels_last(second)
            )
            answers[1:] = [gradient if want else None for gradient, want in zip(found, both, strict=True)]
        return answers[0], answers[1], answers[2]
    if sizes[-1] == _DATA:  # of first, as an output's gradient, and second, the weight
        if wanted[0]:
            output_padding = left_over(first.shape, cotangent.shape, second.shape, stride, padding, dilation)
            answers[0] = forward(cotangent, second, None, stride, padding, output_padding, groups, dilation)
        if wanted[1]:
            lying = lies_channels_last(second)
            answers[1] = weights(cotangent, first, second.shape[2:], *rest, [True, False], lying)[0]
        return answers[0], answers[1], None
    if wanted[0]:  # of first, the input, and second, as an output's gradient
        answers[0] = data(second, cotangent, first.shape[2:], *rest, lies_channels_last(first))
    if wanted[1]:
        output_padding = left_over(second.shape, first.shape, cotangent.shape, stride, padding, dilation)
        answers[1] = forward(first, cotangent, None, stride, padding, output_padding, groups, dilation)
    return answers[0], answers[1], None


_aten = torch.library.Library("aten", "IMPL")
_aten.impl("convolution_overrideable", _handed_on, _INSIDE.name)
