"""KernelBench, level 1, problem 57: transposed convolution, square input and kernel."""

import torch
from torch import nn

from tconv.torch import ConvTranspose2d

SHAPE = (8, 64, 1024, 1024)


class Model(nn.Module):
    layer = nn.ConvTranspose2d

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=False
    ):
        super().__init__()
        self.conv_transpose2d = self.layer(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias
        )

    def forward(self, x):
        return self.conv_transpose2d(x)


class ModelNew(Model):
    layer = ConvTranspose2d


def get_inputs():
    return [torch.rand(*SHAPE)]


def get_init_inputs():
    return [64, 64, 3]
