#!/usr/bin/env python3
"""Times of every CUDA implementation with the tile that it chooses and with others: what the cost model is fitted to.

    sweep_tiles.py LIBRARY.so [--precisions tf32,f32,f16] [--layouts nchw,nhwc] [--seeds N] [--seconds S]
                   [--implementations cuda_gemm_col2im,...] [--out FILE.csv]

The library is built with -DCMAKE_C_FLAGS=-DTCONV_CUDA_SWEEP: a seed multiplies each predicted time by a factor of 1
to 1.6, so that planners take other tiles (seed 0: their own choice). A line has the layer, the implementation, the
seed, milliseconds (weights packed once, in a CUDA graph, median of five replays) and the work that the plan counts, by
the names of src/cuda/model/work.h. The layers are those of results/h200_implementations.csv.gz. fit_cost_model.py reads
the file. On an H200 19,000 kernels take 100 s.
"""

import argparse
import csv
import ctypes as c
import pathlib
import re
import struct
import sys
import time

import compare_builds as builds
import run_files
import torch

HERE = pathlib.Path(__file__).resolve().parent
TILED = ("cuda_igemm", "cuda_wgmma", "cuda_cells", "cuda_mma")  # which choose among tiles
OTHERS = ("cuda_rows", "cuda_col2im", "cuda_gemm_col2im", "cuda_depthwise", "cuda_general")
EXTENTS = ("N", "Cin", "H", "W", "Cout", "kh", "kw", "sh", "sw", "ph", "pw", "oph", "opw", "dh", "dw", "g")
GRAPH_MS, MOST_EXECUTES, LONG_MS = 0.4, 20, 30.0


def layers():
    rows = run_files.rows(HERE / "results" / "h200_implementations.csv.gz")
    return {row["layer"]: {key: int(row[key]) for key in EXTENTS} | {"bias": 0} for row in rows}


def work_fields():
    """Names of tconv_cuda_work's fields in order, and whether each is a bool."""
    text = (HERE.parent / "src" / "cuda" / "model" / "work.h").read_text()
    text = text[text.index("typedef struct tconv_cuda_work {") : text.index("} tconv_cuda_work;")]
    lines = re.findall(r"^\s*(double|bool)\s+([^;]+);", re.sub(r"/\*.*?\*/", "", text, flags=re.S), re.M)
    return [(name.strip(), kind == "bool") for kind, names in lines for name in names.split(",")]


class Sweep:
    def __init__(self, path):
        self.build = builds.Build(path)
        library, self.fields = c.CDLL(str(pathlib.Path(path).resolve())), work_fields()
        self.format = "".join("?" if is_bool else "d" for _, is_bool in self.fields)
        self.seed = c.c_uint64.in_dll(library, "tconv_sweep_seed")
        self.work = (c.c_ubyte * struct.calcsize(self.format)).in_dll(library, "tconv_sweep_work")

    def plan(self, row, precision, layout, implementation, seed):
        """A plan and its work, or None where the implementation declines."""
        self.seed.value = seed
        try:
            plan = builds.Plan(self.build, row, precision, layout, "cuda", implementation)
        except Exception:
            return None
        return plan, struct.unpack(self.format, bytes(self.work))

    def milliseconds(self, plan, tensors):
        plan.bind(*tensors)  # plans again: the seed is still the same
        self.seed.value = 0
        plan.run()
        one = builds.milliseconds(plan.run, "cuda")
        if one > LONG_MS:
            return one
        executes = max(1, min(MOST_EXECUTES, int(GRAPH_MS / max(one, 0.004))))
        replay = builds.graph_of(plan, executes)
        replay()
        return builds.milliseconds(replay, "cuda") / executes


def tensors_of(row, shape, precision, layout):
    memory = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    dtype = builds.PRECISIONS[precision][2]
    src = (torch.rand(row["N"], row["Cin"], row["H"], row["W"], device="cuda") - 0.5).to(dtype)
    weights = (torch.rand(row["Cin"], row["Cout"] // row["g"], row["kh"], row["kw"], device="cuda") - 0.5).to(dtype)
    dst = torch.zeros(shape, dtype=dtype, device="cuda")
    return src.contiguous(memory_format=memory), weights, None, dst.contiguous(memory_format=memory)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--precisions", default="tf32,f32,f16")
    parser.add_argument("--layouts", default="nchw,nhwc")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--implementations", default=",".join(TILED + OTHERS))
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    asked = parser.parse_args()
    start, sweep = time.monotonic(), Sweep(asked.library)
    writer = csv.writer(asked.out)
    writer.writerow(["mode", "layout", "layer", "implementation", "seed", "ms", *(name for name, _ in sweep.fields)])
    for precision in asked.precisions.split(","):
        for layout in asked.layouts.split(","):
            for name, row in layers().items():
                if time.monotonic() - start > asked.seconds:
                    return
                tensors = None
                for implementation in asked.implementations.split(","):
                    seen = set()
                    for seed in range(asked.seeds if implementation in TILED else 1):
                        made = sweep.plan(row, precision, layout, implementation, seed)
                        if made is None:
                            break
                        plan, work = made
                        if work not in seen:
                            seen.add(work)
                            tensors = tensors or tensors_of(row, plan.shape, precision, layout)
                            took = sweep.milliseconds(plan, tensors)
                            writer.writerow([precision, layout, name, implementation, seed, f"{took:.5f}", *work])
                        plan.close()


if __name__ == "__main__":
    main()
