"""conv_transpose1d, conv_transpose2d and conv_transpose3d: which way a call takes.

Eager code goes to PyTorch's own function with a dispatch key that puts tconv in place of what that computes:
arguments, autocast and autograd are PyTorch's C++, and the graph's node is PyTorch's (_eager.py). Under
torch.compile, torch.export, torch.func's transforms, modes, tracing and the profiler it is the operator
torch.ops.tconv.conv_transpose2d, or that of 1-D or 3-D layers (_operator.py). Modules whose weights are frozen
compute by themselves where no gradients are wanted. All three end in _compute.py, or in the shim, which does the same
for layers that it knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor

from .. import _posts
from ..post import PostOp
from . import _backward, _cat_operator, _post_operator, _shim_operators  # noqa: F401, whose kernels are registered
from ._compute import PYTORCHS, compute, find_layer
from ._eager import inside
from ._operator import OPERATORS, as_list
from ._packed import PackedWeights
from ._portable import is_portable
from ._post import followed_by, fused
from ._reasons import DEVICES, DTYPES, NEGATIVE_BIT, PLAIN, of_failed_lookup, passed_on, unusual

_is_compiling = torch.compiler.is_compiling
_strided = torch.strided
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._is_torch_function_mode_enabled
_autocast_enabled = torch._C._is_any_autocast_enabled
_tracing_state = torch._C._get_tracing_state
_transforms = torch._C._functorch.peek_interpreter_stack
_profiling = torch._C._autograd._profiler_enabled
_grad_enabled = torch.is_grad_enabled
_hooks_of_saved_tensors = torch._C._autograd._top_saved_tensors_default_hooks


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    post: Sequence[PostOp] | None = None,
) -> Tensor:
    """torch.nn.functional.conv_transpose2d, computed by tconv. What tconv does not take PyTorch computes, or refuses.

    Args:
        input (Tensor): the input, on the CPU or on CUDA, of float32, float64, float16 or bfloat16.
        weight (Tensor): the kernel.
        bias (Tensor, optional): what is added to each output channel.
        stride (int or sequence): of the input's pixels in the result. A sequence has one number for rows and one for
            columns, or one for both.
        padding (int or sequence): dilation * (kernel_size - 1) - padding zeros are added to both ends of the input.
        output_padding (int or sequence): rows and columns more at the result's lower and right end.
        groups (int): parts of the channels that are computed each by itself.
        dilation (int or sequence): distance of the kernel's taps.
        post (sequence, optional): what every output goes through before it is stored, as tconv.post makes it, with
            tensors. Where no gradients are wanted it is computed with the layer, else by PyTorch's functions after it.

    Shape:
        - input: (N, C, H, W) or (C, H, W)
        - weight: (C, out_channels / groups, kh, kw)
        - bias: (out_channels,)
        - result: (N, out_channels, H_out, W_out) or without the N, where
          H_out = (H - 1) * stride - 2 * padding + dilation * (kh - 1) + output_padding + 1, W_out likewise

    Returns:
        Tensor: as PyTorch's function returns it, in the same strides, with derivatives of every order and both modes.

    Raises:
        RuntimeError, TypeError and others: PyTorch's own, as its function raises them.
        tconv.EnvironmentVariableError: a TCONV_* variable has a value that it does not accept.
        tconv.InvalidArgumentError: post is no such list, or one of its tensors has another shape.

    Examples::

        >>> import torch, tconv.torch
        >>> input, weight = torch.ones(1, 3, 8, 8), torch.ones(3, 2, 4, 4, requires_grad=True)
        >>> result = tconv.torch.conv_transpose2d(input, weight, stride=2, padding=1)
        >>> result.shape
        torch.Size([1, 2, 16, 16])
        >>> result.sum().backward()
        >>> weight.grad.shape
        torch.Size([3, 2, 4, 4])
    """
    arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _call(2, arguments) if post is None else call_with_post(2, arguments, post)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    post: Sequence[PostOp] | None = None,
) -> Tensor:
    """torch.nn.functional.conv_transpose1d, computed by tconv. What tconv does not take PyTorch computes, or refuses.

    Args:
        input (Tensor): the input, on the CPU or on CUDA, of float32, float64, float16 or bfloat16.
        weight (Tensor): the kernel.
        bias (Tensor, optional): what is added to each output channel.
        stride (int or sequence): of the input's elements in the result. A sequence has one number.
        padding (int or sequence): dilation * (kernel_size - 1) - padding zeros are added to both ends of the input.
        output_padding (int or sequence): elements more at the result's right end.
        groups (int): parts of the channels that are computed each by itself.
        dilation (int or sequence): distance of the kernel's taps.
        post (sequence, optional): what every output goes through before it is stored, as tconv.post makes it, with
            tensors. Where no gradients are wanted it is computed with the layer, else by PyTorch's functions after it.

    Shape:
        - input: (N, C, L) or (C, L)
        - weight: (C, out_channels / groups, width)
        - bias: (out_channels,)
        - result: (N, out_channels, L_out) or without the N, where
          L_out = (L - 1) * stride - 2 * padding + dilation * (width - 1) + output_padding + 1

    Returns:
        Tensor: as PyTorch's function returns it, in the same strides, with derivatives of every order and both modes.

    Raises:
        RuntimeError, TypeError and others: PyTorch's own, as its function raises them.
        tconv.EnvironmentVariableError: a TCONV_* variable has a value that it does not accept.
        tconv.InvalidArgumentError: post is no such list, or one of its tensors has another shape.

    Examples::

        >>> import torch, tconv.torch
        >>> input, weight = torch.ones(1, 3, 8), torch.ones(3, 2, 4, requires_grad=True)
        >>> result = tconv.torch.conv_transpose1d(input, weight, stride=2, padding=1)
        >>> result.shape
        torch.Size([1, 2, 16])
        >>> result.sum().backward()
        >>> weight.grad.shape
        torch.Size([3, 2, 4])
    """
    arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _call(1, arguments) if post is None else call_with_post(1, arguments, post)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    post: Sequence[PostOp] | None = None,
) -> Tensor:
    """torch.nn.functional.conv_transpose3d, computed by tconv. What tconv does not take PyTorch computes, or refuses.

    Args:
        input (Tensor): the input, on the CPU or on CUDA, of float32, float64, float16 or bfloat16.
        weight (Tensor): the kernel.
        bias (Tensor, optional): what is added to each output channel.
        stride (int or sequence): of the input's voxels in the result. A sequence has one number for planes, one for
            rows and one for columns, or one for all.
        padding (int or sequence): dilation * (kernel_size - 1) - padding zeros are added to both ends of the input.
        output_padding (int or sequence): planes, rows and columns more at the result's back, lower and right end.
        groups (int): parts of the channels that are computed each by itself.
        dilation (int or sequence): distance of the kernel's taps.
        post (sequence, optional): what every output goes through before it is stored, as tconv.post makes it, with
            tensors. Where no gradients are wanted it is computed with the layer, else by PyTorch's functions after it.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W)
        - weight: (C, out_channels / groups, kd, kh, kw)
        - bias: (out_channels,)
        - result: (N, out_channels, D_out, H_out, W_out) or without the N, where
          D_out = (D - 1) * stride - 2 * padding + dilation * (kd - 1) + output_padding + 1, H_out and W_out likewise

    Returns:
        Tensor: as PyTorch's function returns it, in the same strides, with derivatives of every order and both modes.

    Raises:
        RuntimeError, TypeError and others: PyTorch's own, as its function raises them.
        tconv.EnvironmentVariableError: a TCONV_* variable has a value that it does not accept.
        tconv.InvalidArgumentError: post is no such list, or one of its tensors has another shape.

    Examples::

        >>> import torch, tconv.torch
        >>> input, weight = torch.ones(1, 3, 4, 8, 8), torch.ones(3, 2, 2, 4, 4, requires_grad=True)
        >>> result = tconv.torch.conv_transpose3d(input, weight, stride=2, padding=(0, 1, 1))
        >>> result.shape
        torch.Size([1, 2, 8, 16, 16])
        >>> result.sum().backward()
        >>> weight.grad.shape
        torch.Size([3, 2, 2, 4, 4])
    """
    arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _call(3, arguments) if post is None else call_with_post(3, arguments, post)


def _call(spatial: int, arguments: tuple[Any, ...], packed: PackedWeights | None = None) -> Tensor:
    if _is_compiling():
        return _through_the_dispatcher(spatial, *arguments)
    input, weight, bias = arguments[:3]
    if (
        not (type(input) in PLAIN and type(weight) in PLAIN and (bias is None or type(bias) in PLAIN))
        or weight.dim() != spatial + 2
        or _transforms() is not None
        or forward_ad._current_level >= 0
    ):
        return _unusual(spatial, arguments)
    if _dispatch_modes() or _function_modes() or _tracing_state() is not None or _profiling():
        return _through_the_dispatcher(spatial, *arguments)
    if input.is_neg() or weight.is_neg() or (bias is not None and bias.is_neg()):
        passed_on(NEGATIVE_BIT)
        return PYTORCHS[spatial](*arguments)
    if input.is_complex():  # PyTorch makes several convolutions of it
        return _passed_on(spatial, arguments)
    with_graph = _grad_enabled() and (
        input.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    if with_graph and (input.is_cpu or input.is_cuda):
        # Their exceptions, by which checkpointing ends, would not get through the shim.
        if _hooks_of_saved_tensors(False) is not None:
            return _through_the_dispatcher(spatial, *arguments)
        try:
            return inside(PYTORCHS[spatial], True, *arguments)
        except RuntimeError:
            if _may_have_node(arguments[:3]):
                raise
        return _passed_on(spatial, arguments)  # whose error is that of PyTorch's node
    if packed is not None and not with_graph and not _autocast_enabled():
        return _computed_with(packed, spatial, arguments)
    return inside(PYTORCHS[spatial], False, *arguments)


def _computed_with(packed: PackedWeights, spatial: int, arguments: tuple[Any, ...]) -> Tensor:
    input, weight, bias = arguments[:3]
    layer = find_layer(*arguments)
    answer = None if layer is None else compute(packed.layer(layer, weight), input, weight, bias)
    return PYTORCHS[spatial](*arguments) if answer is None else answer


def call_frozen(spatial: int, arguments: tuple[Any, ...], packed: PackedWeights) -> Tensor:
    """The function of a module whose weights are packed, where this call may use them."""
    return _call(spatial, arguments, packed)


def call_with_post(
    spatial: int, arguments: tuple[Any, ...], post: Sequence[PostOp], packed: PackedWeights | None = None
) -> Tensor:
    """The layer and its post-ops: one call of the library where no gradients are wanted and nothing looks on."""
    posts = _posts.as_list(post)
    if posts and not _is_compiling():
        _posts.check(posts)
        answer = try_fused(spatial, arguments, posts, packed)
        if answer is not None:
            return answer
    return followed_by(_call(spatial, arguments, packed), posts, spatial)


def try_fused(
    spatial: int, arguments: tuple[Any, ...], posts: Sequence[PostOp], packed: PackedWeights | None
) -> Tensor | None:
    """The layer and its post-ops in one call; None where they are to be computed one after the other."""
    tensors = [*arguments[:3], *_posts.named_operands(posts).values()]
    return None if is_watched(tensors, spatial) else fused(spatial, arguments, posts, packed)


def is_watched(tensors: Sequence[Any], spatial: int) -> bool:
    """Whether somebody is to see the layer by itself: autograd, a transform, a mode, tracing; or a tensor is of no
    plain kind."""
    return is_captured(tensors, spatial) or wants_gradient(tensors)


def wants_gradient(tensors: Sequence[Any]) -> bool:
    return _grad_enabled() and any(tensor.requires_grad for tensor in tensors if tensor is not None)


def is_captured(tensors: Sequence[Any], spatial: int) -> bool:
    """The same but for autograd's reverse mode. The weight is the second tensor."""
    if any(type(tensor) not in PLAIN and tensor is not None for tensor in tensors) or tensors[1].dim() != spatial + 2:
        return True
    if _transforms() is not None or forward_ad._current_level >= 0:
        return True
    return bool(_dispatch_modes() or _function_modes() or _tracing_state() is not None)


