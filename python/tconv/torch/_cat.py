"""cat: torch.cat of which some parts are calls of layers, which store into their parts of the result.

The result is allocated, each layer computes into a slice of it, and the other parts are copied, as torch.cat copies
them. Where gradients are wanted all of this is one node. Its gradients are slices of the result's gradient, and what
PyTorch's operator for a layer's gradients, whose kernels are in _backward.py, makes of the layers' slices: so there are
derivatives of every order. What is captured or transformed is torch.cat of the layers' results, and so is what tconv
does not take; below torch.compile the graph pass has layers store in place (_fusion_cat.py).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules import module as _of_all

from .. import _posts
from .._plan import Cache
from ..post import PostOp
from ._compute import PYTORCHS, Layer, find, key_of
from ._functional import conv_transpose1d, conv_transpose2d, conv_transpose3d, is_captured, wants_gradient
from ._modules import LAYERS, arguments_of, spatial_axes
from ._operator import as_list
from ._packed import PackedWeights
from ._post import cast, computed, followed_by, operand_of
from ._post_list import PostList, listed
from ._reasons import PLAIN, Reason
from ._sequential import HOOKS_OF_ALL, why_not_layer

_is_compiling = torch.compiler.is_compiling
_autocast_enabled = torch._C._is_any_autocast_enabled
_gradients_of_layer = torch.ops.aten.convolution_backward_overrideable.default
_partial = functools.partial


def cat(tensors: Sequence[Tensor | functools.partial[Tensor]], dim: int = 0) -> Tensor:
    """torch.cat, to which layers are given as calls, so that they store straight into their part of the result.

    torch.cat([up(x), skip], 1) is cat([functools.partial(up, x), skip], 1): the same numbers in the same strides, with
    the same derivatives, but the layer's result is not copied.

    Args:
        tensors (sequence): the parts, tensors and calls of what gives a tensor, as functools.partial. The calls of
            modules and functions of tconv.torch store in place; any other is made first. A partial has all that the
            call is given: functools.partial(tconv.torch.conv_transpose2d, x, weight, stride=2, post=[...]).
        dim (int): the axis along which the parts lie one after another.

    Shape:
        - tensors: all the same, but for dim
        - result: the same, with the sum of all sizes along dim

    Returns:
        Tensor: as torch.cat returns it.

    Raises:
        RuntimeError, TypeError and others: what the calls and torch.cat raise.

    Examples::

        >>> import functools, torch, tconv.torch
        >>> up = tconv.torch.ConvTranspose2d(16, 8, 2, stride=2)
        >>> x, skip = torch.ones(1, 16, 4, 4), torch.ones(1, 8, 8, 8)
        >>> result = tconv.torch.cat([functools.partial(up, x), skip], 1)
        >>> torch.equal(result, torch.cat([up(x), skip], 1))
        True
    """
    if not isinstance(tensors, (list, tuple)):
        return torch.cat(tensors, dim)  # type: ignore[arg-type]  # which will say what it takes
    if not _is_compiling():
        calls = [_understood(part) for part in tensors]
        if any(calls):
            tensors = [part if call else _made(part) for part, call in zip(tensors, calls, strict=True)]
            answer = _joined(tensors, calls, dim)
            if answer is not None:
                return answer
    return torch.cat([_made(part) for part in tensors], dim)


def _made(part: Any) -> Any:
    return part() if isinstance(part, _partial) else part


# ----------------------------------------------------------------------------------------------------- calls of layers


# The functions by which a part may call a layer, with their spatial axes.
_FUNCTIONS: dict[Any, int] = {conv_transpose1d: 1, conv_transpose2d: 2, conv_transpose3d: 3}


class _Call(NamedTuple):
    """What a layer is given."""

    spatial: int
    arguments: tuple[Any, ...]
    posts: tuple[PostOp, ...]
    packed: PackedWeights | None

    def tensors(self) -> list[Any]:
        return [*self.arguments[:3], *_posts.named_operands(self.posts).values()]

    def list_and_addend(self) -> tuple[PostList | None, Tensor | None]:
        return (listed(self.posts), _posts.addend(self.posts)) if self.posts else (None, None)


def _understood(part: Any) -> _Call | None:
    """The call of a layer of tconv's that nobody looks at; None for any other part."""
    if type(part) is not _partial:
        return None
    called = part.func
    try:
        if called in _FUNCTIONS:
            arguments, post = _of_function(*part.args, **part.keywords)
            return _Call(_FUNCTIONS[called], arguments, _posts.as_list(post), None)
        if isinstance(called, LAYERS) and why_not_layer(called) is None:
            if not any(getattr(_of_all, hooks) for hooks in HOOKS_OF_ALL):
                input, output_size = _of_module(*part.args, **part.keywords)
                spatial = spatial_axes(called)
                packed: Any = called._tconv_packed
                return _Call(spatial, arguments_of(called, spatial, input, output_size), (), packed)
    except Exception:  # the call will raise it
        pass
    return None


