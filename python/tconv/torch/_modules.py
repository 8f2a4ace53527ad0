"""The modules."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ._functional import conv_transpose2d

torch.fx.wrap("conv_transpose2d")  # as in __init__.py


class ConvTranspose2d(torch.nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d, computed by tconv. All but forward is PyTorch's."""

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
        if self.padding_mode != "zeros":
            raise ValueError("Only `zeros` padding mode is supported for ConvTranspose2d")
        layer: Any = self  # whose attributes are annotated for every number of dimensions
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = layer._output_padding(
                input, output_size, layer.stride, layer.padding, layer.kernel_size, 2, layer.dilation
            )
        parameters = layer._parameters  # where torch.nn.Module looks for an attribute last
        weight = parameters["weight"] if "weight" in parameters else layer.weight
        bias = parameters["bias"] if "bias" in parameters else layer.bias
        return conv_transpose2d(
            input, weight, bias, layer.stride, layer.padding, output_padding, layer.groups, layer.dilation
        )


class LazyConvTranspose2d(torch.nn.LazyConvTranspose2d, ConvTranspose2d):  # type: ignore[misc]
    """torch.nn.LazyConvTranspose2d that becomes tconv's ConvTranspose2d."""

    cls_to_become = ConvTranspose2d
