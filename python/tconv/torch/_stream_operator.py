"""The operators torch.ops.tconv.conv_transpose1d_step and conv_transpose1d_step_pure: the next chunk of streams, with
the state changed in place, and with the next state as a second result. The first one's kernels are the shim's where the
shim knows the step (native/torch_stream.c), and Python's, here, for all else."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _arguments, _arrays, _errors, _layer
from .. import _library as lib
from .._plan import Cache
from .._stream_plan import StreamPlan
from . import _native
from ._compute import counts, make_desc, options_for
from ._derivatives import have_derivatives
from ._operator import OPERATORS, _flops
from ._portable import is_onnx_export
from ._raised import raising
from ._reasons import DEVICES, DTYPES, PLAIN
from ._settings import Settings, settings
from ._tools import count_flops


class Step(NamedTuple):
    """What is found out once for the shapes, dtypes and places of a step's tensors."""

    plan: StreamPlan
    shape: tuple[int, ...]  # of the result, as are the strides
    strides: tuple[int, ...]
    batch: int
    length: int
    slots: int
    workspace_elements: int  # of the input's type
    device: int  # of CUDA; -1 for the host
    copies: bool  # whether x or weight has to be made dense
    settings: Settings  # that it was planned under


# Plans by layer and by the longest chunk, a power of two; steps by everything that is checked of their tensors.
plans: Cache[StreamPlan] = Cache()
steps: Cache[Step] = Cache()

# slots, reset and active
Rows = tuple[Tensor | None, Tensor | None, Tensor | None]
_ROWS = ("slots", "reset", "active")
NO_GRADIENTS = (
    "a step of a stream has no gradients: call it under torch.no_grad() or torch.inference_mode(), or train by one "
    "call of tconv.torch.conv_transpose1d, or of the module outside of streaming(), for the whole input, or by "
    "tconv.torch.conv_transpose1d_step_pure"
)
NO_ROWS: Rows = (None, None, None)
_NO_ADDRESSES = (0, 0, 0)
_below_autograd = torch._C._after_autograd_keyset
_dispatch_modes = torch._C._len_torch_dispatch_stack


def tail_of(width: int, stride: int, dilation: int) -> int:
    """Outputs that are unfinished after a step."""
    return max(0, dilation * (width - 1) + 1 - stride)


# ------------------------------------------------------------------------------------------------------------ the step


def compute_step(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor,
    stride: int,
    dilation: int = 1,
    groups: int = 1,
    slots: Tensor | None = None,
    reset: Tensor | None = None,
    active: Tensor | None = None,
) -> Tensor:
    """The step by the library, remembered by the shim where it takes the tensors as they lie."""
    rows = (slots, reset, active)
    found = find(x, weight, bias, state, (stride, dilation, groups), rows)
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
        _NO_ADDRESSES if rows == NO_ROWS else _addresses(rows),
        0 if workspace is None else workspace.data_ptr(),
        0 if found.device < 0 else torch._C._cuda_getCurrentRawStream(found.device),
    ):
        raise lib.last_error()
    counts.taken += 1
    if not found.copies:
        _native.table.put_step(found)
    return y


def compute_flush(weight: Tensor, bias: Tensor | None, state: Tensor, of_layer: tuple[int, int, int]) -> Tensor:
    """Ends the streams of all slots, which have a tail, and makes the state zeros."""
    batch, _, tail = state.shape
    found = find(weight.new_empty((batch, weight.shape[0], 1)), weight, bias, state, of_layer, NO_ROWS)
    y = weight.new_empty((*found.shape[:2], tail))
    workspace = y.new_empty(found.workspace_elements) if found.workspace_elements else None
    if found.plan.flush(
        (0, 0, 0 if bias is None else bias.data_ptr(), y.data_ptr(), state.data_ptr()),
        batch,
        found.slots,
        _NO_ADDRESSES,
        0 if workspace is None else workspace.data_ptr(),
        0 if found.device < 0 else torch._C._cuda_getCurrentRawStream(found.device),
    ):
        raise lib.last_error()
    return y


def _addresses(rows: Rows) -> tuple[int, int, int]:
    slots, reset, active = rows
    return (
        0 if slots is None else slots.data_ptr(),
        0 if reset is None else reset.data_ptr(),
        0 if active is None else active.data_ptr(),
    )


def _described(tensor: Tensor | None) -> Any:
    """What matters of a tensor, but for its values."""
    if tensor is None:
        return None
    return tensor.shape, tensor.dtype, tensor.device, tensor.is_contiguous(), type(tensor), tensor.is_neg()


def find(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, of_layer: tuple[int, int, int], rows: Rows
) -> Step:
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
        found = steps.get(key)
    except (AttributeError, TypeError, RuntimeError, NotImplementedError):
        check(x, weight, bias, state, of_layer, rows)
        raise
    return found or steps.make(key, lambda: _prepare(x, weight, bias, state, _numbers(of_layer), rows, now))


