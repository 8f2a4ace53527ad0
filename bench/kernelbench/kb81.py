"""KernelBench level 1, problem 81: input wider than high, square kernel, strided, padded, dilated."""

from problem import OneLayer, Problem
from torch import nn

import tconv.torch

__all__ = ["Model", "ModelNew", "get_init_inputs", "get_inputs"]


class Model(OneLayer):
    kind = nn.ConvTranspose2d

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        bias: bool = False,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, bias=bias
        )


class ModelNew(Model):
    kind = tconv.torch.ConvTranspose2d


PROBLEM = Problem(
    batch_size=16,
    in_channels=32,
    height=64,
    width=128,
    out_channels=64,
    kernel_size=3,
    settings=(5, 1, 2),  # stride, padding, dilation
)

get_inputs, get_init_inputs = PROBLEM.get_inputs, PROBLEM.get_init_inputs
