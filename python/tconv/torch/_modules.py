"""The modules."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._functional import call_frozen, conv_transpose1d, conv_transpose2d, conv_transpose3d
from ._reasons import PLAIN

torch.fx.wrap("conv_transpose1d")  # as in __init__.py
torch.fx.wrap("conv_transpose2d")
torch.fx.wrap("conv_transpose3d")


def arguments_of(layer: Any, spatial: int, input: Tensor, output_size: list[int] | None) -> tuple[Any, ...]:
    """What a module passes to its function. PyTorch annotates a module's attributes for every number of dimensions."""
    if layer.padding_mode != "zeros":
        raise ValueError(f"Only `zeros` padding mode is supported for ConvTranspose{spatial}d")
    output_padding = layer.output_padding
    if output_size is not None:
        output_padding = layer._output_padding(
            input, output_size, layer.stride, layer.padding, layer.kernel_size, spatial, layer.dilation
        )
    parameters = layer._parameters  # where torch.nn.Module looks for an attribute last
    weight = parameters["weight"] if "weight" in parameters else layer.weight
    bias = parameters["bias"] if "bias" in parameters else layer.bias
    return input, weight, bias, layer.stride, layer.padding, output_padding, layer.groups, layer.dilation


class ConvTranspose1d(torch.nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d, computed by tconv. All but forward is PyTorch's.

    Args:
        in_channels (int): channels of the input.
        out_channels (int): channels of the result.
        kernel_size (int or tuple): of the weight.
        stride (int or tuple): of the input's elements in the result.
        padding (int or tuple): dilation * (kernel_size - 1) - padding zeros are added to both ends of the input.
        output_padding (int or tuple): elements more at the result's right end.
        groups (int): parts of the channels that are computed each by itself.
        bias (bool): whether there is a bias.
        dilation (int or tuple): distance of the kernel's taps.
        padding_mode (str): "zeros" alone.
        device, dtype: of the parameters.

    Shape:
        - input: (N, C, L) or (C, L)
        - result: (N, out_channels, L_out) or without the N, where
          L_out = (L - 1) * stride - 2 * padding + dilation * (width - 1) + output_padding + 1

    Attributes:
        weight (Tensor): (C, out_channels / groups, width)
        bias (Tensor): (out_channels,), or None

    Raises:
        ValueError, RuntimeError and others: PyTorch's own, as its module raises them.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.ConvTranspose1d(3, 2, 4, stride=2, padding=1)
        >>> layer(torch.ones(1, 3, 8)).shape
        torch.Size([1, 2, 16])
        >>> layer(torch.ones(1, 3, 8), output_size=[17]).shape
        torch.Size([1, 2, 17])
    """

    _tconv_packed = None  # PackedWeights while it is frozen; TorchScript knows no annotation for it

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            padding = self._output_padding(
                input,
                output_size,
                self.stride,  # type: ignore[arg-type]
                self.padding,  # type: ignore[arg-type]
                self.kernel_size,  # type: ignore[arg-type]
                1,
                self.dilation,  # type: ignore[arg-type]
            )
            return F.conv_transpose1d(
                input,
                self.weight,
                self.bias,
                self.stride,
                self.padding,  # type: ignore[arg-type]
                padding,
                self.groups,
                self.dilation,
            )
        else:
            return self._computed_by_tconv(input, output_size)

    @torch.jit.unused
    def _computed_by_tconv(self, input: Tensor, output_size: list[int] | None) -> Tensor:
        arguments = arguments_of(self, 1, input, output_size)
        packed: Any = self._tconv_packed
        if packed is not None and type(input) in PLAIN:  # a tracer has to find the function
            return call_frozen(1, arguments, packed)
        return conv_transpose1d(*arguments)


class ConvTranspose2d(torch.nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d, computed by tconv. All but forward is PyTorch's.

    Args:
        in_channels (int): channels of the input.
        out_channels (int): channels of the result.
        kernel_size (int or tuple): of the weight.
        stride (int or tuple): of the input's pixels in the result.
        padding (int or tuple): dilation * (kernel_size - 1) - padding zeros are added to both ends of the input.
        output_padding (int or tuple): rows and columns more at the result's lower and right end.
        groups (int): parts of the channels that are computed each by itself.
        bias (bool): whether there is a bias.
        dilation (int or tuple): distance of the kernel's taps.
        padding_mode (str): "zeros" alone.
        device, dtype: of the parameters.

    Shape:
        - input: (N, C, H, W) or (C, H, W)
        - result: (N, out_channels, H_out, W_out) or without the N, where
          H_out = (H - 1) * stride - 2 * padding + dilation * (kh - 1) + output_padding + 1, W_out likewise

    Attributes:
        weight (Tensor): (C, out_channels / groups, kh, kw)
        bias (Tensor): (out_channels,), or None

    Raises:
        ValueError, RuntimeError and others: PyTorch's own, as its module raises them.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.ConvTranspose2d(3, 2, 4, stride=2, padding=1)
        >>> layer(torch.ones(1, 3, 8, 8)).shape
        torch.Size([1, 2, 16, 16])
        >>> layer(torch.ones(1, 3, 8, 8), output_size=[17, 17]).shape
        torch.Size([1, 2, 17, 17])
    """

    _tconv_packed = None  # PackedWeights while it is frozen; TorchScript knows no annotation for it

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            padding = self._output_padding(
                input,
                output_size,
                self.stride,  # type: ignore[arg-type]
                self.padding,  # type: ignore[arg-type]
                self.kernel_size,  # type: ignore[arg-type]
                2,
                self.dilation,  # type: ignore[arg-type]
            )
            return F.conv_transpose2d(
                input,
                self.weight,
                self.bias,
                self.stride,
                self.padding,  # type: ignore[arg-type]
                padding,
                self.groups,
                self.dilation,
            )
        else:
            return self._computed_by_tconv(input, output_size)

    @torch.jit.unused
    def _computed_by_tconv(self, input: Tensor, output_size: list[int] | None) -> Tensor:
        arguments = arguments_of(self, 2, input, output_size)
        packed: Any = self._tconv_packed
        if packed is not None and type(input) in PLAIN:  # a tracer has to find the function
            return call_frozen(2, arguments, packed)
        return conv_transpose2d(*arguments)


class ConvTranspose3d(torch.nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d, computed by tconv. All but forward is PyTorch's.

    Args:
        in_channels (int): channels of the input.
        out_channels (int): channels of the result.
        kernel_size (int or tuple): of the weight.
        stride (int or tuple): of the input's voxels in the result.
        padding (int or tuple): dilation * (kernel_size - 1) - padding zeros are added to both ends of the input.
        output_padding (int or tuple): planes, rows and columns more at the result's end.
        groups (int): parts of the channels that are computed each by itself.
        bias (bool): whether there is a bias.
        dilation (int or tuple): distance of the kernel's taps.
        padding_mode (str): "zeros" alone.
        device, dtype: of the parameters.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W)
        - result: (N, out_channels, D_out, H_out, W_out) or without the N, where
          D_out = (D - 1) * stride - 2 * padding + dilation * (kd - 1) + output_padding + 1, H_out and W_out likewise

    Attributes:
        weight (Tensor): (C, out_channels / groups, kd, kh, kw)
        bias (Tensor): (out_channels,), or None

    Raises:
        ValueError, RuntimeError and others: PyTorch's own, as its module raises them.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.ConvTranspose3d(3, 2, 4, stride=2, padding=1)
        >>> layer(torch.ones(1, 3, 4, 8, 8)).shape
        torch.Size([1, 2, 8, 16, 16])
        >>> layer(torch.ones(1, 3, 4, 8, 8), output_size=[9, 17, 17]).shape
        torch.Size([1, 2, 9, 17, 17])
    """

    _tconv_packed = None  # PackedWeights while it is frozen; TorchScript knows no annotation for it

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            padding = self._output_padding(
                input,
                output_size,
                self.stride,  # type: ignore[arg-type]
                self.padding,  # type: ignore[arg-type]
                self.kernel_size,  # type: ignore[arg-type]
                3,
                self.dilation,  # type: ignore[arg-type]
            )
            return F.conv_transpose3d(
                input,
                self.weight,
                self.bias,
                self.stride,
                self.padding,  # type: ignore[arg-type]
                padding,
                self.groups,
                self.dilation,
            )
        else:
            return self._computed_by_tconv(input, output_size)

    @torch.jit.unused
    def _computed_by_tconv(self, input: Tensor, output_size: list[int] | None) -> Tensor:
        arguments = arguments_of(self, 3, input, output_size)
        packed: Any = self._tconv_packed
        if packed is not None and type(input) in PLAIN:  # a tracer has to find the function
            return call_frozen(3, arguments, packed)
        return conv_transpose3d(*arguments)


class LazyConvTranspose1d(torch.nn.LazyConvTranspose1d, ConvTranspose1d):  # type: ignore[misc]
    """torch.nn.LazyConvTranspose1d that becomes tconv's ConvTranspose1d.

    Args:
        out_channels (int): channels of the result.
        kernel_size (int or tuple): of the weight.
        stride, padding, output_padding, groups, bias, dilation, padding_mode, device, dtype: as in ConvTranspose1d.

    Shape:
        - input: (N, C, L) or (C, L), which says what in_channels is in the first call
        - result: as of ConvTranspose1d

    Raises:
        ValueError, RuntimeError and others: PyTorch's own, as its module raises them.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.LazyConvTranspose1d(2, 4, stride=2, padding=1)
        >>> layer(torch.ones(1, 3, 8)).shape
        torch.Size([1, 2, 16])
        >>> layer.in_channels
        3
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(torch.nn.LazyConvTranspose2d, ConvTranspose2d):  # type: ignore[misc]
    """torch.nn.LazyConvTranspose2d that becomes tconv's ConvTranspose2d.

    Args:
        out_channels (int): channels of the result.
        kernel_size (int or tuple): of the weight.
        stride, padding, output_padding, groups, bias, dilation, padding_mode, device, dtype: as in ConvTranspose2d.

    Shape:
        - input: (N, C, H, W) or (C, H, W), which says what in_channels is in the first call
        - result: as of ConvTranspose2d

    Raises:
        ValueError, RuntimeError and others: PyTorch's own, as its module raises them.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.LazyConvTranspose2d(2, 4, stride=2, padding=1)
        >>> layer(torch.ones(1, 3, 8, 8)).shape
        torch.Size([1, 2, 16, 16])
        >>> layer.in_channels
        3
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(torch.nn.LazyConvTranspose3d, ConvTranspose3d):  # type: ignore[misc]
    """torch.nn.LazyConvTranspose3d that becomes tconv's ConvTranspose3d.

    Args:
        out_channels (int): channels of the result.
        kernel_size (int or tuple): of the weight.
        stride, padding, output_padding, groups, bias, dilation, padding_mode, device, dtype: as in ConvTranspose3d.

    Shape:
        - input: (N, C, D, H, W) or (C, D, H, W), which says what in_channels is in the first call
        - result: as of ConvTranspose3d

    Raises:
        ValueError, RuntimeError and others: PyTorch's own, as its module raises them.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.LazyConvTranspose3d(2, 4, stride=2, padding=1)
        >>> layer(torch.ones(1, 3, 4, 8, 8)).shape
        torch.Size([1, 2, 8, 16, 16])
        >>> layer.in_channels
        3
    """

    cls_to_become = ConvTranspose3d


LAYERS = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)


def spatial_axes(layer: torch.nn.Module) -> int:
    """Those of a transposed convolution, tconv's or PyTorch's."""
    kinds = {1: torch.nn.ConvTranspose1d, 3: torch.nn.ConvTranspose3d}
    return next((spatial for spatial, kind in kinds.items() if isinstance(layer, kind)), 2)
