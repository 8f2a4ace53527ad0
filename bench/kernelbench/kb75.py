"""KernelBench level 1, problem 75: input and kernel wider than high, strided, padded, dilated, in groups."""

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
        kernel_size: tuple[int, int],
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int] = (0, 0),
        dilation: tuple[int, int] = (1, 1),
        groups: int = 1,
        bias: bool = False,
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
        )


class ModelNew(Model):
    kind = tconv.torch.ConvTranspose2d


PROBLEM = Problem(
    batch_size=16,
    in_channels=32,
    height=128,
    width=256,
    out_channels=64,
    kernel_size=(3, 5),
    settings=((2, 3), (1, 2), (2, 1), 4),  # stride, padding, dilation, groups
)

get_inputs, get_init_inputs = PROBLEM.get_inputs, PROBLEM.get_init_inputs
