"""KernelBench level 1, problem 65: square input, kernel wider than high."""

from problem import OneNumberLayer, Problem
from torch import nn

import tconv.torch

__all__ = ["Model", "ModelNew", "get_init_inputs", "get_inputs"]


class Model(OneNumberLayer):
    kind = nn.ConvTranspose2d


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
