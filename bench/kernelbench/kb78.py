"""KernelBench level 1, problem 78: input and kernel wider than high, padded."""

from problem import Model, ModelNew, Problem

__all__ = ["Model", "ModelNew", "get_init_inputs", "get_inputs"]

PROBLEM = Problem(
    batch_size=8,
    in_channels=32,
    height=512,
    width=1024,
    out_channels=32,
    kernel_size=(3, 7),
    padding=(1, 3),
)

get_inputs, get_init_inputs = PROBLEM.get_inputs, PROBLEM.get_init_inputs
