"""What the seven problems share, in KernelBench's interface.

A problem's file has Model, of PyTorch's layer, and ModelNew, the same of tconv's. Both are made with *get_init_inputs()
and called with *get_inputs(); their constructors take what KernelBench's take, in its order. Models that are made after
the same torch.manual_seed have the same weights.
"""

import dataclasses

import torch
from torch import nn

Size = int | tuple[int, int]

# cut: small enough to try on any machine, every kernel, stride, padding, dilation and group kept.
CUT_BATCH, CUT_IMAGE, CUT_CHANNELS = 2, 16, 4


class OneLayer(nn.Module):
    """A model that is one layer. What its constructor takes differs from problem to problem."""

    kind: type[nn.ConvTranspose2d]

    def __init__(self, *arguments, **settings):
        super().__init__()
        self.conv_transpose2d = self.kind(*arguments, **settings)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_transpose2d(x)


class OneNumberLayer(OneLayer):
    """As problems 57, 65 and 71 have it: one number for height and width, the kernel apart."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        groups: int = 1,
        bias: bool = False,
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            groups=groups,
            bias=bias,
        )


@dataclasses.dataclass(frozen=True)
class Problem:
    batch_size: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel_size: Size
    settings: tuple[Size, ...] = ()  # what the constructor is given beyond that, in its order

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        return self.batch_size, self.in_channels, self.height, self.width

    def get_inputs(self) -> list[torch.Tensor]:
        return [torch.rand(self.input_shape)]

    def get_init_inputs(self) -> list[Size]:
        return [self.in_channels, self.out_channels, self.kernel_size, *self.settings]

    def cut(self) -> "Problem":
        return dataclasses.replace(
            self,
            batch_size=CUT_BATCH,
            in_channels=self.in_channels // CUT_CHANNELS,
            out_channels=self.out_channels // CUT_CHANNELS,
            height=self.height // CUT_IMAGE,
            width=self.width // CUT_IMAGE,
        )
