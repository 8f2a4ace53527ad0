#!/usr/bin/env python3
"""What a first result costs: a process that has not loaded the library, and layers of sizes that were not seen before.

    first_calls.py LIBRARY.so [--device cuda|cpu] [--processes N] [--lengths N] [--seed S]

Cold start: milliseconds from loading the library to the first result in host memory, of a small layer by the one call,
in a process of its own, median of several; on CUDA beside what the driver takes for a context, memory and two copies in
a process of its own, without tconv. New lengths: a vocoder's upsampling layers (HiFi-GAN V1: Kong, Kim, Bae, 2020),
called from PyTorch with spectrograms of random lengths, none of which was seen before; milliseconds of host time until
a call returns, tconv's and PyTorch's in turn.
"""

import argparse
import ctypes as c
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

PYTHON = pathlib.Path(__file__).resolve().parent.parent / "python"

# Input and output channels, kernel, stride, padding.
VOCODER = ((512, 256, 16, 8, 4), (256, 128, 16, 8, 4), (128, 64, 4, 2, 1), (64, 32, 4, 2, 1))
SHORTEST, LONGEST = 40, 800  # frames of a spectrogram


def milliseconds_since(start):
    return 1e3 * (time.perf_counter() - start)


# ----------------------------------------------------------------------------------------------------------- cold start


def start_tconv(device):
    """Prints milliseconds: the library loaded, the plan made, the first result there."""
    sys.path.insert(0, str(PYTHON))
    from tconv import _library as api

    channels, side = 8, 16
    src, weights = (c.c_float * (channels * side * side))(), (c.c_float * (channels * channels * 16))()
    dst = (c.c_float * (channels * 4 * side * side))()
    src[0] = weights[0] = 1
    times, start = [], time.perf_counter()
    library = api.library()
    times.append(milliseconds_since(start))
    desc, options, plan = api.new_desc(), api.new_options(), c.c_void_p()
    desc.in_channels = desc.out_channels = channels
    desc.in_h = desc.in_w = side
    desc.kernel_h = desc.kernel_w = 4
    desc.stride_h = desc.stride_w = 2
    desc.pad_top = desc.pad_left = desc.pad_bottom = desc.pad_right = 1
    options.backend = api.BACKEND_CUDA if device == "cuda" else api.BACKEND_CPU
    if library.tconv_plan_create(c.byref(desc), c.byref(options), c.byref(plan), None):
        raise api.last_error()
    times.append(milliseconds_since(start))
    tensors = [api.Tensor(c.addressof(memory), api.F32, api.LOCATION_HOST) for memory in (src, weights, dst)]
    by_address = [c.byref(tensor) for tensor in tensors]
    if library.tconv_conv_transpose2d(c.byref(desc), c.byref(options), *by_address[:2], None, by_address[2], None):
        raise api.last_error()
    times.append(milliseconds_since(start))
    library.tconv_plan_destroy(plan)
    print(*times)


def start_driver(_):
    """Prints milliseconds: the driver loaded, a context made, memory copied there and back."""
    times, start = [], time.perf_counter()
    driver = c.CDLL("libcuda.so.1")
    times.append(milliseconds_since(start))
    device, context, memory, size = c.c_int(), c.c_void_p(), c.c_uint64(), 1 << 16
    host = c.create_string_buffer(size)
    calls = (
        lambda: driver.cuInit(0),
        lambda: driver.cuDeviceGet(c.byref(device), 0),
        lambda: driver.cuDevicePrimaryCtxRetain(c.byref(context), device),
        lambda: driver.cuCtxSetCurrent(context),
        lambda: times.append(milliseconds_since(start)),
        lambda: driver.cuMemAlloc_v2(c.byref(memory), c.c_size_t(size)),
        lambda: driver.cuMemcpyHtoD_v2(memory, host, c.c_size_t(size)),
        lambda: driver.cuMemcpyDtoH_v2(host, memory, c.c_size_t(size)),
    )
    for call in calls:
        if status := call():
            raise RuntimeError(f"the driver returned {status}")
    times.append(milliseconds_since(start))
    print(*times)


CHILDREN = {"tconv": start_tconv, "driver": start_driver}
STEPS = {
    "tconv": ("loaded", "planned", "first result"),
    "driver": ("loaded", "context", "memory and copies"),
}


def report_start(who, options):
    command = [sys.executable, __file__, options.library, "--device", options.device, "--child", who]
    runs = [
        list(map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))
        for _ in range(options.processes)
    ]
    steps = ", ".join(
        f"{step} {statistics.median(times):.1f}"
        for step, times in zip(STEPS[who], zip(*runs, strict=True), strict=True)
    )
    print(f"cold start, ms since the beginning, median of {len(runs)} processes: {who}: {steps}", flush=True)


# ---------------------------------------------------------------------------------------------------------- new lengths


def percentile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def report_lengths(options):
    sys.path.insert(0, str(PYTHON))
    import torch
    from torch.nn import functional

    import tconv.torch

    def wait():
        if options.device == "cuda":
            torch.cuda.synchronize()

    draw = random.Random(options.seed)
    frames = draw.sample(range(SHORTEST, LONGEST + 1), min(options.lengths, LONGEST + 1 - SHORTEST))
    weights = [torch.randn(i, o, kernel, device=options.device) for i, o, kernel, _, _ in VOCODER]
    functions = {"tconv": tconv.torch.conv_transpose1d, "PyTorch": functional.conv_transpose1d}
    times = {name: [] for name in functions}
    with torch.no_grad():
        for length in [LONGEST + 1, *frames]:  # the first one loads kernels and cuDNN
            columns = length
            for (channels, _, _, stride, padding), weight in zip(VOCODER, weights, strict=True):
                x = torch.randn(1, channels, columns, device=options.device)
                for name, function in functions.items():
                    wait()
                    start = time.perf_counter()
                    function(x, weight, None, stride, padding)
                    if length <= LONGEST:
                        times[name].append(milliseconds_since(start))
                columns *= stride
    for name, values in times.items():
        shares = ", ".join(f"{100 * share:g} % {percentile(values, share):.3f}" for share in (0.5, 0.9, 0.99))
        under = 100 * sum(value < 1 for value in values) / len(values)
        print(
            f"{len(values)} calls of new lengths, ms: {name}: {shares}, "
            f"most {max(values):.2f}; {under:.1f} % under 1 ms"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--processes", default=7, type=int)
    parser.add_argument("--lengths", default=500, type=int)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["TCONV_LIBRARY"] = options.library = str(pathlib.Path(options.library).resolve())
    if options.child:
        CHILDREN[options.child](options.device)
        return
    report_start("tconv", options)
    if options.device == "cuda":
        report_start("driver", options)
    report_lengths(options)


if __name__ == "__main__":
    main()
