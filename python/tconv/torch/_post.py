"""Post-ops of PyTorch's tensors: computed with the layer, or by PyTorch's functions after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _arrays, _errors, _posts
from .. import _library as lib
from ..post import PostOp
from ._compute import Layer, compute, find
from ._packed import PackedWeights
from ._post_list import PostList, listed
from ._reasons import DEVICES, DTYPES, Reason, gains_with_layer

# log(1 + exp(y)) is y, rounded to float64, from here on.
_SOFTPLUS_THRESHOLD = 40.0
# What autocast casts.
_CAST = frozenset({torch.float32, torch.float16, torch.bfloat16})


def of_sums(dtype: torch.dtype) -> torch.dtype:
    """The type in which a layer of this dtype is summed; complex and others, which are PyTorch's, have their own."""
    if dtype is torch.float64 or dtype not in DTYPES:
        return dtype
    return torch.float32


# --------------------------------------------------------------------------------------------------- after the layer


def followed_by(result: Tensor, posts: Sequence[PostOp], spatial: int) -> Tensor:
    """The result of a layer after these steps, by PyTorch's functions: differentiable, of the same formulas, in the
    type of sums, rounded once more."""
    if not posts:
        return result
    channels = result.shape[-spatial - 1]
    y = result.to(of_sums(result.dtype))
    for i, step in enumerate(posts):
        operands = _checked(step, i, result, channels)
        if step.kind != lib.POST_ADD_TENSOR:
            operands = [v.to(y.dtype).reshape(-1, *[1] * spatial) for v in operands]
        y = _FUNCTIONS[step.kind](y, step, *operands)
    return y.to(result.dtype)


def _leaky_relu(y: Tensor, step: PostOp) -> Tensor:
    return F.relu(y) if step.alpha == 0 else F.leaky_relu(y, step.alpha)


_FUNCTIONS: dict[int, Callable[..., Tensor]] = {
    lib.POST_ADD_CHANNEL: lambda y, step, v: y + v,
    lib.POST_MUL_CHANNEL: lambda y, step, v: y * v,
    lib.POST_ADD_TENSOR: lambda y, step, t: y + step.alpha * t.to(y.dtype),
    lib.POST_LINEAR: lambda y, step: y * step.alpha + step.beta,
    lib.POST_CLAMP: lambda y, step: torch.clamp(y, step.alpha, step.beta),
    lib.POST_LEAKY_RELU: _leaky_relu,
    lib.POST_SIGMOID: lambda y, step: torch.sigmoid(y),
    lib.POST_TANH: lambda y, step: torch.tanh(y),
    lib.POST_SILU: lambda y, step: F.silu(y),
    lib.POST_GELU: lambda y, step: F.gelu(y),
    lib.POST_GELU_TANH: lambda y, step: F.gelu(y, approximate="tanh"),
    lib.POST_MISH: lambda y, step: F.mish(y),
    lib.POST_ELU: lambda y, step: F.elu(y, step.alpha),
    lib.POST_SOFTPLUS: lambda y, step: F.softplus(y, 1, _SOFTPLUS_THRESHOLD),
    # On CUDA PyTorch's own multiplies by a sixth of f32, in float64 too.
    lib.POST_HARDSWISH: lambda y, step: y * (y + 3).clamp(0, 6) / 6 if y.dtype is torch.float64 else F.hardswish(y),
    lib.POST_SNAKE: lambda y, step, a, b: y + b * torch.sin(a * y).square(),
}


