#!/usr/bin/env python3
"""What a layer costs when JAX calls it, beside tconv's own call from C on the same arrays, on a GPU.

jax_calls.py [--platform cuda] [--seconds 50]

Layers of workloads.csv in NHWC with Keras' kernels, which tconv.jax hands on as they lie: forward, and each gradient
by itself, in float32 as JAX has it (TF32 on CUDA). A figure is the median of samples; a sample is so many calls, one
queued behind another, that they take twenty milliseconds, so that the latency of the first and the last counts little.
The calls of C go through ctypes, which takes some microseconds.
"""

import argparse
import ctypes
import statistics
import time

import jax
import jax.numpy as jnp
import jax_layers
import numpy as np

import tconv
import tconv.jax
from tconv import _library as lib
from tconv import _plan
from tconv.jax._layer import PLATFORMS, Layer

SAMPLE, SAMPLES = 20e-3, 7
OPERATIONS = {"forward": lib.OP_FORWARD, "data": lib.OP_BACKWARD_DATA, "weights": lib.OP_BACKWARD_WEIGHTS}


def synchronise(platform):
    if platform == "cuda":
        assert ctypes.CDLL("libcuda.so.1").cuCtxSynchronize() == 0


def median(call, wait, operands=()):
    """Seconds of a call."""

    def sample(calls):
        start = time.perf_counter()
        for _ in range(calls):
            last = call(*operands)
        wait(last)
        return (time.perf_counter() - start) / calls

    sample(3)
    calls = 1 + int(SAMPLE / sample(3))
    return statistics.median(sample(calls) for _ in range(SAMPLES))


def layer_of(row):
    """The layer as tconv.jax's primitives have it, and the shapes of input and kernel."""
    layer = Layer(
        layout=lib.NHWC,
        weight_layout=lib.WEIGHT_HWOI,
        stride=(row["sh"], row["sw"]),
        padding=((row["ph"], row["ph"]), (row["pw"], row["pw"])),
        output_padding=(row["oph"], row["opw"]),
        dilation=(row["dh"], row["dw"]),
        groups=1,
    )
    return layer, (row["N"], row["H"], row["W"], row["Cin"]), (row["kh"], row["kw"], row["Cout"], row["Cin"])


def by_jax(layer, arrays):
    """The layer and its gradients, a program of each, and their operands."""
    axes = ("NHWC", "HWIO", "NHWC")
    padding = [
        (d * (k - 1) - a, d * (k - 1) - b + more)
        for d, k, (a, b), more in zip(
            layer.dilation, arrays[1].shape[:2], layer.padding, layer.output_padding, strict=True
        )
    ]

    def forward(x, kernel):
        return tconv.jax.conv_transpose(x, kernel, layer.stride, padding, layer.dilation, axes, True)

    x, kernel, of_y = arrays
    return {
        "forward": (forward, (x, kernel)),
        "data": (lambda of_y, kernel: jax.linear_transpose(lambda x: forward(x, kernel), x)(of_y)[0], (of_y, kernel)),
        "weights": (
            lambda of_y, x: jax.linear_transpose(lambda kernel: forward(x, kernel), kernel)(of_y)[0],
            (of_y, x),
        ),
    }


def by_c(platform, op, layer, arrays, result):
    """A call of the plan, which writes the result. What it computes on must be kept."""
    x, kernel, of_y = arrays
    n, channels, h, w = layer.extents(x.shape)
    _, out_channels, kh, kw = layer.weight_extents(kernel.shape)
    desc = lib.new_desc()
    desc.op, desc.layout, desc.weight_layout = op, layer.layout, layer.weight_layout
    desc.math = layer.math(jnp.dtype("float32"), platform)
    desc.batch, desc.in_channels, desc.in_h, desc.in_w, desc.out_channels = n, channels, h, w, out_channels
    (desc.kernel_h, desc.kernel_w), (desc.stride_h, desc.stride_w) = (kh, kw), layer.stride
    (desc.pad_top, desc.pad_bottom), (desc.pad_left, desc.pad_right) = layer.padding
    (desc.output_padding_h, desc.output_padding_w), (desc.dilation_h, desc.dilation_w) = (
        layer.output_padding,
        layer.dilation,
    )
    options = lib.new_options()
    options.backend = PLATFORMS[platform]
    plan = _plan.Plan(desc, options)
    workspace = jax.block_until_ready(jnp.zeros(max(plan.total_workspace_size, 1), np.uint8))
    at = {
        lib.OP_FORWARD: (x, kernel, result),
        lib.OP_BACKWARD_DATA: (result, kernel, of_y),
        lib.OP_BACKWARD_WEIGHTS: (x, result, of_y),
    }[op]
    src, weights, dst = (array.unsafe_buffer_pointer() for array in at)

    memory = workspace.unsafe_buffer_pointer()

    def call(keep=(workspace, at)):
        status = plan.execute(src, weights, 0, dst, memory, 0)
        assert status == 0, lib.last_error()

    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", choices=PLATFORMS, default="cuda")
    parser.add_argument("--seconds", type=float, default=50, help="begin no layer after that many")
    options = parser.parse_args()
    jax.config.update("jax_platforms", options.platform)
    start = time.monotonic()
    print("| layer | operation | C, us | JAX, us | JAX / C |\n|---|---|---:|---:|---:|")
    for row in jax_layers.layers(options.platform):
        if row["g"] > 1 or row["dtype"] != "float32" or time.monotonic() - start > options.seconds:
            continue
        layer, x_shape, kernel_shape = layer_of(row)
        rng = np.random.default_rng(0)
        shapes = x_shape, kernel_shape, layer.dst_shape(x_shape, kernel_shape)
        arrays = [jnp.asarray(rng.random(shape, np.float32) - np.float32(0.5)) for shape in shapes]
        for name, (function, operands) in by_jax(layer, arrays).items():
            program = jax.jit(function)
            result = jax.block_until_ready(program(*operands))
            written = jax.block_until_ready(jnp.zeros_like(result))
            call = by_c(options.platform, OPERATIONS[name], layer, arrays, written)
            call()
            synchronise(options.platform)
            same = bool((np.asarray(written) == np.asarray(result)).all())
            of_c = median(call, lambda last: synchronise(options.platform))
            of_jax = median(program, jax.block_until_ready, operands)
            cells = f"{of_c * 1e6:.1f} | {of_jax * 1e6:.1f} | {of_jax / of_c:.2f}"
            print(f"| {row['name']} | {name} | {cells} |" + ("" if same else " OTHER BITS"), flush=True)


if __name__ == "__main__":
    main()
