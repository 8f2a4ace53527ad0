"""From tensors to a planned layer, and its answer: what every way of calling ends in."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _arrays, _layer, _posts
from .. import _library as lib
from .._errors import TconvError
from .._plan import Cache, Plan
from . import _reasons as reasons
from ._formats import memory_format
from ._post_list import PostList
from ._reasons import Reason
from ._settings import TF32, Settings, settings

# PyTorch's own functions, by the number of spatial axes.
PYTORCHS = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


class Layer(NamedTuple):
    """What is found out once for a layer and the way in which its tensors lie. A 1-D layer is a 2-D one of height 1, as
    PyTorch has it, whose layouts begin at four axes."""

    plan: Plan
    shape: tuple[int, ...]  # of the result, as are the strides
    strides: tuple[int, ...]
    workspace_elements: int  # of the input's type
    # of the result, which is PyTorch's choice, and of an input that has to be copied
    memory_format: torch.memory_format
    missing_axes: list[int]  # which the input lacks of N, C, H, W or N, C, D, H, W
    copy_input: bool
    copy_weight: bool
    copy_bias: bool
    device: int | None  # of CUDA
    settings: Settings  # that it was planned under
    copy_addend: bool = False  # of post-ops
    copy_result: bool = False  # into memory that the caller has, which lies in neither layout


# Where PyTorch's operator is to be called, the reason is in the cache in place of a layer.
layers: Cache[Layer | Reason] = Cache()


class _Counts:
    """Calls since the module was imported."""

    taken = 0
    fused = 0  # of these, with post-ops
    joined = 0  # of these, into a part of a larger tensor


counts = _Counts()
reasons.taken_by.append(lambda: counts.taken)
reasons.fused_by.append(lambda: counts.fused)
reasons.joined_by.append(lambda: counts.joined)

# stride, padding, output padding, dilation and groups as the bytes of a key, by the number of spatial axes; refuses
# what is no integer, which as a part of a tuple would pass for the integer that it equals.
_NUMBERS = {spatial: struct.Struct(f"{4 * spatial + 1}q") for spatial in PYTORCHS}
_PACK = {spatial: numbers.pack for spatial, numbers in _NUMBERS.items()}


def _each(value: Any, spatial: int) -> Sequence[Any]:
    """An argument of PyTorch's, one number for all axes or a sequence of that or of one for each, as one for each."""
    if type(value) is int:
        return (value,) * spatial
    if len(value) == spatial:
        return value
    (number,) = value
    return (number,) * spatial


def find_layer(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> Layer | None:
    """The layer of these arguments; None where PyTorch's operator is to be called, which is counted."""
    found = find(input, weight, bias, stride, padding, output_padding, groups, dilation)
    if isinstance(found, Reason):
        reasons.passed_on(found)
        return None
    return found


def key_of(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
    posts: PostList | None = None,
    addend: Tensor | None = None,
    into: Tensor | None = None,
) -> tuple[Any, ...] | Reason:
    """What find finds a layer by, the arguments and settings at its begin; or why there is none."""
    try:
        spatial = weight.dim() - 2
        if input.is_neg() or weight.is_neg() or (bias is not None and bias.is_neg()):
            return reasons.NEGATIVE_BIT
        return (
            _PACK[spatial](
                *_each(stride, spatial),
                *_each(padding, spatial),
                *_each(output_padding, spatial),
                *_each(dilation, spatial),
                groups,
            ),
            settings(input),
            input.shape,
            input.stride(),
            input.dtype,
            input.device,
            input.layout,
            weight.shape,
            weight.stride(),
            weight.dtype,
            weight.device,
            weight.layout,
            None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.device, bias.layout),
            None if posts is None else posts.key,
            None if addend is None else (addend.shape, addend.stride(), addend.dtype),
            None if into is None else (into.shape, into.stride()),
        )
    except (TypeError, ValueError, LookupError, RuntimeError, NotImplementedError, struct.error):
        return reasons.of_failed_lookup(input, weight, bias, stride, padding, output_padding, groups, dilation)


def find(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
    posts: PostList | None = None,
    addend: Tensor | None = None,
    into: Tensor | None = None,
) -> Layer | Reason:
    """The layer of these arguments from the cache, or why PyTorch's operator is to be called. The weight's axes say
    whether it is 1-D, 2-D or 3-D. Raises what is wrong with post-ops. addend is the tensor of that one which has the
    result's shape, into the memory that the caller has for the result, or a tensor that lies as it does."""
    made = key_of(input, weight, bias, stride, padding, output_padding, groups, dilation, posts, addend, into)
    if isinstance(made, Reason):
        return made
    layer = layers.get(made)
    if layer is None:
        layer = layers.make(made, lambda: _make_layer(input, weight, bias, made, posts, addend, into))
    return layer


