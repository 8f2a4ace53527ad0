"""What the node of a layer calls: the kernels of aten::convolution_backward_overrideable.

The shim's computes the gradients of a layer that is known, where nothing looks on and nothing is derived from (native/
torch_gradients.c). It asks tconv::unplanned_gradients, here, for all else; where there is no shim, that is the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _native, _reasons
from ._derivatives import gradients_of, may_have_derivatives
from ._gradients import find, gradients

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def _backward(
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
    """aten::convolution_backward_overrideable where autograd would be: the gradients of a layer, with nothing that
    looks on, are computed at once."""
    if transposed and not may_have_derivatives((cotangent, first, second)):
        if cotangent.is_neg() or first.is_neg() or second.is_neg():
            cotangent, first, second = cotangent.resolve_neg(), first.resolve_neg(), second.resolve_neg()
        return gradients(cotangent, first, second, stride, padding, sizes, groups, dilation, wanted)
    return gradients_of(cotangent, first, second, stride, padding, dilation, transposed, sizes, groups, wanted)


# ------------------------------------------------------------------------------------------------- what the shim calls


class _Raising(Tensor):
    """A gradient that could not be computed. PyTorch's C interface keeps an exception's text alone: it goes by way of
    the result. That has an axis more than the gradient would have, so that autograd begins by summing it."""

    error: BaseException

    @staticmethod
    def __new__(cls, shape: Sequence[int], like: Tensor, error: BaseException) -> Any:
        make: Any = Tensor._make_wrapper_subclass
        made = make(cls, (2, *shape), dtype=like.dtype, device=like.device)
        made.error = error
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise next(argument.error for argument in args if isinstance(argument, _Raising))


def _unplanned(cotangent: Tensor, first: Tensor, second: Tensor, *rest: Any) -> Gradients:
    """For a call that the shim does not know, and puts into its table if it belongs there."""
    try:
        answer = _backward(cotangent, first, second, *rest)
        stride, padding, dilation, transposed, _, groups, wanted = rest
        if transposed and not may_have_derivatives((cotangent, first, second)):
            _native.table.put_gradients(find(cotangent, first, second, stride, padding, groups, dilation, wanted))
        return answer
    except BaseException as error:
        shapes = first.shape, second.shape, cotangent.shape[1:2]
        of_input, of_weight, of_bias = (
            _Raising(shape, cotangent, error) if want else None for shape, want in zip(shapes, rest[-1], strict=True)
        )
        return of_input, of_weight, of_bias


def _observed(*tensors: Tensor) -> bool:
    """Whether something looks on, for the dispatch keys of what does."""
    return True


_SCHEMA = (
    "(Tensor grad_output, Tensor input, Tensor weight, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
    "bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
)
_OBSERVERS = (
    "CompositeExplicitAutograd",
    "Python",
    "FuncTorchDynamicLayerBackMode",
    "FuncTorchGradWrapper",
    "FuncTorchBatched",
    "Functionalize",
    "Negative",
    "Conjugate",
    "ZeroTensor",
)
_library = torch.library.Library("tconv", "FRAGMENT")
_library.define("unplanned_gradients" + _SCHEMA)
_library.impl("unplanned_gradients", _unplanned, "CompositeImplicitAutograd")
_library.define("is_observed(Tensor grad_output, Tensor input, Tensor weight) -> bool")
for _where in _OBSERVERS:
    _library.impl("is_observed", _observed, _where)
_library.impl("is_observed", torch.library.fallthrough_kernel, "Autograd")

_aten = torch.library.Library("aten", "IMPL")
_aten.impl("convolution_backward_overrideable", _backward, "AutogradMeta")
_aten.impl("convolution_backward_overrideable", gradients_of, "FuncTorchBatched")


def _shim_works() -> bool:
    """Whether a call reaches the shim and comes back, and the second one needs no Python. The engine is not asked: it
    would start threads."""
    one = torch.ones(1, 1, 1, 1)
    sizes = ([1, 1], [0, 0], [1, 1], True, [0, 0], 1, [True, True, True])
    operator = torch.ops.aten.convolution_backward_overrideable.default
    try:
        with torch.no_grad():
            answers = [gradient.item() for _ in range(2) for gradient in operator(one, one, one, *sizes)]
    except Exception:
        return False
    return answers == [1] * 6 and _native.gradients() == 2


_reasons.gradients_by.append(_native.gradients)
_reasons.left_by.append(_native.left)
if not (_native.install_gradients() and _shim_works()):
    _native.uninstall_gradients()
    for _where in ("AutogradCPU", "AutogradCUDA"):
        _aten.impl("convolution_backward_overrideable", _backward, _where)
