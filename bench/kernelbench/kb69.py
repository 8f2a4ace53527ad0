"""KernelBench level 1, problem 69: input and kernel wider than high."""

from problem import Model, ModelNew, Problem

__all__ = ["Model", "ModelNew", "get_init_inputs", "get_inputs"]

PROBLEM = Problem(
    batch_size=64,
    in_channels=64,
    height=128,
    width=256,
    out_channels=128,
    kernel_size=(3, 5),
)

get_inputs, get_init_inputs = PROBLEM.get_inputs, PROBLEM.get_init_inputs
