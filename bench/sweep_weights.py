#!/usr/bin/env python3
"""Times of the plan that cuda_wgrad chooses and of others: what the numbers of src/cuda/wgrad/work.c are fitted to.

    sweep_weights.py LIBRARY.so [--precisions bf16,tf32,f32] [--layouts nhwc,nchw] [--seeds N] [--seconds S]
                     [--out FILE.csv]

The library is built with -DCMAKE_C_FLAGS=-DTCONV_CUDA_SWEEP, see sweep_tiles.py: a seed multiplies each predicted time
by a factor, so that the search takes another plan (seed 0: its own choice). A line has the layer of
workloads_broad.csv, the seed, the microseconds of the gradient of the weights alone (in a CUDA graph, median of five
replays) and the plan's words. Needs PyTorch with CUDA. On an H200 six plans for each layer take about two minutes.
"""

import argparse
import csv
import ctypes as c
import itertools
import math
import pathlib
import sys
import time

import ablation
import compare_builds as builds

SLOWEST = 3  # a plan that takes so many times as long as the fastest so far is not timed again in a graph,
HOST_US = 100  # unless the host may take most of this time


def words_of(build, desc):
    for name, _, words in ablation.explained(build, desc):
        if name == "cuda_wgrad":
            return words
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--precisions", default="bf16,tf32,f32")
    parser.add_argument("--layouts", default="nhwc,nchw")
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    asked = parser.parse_args()
    start, build, writer = time.monotonic(), builds.Build(asked.library), csv.writer(asked.out)
    seed = c.c_uint64.in_dll(c.CDLL(str(pathlib.Path(asked.library).resolve())), "tconv_sweep_seed")
    writer.writerow(["precision", "layout", "layer", "seed", "us", "words"])
    kinds = itertools.product(asked.precisions.split(","), asked.layouts.split(","))
    for (precision, layout), (layer, row) in itertools.product(kinds, builds.broad_workloads()):
        desc = builds.desc_of(build.api, row, precision, layout)
        desc.op = build.api.OP_BACKWARD_WEIGHTS
        shape = build.api.output_shape(desc)
        src, weights, _, dst = ablation.sweep_tiles.tensors_of(row, shape, precision, layout)
        dst.uniform_(-0.5, 0.5)
        seen, fastest = set(), math.inf
        for number in range(asked.seeds):
            if time.monotonic() - start > asked.seconds:
                return
            seed.value = number
            words = words_of(build, desc)
            if words is None or words in seen:
                continue
            seen.add(words)
            plan = ablation.Plan(build, desc, "cuda_wgrad")
            seed.value = 0
            plan.bind(src, weights, None, dst)
            plan.run()
            us = builds.milliseconds(plan.run, "cuda") * 1e3
            if us < max(SLOWEST * fastest, HOST_US):
                us = ablation.microseconds(plan, (src, weights, None, dst))
            fastest = min(fastest, us)
            writer.writerow([precision, layout, layer, number, f"{us:.2f}", words])
            plan.close()


if __name__ == "__main__":
    main()
