"""tconv inside of PyTorch's own operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._compute import compute, find_layer

# torch.conv_transpose1d and conv_transpose2d end in aten::convolution, below autocast and autograd. While a thread
# has this key, _inside takes the place of what that computes. Its own purpose are tensors with the bit for "negative",
# views of complex ones; their convolutions get here too.
_inside_key = torch._C.DispatchKey.Negative
_include_key = torch._C._dispatch_tls_set_dispatch_key_included


def _inside(
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
    _include_key(_inside_key, False)
    if transposed:
        layer = find_layer(input, weight, bias, stride, padding, output_padding, groups, dilation)
        answer = None if layer is None else compute(layer, input, weight, bias)
        if answer is not None:
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


def inside(function: Any, *arguments: Any) -> Tensor:
    """PyTorch's function, which ends in aten::convolution, with tconv in place of what that computes."""
    _include_key(_inside_key, True)
    try:
        return function(*arguments)
    finally:
        _include_key(_inside_key, False)


_aten = torch.library.Library("aten", "IMPL")
_aten.impl("convolution", _inside, "Negative")