def _of_function(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: Any = 1,
    dilation: Any = 1,
    *,
    post: Any = None,
) -> tuple[tuple[Any, ...], Any]:
    return (input, weight, bias, stride, padding, output_padding, groups, dilation), post


def _of_module(input: Any, output_size: Any = None) -> tuple[Any, Any]:
    return input, output_size


# ---------------------------------------------------------------------------------------------------------- the result


class _Piece(NamedTuple):
    """A part, and where in the result it is."""

    start: int
    size: int
    spatial: int = 0  # axes of the layer, none where it is no layer
    numbers: tuple[Any, ...] = ()  # the layer's arguments behind the tensors, in lists of one for each axis
    layer: Layer | None = None  # which stores there


class _Whole(NamedTuple):
    """The result, and its parts."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dim: int
    pieces: tuple[_Piece, ...]

    def slice_of(self, tensor: Tensor, piece: _Piece) -> Tensor:
        return tensor.narrow(self.dim, piece.start, piece.size)


_wholes: Cache[_Whole] = Cache()


def _joined(parts: Sequence[Any], calls: Sequence[_Call | None], dim: Any) -> Tensor | None:
    """The concatenation; None where it is that of the layers' results."""
    others = [part for part, call in zip(parts, calls, strict=True) if call is None]
    if any(type(other) not in PLAIN or other.layout is not torch.strided or other.is_nested for other in others):
        return None
    tensors = others
    for call in calls:
        if call is not None:
            tensors = [*call.tensors(), *tensors]
            if is_captured(tensors, call.spatial):
                return None
    with_graph = wants_gradient(tensors)
    if with_graph and any(call is not None and call.posts for call in calls):
        return None
    made: list[Any] = []  # calls with their tensors as they are computed, and the other parts
    keys: list[Any] = [dim]
    for part, call in zip(parts, calls, strict=True):
        if call is None:
            made.append(part)
            keys.append((part.shape, part.stride(), part.dtype, part.device))
            continue
        call = _Call(call.spatial, cast(call.arguments), call.posts, call.packed)
        key = _key(call)
        if isinstance(key, Reason):
            return None
        made.append(call)
        keys.append(key)
    key_of_all = tuple(keys)
    whole = None if type(dim) is not int else _wholes.get(key_of_all) or _found(key_of_all, made, dim)
    if whole is None:
        return None
    if not with_graph:
        return _computed(whole, made, _autocast_enabled())
    flat: list[Any] = []
    for part in made:
        flat += part.arguments[:3] if isinstance(part, _Call) else [part]
    answer: Tensor = _Concatenation.apply(whole, *flat)
    return answer


def _key(call: _Call, into: Tensor | None = None) -> tuple[Any, ...] | Reason:
    input, weight, bias, stride, padding, output_padding, groups, dilation = call.arguments
    posts, addend = call.list_and_addend()
    return key_of(input, weight, bias, stride, padding, output_padding, groups, dilation, posts, addend, into)


def _find(call: _Call, into: Tensor | None = None) -> Layer | None:
    """The layer of a call; None where PyTorch computes it."""
    input, weight, bias, stride, padding, output_padding, groups, dilation = call.arguments
    posts, addend = call.list_and_addend()
    if addend is not None and (addend.dtype is not input.dtype or addend.device != input.device):
        return None
    if call.posts:
        _posts.check(call.posts)
    layer = find(input, weight, bias, stride, padding, output_padding, groups, dilation, posts, addend, into)
    return None if isinstance(layer, Reason) else layer