def _passed_on(spatial: int, arguments: tuple[Any, ...]) -> Tensor:
    passed_on(of_failed_lookup(*arguments))
    return PYTORCHS[spatial](*arguments)


def _may_have_node(tensors: tuple[Tensor | None, ...]) -> bool:
    """Whether the node of tconv's layers has kernels for such tensors; not so for quantized, nested and sparse ones."""
    for tensor in tensors:
        if tensor is not None and (tensor.dtype not in DTYPES or tensor.layout is not _strided or tensor.is_nested):
            return False
    return True


def _through_the_dispatcher(
    spatial: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> Tensor:
    """The operator takes lists of one number for each spatial axis. PyTorch's takes more than that, or says what is
    wrong, and is what programs have that are to run without tconv."""
    taken = isinstance(groups, int) and not is_portable()
    for tensor in (input, weight, bias):
        if tensor is not None:
            taken = (
                taken and tensor.layout is torch.strided and tensor.device.type in DEVICES and tensor.dtype in DTYPES
            )
    for value in (stride, padding, output_padding, dilation):
        taken = taken and (isinstance(value, int) or (isinstance(value, (tuple, list)) and len(value) in (1, spatial)))
    if not taken:
        arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation)
        return PYTORCHS[spatial](*arguments) if _is_compiling() or is_portable() else _passed_on(spatial, arguments)
    stride, padding, output_padding, dilation = (
        as_list(value, spatial) for value in (stride, padding, output_padding, dilation)
    )
    return OPERATORS[spatial](input, weight, bias, stride, padding, output_padding, groups, dilation)


def _unusual(spatial: int, arguments: tuple[Any, ...]) -> Tensor:
    """Fake tensors, torch.func's transforms and forward-mode derivatives are the operator's. Other subclasses have
    rules for PyTorch's operators, and what is no tensor is PyTorch's to refuse."""
    reason = unusual(spatial, *arguments[:3])
    if reason is None:
        return _through_the_dispatcher(spatial, *arguments)
    passed_on(reason)
    return PYTORCHS[spatial](*arguments)
