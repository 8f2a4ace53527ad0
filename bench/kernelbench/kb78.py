"""KernelBench level 1, problem 78: input and kernel wider than high, padded."""

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
        bias: bool = False,
    ):
        super().__init__(in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=bias)


class ModelNew(Model):
    kind = tconv.torch.ConvTranspose2d


PROBLEM = Problem(
    batch_size=8,
    in_channels=32,
    height=512,
    width=1024,
    out_channels=32,
    kernel_size=(3, 7),
    settings=((1, 1), (1, 3)),  # stride, padding
)

get_inputs, get_init_inputs = PROBLEM.get_inputs, PROBLEM.get_init_inputs
