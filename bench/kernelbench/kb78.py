"""KernelBench, level 1, problem 78: transposed convolution, rectangular and padded."""

import torch
from torch import nn

from tconv.torch import ConvTranspose2d

SHAPE = (8, 32, 512, 1024)


class Model(nn.Module):
    layer = nn.ConvTranspose2d

    def __init__(self, in_channels, out_channels, kernel_size, stride=(1, 1), padding=(0, 0), bias=False):
        super().__init__()
        self.conv_transpose2d = self.layer(in_channels, out_channels, kernel_size, stride, padding, bias=bias)

    def forward(self, x):
        return self.conv_transpose2d(x)


class ModelNew(Model):
    layer = ConvTranspose2d


def get_inputs():
    return [torch.rand(*SHAPE)]


def get_init_inputs():
    return [32, 32, (3, 7), (1, 1), (1, 3)]
