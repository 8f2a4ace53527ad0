#!/usr/bin/env python3
"""Times of every CUDA implementation on every layer of results/h200_implementations.csv.gz, in all three operations.

    ablation.py LIBRARY.so [--precisions tf32,f32,f16,bf16] [--layouts nchw,nhwc] [--operations forward,...]
                [--implementations cuda_frames,...] [--recorded FILE.csv] [--seconds S] [--out FILE.csv]

A line has the precision, the layout, the operation, the layer, the implementation, its microseconds (weights packed
once, in a CUDA graph, median of five replays), the predicted ones, and the plan's words: what is lost without an
implementation, or without one of its kernels, can be read from the file. A plan that is predicted to take over SLOWEST
times as long as the best is not timed, and has no microseconds. A plan whose words are those of a recorded file keeps
the time of that file. Needs PyTorch with CUDA. On an H200 it takes about three minutes.
"""

import argparse
import csv
import ctypes as c
import itertools
import math
import sys
import time

import compare_builds as builds
import run_files
import sweep_tiles
import torch

OPERATIONS = {"forward": "OP_FORWARD", "backward_data": "OP_BACKWARD_DATA", "backward_weights": "OP_BACKWARD_WEIGHTS"}
SLOWEST = 20
GRAPH_MS, MOST_EXECUTES, LONG_MS = 0.3, 20, 5.0
PARTS = 11  # words of a line of tconv_explain before the plan's own: rank, name, the predicted time and its parts


class Plan(builds.Plan):
    """A plan of any operation by a named implementation or the best, on tensors that all plans of the layer share."""

    def __init__(self, build, desc, implementation=None):
        api = build.api
        options = api.new_options()
        options.backend, options.location = api.BACKEND_CUDA, api.LOCATION_CUDA
        if implementation is not None:
            options.implementation = implementation.encode()
        self.build, self.desc, self.location, self.handle = build, desc, api.LOCATION_CUDA, c.c_void_p()
        build.check(build.library.tconv_plan_create(c.byref(desc), c.byref(options), c.byref(self.handle), None))
        self.implementation = build.library.tconv_plan_implementation(self.handle).decode()
        self.packs = desc.op != api.OP_BACKWARD_WEIGHTS


def explained(build, desc):
    """(implementation, predicted microseconds, words of the plan), for each that takes the layer, best first."""
    api, length = build.api, c.c_size_t()
    options = api.new_options()
    options.backend = api.BACKEND_CUDA
    explain = build.library.tconv_explain
    build.check(explain(c.byref(desc), c.byref(options), None, 0, None, c.c_size_t(0), c.byref(length), None))
    text = c.create_string_buffer(length.value + 1)
    build.check(explain(c.byref(desc), c.byref(options), None, 0, text, c.c_size_t(length.value + 1), None, None))
    for line in text.value.decode().splitlines():
        words = line.split()
        if len(words) > PARTS and words[0].isdigit():
            yield words[1], float(words[2]), " ".join(words[PARTS:])


def microseconds(plan, tensors):
    plan.bind(*tensors)
    first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    plan.run()
    second.record()
    second.synchronize()
    if first.elapsed_time(second) > 4 * LONG_MS:
        return first.elapsed_time(second) * 1e3
    one = builds.milliseconds(plan.run, "cuda")
    if one > LONG_MS:
        return one * 1e3
    executes = max(1, min(MOST_EXECUTES, int(GRAPH_MS / max(one, 0.004))))
    replay = builds.graph_of(plan, executes)
    replay()
    return builds.milliseconds(replay, "cuda") / executes * 1e3


def recorded_times(path):
    """Microseconds by everything of a line but them and the predicted ones; none of a plan that was not timed."""
    keys = ("precision", "layout", "operation", "layer", "implementation", "words")
    return {tuple(row[key] for key in keys): row["us"] for row in run_files.rows(path)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--precisions", default="tf32,f32,f16,bf16")
    parser.add_argument("--layouts", default="nchw,nhwc")
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--implementations", help="these alone are timed")
    parser.add_argument("--recorded", help="a file of an earlier run: only plans with other words are timed")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    asked = parser.parse_args()
    start, build, timed = time.monotonic(), builds.Build(asked.library), 0
    recorded = recorded_times(asked.recorded) if asked.recorded else {}
    writer = csv.writer(asked.out)
    writer.writerow(["precision", "layout", "operation", "layer", "implementation", "us", "predicted_us", "words"])
    kinds = itertools.product(asked.precisions.split(","), asked.layouts.split(","))
    for precision, layout in kinds:
        for layer, row in sweep_tiles.layers().items():
            tensors = None
            for operation in asked.operations.split(","):
                if time.monotonic() - start > asked.seconds:
                    print(f"stopped in {precision} {layout} at {layer}: {timed} timed", file=sys.stderr)
                    return
                desc = builds.desc_of(build.api, row, precision, layout)
                desc.op = getattr(build.api, OPERATIONS[operation])
                if tensors is None:
                    tensors = sweep_tiles.tensors_of(row, build.api.output_shape(desc), precision, layout)
                    tensors[-1].uniform_(-0.5, 0.5)  # gradients read dst
                found = list(explained(build, desc))
                best = min((predicted for _, predicted, _ in found if predicted > 0), default=0)
                for implementation, predicted, words in found:
                    if asked.implementations and implementation not in asked.implementations.split(","):
                        continue
                    us = recorded.get((precision, layout, operation, layer, implementation, words), "")
                    if not us and predicted <= SLOWEST * best:
                        plan = Plan(build, desc, implementation)
                        us = f"{microseconds(plan, tensors):.2f}"
                        plan.close()
                        timed += 1
                    writer.writerow(
                        [precision, layout, operation, layer, implementation, us, f"{predicted:.1f}", words]
                    )
    print(f"{timed} timed in {time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
