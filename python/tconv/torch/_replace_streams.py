"""Streaming layers of other libraries, which replace takes with their state: those of moshi and what is made like them.

Both kinds have an attribute _streaming_state, which is None outside of streaming, and a method
_init_streaming_state(batch), which makes it. The state has the unfinished sums:

- A module whose convtr.convtr is the transposed convolution. state.partial holds sums without bias, of the parameters'
  dtype; what is false in state.exec_mask, where it is there, has no part in a step.
- A subclass of torch.nn.ConvTranspose1d, as moshi's older versions have it. state.partial is None where streams begin,
  and holds the bias too.

Whether a class of these attributes computes what is expected of it is asked of the module itself: both forwards take
two steps on made-up numbers before replace changes the class. The state stays the module's own, so that its reset,
masks and snapshots work as before, and replace and restore may come in the middle of a stream.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._stream import step

_grad_enabled = torch.is_grad_enabled
_autocast_enabled = torch._C._is_any_autocast_enabled
# Of sums of random numbers in both orders, as a part of the largest.
_TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}


class Streamed(torch.nn.Module):
    """What the classes in place of such layers have in common. Where a call is no step of the library's, it is the
    module's own."""

    _streaming_state: Any

    @staticmethod
    def layer_of(module: Any) -> torch.nn.ConvTranspose1d:
        """The module's transposed convolution."""
        raise NotImplementedError


class WithoutBias(Streamed):
    @staticmethod
    def layer_of(module: Any) -> Any:
        return module.convtr.convtr

    def forward(self, x: Tensor) -> Tensor:
        state = self._streaming_state
        partial = None if state is None else state.partial
        norm: Any = self.convtr
        if partial is None or _has_hooks(norm) or _has_hooks(norm.convtr) or not _is_step(norm.convtr, x, partial):
            own: Any = super()
            return own.forward(x)
        layer = norm.convtr
        mask = getattr(state, "exec_mask", None)
        return step(x, layer.weight, layer.bias, partial, layer.stride[0], 1, layer.groups, None, None, mask)


class WithBias(Streamed):
    @staticmethod
    def layer_of(module: Any) -> Any:
        return module

    def forward(self, x: Tensor) -> Tensor:
        state, layer = self._streaming_state, WithBias.layer_of(self)
        bias, partial = layer.bias, None if state is None else state.partial
        if state is not None and partial is None and x.dim() == 3:
            tail = layer.kernel_size[0] - layer.stride[0]
            held = x.new_zeros((x.shape[0], layer.out_channels, tail))
        elif partial is not None:
            held = partial.clone(memory_format=torch.contiguous_format) if bias is None else partial - bias[:, None]
            held = held.contiguous()
        if state is None or x.dim() != 3 or not _is_step(layer, x, held):
            own: Any = super()
            return own.forward(x)
        y = step(x, layer.weight, bias, held, layer.stride[0], 1, layer.groups, None, None, None)
        state.partial = held if bias is None else held + bias[:, None]
        return y


def _has_hooks(module: torch.nn.Module) -> bool:
    """Whether a call of the module would do more than its forward."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _is_step(layer: torch.nn.ConvTranspose1d, x: Tensor, partial: Tensor) -> bool:
    """Whether a call with this input is a step, of no gradients; what is wrong is the module's own to refuse."""
    weight, bias = layer.weight, layer.bias
    if x.dim() != 3 or not x.shape[2] or x.shape[0] != partial.shape[0] or not partial.is_contiguous():
        return False
    if x.dtype is not weight.dtype or _autocast_enabled():
        return False
    return not (
        _grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad))
    )


# ------------------------------------------------------------------------------------------------------------- replace


def base_for(kind: type) -> type[Streamed] | None:
    """The class that a streaming layer of this class is to be derived from; None for what is none. Classes of tconv's
    have no such method."""
    if not callable(getattr(kind, "_init_streaming_state", None)) or not issubclass(kind, torch.nn.Module):
        return None
    return WithBias if issubclass(kind, torch.nn.ConvTranspose1d) else WithoutBias


def streamed_base(module: torch.nn.Module) -> type[Streamed] | None:
    """The same of a module, which has to have the layer, too."""
    base = base_for(type(module))
    if base is None or not hasattr(module, "_streaming_state"):
        return None
    layer = getattr(getattr(module, "convtr", None), "convtr", None) if base is WithoutBias else module
    if not isinstance(layer, torch.nn.ConvTranspose1d) or (layer is not module and base_for(type(layer)) is not None):
        return None  # the layer is one of the other kind, and streams by itself
    return base


def why_not_streamed(module: torch.nn.Module, base: type[Streamed], made: type) -> str | None:
    """Why replace leaves a streaming layer; None where it takes it, and gives it this class."""
    layer = base.layer_of(module)
    if "forward" in vars(module):
        return "it has a forward of its own"
    if layer.padding != (0,) or layer.output_padding != (0,) or layer.dilation != (1,) or layer.padding_mode != "zeros":
        return "it has padding or dilation, which a stream of moshi's has not"
    if layer.stride[0] > layer.kernel_size[0]:
        return "its stride is larger than its kernel"
    if layer.weight.device.type == "meta":
        return "its parameters are on meta, so that nothing tells whether its forward is that of a stream"
    try:
        same = _steps_alike(module, base, made)
    except Exception as error:
        return f"its forward could not be tried: {type(error).__name__}: {error}"
    return None if same else f"its class {type(module).__qualname__} does not compute what moshi's streams do"


@torch.no_grad()
def _steps_alike(module: torch.nn.Module, base: type[Streamed], made: type) -> bool:
    """Whether the first two steps of a stream are the same by the module's class and by this one. A shallow copy takes
    them, so that the module's own stream stays as it is."""
    layer, generator = base.layer_of(module), torch.Generator().manual_seed(1)
    chunks = [torch.randn(1, layer.in_channels, length, generator=generator).to(layer.weight) for length in (1, 2)]
    results = []
    for kind in (made, type(module)):
        begin: Any = module._init_streaming_state
        other: Any = torch.nn.Module.__new__(kind)
        other.__dict__ = {**vars(module), "_streaming_state": begin(1)}
        results.append([*(other.forward(chunk) for chunk in chunks), other._streaming_state.partial])
    tolerance = _TOLERANCES[layer.weight.dtype]
    for mine, theirs in zip(*results, strict=True):
        if mine.shape != theirs.shape or mine.dtype is not theirs.dtype:
            return False
        bound = tolerance * float(theirs.abs().max()) if theirs.numel() else 0.0
        if not torch.allclose(mine, theirs, rtol=0, atol=bound):
            return False
    return True
