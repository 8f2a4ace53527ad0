"""What the seven problems share: the models and their sizes, in KernelBench's interface.

A problem's file has Model and ModelNew, which are made with *get_init_inputs() and called with *get_inputs(). Models
that are made after the same torch.manual_seed have the same weights.
"""

import dataclasses

import torch
from torch import nn

import tconv.torch

Size = int | tuple[int, int]

# cut: small enough to try on any machine, every kernel, stride, padding, dilation and group kept.
CUT_BATCH, CUT_IMAGE, CUT_CHANNELS = 2, 16, 4


class _Model(nn.Module):
    layer: type[nn.ConvTranspose2d]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = False,
    ):
        super().__init__()
        self.conv_transpose2d = self.layer(
            in_channels, out_channels, kernel_size, stride, padding, groups=groups, bias=bias, dilation=dilation
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_transpose2d(x)


class Model(_Model):
    """PyTorch's layer."""

    layer = nn.ConvTranspose2d


class ModelNew(_Model):
    """tconv's."""

    layer = tconv.torch.ConvTranspose2d


@dataclasses.dataclass(frozen=True)
class Problem:
    batch_size: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel_size: Size
    stride: Size = 1
    padding: Size = 0
    dilation: Size = 1
    groups: int = 1

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        return self.batch_size, self.in_channels, self.height, self.width

    def get_inputs(self) -> list[torch.Tensor]:
        return [torch.rand(self.input_shape)]

    def get_init_inputs(self) -> list[Size]:
        return [
            self.in_channels,
            self.out_channels,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
        ]

    def cut(self) -> "Problem":
        return dataclasses.replace(
            self,
            batch_size=CUT_BATCH,
            in_channels=self.in_channels // CUT_CHANNELS,
            out_channels=self.out_channels // CUT_CHANNELS,
            height=self.height // CUT_IMAGE,
            width=self.width // CUT_IMAGE,
        )
