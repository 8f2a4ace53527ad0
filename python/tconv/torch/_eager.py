"""tconv inside of PyTorch's own functions.

torch.conv_transpose1d and conv_transpose2d end in aten::convolution, below autocast and autograd. While a thread has
the dispatch key "Negative", tconv's kernel takes the place of what that computes: the shim's, which asks
tconv::unplanned for layers that it does not know, or where there is no shim, that operator's Python itself. The key's
own purpose are tensors with the bit for "negative", views of complex ones; their convolutions get to the kernel too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _native
from ._compute import compute, cudnn_enabled, find_layer, tf32

_KEY = torch._C.DispatchKey.Negative
_include_key = torch._C._dispatch_tls_set_dispatch_key_included
_thread = _native.thread

# Flags of a call, which are a part of what a layer is known by. The first says that the call is ours.
_OURS, _TF32, _CUDNN = 1, 2, 4


def inside(function: Any, input: Tensor, *arguments: Any) -> Tensor:
    """PyTorch's function, which ends in aten::convolution, with tconv in place of what that computes."""
    flags = _OURS
    if input.is_cuda:
        flags |= (_TF32 if tf32() else 0) | (_CUDNN if cudnn_enabled() else 0)
    ours = _thread.flags
    ours[0] = flags
    _include_key(_KEY, True)
    try:
        answer = function(input, *arguments)
    finally:
        _include_key(_KEY, False)
        ours[0] = 0
    if answer.dim() == 0:
        error, _thread.error = _thread.error, None
        assert error is not None
        raise error
    return answer


def _unplanned(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    _include_key(_KEY, False)
    if transposed:
        layer = find_layer(input, weight, bias, stride, padding, output_padding, groups, dilation)
        answer = None if layer is None else compute(layer, input, weight, bias)
        if layer is not None and answer is not None:
            _native.table.put(layer)
            return answer
    return torch.convolution(
        input.resolve_neg(),
        weight.resolve_neg(),
        None if bias is None else bias.resolve_neg(),
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
    )


def _unplanned_for_the_shim(*arguments: Any) -> Tensor:
    """PyTorch's C interface keeps of an exception its text: it goes by another way, and a result that is none tells."""
    try:
        return _unplanned(*arguments)
    except BaseException as error:
        _thread.error = error
        return torch.empty(())


_aten = torch.library.Library("aten", "IMPL")
_library = torch.library.Library("tconv", "FRAGMENT")
_SCHEMA = (
    "(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
    "bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor"
)
for _name, _function in (("unplanned", _unplanned_for_the_shim), ("negated", _unplanned)):
    _library.define(_name + _SCHEMA)
    for _where in ("CompositeExplicitAutograd", "Negative"):
        _library.impl(_name, _function, _where)


def _shim_works() -> bool:
    """Whether a call reaches the shim and comes back, and the second one needs no Python."""
    one = torch.ones(1, 1, 1, 1)
    try:
        answers = [inside(torch.conv_transpose2d, one, one).item() for _ in range(2)]
    except Exception:
        return False
    return answers == [1, 1] and _native.taken() == 1


if not (_native.is_installed() and _shim_works()):
    _native.uninstall()
    _aten.impl("convolution", _unplanned, "Negative")
