"""KernelBench, level 1, problem 75: transposed convolution, strided, padded, dilated and grouped."""

import torch
from torch import nn

from tconv.torch import ConvTranspose2d

SHAPE = (16, 32, 128, 256)


class Model(nn.Module):
    layer = nn.ConvTranspose2d

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=(1, 1),
        padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        bias=False,
    ):
        super().__init__()
        self.conv_transpose2d = self.layer(
            in_channels, out_channels, kernel_size, stride, padding, 0, groups, bias, dilation
        )

    def forward(self, x):
        return self.conv_transpose2d(x)


class ModelNew(Model):
    layer = ConvTranspose2d


def get_inputs():
    return [torch.rand(*SHAPE)]


def get_init_inputs():
    return [32, 64, (3, 5), (2, 3), (1, 2), (2, 1), 4]