def _checked(step: PostOp, index: int, like: Tensor, channels: int) -> list[Any]:
    """The tensors of a step, given the result of the layer or one of its dtype and device."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return list(step.operands)  # whose shapes tracing would warn of
    for j, tensor in enumerate(step.operands):
        name = _posts.name_of(index, j, step)
        _check_kind(name, tensor, like)
        if step.kind == lib.POST_ADD_TENSOR:
            _arrays.check_shape(name, tuple(tensor.shape), tuple(like.shape), "that of the result, ")
        else:
            _arrays.check_shape(name, tuple(tensor.shape), (channels,), "the output channels, ")
    return list(step.operands)


def _check_kind(name: str, tensor: Any, like: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise _errors.wrong_dtype(name, f"{name} is a {type(tensor).__name__}: must be a torch.Tensor")
    if tensor.device != like.device:
        raise _errors.invalid(name, f"{name} is on {tensor.device}: must be where the result is, on {like.device}")
    due = of_sums(like.dtype)
    if not tensor.is_floating_point() or torch.promote_types(tensor.dtype, due) != due:
        raise _errors.wrong_dtype(name, f"{name} is of {tensor.dtype}: must be {due}, or convert to it exactly")


# ------------------------------------------------------------------------------------------------------- with the layer


def fused(
    spatial: int, arguments: tuple[Any, ...], posts: Sequence[PostOp], packed: PackedWeights | None
) -> Tensor | None:
    """The layer and its post-ops in one call; None where they are to be computed one after the other. Arguments are
    plain tensors of which no gradients are wanted."""
    arguments = cast(arguments)
    input, weight, bias = arguments[:3]
    addend = _posts.addend(posts)
    if input.dtype not in DTYPES or input.device.type not in DEVICES:
        return None
    if addend is not None and (addend.dtype is not input.dtype or addend.device != input.device):
        return None
    stride, padding, output_padding, groups, dilation = arguments[3:]
    layer = find(input, weight, bias, stride, padding, output_padding, groups, dilation, listed(posts), addend)
    if isinstance(layer, Reason):
        return None
    channels = layer.shape[-spatial - 1]
    operands = [operand_of(layer, step, i, input, channels) for i, step in enumerate(posts)]
    return computed(spatial, layer, arguments, operands, packed)


class Prepared(NamedTuple):
    """A list without an addend, and its tensors as the library takes them, for layers of one dtype and device."""

    posts: PostList
    operands: tuple[Tensor | None, ...]


def prepared(posts: Sequence[PostOp], dtype: torch.dtype) -> Prepared:
    """The list for layers of a dtype, given tensors of which each step has one, by channel."""
    due = of_sums(dtype)
    return Prepared(
        listed(posts), tuple(step.operands[0].to(due).contiguous() if step.operands else None for step in posts)
    )


def fused_as_prepared(
    spatial: int, arguments: tuple[Any, ...], made: Prepared, packed: PackedWeights | None
) -> Tensor | None:
    """As fused, where autocast is off."""
    input, weight, bias, stride, padding, output_padding, groups, dilation = arguments
    if not gains_with_layer((step.kind for step in made.posts.steps), input.device.type, input.dtype, compiled=False):
        return None
    layer = find(input, weight, bias, stride, padding, output_padding, groups, dilation, made.posts)
    if isinstance(layer, Reason):
        return None
    return computed(spatial, layer, arguments, made.operands, packed)


def computed(
    spatial: int,
    layer: Layer,
    arguments: tuple[Any, ...],
    operands: Sequence[Tensor | None],
    packed: PackedWeights | None,
    into: Tensor | None = None,
) -> Tensor | None:
    input, weight, bias = arguments[:3]
    if packed is not None:
        layer = packed.layer(layer, weight)
    if not torch._C._autograd._profiler_enabled():
        return compute(layer, input, weight, bias, operands, into)
    with torch.profiler.record_function(f"tconv::conv_transpose{spatial}d"):
        return compute(layer, input, weight, bias, operands, into)


def cast(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """As autocast does it for transposed convolutions, where it is on."""
    kind = arguments[0].device.type
    if kind not in DEVICES or not torch.is_autocast_enabled(kind):
        return arguments
    dtype, tensors = torch.get_autocast_dtype(kind), arguments[:3]
    return *(t.to(dtype) if t is not None and t.dtype in _CAST else t for t in tensors), *arguments[3:]


def operand_of(layer: Layer, step: PostOp, index: int, like: Tensor, channels: int) -> Tensor | None:
    """A step's operand as the library takes it."""
    if not step.operands:
        return None
    if step.kind == lib.POST_ADD_TENSOR:
        return _addend(layer, step.operands[0])
    if len(step.operands) == 1:
        return as_operand(layer, step, index, step.operands[0], like, channels)
    vectors = [v.to(of_sums(like.dtype)) for v in _checked(step, index, like, channels)]
    return torch.cat(vectors)


def _addend(layer: Layer, addend: Tensor) -> Tensor:
    if layer.copy_addend:
        for axis in layer.missing_axes:
            addend = addend.unsqueeze(axis)
        addend = addend.clone(memory_format=layer.memory_format)
    return addend


def as_operand(layer: Layer, step: PostOp, index: int, tensor: Tensor, like: Tensor, channels: int) -> Tensor:
    """The same, given one tensor for the step: Snake's two, too, one behind the other."""
    if step.kind == lib.POST_ADD_TENSOR:
        return _addend(layer, tensor)
    dtype = of_sums(like.dtype)
    count = 2 * channels if step.kind == lib.POST_SNAKE else channels
    if tensor.dtype is dtype and tensor.shape == (count,) and tensor.device == like.device:
        return tensor if tensor.is_contiguous() else tensor.contiguous()
    name = _posts.name_of(index, 0, step)
    _check_kind(name, tensor, like)
    _arrays.check_shape(name, tuple(tensor.shape), (count,), "the output channels, ")
    return tensor.to(dtype).contiguous()