def check(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, of_layer: tuple[int, int, int], rows: Rows
) -> None:
    """Says what of these arguments is of a wrong kind, if one is."""
    _check_tensors(x, weight, bias, state, rows)
    _numbers(of_layer)


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
) -> Step:
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
    return Step(
        plan,
        (batch, out_channels, stride * length),
        (out_channels * stride * length, stride * length, 1),
        batch,
        length,
        slots,
        -(-plan.workspace_size // x.element_size()),
        x.get_device(),
        not (x.is_contiguous() and weight.is_contiguous()),
        now,
    )


def _plan_for(x: Tensor, weight: Tensor, state: Tensor, of_layer: tuple[int, int, int], now: Settings) -> StreamPlan:
    """The plan for chunks like x. Batches and lengths up to each power of two have one."""
    stride, dilation, groups = of_layer
    batch, length = (1 << (extent - 1).bit_length() for extent in (x.shape[0], x.shape[2]))
    key = (now, x.device, x.dtype, x.shape[1], weight.shape, state.dtype, batch, length, of_layer)
    plan = plans.get(key)
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
    return plans.make(key, lambda: StreamPlan(desc, options_for(x.device, now)))


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


# ----------------------------------------------------------------------------------------------------------- PyTorch's


def by_pytorch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor,
    stride: int,
    dilation: int = 1,
    groups: int = 1,
    slots: Tensor | None = None,
    reset: Tensor | None = None,
    active: Tensor | None = None,
    *,
    layer: Any = torch.conv_transpose1d,
) -> tuple[Tensor, Tensor]:
    """The outputs and the next state by PyTorch's operators: what every other program can run, and what has
    gradients."""
    of_sums = torch.float64 if x.dtype is torch.float64 else torch.float32
    span, (batch, _, length) = dilation * (weight.shape[2] - 1) + 1, x.shape
    tail, done = max(0, span - stride), stride * length
    more = max(0, stride - span)
    sums = layer(x.to(of_sums), weight.to(of_sums), None, [stride], [0], [more], groups, [dilation])
    if slots is not None:
        held = state.index_select(0, slots)
    else:
        held = state if state.shape[0] == batch else state[:batch]
    begin = held.to(of_sums)
    if reset is not None:
        begin = begin.masked_fill(reset.view(-1, 1, 1).to(torch.bool), 0)
    if tail:
        sums = torch.cat([sums[..., :tail] + begin, sums[..., tail:]], -1)
    y, after = sums[..., :done], sums[..., done:].to(state.dtype)
    if bias is not None:
        y = y + bias.to(of_sums).unsqueeze(-1)
    if active is not None:
        after = torch.where(active.view(-1, 1, 1).to(torch.bool), after, held)
    if slots is not None:
        after = state.index_copy(0, slots.to(torch.int64), after)
    elif held is not state:
        after = torch.cat([after, state[batch:]])
    return y.to(x.dtype), after


def in_place_by_pytorch(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, *rest: Any) -> Tensor:
    y, after = by_pytorch(x, weight, bias, state, *rest)
    state.copy_(after)
    return y


# ------------------------------------------------------------------------------------------------------- the operators

# Kept as long as the module is: the registrations go when it does.
_library = torch.library.Library("tconv", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
_SCHEMA = (
    "(Tensor x, Tensor weight, Tensor? bias, Tensor{} state, SymInt stride, SymInt dilation=1, SymInt groups=1, "
    "Tensor? slots=None, Tensor? reset=None, Tensor? active=None) -> {}"
)
_NAME, _PURE_NAME = "conv_transpose1d_step", "conv_transpose1d_step_pure"


def _fake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: Tensor,
    stride: int,
    dilation: int = 1,
    groups: int = 1,
    *rows: Tensor | None,
) -> Tensor:
    for name, tensor in (("weight", weight), ("bias", bias), ("state", state)):
        if tensor is not None and tensor.device != x.device:
            raise _errors.invalid(name, f"{name} is on {tensor.device}: must be where x is, on {x.device}")
    for name, tensor in (("x", x), ("weight", weight), ("state", state)):
        if tensor.dim() != 3:
            raise _errors.invalid(name, f"{name} has {tensor.dim()} axes: must have 3")
    return x.new_empty((x.shape[0], weight.shape[1] * groups, x.shape[2] * stride))


def _pure(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    state = state.clone(memory_format=torch.contiguous_format)
    return OPERATOR(x, weight, bias, state, *rest), state


def _fake_pure(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _fake(x, weight, bias, state, *rest), state.new_empty(state.shape)


def _autograd_kernel(keys: Any, *arguments: Any) -> Tensor:
    if _dispatch_modes() and is_onnx_export():
        return in_place_by_pytorch(*arguments)
    if have_derivatives(arguments[:3]):
        raise RuntimeError(NO_GRADIENTS)
    return OPERATOR.redispatch(keys & _below_autograd, *arguments)


def _pure_autograd_kernel(keys: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
    if _dispatch_modes() and is_onnx_export():
        return by_pytorch(*arguments)
    if have_derivatives(arguments[:4]):
        return by_pytorch(*arguments, layer=OPERATORS[1])
    return PURE_OPERATOR.redispatch(keys & _below_autograd, *arguments)


_library.define(_NAME + _SCHEMA.format("(a!)", "Tensor"), tags=_TAGS)
_library.define(_PURE_NAME + _SCHEMA.format("", "(Tensor, Tensor)"), tags=_TAGS)
# Without raising's frames, which a step of a few microseconds would notice.
call_directly = torch.ops.tconv.conv_transpose1d_step.default._op
OPERATOR = raising(torch.ops.tconv.conv_transpose1d_step.default)
PURE_OPERATOR = raising(torch.ops.tconv.conv_transpose1d_step_pure.default)
# The shim's list of kernels has entries like those of _operator.py.
kernels = [(_NAME, _SCHEMA.format("(a!)", "Tensor"), compute_step, _autograd_kernel)]
_library.impl(_NAME, _autograd_kernel, "Autograd", with_keyset=True)
_library.impl(_PURE_NAME, _pure, "CompositeExplicitAutograd")
_library.impl(_PURE_NAME, _pure_autograd_kernel, "Autograd", with_keyset=True)
torch.library.register_fake(f"tconv::{_NAME}", _fake, lib=_library)
torch.library.register_fake(f"tconv::{_PURE_NAME}", _fake_pure, lib=_library)
count_flops(torch.ops.tconv.conv_transpose1d_step, _flops)
