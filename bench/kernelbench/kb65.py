"""KernelBench level 1, problem 65: square input, kernel wider than high."""

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


class ModelNew(Model):
    kind = tconv.torch.ConvTranspose2d


PROBLEM = Problem(
    batch_size=8,
    in_channels=64,
    height=512,
    width=512,
    out_channels=64,
    kernel_size=(3, 7),
)

get_inputs, get_init_inputs = PROBLEM.get_inputs, PROBLEM.get_init_inputs
