"""One step of a layer whose input comes in chunks, and the end of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _arguments, _arrays, _errors, _layer
from .. import _library as lib
from .._plan import Cache
from .._stream_plan import StreamPlan
from ._compute import make_desc, options_for
from ._reasons import DEVICES, DTYPES, PLAIN
from ._settings import Settings, settings


class _Step(NamedTuple):
    """What is found out once for the shapes, dtypes and places of a step's tensors."""

    plan: StreamPlan
    shape: tuple[int, ...]  # of the result
    batch: int
    length: int
    slots: int
    workspace_elements: int  # of the input's type
    device: int  # of CUDA; -1 for the host
    copies: bool  # whether x or weight has to be made dense


# Plans by layer and by the longest chunk, a power of two; steps by everything that is checked of their tensors.
_plans: Cache[StreamPlan] = Cache()
_steps: Cache[_Step] = Cache()

# slots, reset and active
Rows = tuple[Tensor | None, Tensor | None, Tensor | None]
_ROWS = ("slots", "reset", "active")
_NO_GRADIENTS = (
    "a step of a stream has no gradients: call it under torch.no_grad() or torch.inference_mode(), and train by one "
    "call of tconv.torch.conv_transpose1d, or of the module outside of streaming(), for the whole input"
)
NO_ROWS: Rows = (None, None, None)
_NO_ROWS = (0, 0, 0)
_forward_ad = torch.autograd.forward_ad


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
    written to reset, active and slots. Plans are cached for lengths up to each power of two. It runs eagerly, and has
    no derivatives; autocast does not matter.

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
    return step(x, weight, bias, state, (stride, dilation, groups), (slots, reset, active))


def step(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, of_layer: tuple[int, int, int], rows: Rows
) -> Tensor:
    """conv_transpose1d_step, of_layer being stride, dilation and groups."""
    if torch.compiler.is_compiling():  # addresses have no place in a graph, whose tensors come and go
        raise RuntimeError("a step of a stream cannot be compiled: call it through torch.compiler.disable")
    if torch.is_grad_enabled() or _forward_ad._current_level >= 0:
        _refuse_gradients(x, weight, bias)
    found = _find(x, weight, bias, state, of_layer, rows)
    if found.copies:
        x, weight = x.contiguous(), weight.contiguous()
    y = x.new_empty(found.shape)
    workspace = x.new_empty(found.workspace_elements) if found.workspace_elements else None
    tensors = (x.data_ptr(), weight.data_ptr(), 0 if bias is None else bias.data_ptr(), y.data_ptr(), state.data_ptr())
    if found.plan.step(
        tensors,
        found.batch,
        found.length,
        found.slots,
        _NO_ROWS if rows == NO_ROWS else _addresses(rows),
        0 if workspace is None else workspace.data_ptr(),
        0 if found.device < 0 else torch._C._cuda_getCurrentRawStream(found.device),
    ):
        raise lib.last_error()
    return y


def flush(weight: Tensor, bias: Tensor | None, state: Tensor, of_layer: tuple[int, int, int]) -> Tensor:
    """Ends the streams of all slots: what their last inputs reach beyond the outputs of all steps. The state is zeros
    then."""
    if torch.compiler.is_compiling():
        raise RuntimeError("the flush of a stream cannot be compiled: call it through torch.compiler.disable")
    batch, _, tail = state.shape
    if not tail:
        return weight.new_empty(state.shape)
    found = _find(weight.new_empty((batch, weight.shape[0], 1)), weight, bias, state, of_layer, NO_ROWS)
    y = weight.new_empty((*found.shape[:2], tail))
    workspace = y.new_empty(found.workspace_elements) if found.workspace_elements else None
    if found.plan.flush(
        (0, 0, 0 if bias is None else bias.data_ptr(), y.data_ptr(), state.data_ptr()),
        batch,
        found.slots,
        _NO_ROWS,
        0 if workspace is None else workspace.data_ptr(),
        0 if found.device < 0 else torch._C._cuda_getCurrentRawStream(found.device),
    ):
        raise lib.last_error()
    return y


def tail_of(width: int, stride: int, dilation: int) -> int:
    """Outputs that are unfinished after a step."""
    return max(0, dilation * (width - 1) + 1 - stride)


def _addresses(rows: Rows) -> tuple[int, int, int]:
    slots, reset, active = rows
    return (
        0 if slots is None else slots.data_ptr(),
        0 if reset is None else reset.data_ptr(),
        0 if active is None else active.data_ptr(),
    )


def _refuse_gradients(*tensors: Tensor | None) -> None:
    for tensor in tensors:
        if isinstance(tensor, Tensor) and (
            (tensor.requires_grad and torch.is_grad_enabled())
            or (_forward_ad._current_level >= 0 and _forward_ad.unpack_dual(tensor).tangent is not None)
        ):
            raise RuntimeError(_NO_GRADIENTS)


def _described(tensor: Tensor | None) -> Any:
    """What matters of a tensor, but for its values."""
    if tensor is None:
        return None
    return tensor.shape, tensor.dtype, tensor.device, tensor.is_contiguous(), type(tensor), tensor.is_neg()