def _make_layer(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    key: tuple[Any, ...],
    posts: PostList | None,
    addend: Tensor | None,
    into: Tensor | None,
) -> Layer | Reason:
    now: Settings = key[1]
    spatial = weight.dim() - 2
    arguments = _unpacked(key[0], spatial)
    reason = reasons.of_tensors(input, weight, bias, arguments[3])
    if reason is not None:
        return reason
    missing_axes = ([0] if input.dim() - spatial == 1 else []) + ([2] if spatial == 1 else [])
    for axis in missing_axes:
        input = input.unsqueeze(axis)
    if spatial == 1:
        weight = weight.unsqueeze(2)
    try:
        desc = make_desc(input.shape, weight.shape, arguments, input.dtype, now)
        shape = _layer.output_shape(desc, weight.dim())
        # PyTorch makes the input of a 1-D layer dense before it chooses.
        lying = choose_format(input.contiguous() if spatial == 1 else input, weight, bias, arguments)
        copy_result = False
        if into is not None:
            lying, copy_result = _describe_result(desc, shape, into, missing_axes, lying)
        desc.layout = lib.NCHW if lying == torch.contiguous_format else lib.NHWC
        as_it_lies = _layer.lies_in(desc.layout, input.shape, input.stride())
        if as_it_lies:
            _layer.give_strides(desc, "src", _layer.strides_that_count(input.shape, input.stride()))
        weight_layout = _layer.weight_layout(weight.shape, weight.stride())
        desc.weight_layout = lib.WEIGHT_IOHW if weight_layout is None else weight_layout
        copy_addend = False
        if posts is not None:
            _posts.fill(desc, posts.steps)
        if posts is not None and addend is not None:
            copy_addend = _describe_addend(desc, shape, f"post[{posts.addend}]", addend, missing_axes)
        plan = make_plan(desc, input.device, now)
        reason = reasons.of_speed("output", weight, plan.implementation, False)
        if reason is not None:
            return reason
    except (TconvError, TypeError) as error:
        if isinstance(error, TconvError) and (error.field.startswith("post") or error.field == "out"):
            raise
        return reasons.of_error(error)
    result = torch.empty(shape, device="meta", memory_format=lying)
    for axis in reversed(missing_axes):
        result = result.squeeze(axis)
    return Layer(
        plan,
        result.shape,
        result.stride(),
        -(-plan.workspace_size // input.element_size()),
        lying,
        missing_axes,
        not as_it_lies,
        weight_layout is None,
        bias is not None and not bias.is_contiguous(),
        input.device.index if input.is_cuda else None,
        now,
        copy_addend,
        copy_result,
    )


def _without_axes(missing: Sequence[int], values: Sequence[int]) -> tuple[int, ...]:
    return tuple(value for axis, value in enumerate(values) if axis not in missing)


def _describe_result(
    desc: lib.Desc, shape: Sequence[int], into: Tensor, missing: Sequence[int], wanted: torch.memory_format
) -> tuple[torch.memory_format, bool]:
    """Tells the library how the caller's memory for the result lies; the layout to compute in, and whether the result
    has to be copied there."""
    _arrays.check_shape("out", tuple(into.shape), _without_axes(missing, shape), "that of the result, ")
    for axis in missing:
        into = into.unsqueeze(axis)
    layouts = _layer.lies_as(into.shape, into.stride())
    formats = [memory_format(layout == lib.NHWC, into.dim()) for layout in layouts]
    if not formats:
        return wanted, True
    _layer.give_strides(desc, "dst", _layer.strides_that_count(into.shape, into.stride()))
    return wanted if wanted in formats else formats[0], False


def _unpacked(numbers: bytes, spatial: int) -> _layer.Arguments:
    """The arguments of a key, and of a 1-D layer those of the 2-D one."""
    *lists, groups = _NUMBERS[spatial].unpack(numbers)
    stride, padding, output_padding, dilation = (lists[i : i + spatial] for i in range(0, 4 * spatial, spatial))
    return of_images(stride, padding, output_padding, groups, dilation)


def of_images(
    stride: Sequence[int], padding: Sequence[int], output_padding: Sequence[int], groups: int, dilation: Sequence[int]
) -> _layer.Arguments:
    """PyTorch's arguments, one for each axis, as the library's; of a 1-D layer those of the 2-D one."""
    missing = 1 if len(stride) == 1 else 0
    return (
        (1,) * missing + tuple(stride),
        ((0, 0),) * missing + tuple((side, side) for side in padding),
        (0,) * missing + tuple(output_padding),
        groups,
        (1,) * missing + tuple(dilation),
    )


def _describe_addend(desc: lib.Desc, shape: Sequence[int], name: str, addend: Tensor, missing: Sequence[int]) -> bool:
    """Tells the library how the addend lies; whether it has to be copied."""
    expected = _without_axes(missing, shape)
    _arrays.check_shape(name, tuple(addend.shape), expected, "that of the result, ")
    for axis in missing:
        addend = addend.unsqueeze(axis)
    if not _layer.lies_in(desc.layout, addend.shape, addend.stride()):
        return True
    _layer.give_strides(desc, "addend", _layer.strides_that_count(addend.shape, addend.stride()))
    return False


def make_desc(
    shape: Sequence[int], weight_shape: Sequence[int], arguments: _layer.Arguments, dtype: torch.dtype, now: Settings
) -> lib.Desc:
    """The layer in a dtype, and in the precision that PyTorch has for where its tensors live."""
    math = lib.MATH_TF32 if now.flags & TF32 else lib.MATH_STRICT
    return _layer.make_desc(shape, weight_shape, arguments, reasons.DTYPES[dtype], math)


def make_plan(desc: lib.Desc, device: torch.device, now: Settings) -> Plan:
    return Plan(desc, options_for(device, now))


def options_for(device: torch.device, now: Settings) -> lib.Options:
    """For plans of tensors that live there."""
    options = lib.new_options()
    if device.type == "cuda":
        options.backend, options.location = lib.BACKEND_CUDA, lib.LOCATION_CUDA
        options.device = device.index
    else:
        options.backend, options.location = lib.BACKEND_CPU, lib.LOCATION_HOST
        options.threads = now.threads
    return options


def choose_format(
    input: Tensor, weight: Tensor, bias: Tensor | None, arguments: _layer.Arguments
) -> torch.memory_format:
    """What PyTorch chooses for the output of this layer: its operator depends on the layer, on flags and on the
    build."""
    stride, padding, output_padding, groups, dilation = arguments
    backend = torch._C._select_conv_backend(
        input,
        weight,
        bias=bias,
        bias_sizes=None,
        stride=stride,
        padding=[before for before, _ in padding],
        dilation=dilation,
        transposed=True,
        output_padding=output_padding,
        groups=groups,
    )
    return torch._C._conv_determine_backend_memory_format(input, weight, backend)


def compute(
    layer: Layer,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    post: Sequence[Tensor | None] = (),
    into: Tensor | None = None,
) -> Tensor | None:
    """tconv's answer; None where PyTorch's operator is to be called, because of an address that is no multiple of an
    element. post are the operands of the layer's post-ops, by step, into is memory for the answer, of a layer that was
    found with it. Everything that it works on is alive until it
    returns; on CUDA it is ordered on the current stream, to which PyTorch's allocator gives memory back."""
    plan = layer.plan
    src = input
    if layer.copy_input:
        for axis in layer.missing_axes:
            src = src.unsqueeze(axis)
        src = src.clone(memory_format=layer.memory_format)
    weights = weight.contiguous() if layer.copy_weight else weight
    biases = bias.contiguous() if bias is not None and layer.copy_bias else bias
    stored = into is not None and not layer.copy_result
    dst = into if into is not None and stored else src.new_empty_strided(layer.shape, layer.strides)
    workspace = src.new_empty(layer.workspace_elements) if layer.workspace_elements else None
    addresses = (
        src.data_ptr(),
        weights.data_ptr(),
        0 if biases is None else biases.data_ptr(),
        dst.data_ptr(),
    )
    scratch = 0 if workspace is None else workspace.data_ptr()
    stream = 0 if layer.device is None else torch._C._cuda_getCurrentRawStream(layer.device)
    if post:
        operands = [0 if tensor is None else tensor.data_ptr() for tensor in post]
        status = plan.execute_with(*addresses, operands, scratch, stream)
    else:
        status = plan.execute(*addresses, scratch, stream)
    if status == 0:
        counts.taken += 1
        counts.fused += bool(post)
        counts.joined += stored
        return dst if into is None or stored else into.copy_(dst)
    if status == lib.INVALID_ARGUMENT:
        reasons.passed_on(reasons.MISALIGNED)
        return None
    raise lib.last_error()
