"""The gradients of a layer, planned and computed: that of the input from those of the output and the weight, those of
the weight and the bias from those of the output and the input. What tconv does not have is PyTorch's
(aten::convolution_backward), each of the two by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _layer
from .. import _library as lib
from .._errors import TconvError
from .._plan import Cache, Plan
from . import _reasons as reasons
from ._compute import choose_format, make_desc, make_plan, of_images
from ._formats import memory_format
from ._reasons import Reason
from ._settings import DETERMINISTIC, Settings, settings_of_gradients

by_pytorch = torch.ops.aten.convolution_backward.default
Sizes = Sequence[int]


class Gradient(NamedTuple):
    """What is found out once for one of the two operations and the way in which its tensors lie."""

    plan: Plan
    shape: tuple[int, ...]  # of the input's gradient or the weight's, as are the strides
    strides: tuple[int, ...]
    workspace_elements: int
    memory_format: torch.memory_format  # of images that have to be copied
    # The strides in which the output's gradient, and the input or the weight, are copied; () where they are not.
    copy_diff_dst: tuple[int, ...]
    copy_other: tuple[int, ...]
    device: int | None  # of CUDA
    settings: Settings  # that it was planned under


# Where PyTorch's operator is to be called, the reason is in the cache in place of a gradient.
planned: Cache[Gradient | Reason] = Cache()


class _Counts:
    """Calls since the module was imported."""

    gradients = 0


counts = _Counts()
reasons.gradients_by.append(lambda: counts.gradients)


def _key(tensor: Tensor) -> Any:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def find_data(
    diff_dst: Tensor,
    weight: Tensor,
    in_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    groups: int,
    dilation: Sizes,
    channels_last: bool,
    settings: Settings | None = None,
) -> Gradient | Reason:
    """That of the input, from the cache, or why it is PyTorch's. Settings that are not given are read now."""
    now = settings or settings_of_gradients(diff_dst)
    sizes = (tuple(in_size), tuple(stride), tuple(padding), groups, tuple(dilation))
    key = ("data", sizes, channels_last, _key(diff_dst), _key(weight), now)
    return planned.get(key) or planned.make(
        key, lambda: _plan("input", _plan_data, now, diff_dst, weight, sizes, channels_last)
    )


def find_weights(
    input: Tensor,
    diff_dst: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    groups: int,
    dilation: Sizes,
    strides: Sizes,
    settings: Settings | None = None,
) -> Gradient | Reason:
    """That of the weight, which gets these strides, and that of the bias."""
    now = settings or settings_of_gradients(diff_dst)
    sizes = (tuple(kernel_size), tuple(stride), tuple(padding), groups, tuple(dilation))
    key = ("weights", sizes, strides, _key(diff_dst), _key(input), now)
    return planned.get(key) or planned.make(
        key, lambda: _plan("weight", _plan_weights, now, diff_dst, input, sizes, strides)
    )


def find_bias(diff_dst: Tensor, settings: Settings | None = None) -> Gradient | Reason:
    """That of the bias alone, which no other size of the layer concerns."""
    now = settings or settings_of_gradients(diff_dst)
    key = ("bias", _key(diff_dst), now)
    return planned.get(key) or planned.make(key, lambda: _plan("bias", _plan_bias, now, diff_dst))


# ----------------------------------------------------------------------------------------------------------- the plans


def _plan(
    name: str, make: Callable[..., Gradient], now: Settings, diff_dst: Tensor, *arguments: Any
) -> Gradient | Reason:
    """The gradient of this name, where tconv's is to be called."""
    others = [argument for argument in arguments if isinstance(argument, Tensor)]
    reason = reasons.of_gradients(diff_dst, *others)
    if reason is not None:
        return reason
    try:
        found = make(now, diff_dst, *arguments)
        deterministic = bool(now.flags & DETERMINISTIC)
        return reasons.of_speed(name, diff_dst, found.plan.implementation, deterministic) or found
    except (TconvError, TypeError, ValueError) as error:
        return reasons.of_error(error)


