"""KernelBench level 1, problem 75: input and kernel wider than high, strided, padded, dilated, in groups."""

from problem import Model, ModelNew, Problem

__all__ = ["Model", "ModelNew", "get_init_inputs", "get_inputs"]

PROBLEM = Problem(
    batch_size=16,
    in_channels=32,
    height=128,
    width=256,
    out_channels=64,
    kernel_size=(3, 5),
    stride=(2, 3),
    padding=(1, 2),
    dilation=(2, 1),
    groups=4,
)

get_inputs, get_init_inputs = PROBLEM.get_inputs, PROBLEM.get_init_inputs
