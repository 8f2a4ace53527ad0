"""KernelBench level 1, problem 81: input wider than high, square kernel, strided, padded, dilated."""

from problem import Model, ModelNew, Problem

__all__ = ["Model", "ModelNew", "get_init_inputs", "get_inputs"]

PROBLEM = Problem(
    batch_size=16,
    in_channels=32,
    height=64,
    width=128,
    out_channels=64,
    kernel_size=3,
    stride=5,
    padding=1,
    dilation=2,
)

get_inputs, get_init_inputs = PROBLEM.get_inputs, PROBLEM.get_init_inputs