def _of_images(values: Sizes, value: int) -> tuple[int, ...]:
    """Of a shape or strides, with the height that a 1-D layer lacks: PyTorch's layouts begin at four axes."""
    return (*values[:2], value, values[2]) if len(values) == 3 else tuple(values)


def left_over(
    dst_shape: Sizes, shape: Sizes, weight_shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> list[int]:
    """The output_padding with which a layer's output has its size."""
    axes = zip(dst_shape[2:], shape[2:], weight_shape[2:], stride, padding, dilation, strict=True)
    return [out - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for out, n, k, s, p, d in axes]


def _desc(
    now: Settings, diff_dst: Tensor, shape: Sizes, weight_shape: Sizes, sizes: Any, op: int, layout: int
) -> lib.Desc:
    """The layer whose output's gradient this is."""
    _, stride, padding, groups, dilation = sizes
    left = left_over(diff_dst.shape, shape, weight_shape, stride, padding, dilation)
    arguments = of_images(stride, padding, left, groups, dilation)
    desc = make_desc(_of_images(shape, 1), _of_images(weight_shape, 1), arguments, diff_dst.dtype, now)
    desc.op, desc.layout = op, layout
    given = _of_images(diff_dst.shape, 1)
    expected = _layer.output_shape(desc, len(given))
    if given != expected:
        raise TypeError(f"diff_dst has the shape {given}: must be {expected}")
    return desc


def _lies_as(tensor: Tensor) -> list[int]:
    return _layer.lies_as(_of_images(tensor.shape, 1), _of_images(tensor.stride(), 0))


def _counted(tensor: Tensor) -> tuple[int, ...]:
    return _layer.strides_that_count(_of_images(tensor.shape, 1), _of_images(tensor.stride(), 0))


def strides_of(shape: Sizes, channels_last: bool) -> tuple[int, ...]:
    """Of a new tensor. channels_last is for four axes and five."""
    lying = memory_format(channels_last, len(shape))
    return torch.empty(tuple(shape), device="meta", memory_format=lying).stride()


def _strides_of_images(shape: Sizes, layout: int) -> tuple[int, ...]:
    """Of images that are copied to lie in a layout."""
    strides = strides_of(_of_images(shape, 1), layout == lib.NHWC)
    return (*strides[:2], strides[3]) if len(shape) == 3 else strides


def _gradient(
    now: Settings,
    desc: lib.Desc,
    diff_dst: Tensor,
    shape: Sizes,
    strides: Sizes,
    copy_diff_dst: tuple[int, ...],
    copy_other: tuple[int, ...],
) -> Gradient:
    plan = make_plan(desc, diff_dst.device, now)
    return Gradient(
        plan,
        tuple(shape),
        tuple(strides),
        -(-plan.workspace_size // diff_dst.element_size()),
        memory_format(desc.layout == lib.NHWC, max(4, len(shape))),
        copy_diff_dst,
        copy_other,
        diff_dst.device.index if diff_dst.is_cuda else None,
        now,
    )


def _plan_data(now: Settings, diff_dst: Tensor, weight: Tensor, sizes: Any, channels_last: bool) -> Gradient:
    shape = (diff_dst.shape[0], weight.shape[0], *sizes[0])
    layout = lib.NHWC if channels_last else lib.NCHW
    desc = _desc(now, diff_dst, shape, weight.shape, sizes, lib.OP_BACKWARD_DATA, layout)
    as_it_lies = layout in _lies_as(diff_dst)
    if as_it_lies:
        _layer.give_strides(desc, "dst", _counted(diff_dst))
    weight_layout = _layer.weight_layout(_of_images(weight.shape, 1), _of_images(weight.stride(), 0))
    desc.weight_layout = lib.WEIGHT_IOHW if weight_layout is None else weight_layout
    copies = (
        () if as_it_lies else _strides_of_images(diff_dst.shape, layout),
        () if weight_layout is not None else strides_of(weight.shape, False),
    )
    return _gradient(now, desc, diff_dst, shape, strides_of(shape, channels_last), *copies)


def _plan_weights(now: Settings, diff_dst: Tensor, input: Tensor, sizes: Any, strides: Sizes) -> Gradient:
    shape = (input.shape[1], diff_dst.shape[1] // max(sizes[3], 1), *sizes[0])
    layouts, dst_layouts = _lies_as(input), _lies_as(diff_dst)
    larger_first = sorted(((input, layouts), (diff_dst, dst_layouts)), key=lambda pair: -pair[0].numel())
    layout = _layer.choose_layout(*(lying for _, lying in larger_first))  # the smaller is copied where they differ
    desc = _desc(now, diff_dst, input.shape, shape, sizes, lib.OP_BACKWARD_WEIGHTS, layout)
    if layout in layouts:
        _layer.give_strides(desc, "src", _counted(input))
    if layout in dst_layouts:
        _layer.give_strides(desc, "dst", _counted(diff_dst))
    weight_layout = _layer.weight_layout(_of_images(shape, 1), _of_images(strides, 0))
    assert weight_layout is not None
    desc.weight_layout = weight_layout
    copies = (
        () if layout in dst_layouts else _strides_of_images(diff_dst.shape, layout),
        () if layout in layouts else _strides_of_images(input.shape, layout),
    )
    return _gradient(now, desc, diff_dst, shape, strides, *copies)


def _plan_bias(now: Settings, diff_dst: Tensor) -> Gradient:
    """Of a layer with one tap and each channel by itself, whose input is as large as its output."""
    spatial, channels = diff_dst.dim() - 2, diff_dst.shape[1]
    ones, zeros = (1,) * spatial, (0,) * spatial
    layouts = _lies_as(diff_dst)
    layout = _layer.choose_layout(layouts, [])
    weight_shape = (channels, 1, *ones)
    sizes = (ones, ones, zeros, channels, ones)
    desc = _desc(now, diff_dst, diff_dst.shape, weight_shape, sizes, lib.OP_BACKWARD_WEIGHTS, layout)
    if layouts:
        _layer.give_strides(desc, "dst", _counted(diff_dst))
    copy = () if layouts else _strides_of_images(diff_dst.shape, layout)
    return _gradient(now, desc, diff_dst, weight_shape, strides_of(weight_shape, False), copy, ())


# ------------------------------------------------------------------------------------------------------------ the calls


def _copy(tensor: Tensor, lying: torch.memory_format) -> Tensor:
    """Images as a plan reads them."""
    return (tensor.unsqueeze(2) if tensor.dim() == 3 else tensor).clone(memory_format=lying)


def _execute(gradient: Gradient, src: Tensor | None, weights: Tensor | None, bias: Tensor | None, dst: Tensor) -> bool:
    """Whether tconv computed it. PyTorch's operator is to be called for an address that is no multiple of an
    element."""
    workspace = dst.new_empty(gradient.workspace_elements) if gradient.workspace_elements else None
    addresses: Any = [0 if tensor is None else tensor.data_ptr() for tensor in (src, weights, bias, dst, workspace)]
    addresses.append(0 if gradient.device is None else torch._C._cuda_getCurrentRawStream(gradient.device))
    status = gradient.plan.execute(*addresses)
    if status == 0:
        counts.gradients += 1
        return True
    if status != lib.INVALID_ARGUMENT:
        raise lib.last_error()
    reasons.passed_on(reasons.MISALIGNED)
    return False


def compute_data(found: Gradient | Reason, diff_dst: Tensor, weight: Tensor) -> Tensor | None:
    """tconv's answer; None where PyTorch's operator is to be called."""
    if isinstance(found, Reason):
        reasons.passed_on(found)
        return None
    if found.copy_diff_dst:
        diff_dst = _copy(diff_dst, found.memory_format)
    if found.copy_other:
        weight = weight.contiguous()
    result = diff_dst.new_empty_strided(found.shape, found.strides)
    return result if _execute(found, result, weight, None, diff_dst) else None


def compute_weights(
    found: Gradient | Reason, input: Tensor | None, diff_dst: Tensor, with_bias: bool
) -> tuple[Tensor | None, Tensor | None] | None:
    """tconv's answer, that of the weight where there is an input; None where PyTorch's operator is to be called."""
    if isinstance(found, Reason):
        reasons.passed_on(found)
        return None
    channels = diff_dst.shape[1]
    if found.copy_diff_dst:
        diff_dst = _copy(diff_dst, found.memory_format)
    if found.copy_other and input is not None:
        input = _copy(input, found.memory_format)
    weights = None if input is None else diff_dst.new_empty_strided(found.shape, found.strides)
    bias = diff_dst.new_empty(channels) if with_bias else None
    return (weights, bias) if _execute(found, input, weights, bias, diff_dst) else None


# ------------------------------------------------------------------------------------------------ those of a whole call


class Wanted(NamedTuple):
    """What is found out once for the gradients of a call. The second is that of the weight, the bias or both."""

    data: Gradient | Reason | None
    weights: Gradient | Reason | None
    copy_as: torch.memory_format | None  # of an output's gradient that lies in no way in which it could be read
    copy: tuple[int, ...]  # the strides of that copy
    settings: Settings  # that they were planned under


calls: Cache[Wanted] = Cache()


def find(
    diff_dst: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sizes,
    padding: Sizes,
    groups: int,
    dilation: Sizes,
    wanted: Sequence[bool],
) -> Wanted:
    """The gradients of a call that are wanted, of input, weight and bias, from the cache."""
    sizes = (tuple(stride), tuple(padding), groups, tuple(dilation))
    now = settings_of_gradients(diff_dst)
    key = (sizes, tuple(wanted), _key(diff_dst), _key(input), _key(weight), now)
    return calls.get(key) or calls.make(key, lambda: _find(diff_dst, input, weight, sizes, wanted, now))


def _find(diff_dst: Tensor, input: Tensor, weight: Tensor, sizes: Any, wanted: Sequence[bool], now: Settings) -> Wanted:
    """With PyTorch's choice of the strides for the input's, and the weight's own, where they are dense."""
    stride, padding, groups, dilation = sizes
    channels_last = False
    if input.dim() >= 4:
        left = left_over(diff_dst.shape, input.shape, weight.shape, stride, padding, dilation)
        arguments = of_images(stride, padding, left, groups, dilation)
        channels_last = choose_format(input, weight, None, arguments) != torch.contiguous_format
    copy_as = None if _lies_as(diff_dst) else memory_format(channels_last, input.dim())
    if copy_as is not None:
        diff_dst = diff_dst.contiguous(memory_format=copy_as)
    data = weights = None
    if wanted[0]:
        data = find_data(diff_dst, weight, input.shape[2:], stride, padding, groups, dilation, channels_last, now)
    if wanted[1]:
        strides = weight.stride()
        if _layer.weight_layout(_of_images(weight.shape, 1), _of_images(strides, 0)) is None:
            strides = strides_of(weight.shape, False)
        weights = find_weights(input, diff_dst, weight.shape[2:], stride, padding, groups, dilation, strides, now)
    elif wanted[2]:
        weights = find_bias(diff_dst, now)
    return Wanted(data, weights, copy_as, () if copy_as is None else diff_dst.stride(), now)


def gradients(
    diff_dst: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Those of a call's input, weight and bias that are wanted."""
    found = find(diff_dst, input, weight, stride, padding, groups, dilation, wanted)
    if found.copy_as is not None:
        diff_dst = diff_dst.contiguous(memory_format=found.copy_as)
    results: list[Tensor | None] = [None, None, None]
    left = list(wanted)
    if found.data is not None:
        results[0] = compute_data(found.data, diff_dst, weight)
        left[0] = results[0] is None
    if found.weights is not None:
        answer = compute_weights(found.weights, input if wanted[1] else None, diff_dst, wanted[2])
        if answer is not None:
            results[1:] = answer
            left[1:] = False, False
    if any(left):
        bias_sizes = [diff_dst.shape[1]] if left[2] else None
        rest = by_pytorch(
            diff_dst, input, weight, bias_sizes, stride, padding, dilation, True, output_padding, groups, left
        )
        results = [theirs if missing else ours for ours, theirs, missing in zip(results, rest, left, strict=True)]
    return results[0], results[1], results[2]