def _find(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, of_layer: tuple[int, int, int], rows: Rows
) -> _Step:
    """What the step of such tensors is, from the cache."""
    try:
        now = settings(x)
        # All of _described of the first two, which is too slow as a call where a step takes microseconds.
        key = (
            (x.shape, x.dtype, x.device, x.is_contiguous(), type(x), x.is_neg()),
            (weight.shape, weight.dtype, weight.device, weight.is_contiguous(), type(weight), weight.is_neg()),
            _described(bias),
            _described(state),
            of_layer,
            now,
            rows if rows == NO_ROWS else tuple(map(_described, rows)),
        )
        found = _steps.get(key)
    except (AttributeError, TypeError, RuntimeError, NotImplementedError):
        _check_tensors(x, weight, bias, state, rows)
        _numbers(of_layer)
        raise
    return found or _steps.make(key, lambda: _prepare(x, weight, bias, state, _numbers(of_layer), rows, now))


def _numbers(of_layer: tuple[int, int, int]) -> tuple[int, int, int]:
    stride, dilation, groups = of_layer
    return (
        _arguments.integer("stride", stride),
        _arguments.integer("dilation", dilation),
        _arguments.integer("groups", groups),
    )


def _prepare(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor,
    of_layer: tuple[int, int, int],
    rows: Rows,
    now: Settings,
) -> _Step:
    _check_tensors(x, weight, bias, state, rows)
    for name, tensor in (("x", x), ("weight", weight), ("state", state)):
        if tensor.dim() != 3:
            raise _errors.invalid(name, f"{name} has {tensor.dim()} axes: must have 3")
    batch, _, length = x.shape
    if not batch or not length:
        raise _errors.invalid("x", f"x.shape = {tuple(x.shape)}: must have an image and an input at least")
    stride, dilation, groups = of_layer
    slots, width = state.shape[0], weight.shape[2]
    out_channels = weight.shape[1] * groups
    plan = _plan_for(x, weight, state, of_layer, now)
    expected = (out_channels, tail_of(width, stride, dilation))
    if tuple(state.shape[1:]) != expected or (slots < batch and rows[0] is None) or slots < 1:
        raise _errors.invalid(
            "state", f"state.shape = {tuple(state.shape)}: must be {(batch, *expected)}, or of more slots"
        )
    if bias is not None:
        _arrays.check_bias(tuple(bias.shape), out_channels)
    for name, dense in (("state", state), ("bias", bias), *zip(_ROWS, rows, strict=True)):
        if dense is not None and not dense.is_contiguous():
            raise _errors.invalid(name, f"{name}.stride() = {dense.stride()}: must be dense")
    for name, row in zip(_ROWS, rows, strict=True):
        if row is not None:
            _arrays.check_shape(name, tuple(row.shape), (batch,), "the images of x, ")
    return _Step(
        plan,
        (batch, out_channels, stride * length),
        batch,
        length,
        slots,
        -(-plan.workspace_size // x.element_size()),
        x.get_device(),
        not (x.is_contiguous() and weight.is_contiguous()),
    )


def _plan_for(x: Tensor, weight: Tensor, state: Tensor, of_layer: tuple[int, int, int], now: Settings) -> StreamPlan:
    """The plan for chunks like x. Batches and lengths up to each power of two have one."""
    stride, dilation, groups = of_layer
    batch, length = (1 << (extent - 1).bit_length() for extent in (x.shape[0], x.shape[2]))
    key = (now, x.device, x.dtype, x.shape[1], weight.shape, state.dtype, batch, length, of_layer)
    plan = _plans.get(key)
    if plan is not None:
        return plan
    width = weight.shape[2]
    arguments: _layer.Arguments = ((1, stride), ((0, 0), (0, 0)), (0, 0), groups, (1, dilation))
    whole = (batch, x.shape[1], 1, length)
    desc = make_desc(whole, (weight.shape[0], weight.shape[1], 1, width), arguments, x.dtype, now)
    desc.stream_axis = lib.STREAM_COLUMNS
    of_sums = torch.float64 if x.dtype is torch.float64 else torch.float32
    if state.dtype is x.dtype and state.dtype is not of_sums:
        desc.carry_dtype = DTYPES[state.dtype]
    elif state.dtype is not of_sums:
        also = "" if x.dtype is of_sums else f" or {x.dtype}"
        raise _errors.wrong_dtype("state", f"state is {state.dtype}: must be {of_sums}{also}")
    return _plans.make(key, lambda: StreamPlan(desc, options_for(x.device, now)))


def _check_tensors(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, rows: Rows) -> None:
    """That all are tensors with memory, of the right dtypes and on one device."""
    named = {"x": x, "weight": weight, "bias": bias, "state": state, **dict(zip(_ROWS, rows, strict=True))}
    optional = ("bias", *_ROWS)
    for name, tensor in named.items():
        if tensor is None and name in optional:
            continue
        if type(tensor) not in PLAIN or tensor is None:
            raise _errors.wrong_dtype(name, f"{name} is a {type(tensor).__name__}: must be a plain tensor")
        if tensor.layout is not torch.strided or tensor.device.type not in DEVICES or tensor.is_neg():
            where = f"{tensor.layout} on {tensor.device}{', negated' if tensor.is_neg() else ''}"
            raise _errors.invalid(name, f"{name} is {where}: must be strided, on the CPU or on CUDA, and not negated")
        if tensor.device != x.device:
            raise _errors.invalid(name, f"{name} is on {tensor.device}: must be where x is, on {x.device}")
        if name == "slots":
            allowed: tuple[torch.dtype, ...] = (torch.int32,)
        elif name in _ROWS:
            allowed = (torch.bool, torch.uint8)
        else:
            allowed = (x.dtype,) if name in ("weight", "bias") else tuple(DTYPES)
        if tensor.dtype not in allowed:
            choices = " or ".join(str(dtype) for dtype in allowed)
            raise _errors.wrong_dtype(name, f"{name} is {tensor.dtype}: must be {choices}")
