#!/usr/bin/env python3
"""Two builds of the library on the layers of workloads.csv and workloads_broad.csv, in one process, in turn.

    compare_builds.py OLD.so NEW.so [--operation forward|backward_data|backward_weights]
                      [--precisions tf32,f32,f16,bf16] [--layouts nchw,nhwc] [--changed] [--seconds S]
                      [--device cuda|cpu] [--out FILE.csv] [CASE...]

Weights are packed once, and in NHWC lie in channels_last where they are the gradient. On CUDA each build's runs are a
CUDA graph of up to 20 executes, over the same buffers; a figure is the median of three rounds in which both take turns,
each the median of five replays. --changed times only layers for which the builds choose different implementations.
Prints layers that became more than 4 % slower, or whose
outputs differ, and geometric means of new / old; a second run tells what is noise.
"""

import argparse
import csv
import ctypes as c
import importlib
import itertools
import math
import os
import pathlib
import statistics
import sys
import time

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

ROUNDS, REPLAYS, MOST_EXECUTES = 3, 5, 20
GRAPH_MS = 1.0  # of a graph, about
SLOWER = 1.04  # two readings of one kernel differ by up to 4 %
DIFFERENT = 2e-2  # of the largest output: other rounding, not other results
PRECISIONS = {
    "tf32": ("F32", "MATH_TF32", torch.float32),
    "f32": ("F32", "MATH_STRICT", torch.float32),
    "f16": ("F16", "MATH_STRICT", torch.float16),
    "bf16": ("BF16", "MATH_STRICT", torch.bfloat16),
    "f64": ("F64", "MATH_STRICT", torch.float64),
}
OPERATIONS = {"forward": "OP_FORWARD", "backward_data": "OP_BACKWARD_DATA", "backward_weights": "OP_BACKWARD_WEIGHTS"}


class Build:
    """A library, through a copy of the Python package's API of its own: the package has one for a process."""

    def __init__(self, path):
        for name in [name for name in sys.modules if name == "tconv" or name.startswith("tconv.")]:
            del sys.modules[name]
        os.environ["TCONV_LIBRARY"] = str(pathlib.Path(path).resolve())
        self.api = importlib.import_module("tconv._library")
        self.library = self.api.library()

    def check(self, status):
        if status:
            raise self.api.last_error()


def desc_of(api, row, precision, layout):
    """The description of a layer by the names of bench's workloads."""
    dtype, math_name, _ = PRECISIONS[precision]
    desc = api.new_desc()
    desc.batch, desc.in_channels, desc.out_channels, desc.groups = row["N"], row["Cin"], row["Cout"], row["g"]
    desc.in_h, desc.in_w = row["H"], row["W"]
    for field, key in (("kernel", "k"), ("stride", "s"), ("output_padding", "op"), ("dilation", "d")):
        setattr(desc, field + "_h", row[key + "h"])
        setattr(desc, field + "_w", row[key + "w"])
    desc.pad_top = desc.pad_bottom = row["ph"]
    desc.pad_left = desc.pad_right = row["pw"]
    desc.dtype, desc.math = getattr(api, dtype), getattr(api, math_name)
    desc.layout = api.NHWC if layout == "nhwc" else api.NCHW
    return desc


class Plan:
    def __init__(self, build, row, precision, layout, device, implementation=None, operation="forward"):
        self.build, api = build, build.api
        self.desc = desc = desc_of(api, row, precision, layout)
        desc.op = getattr(api, OPERATIONS[operation])
        self.packs = operation != "backward_weights"
        if not self.packs and layout == "nhwc":
            desc.weight_layout = api.WEIGHT_IHWO
        options = api.new_options()
        options.backend = api.BACKEND_CUDA if device == "cuda" else api.BACKEND_CPU
        self.location = options.location = api.LOCATION_CUDA if device == "cuda" else api.LOCATION_HOST
        if implementation is not None:
            options.implementation = implementation.encode()
        self.handle = c.c_void_p()
        build.check(build.library.tconv_plan_create(c.byref(desc), c.byref(options), c.byref(self.handle), None))
        self.implementation = build.library.tconv_plan_implementation(self.handle).decode()
        self.shape = api.output_shape(desc)

    def tensor(self, tensor):
        return None if tensor is None else self.build.api.Tensor(tensor.data_ptr(), self.desc.dtype, self.location)

    def bind(self, src, weights, bias, dst):
        library, packed, size = self.build.library, c.c_void_p(), c.c_size_t()
        tensor = self.tensor(weights)
        if self.packs:
            self.build.check(
                library.tconv_plan_pack_weights(self.handle, c.byref(tensor), stream(src), c.byref(packed), None)
            )
            library.tconv_plan_destroy(self.handle)
            self.handle = packed
        self.build.check(library.tconv_plan_workspace_size(self.handle, c.byref(size)))
        self.workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device=src.device)
        self.size, self.src = size.value, src
        self.tensors = [self.tensor(src), None if self.packs else tensor, self.tensor(bias), self.tensor(dst)]

    def run(self):
        tensors = (None if tensor is None else c.byref(tensor) for tensor in self.tensors)
        workspace = self.workspace.data_ptr() if self.size else None
        execute = self.build.library.tconv_plan_execute
        self.build.check(execute(self.handle, *tensors, workspace, self.size, stream(self.src)))

    def close(self):
        self.build.library.tconv_plan_destroy(self.handle)


