"""One step of a layer whose input comes in chunks, and the end of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._portable import is_portable
from ._raised import take_cause
from ._stream_operator import (
    NO_GRADIENTS,
    OPERATOR,
    PURE_OPERATOR,
    by_pytorch,
    call_directly,
    check,
    compute_flush,
    in_place_by_pytorch,
)

_is_compiling = torch.compiler.is_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_grad_enabled = torch.is_grad_enabled
_forward_ad = torch.autograd.forward_ad
_below_autograd = torch._C._AutoDispatchBelowAutograd
_changed = torch._C._increment_version


def conv_transpose1d_step(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor,
    *,
    stride: int,
    dilation: int = 1,
    groups: int = 1,
    reset: Tensor | None = None,
    active: Tensor | None = None,
    slots: Tensor | None = None,
) -> Tensor:
    """The next chunk of streams: of an input that comes in chunks, what torch.nn.functional.conv_transpose1d gives for
    the whole. state is changed in place.

    A step of L inputs gives the next stride * L outputs, which are final. The state holds the unfinished sums of the
    outputs that follow, without bias: state + bias is what the last inputs reach beyond what all steps gave. All
    tensors are on one device, on CUDA the work is ordered on its current stream, and a captured graph follows what is
    written to reset, active and slots. Plans are cached for lengths up to each power of two. Under torch.compile it is
    the operator torch.ops.tconv.conv_transpose1d_step. It has no derivatives; autocast does not matter.

    Args:
        x (Tensor): the chunk.
        weight (Tensor): the kernel, of x's dtype.
        bias (Tensor or None): what is added to each output channel once, when an output leaves; of x's dtype.
        state (Tensor): zeros where streams begin; of float32, of float64 where x is that, or of x's dtype, to which the
            sums are rounded then after each step. Dense. It may be copied, saved and put back.
        stride (int): of the input's elements in the result.
        dilation (int): distance of the kernel's taps.
        groups (int): parts of the channels that are computed each by itself.
        reset (Tensor or None): bool or uint8, true where a stream begins, whose state counts as zeros. None: nowhere.
        active (Tensor or None): bool or uint8, false where an image has no part: its state stays as it is, and what the
            result has for it means nothing. None: all have.
        slots (Tensor or None): int32, the slot of the state that each image has, no two alike. None: image n has slot
            n.

    Shape:
        - x: (N, C, L), N at most S
        - weight: (C, out_channels / groups, width)
        - bias: (out_channels,)
        - state: (S, out_channels, max(0, dilation * (width - 1) + 1 - stride))
        - reset, active, slots: (N,)
        - result: (N, out_channels, stride * L)

    Returns:
        the outputs, of x's dtype.

    Raises:
        RuntimeError: x, weight or bias wants gradients, which one call of conv_transpose1d for the whole input has.
        tconv.TconvError: names the argument at fault and the rule. The state is then as it was.

    Examples::

        >>> import torch, tconv.torch
        >>> weight, state = torch.tensor([[[1.0, 1.0, 10.0]]]), torch.zeros(1, 1, 1)
        >>> tconv.torch.conv_transpose1d_step(torch.tensor([[[1.0]]]), weight, None, state, stride=2)
        tensor([[[1., 1.]]])
        >>> tconv.torch.conv_transpose1d_step(torch.tensor([[[2.0, 3.0]]]), weight, None, state, stride=2)
        tensor([[[12.,  2., 23.,  3.]]])
        >>> state
        tensor([[[30.]]])
    """
    return step(x, weight, bias, state, stride, dilation, groups, slots, reset, active)


def conv_transpose1d_step_pure(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor,
    *,
    stride: int,
    dilation: int = 1,
    groups: int = 1,
    reset: Tensor | None = None,
    active: Tensor | None = None,
    slots: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """conv_transpose1d_step that leaves the state as it is and gives the next one: for programs whose state is an input
    and an output, as those that are exported, and for training on steps. It has derivatives, in x, weight, bias and
    state.

    Under tconv.torch.portable() and in an export to ONNX it is PyTorch's operators, of which a ConvTranspose, additions
    and slices remain.

    Args:
        x, weight, bias, state, stride, dilation, groups, reset, active, slots: as in conv_transpose1d_step.

    Shape:
        - result: (N, out_channels, stride * L), and that of state

    Returns:
        tuple: the outputs, of x's dtype, and the next state.

    Raises:
        tconv.TconvError: names the argument at fault and the rule.

    Examples::

        >>> import torch, tconv.torch
        >>> weight, state = torch.tensor([[[1.0, 1.0, 10.0]]]), torch.zeros(1, 1, 1)
        >>> y, state = tconv.torch.conv_transpose1d_step_pure(torch.ones(1, 1, 1), weight, None, state, stride=2)
        >>> y, state
        (tensor([[[1., 1.]]]), tensor([[[10.]]]))
    """
    arguments = (x, weight, bias, state, stride, dilation, groups, slots, reset, active)
    if (_is_compiling() or _dispatch_modes()) and is_portable():
        return by_pytorch(*arguments)
    if _is_compiling():
        return PURE_OPERATOR(*arguments)
    try:
        return PURE_OPERATOR(*arguments)
    except (RuntimeError, TypeError):
        check(x, weight, bias, state, (stride, dilation, groups), (slots, reset, active))
        raise


def step(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor,
    stride: int,
    dilation: int,
    groups: int,
    slots: Tensor | None,
    reset: Tensor | None,
    active: Tensor | None,
) -> Tensor:
    """conv_transpose1d_step, with its arguments in the order of the operator's."""
    if _is_compiling() or _dispatch_modes():
        return _captured(x, weight, bias, state, stride, dilation, groups, slots, reset, active)
    if _grad_enabled() or _forward_ad._current_level >= 0:
        _refuse_gradients(x, weight, bias)
    guard = _below_autograd()  # there is nothing to derive, and what looks on has keys below
    try:
        y = call_directly(x, weight, bias, state, stride, dilation, groups, slots, reset, active)
    except (RuntimeError, TypeError) as error:
        check(x, weight, bias, state, (stride, dilation, groups), (slots, reset, active))
        cause = take_cause(error)
        if cause is error:
            raise
        raise cause from None
    finally:
        del guard
    _changed((state,))
    return y