def _found(keys: tuple[Any, ...], parts: Sequence[Any], dim: int) -> _Whole | None:
    """The result of such parts, which PyTorch is asked for; None where tconv does not make it."""
    lying: list[Tensor] = []  # what each part is by itself
    dtypes, devices = set(), set()
    for part in parts:
        like = part.arguments[0] if isinstance(part, _Call) else part
        if isinstance(part, _Call):
            layer = _find(part)
            if layer is None:
                return None
            shape, strides = layer.shape, layer.strides
        else:
            shape, strides = part.shape, part.stride()
        dtypes.add(like.dtype)
        devices.add(like.device)
        lying.append(torch.empty_strided(shape, strides, device="meta", dtype=like.dtype))
    if len(dtypes) != 1 or len(devices) != 1 or len({each.dim() for each in lying}) != 1:
        return None
    try:
        whole = torch.cat(lying, dim)
    except (RuntimeError, IndexError):  # torch.cat is to say of the parts what is wrong
        return None
    dim %= whole.dim()
    pieces, start = [], 0
    for part, each in zip(parts, lying, strict=True):
        piece = _Piece(start, each.shape[dim])
        if isinstance(part, _Call):
            *lists, groups, dilation = part.arguments[3:]
            stride, padding, output_padding, dilation = (as_list(n, part.spatial) for n in (*lists, dilation))
            layer = _find(part, whole.narrow(dim, piece.start, piece.size))
            if layer is None:
                return None
            numbers = (stride, padding, output_padding, groups, dilation)
            piece = _Piece(start, piece.size, part.spatial, numbers, layer)
        pieces.append(piece)
        start += piece.size
    return _wholes.make(keys, lambda: _Whole(tuple(whole.shape), whole.stride(), dim, tuple(pieces)))


def _computed(whole: _Whole, parts: Sequence[Any], autocast: bool = True) -> Tensor:
    first = parts[0].arguments[0] if isinstance(parts[0], _Call) else parts[0]
    result: Tensor = first.new_empty_strided(whole.shape, whole.strides)
    for piece, part in zip(whole.pieces, parts, strict=True):
        into = whole.slice_of(result, piece)
        if piece.layer is None:
            into.copy_(part)
        else:
            _store(piece.layer, part, into, None if autocast else part.packed)
    return result


def _store(layer: Layer, call: _Call, into: Tensor, packed: PackedWeights | None) -> None:
    """Has a layer compute into this memory."""
    spatial, arguments, posts, _ = call
    channels = layer.shape[-spatial - 1]
    operands = [operand_of(layer, step, i, arguments[0], channels) for i, step in enumerate(posts)]
    if computed(spatial, layer, arguments, operands, packed, into) is None:
        into.copy_(followed_by(PYTORCHS[spatial](*arguments), posts, spatial))


# ------------------------------------------------------------------------------------------------------------ its node


class _Concatenation(torch.autograd.Function):
    """The result with its gradients, of which each part has its own."""

    @staticmethod
    def forward(ctx: Any, whole: _Whole, *flat: Any) -> Tensor:
        parts: list[Any] = []
        kept: list[Any] = []
        at = 0
        for piece in whole.pieces:
            if piece.layer is None:
                parts.append(flat[at])
                at += 1
            else:
                parts.append(_Call(piece.spatial, (*flat[at : at + 3], *piece.numbers), (), None))
                kept += flat[at : at + 2]
                at += 3
        ctx.whole = whole
        ctx.save_for_backward(*kept)
        return _computed(whole, parts)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        whole, kept, needed = ctx.whole, iter(ctx.saved_tensors), ctx.needs_input_grad[1:]
        gradients: list[Any] = []
        for piece in whole.pieces:
            part = whole.slice_of(cotangents[0], piece)
            at = len(gradients)
            if piece.layer is None:
                gradients.append(part if needed[at] else None)
            else:
                gradients += _gradients(piece, part, next(kept), next(kept), list(needed[at : at + 3]))
        return None, *gradients


def _gradients(piece: _Piece, part: Tensor, input: Tensor, weight: Tensor, wanted: list[bool]) -> Sequence[Any]:
    """Those of a layer's input, weight and bias, given that of its result."""
    if not any(wanted):
        return None, None, None
    is_image = input.dim() == piece.spatial + 1
    if is_image:
        part, input = part.unsqueeze(0), input.unsqueeze(0)
    stride, padding, output_padding, groups, dilation = piece.numbers
    of_input, of_weight, of_bias = _gradients_of_layer(
        part, input, weight, stride, padding, dilation, True, output_padding, groups, wanted
    )
    return of_input.squeeze(0) if is_image and wanted[0] else of_input, of_weight, of_bias