def stream(tensor):
    return torch.cuda.current_stream().cuda_stream if tensor.is_cuda else None


def graph_of(plan, executes):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        plan.run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(executes):
            plan.run()
    return graph.replay


def milliseconds(run, device):
    """Median of REPLAYS runs, one after another."""
    if device == "cpu":
        times = []
        for _ in range(REPLAYS):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(first.elapsed_time(second) for first, second in itertools.pairwise(events))


def compare(plans, row, precision, layout, device, operation="forward"):
    """Milliseconds of each plan, and the largest difference of their outputs."""
    memory = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    dtype = PRECISIONS[precision][2]

    def numbers(*shape):
        return (torch.rand(*shape, device=device) - 0.5).to(dtype)

    forward, of_weights = operation == "forward", operation == "backward_weights"
    src = numbers(row["N"], row["Cin"], row["H"], row["W"]).contiguous(memory_format=memory)
    dst = None if forward else numbers(*plans[0].shape).contiguous(memory_format=memory)
    weights = numbers(row["Cin"], row["Cout"] // row["g"], row["kh"], row["kw"])
    bias = numbers(row["Cout"]) if row["bias"] and forward else None
    shape = weights.shape if of_weights else plans[0].shape if forward else src.shape
    outputs = [torch.zeros(shape, dtype=dtype, device=device).contiguous(memory_format=memory) for _ in plans]
    for plan, output in zip(plans, outputs, strict=True):
        plan.bind(
            src if forward or of_weights else output,
            output if of_weights else weights,
            bias,
            output if forward else dst,
        )
        plan.run()
    executes, runs = 1, [plan.run for plan in plans]
    if device == "cuda":
        one = milliseconds(plans[0].run, device)
        executes = max(1, min(MOST_EXECUTES, int(GRAPH_MS / max(one, 0.01))))
        runs = [graph_of(plan, executes) for plan in plans]
    rounds = [[milliseconds(run, device) / executes for run in runs] for _ in range(ROUNDS)]
    old, new = (output.float() for output in outputs)
    difference = (old - new).abs().max().item() / max(old.abs().max().item(), 1e-30)
    return [statistics.median(times) for times in zip(*rounds, strict=True)], difference


def workloads(names, files=("workloads.csv", "workloads_broad.csv")):
    """(name, row) of the layers with these names in the files; of all layers if there are no names."""
    for file in files:
        with open(HERE / file, newline="") as lines:
            for row in csv.DictReader(lines):
                if not names or row["name"] in names:
                    yield row["name"], {key: int(value) for key, value in row.items() if key != "name"}


def broad_workloads(names=()):
    return list(workloads(names, ("workloads_broad.csv",)))


def report(ratios):
    for (precision, layout), found in ratios.items():
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in found))
        slower = sum(ratio > 1.05 for ratio, _ in found)
        worst = ", ".join(f"{name} {ratio:.2f}" for ratio, name in sorted(found)[:-4:-1])
        print(f"{precision} {layout}: {len(found)} layers, new / old {mean:.4f}, {slower} over 1.05; worst {worst}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--operation", choices=OPERATIONS, default="forward")
    parser.add_argument("--precisions", default="tf32,f32,f16,bf16")
    parser.add_argument("--layouts", default="nchw,nhwc")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--out", type=argparse.FileType("w"))
    asked = parser.parse_intermixed_args()
    start, ratios, same = time.monotonic(), {}, 0
    builds = [Build(asked.old), Build(asked.new)]
    writer = csv.writer(asked.out) if asked.out else None
    if writer:
        writer.writerow(["precision", "layout", "layer", "old", "new", "old_ms", "new_ms"])
    for precision in asked.precisions.split(","):
        for layout in asked.layouts.split(","):
            for name, row in workloads(asked.cases):
                if time.monotonic() - start > asked.seconds:
                    break
                plans = [
                    Plan(build, row, precision, layout, asked.device, operation=asked.operation) for build in builds
                ]
                chosen = [plan.implementation for plan in plans]
                if asked.changed and chosen[0] == chosen[1]:
                    same += 1
                else:
                    (old, new), difference = compare(plans, row, precision, layout, asked.device, asked.operation)
                    ratios.setdefault((precision, layout), []).append((new / old, name))
                    if writer:
                        writer.writerow([precision, layout, name, *chosen, f"{old:.5f}", f"{new:.5f}"])
                    if new / old > SLOWER or not difference < DIFFERENT:
                        print(
                            f"{precision} {layout} {name}: {chosen[0]} {old:.4f} ms, {chosen[1]} {new:.4f} ms, ", end=""
                        )
                        print(f"{new / old:.3f}, outputs differ by {difference:.0e}", flush=True)
                for plan in plans:
                    plan.close()
    report(ratios)
    if asked.changed:
        print(f"{same} with the same implementation were not timed")


if __name__ == "__main__":
    main()