def _captured(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, *rest: Any) -> Tensor:
    """The step in a program, or under a mode that is to see it."""
    if _grad_enabled():
        for tensor in (x, weight, bias):
            if tensor is not None and tensor.requires_grad:
                raise RuntimeError(NO_GRADIENTS)
    return (in_place_by_pytorch if is_portable() else OPERATOR)(x, weight, bias, state, *rest)


def flush(weight: Tensor, bias: Tensor | None, state: Tensor, of_layer: tuple[int, int, int]) -> Tensor:
    """Ends the streams of all slots: what their last inputs reach beyond the outputs of all steps. The state is zeros
    then."""
    if not _is_compiling() and not _dispatch_modes():
        return compute_flush(weight, bias, state, of_layer) if state.shape[2] else weight.new_empty(state.shape)
    of_sums = torch.float64 if weight.dtype is torch.float64 else torch.float32
    y = state.to(of_sums)
    y = (y.clone() if bias is None else y + bias.to(of_sums).unsqueeze(-1)).to(weight.dtype)
    state.zero_()
    return y


def _refuse_gradients(*tensors: Tensor | None) -> None:
    for tensor in tensors:
        if isinstance(tensor, Tensor) and (
            (tensor.requires_grad and torch.is_grad_enabled())
            or (_forward_ad._current_level >= 0 and _forward_ad.unpack_dual(tensor).tangent is not None)
        ):
            raise RuntimeError(NO_GRADIENTS)
