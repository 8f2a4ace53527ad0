"""tconv inside of PyTorch's own functions.

torch.conv_transpose1d and conv_transpose2d end in aten::convolution, below autocast. While a thread has a dispatch key
included, tconv's kernel takes the place of what that computes: the shim's, which asks tconv::unplanned for layers that
it does not know, or where there is no shim, that operator's Python itself.

Where no gradients are wanted the key is "Negative", right below autograd. Its own purpose are tensors with the bit for
"negative", views of complex ones; their convolutions get to the kernel too. Where some are wanted it is
"AutogradNestedTensor", above autograd, whose kernels for all other operators are those of autograd: that of
aten::convolution calls aten::convolution_overrideable, whose node has tconv's gradients (_derivatives.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _native, _reasons
from ._compute import compute, find_layer
from ._settings import settings

_KEY = torch._C.DispatchKey.Negative
_KEY_WITH_GRAPH = torch._C.DispatchKey.AutogradNestedTensor
_KEY_WITH_GRAPH_SET = torch._C.DispatchKeySet(_KEY_WITH_GRAPH)
_include_key = torch._C._dispatch_tls_set_dispatch_key_included
_thread = _native.thread


def inside(function: Any, with_graph: bool, input: Tensor, *arguments: Any) -> Tensor:
    """PyTorch's function, which ends in aten::convolution, with tconv in place of what that computes."""
    key = _KEY_WITH_GRAPH if with_graph else _KEY
    flags = _native.OURS | settings(input).flags if input.is_cuda else _native.OURS
    ours = _thread.flags
    try:
        ours[0] = flags
        _include_key(key, True)
        answer = function(input, *arguments)
    finally:
        ours[0] = 0  # first: an interrupt may come after the call
        _include_key(key, False)
    if answer.dim() == 0:
        error, _thread.error = _thread.error, None
        assert error is not None
        raise error
    return answer


def _compute_or_pass_on(
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
    if transposed:
        layer = find_layer(input, weight, bias, stride, padding, output_padding, groups, dilation)
        answer = None if layer is None else compute(layer, input, weight, bias)
        if layer is not None and answer is not None:
            _native.table.put(layer)
            return answer
    return torch.convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


def _unplanned(*arguments: Any) -> Tensor:
    """What the shim calls for a layer that it does not know, below autograd. PyTorch's C interface keeps an exception's
    text alone: it goes by another way, and a result that is none tells."""
    _include_key(_KEY, False)
    try:
        return _compute_or_pass_on(*arguments)
    except BaseException as error:
        _thread.error = error
        return torch.empty(())


def _negated(input: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any) -> Tensor:
    """A convolution of tensors that have the key themselves, whoever calls."""
    _include_key(_KEY, False)
    bias = None if bias is None else bias.resolve_neg()
    return torch.convolution(input.resolve_neg(), weight.resolve_neg(), bias, *arguments)


def _foreign(*arguments: Any) -> Tensor:
    """A convolution above autograd that is not the package's."""
    with torch._C._ExcludeDispatchKeyGuard(_KEY_WITH_GRAPH_SET):
        return torch.convolution(*arguments)


def _in_place_of_the_shim(*arguments: Any) -> Tensor:
    if _thread.flags[0] == 0:
        return _negated(*arguments)
    _thread.flags[0] = 0
    _include_key(_KEY, False)
    return _compute_or_pass_on(*arguments)


def _with_graph_in_place_of_the_shim(*arguments: Any) -> Tensor:
    if _thread.flags[0] == 0:
        return _foreign(*arguments)
    _thread.flags[0] = 0
    input, weight, bias, stride, padding, dilation, transposed, output_padding, groups = arguments
    stride, padding, dilation, output_padding = (
        [*value] * (weight.dim() - 2 if len(value) == 1 else 1) for value in (stride, padding, dilation, output_padding)
    )
    return torch.ops.aten.convolution_overrideable.default(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )


_aten = torch.library.Library("aten", "IMPL")
_library = torch.library.Library("tconv", "FRAGMENT")
_SCHEMA = (
    "(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
    "bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor"
)
for _name, _function in (("unplanned", _unplanned), ("negated", _negated)):
    _library.define(_name + _SCHEMA)
    for _where in ("CompositeExplicitAutograd", "Negative"):
        _library.impl(_name, _function, _where)
for _where in ("Meta", "MkldnnCPU", "SparseCPU", "SparseCUDA", "SparseCsrCPU", "SparseCsrCUDA"):
    _aten.impl("convolution_overrideable", torch.convolution, _where)  # which says what is wrong
_library.define("foreign" + _SCHEMA)
_library.impl("foreign", _foreign, "CompositeImplicitAutograd")


def _shim_works() -> bool:
    """Whether a call reaches the shim and comes back, and the second one needs no Python."""
    one = torch.ones(1, 1, 1, 1)
    try:
        answers = [inside(torch.conv_transpose2d, with_graph, one, one).item() for with_graph in (False, True, True)]
    except Exception:
        return False
    return answers == [1, 1, 1] and _native.taken() == 2


_reasons.taken_by.append(_native.taken)
if not (_native.is_installed() and _shim_works()):
    _native.uninstall()
    _aten.impl("convolution", _in_place_of_the_shim, "Negative")
    _aten.impl("convolution", _with_graph_in_place_of_the_shim, "AutogradNestedTensor")
    for _where in ("CPU", "CUDA"):
        _aten.impl("convolution_overrideable", _compute_or_pass_on, _where)
