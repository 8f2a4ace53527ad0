#!/usr/bin/env python3
"""The kernels that one call of tconv launches, with the microseconds of each, on the layers of workloads_broad.csv.

    call_kernels.py LIBRARY.so [--precisions tf32,bf16] [--layouts nchw,nhwc] [--operations backward_weights,...]
                    [--seconds S] [--out FILE.csv] [CASE...]

A call packs the weights that it reads, and sums the bias where the layer has one. A line has the operation, the
precision, the layout, the layer, the implementation, the microseconds of a call in a CUDA graph, and the kernels in
the order in which they begin, with their microseconds: kernels that overlap count each for itself. Needs PyTorch.
"""

import argparse
import csv
import math
import re
import statistics
import sys
import time

import ablation
import compare_builds as builds
import torch

CALLS, REPLAYS = 5, 3


class Plan(ablation.Plan):
    """The best plan of an operation, which packs weights in each call."""

    def __init__(self, build, desc):
        super().__init__(build, desc)
        self.writes_weights = True  # all four tensors are arguments of the call, whatever the operation


def short(name):
    """A kernel's name without its namespaces, arguments and most of its template arguments."""
    name = re.sub(r"\(anonymous namespace\)::|^void |tconv::", "", name)
    return re.split(r"[<(]", name)[0]


def kernels(run):
    """(name, microseconds) of the kernels of a call, in order; the median over calls."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(REPLAYS):
            run()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    of_a_call = len(events) // (CALLS * REPLAYS)
    found = []
    for place in range(of_a_call):
        same = events[place::of_a_call]
        us = statistics.median(event.time_range.elapsed_us() for event in same)
        found.append((short(same[0].name), us))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--precisions", default="tf32,bf16")
    parser.add_argument("--layouts", default="nchw,nhwc")
    parser.add_argument("--operations", default=",".join(ablation.OPERATIONS))
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    asked = parser.parse_intermixed_args()
    start, build, writer = time.monotonic(), builds.Build(asked.library), csv.writer(asked.out)
    writer.writerow(["operation", "precision", "layout", "layer", "implementation", "us", "kernels"])
    layers = builds.broad_workloads(asked.cases)
    for precision in asked.precisions.split(","):
        for layout in asked.layouts.split(","):
            for layer, row in layers:
                tensors = None
                for operation in asked.operations.split(","):
                    if time.monotonic() - start > asked.seconds:
                        return
                    desc = builds.desc_of(build.api, row, precision, layout)
                    desc.op = getattr(build.api, ablation.OPERATIONS[operation])
                    if tensors is None:
                        src, weights, _, dst = ablation.sweep_tiles.tensors_of(
                            row, build.api.output_shape(desc), precision, layout
                        )
                        dst.uniform_(-0.5, 0.5)  # gradients read dst
                        bias = torch.zeros(row["Cout"], dtype=dst.dtype, device=dst.device) if row["bias"] else None
                        tensors = src, weights, bias, dst
                    plan = Plan(build, desc)
                    plan.bind(*tensors[:2], None if operation == "backward_data" else tensors[2], tensors[3])
                    replay = builds.graph_of(plan, CALLS)
                    replay()
                    us = builds.milliseconds(replay, "cuda") / CALLS * 1e3
                    parts = " ".join(f"{name}:{part:.1f}" for name, part in kernels(replay))
                    writer.writerow([operation, precision, layout, layer, plan.implementation, f"{us:.2f}", parts])
                    plan.close()


if __name__ == "__main__":
    main()
