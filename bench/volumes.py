#!/usr/bin/env python3
"""tconv against PyTorch (cuDNN, oneDNN) on layers with depth (ConvTranspose3d), in one process, in turn.

    volumes.py --library build-gpu/libtconv.so [--ops forward,backward_data,backward_weights]
               [--dtypes tf32,f32,f16,bf16] [--layouts ncdhw,ndhwc] [--out FILE.csv] [CASE...]
    volumes.py --library build/libtconv.so --device cpu [--threads 2] [--gflop 2] [--dtypes f32]

The layers are those of workloads_3d.csv. Contenders: tconv as the C API is called, with weights that are packed in each
call and, forward and backward_data, with weights that are packed once; PyTorch with cudnn.benchmark on and off, the
faster of which counts, input and weights in the layout (channels_last_3d for ndhwc). Each is a CUDA graph of several
calls over as many sets of activations as fill the second-level cache several times over; contenders take turns in each
of several rounds, and the figure is the median. On the CPU calls follow each other, and layers are cut to so many
GFLOP: their images first, then their planes and rows.

The floor is max(bytes / copy rate, FLOP / matrix product rate) without a launch, both rates measured in the same run;
strict f32 counts three products of the TF32 rate, on the CPU one. Results are compared with PyTorch's in strict f32: a
relative L2 error is printed.

Prints a line for each layer, layout, precision and operation, then geometric means; --out writes the lines as CSV.
"""

import argparse
import csv
import gc
import itertools
import math
import os
import pathlib
import statistics
import sys

# cuDNN's choice for a layer is kept whichever way it was made: so that each is made anew, one is kept, and displaced.
os.environ["TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT"] = "1"
import gpu_machine
import tconv_ctypes as t
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
# The tensors' dtype, tconv's dtype and math, whether PyTorch may use TF32, how many products of which dtype's rate.
PRECISIONS = {
    "f32": (torch.float32, t.F32, t.MATH_STRICT, False, (torch.float32, 3)),
    "tf32": (torch.float32, t.F32, t.MATH_TF32, True, (torch.float32, 1)),
    "f16": (torch.float16, t.F16, t.MATH_STRICT, False, (torch.bfloat16, 1)),
    "bf16": (torch.bfloat16, t.BF16, t.MATH_STRICT, False, (torch.bfloat16, 1)),
}
PLACES = {
    "cuda": {"backend": t.BACKEND_CUDA, "location": t.LOCATION_CUDA},
    "cpu": {"backend": t.BACKEND_CPU, "location": t.LOCATION_HOST},
}
OPS = {"forward": 0, "backward_data": 1, "backward_weights": 2}
ROUNDS = 3


def flop_of(row):
    pixels = row["N"] * math.prod(row[key] for key in "DHW")
    return 2 * pixels * row["Cin"] * (row["Cout"] // row["g"]) * math.prod(row["k" + axis] for axis in "dhw")


def cut(row, most):
    """The layer with fewer images, planes and rows, in this order, so that it has no more than so many FLOP."""
    row = dict(row)
    for key in "NDH":
        row[key] = max(1, min(row[key], int(row[key] * most / flop_of(row))))
    return row


def read_cases(names):
    with open(HERE / "workloads_3d.csv", newline="") as file:
        rows = [{k: v if k == "name" else int(v) for k, v in row.items()} for row in csv.DictReader(file)]
    known = {row["name"] for row in rows}
    if not set(names) <= known:
        sys.exit(f"volumes.py: no such layer: {', '.join(sorted(set(names) - known))}")
    return [row for row in rows if not names or row["name"] in names]


class Case:
    """A layer's tensors in one layout and precision."""

    def __init__(self, row, layout, precision, sets, device):
        self.device = device
        self.row, self.layout, self.precision = row, layout, precision
        self.dtype = PRECISIONS[precision][0]
        three = lambda key: tuple(row[key + axis] for axis in "dhw")  # noqa: E731
        self.size = (row["D"], row["H"], row["W"])
        self.kernel, self.stride, self.padding = three("k"), three("s"), three("p")
        self.output_padding, self.dilation = three("op"), three("d")
        self.out = tuple(
            (i - 1) * s - 2 * p + d * (k - 1) + o + 1
            for i, s, p, d, k, o in zip(
                self.size, self.stride, self.padding, self.dilation, self.kernel, self.output_padding, strict=True
            )
        )
        generator = torch.Generator(device).manual_seed(1)
        made = lambda *shape: torch.rand(*shape, device=device, generator=generator).sub_(0.5)  # noqa: E731
        memory = torch.channels_last_3d if layout == "ndhwc" else torch.contiguous_format
        lie = lambda x: x.to(self.dtype).contiguous(memory_format=memory)  # noqa: E731
        n, ci, co = row["N"], row["Cin"], row["Cout"]
        self.weights = lie(made(ci, co // row["g"], *self.kernel))
        self.bias = made(co).to(self.dtype) if row["bias"] else None
        self.srcs = [lie(made(n, ci, *self.size))]
        self.dsts = [lie(made(n, co, *self.out))]
        for tensors in (self.srcs, self.dsts):
            tensors += [tensors[0].clone(memory_format=torch.preserve_format) for _ in range(sets - 1)]

    def pytorch_arguments(self):
        return self.stride, self.padding, self.output_padding, self.row["g"], self.dilation

    def pytorch(self, op, i):
        src, dst = self.srcs[i], self.dsts[i]
        if op == "forward":
            return (F.conv_transpose3d(src, self.weights, self.bias, *self.pytorch_arguments()),)
        mask = [op == "backward_data", op == "backward_weights", op == "backward_weights" and self.bias is not None]
        stride, padding, output_padding, groups, dilation = self.pytorch_arguments()
        made = torch.ops.aten.convolution_backward(
            dst, src, self.weights, [self.row["Cout"]], stride, padding, dilation, True, output_padding, groups, mask
        )
        return tuple(x for x in made if x is not None)

    def plan(self, library, op):
        row = self.row
        fields = {
            "batch": row["N"],
            "in_channels": row["Cin"],
            "out_channels": row["Cout"],
            "groups": row["g"],
            "dtype": PRECISIONS[self.precision][1],
            "math": PRECISIONS[self.precision][2],
            "op": OPS[op],
            "layout": t.NHWC if self.layout == "ndhwc" else t.NCHW,
            "weight_layout": 1 if self.layout == "ndhwc" else 0,
        }
        for i, axis in enumerate("dhw"):
            fields["in_" + axis] = self.size[i]
            fields["kernel_" + axis] = self.kernel[i]
            fields["stride_" + axis] = self.stride[i]
            fields["dilation_" + axis] = self.dilation[i]
            fields["output_padding_" + axis] = self.output_padding[i]
        for names, i in (
            (("pad_front", "pad_back"), 0),
            (("pad_top", "pad_bottom"), 1),
            (("pad_left", "pad_right"), 2),
        ):
            for name in names:
                fields[name] = self.padding[i]
        where = PLACES[self.device]
        return library.plan(library.desc(**fields), **where, threads=torch.get_num_threads())

    def bytes(self):
        return (self.srcs[0].numel() + self.weights.numel() + self.dsts[0].numel()) * self.srcs[0].element_size()


class Tconv:
    def __init__(self, library, packed):
        self.library, self.packed, self.name = library, packed, "packed" if packed else "tconv"

    def prepare(self, case, op, machine):
        plan = case.plan(self.library, op)
        if self.packed:
            plan.pack(case.weights.data_ptr(), machine.stream_handle)
        self.plan = plan
        self.workspace = torch.empty(max(1, plan.workspace_size), dtype=torch.uint8, device=case.device)
        address = lambda x: None if x is None else x.data_ptr()  # noqa: E731
        like = lambda x: torch.empty_like(x)  # noqa: E731
        if op == "forward":
            self.written = [(like(x),) for x in case.dsts]
            tensors = [(x, case.weights, case.bias, y[0]) for x, y in zip(case.srcs, self.written, strict=True)]
        elif op == "backward_data":
            self.written = [(like(x),) for x in case.srcs]
            tensors = [(y[0], case.weights, None, x) for x, y in zip(case.dsts, self.written, strict=True)]
        else:
            bias = () if case.bias is None else (like(case.bias),)
            self.written = [(like(case.weights), *bias)] * len(case.srcs)
            tensors = [
                (x, y[0], y[1] if bias else None, d) for x, d, y in zip(case.srcs, case.dsts, self.written, strict=True)
            ]
        runs = [
            plan.bind(
                address(src),
                None if self.packed else address(weights),
                address(bias),
                address(dst),
                self.workspace.data_ptr(),
                machine.stream_handle,
            )
            for src, weights, bias, dst in tensors
        ]
        return machine.capture(lambda i: runs[i](), len(runs))


class Torch:
    def __init__(self, benchmark):
        self.benchmark, self.name = benchmark, "tuned" if benchmark else "default"

    @staticmethod
    def displace(device):
        """Has cuDNN choose for another layer, in each operation."""
        torch.backends.cudnn.benchmark = False
        src, weights = (torch.zeros(1, 1, 2, 2, 2, device=device) for _ in range(2))
        dst = F.conv_transpose3d(src, weights)
        for mask in ([True, False, False], [False, True, False]):
            torch.ops.aten.convolution_backward(
                dst, src, weights, [1], [1] * 3, [0] * 3, [1] * 3, True, [0] * 3, 1, mask
            )

    def prepare(self, case, op, machine):
        self.displace(case.device)
        torch.backends.cudnn.benchmark = self.benchmark
        torch.backends.cudnn.allow_tf32 = PRECISIONS[case.precision][3]
        self.written = [None] * len(case.srcs)

        def run(i):
            self.written[i] = case.pytorch(op, i)

        return machine.capture(run, len(case.srcs))


def error(written, expected):
    return max(
        float((a.float() - b.float()).norm() / b.float().norm().clamp_min(1e-30))
        for a, b in zip(written, expected, strict=True)
    )


def prepare(entrant, case, op, machine, failures):
    """The entrant's replay; None where it cannot, and why among the failures."""
    try:
        return entrant.prepare(case, op, machine)
    except (RuntimeError, t.Error) as failure:
        failures[entrant.name] = str(failure).splitlines()[0]
        return None


def compare(case, op, library, machine):
    """Milliseconds by contender, the plan's implementation, and tconv's error."""
    ours = [Tconv(library, False)] + ([Tconv(library, True)] if op != "backward_weights" else [])
    entrants, times, failures = [*ours], {}, {}
    prepared = {entrant.name: prepare(entrant, case, op, machine, failures) for entrant in ours}
    # One graph of PyTorch's at a time: with two, replaying the older one crashed.
    for peer in (Torch(False), Torch(True)) if case.device == "cuda" else (Torch(False),):
        replays = {**prepared, peer.name: prepare(peer, case, op, machine, failures)}
        names = [name for name, replay in replays.items() if replay is not None]
        for turn in range(ROUNDS):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                times.setdefault(name, []).extend(replays[name].burst())
        del replays, peer
        gc.collect()
    found = {name: statistics.median(ms) for name, ms in times.items()}
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    wide = Case(case.row, case.layout, "f32", 1, case.device) if case.precision != "f32" else case
    if wide is not case:
        wide.srcs, wide.dsts = [case.srcs[0].float()], [case.dsts[0].float()]
        wide.weights = case.weights.float()
        wide.bias = None if case.bias is None else case.bias.float()
    expected = wide.pytorch(op, 0)
    errors = {e.name: error(e.written[0], expected) for e in entrants if e.name in found}
    plan = ours[0].plan if "tconv" in found else None
    facts = {"implementation": plan.implementation if plan else "", "workspace": plan.workspace_size if plan else 0}
    return found, facts, errors, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--ops", default="forward,backward_data,backward_weights")
    parser.add_argument("--dtypes", help="default: tf32,bf16, on the CPU f32")
    parser.add_argument("--layouts", default="ncdhw,ndhwc")
    parser.add_argument("--device", choices=PLACES, default="cuda")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--gflop", type=float, default=2, help="the most of a layer, on the CPU")
    parser.add_argument("--out")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    options.dtypes = options.dtypes or ("tf32,bf16" if on_gpu else "f32")
    library = t.Library(options.library)
    if not on_gpu:
        torch.set_num_threads(options.threads)
    machine = gpu_machine.GpuMachine() if on_gpu else gpu_machine.CpuMachine()
    cases = read_cases(options.cases)
    if not on_gpu:
        cases = [cut(row, 1e9 * options.gflop) for row in cases]
    copy = machine.copy_rate()
    rates = {dtype: machine.gemm_rates(dtype, True, 0.1, 0.5)[1] for dtype in (torch.float32, torch.bfloat16)}
    print(
        f"{machine.name}, PyTorch {torch.__version__}, copy {copy * 1e-9:.0f} GB/s, products "
        + ", ".join(f"{dtype} {rate * 1e-9:.0f} GFLOP/s" for dtype, rate in rates.items())
    )
    lines = []
    for row, precision, layout in itertools.product(cases, options.dtypes.split(","), options.layouts.split(",")):
        size = Case(row, layout, precision, 1, options.device).bytes()
        case = Case(row, layout, precision, gpu_machine.sets_for(size, machine.cache_bytes), options.device)
        product, count = PRECISIONS[precision][4]
        count = count if on_gpu else 1
        floor = 1e3 * max(case.bytes() / copy, count * flop_of(row) / rates[product])
        for op in options.ops.split(","):
            found, facts, errors, failures = compare(case, op, library, machine)
            peers = [found[name] for name in ("default", "tuned") if name in found]
            line = {
                "name": row["name"],
                "op": op,
                "precision": precision,
                "layout": layout,
                "floor_ms": f"{floor:.5f}",
                **{
                    name: f"{found[name]:.5f}" if name in found else ""
                    for name in ("tconv", "packed", "default", "tuned")
                },
                "speedup": f"{min(peers) / found['tconv']:.3f}" if peers and "tconv" in found else "",
                "of_floor": f"{found['tconv'] / floor:.2f}" if "tconv" in found else "",
                "error": f"{errors.get('tconv', math.nan):.1e}",
                "packed_error": f"{errors.get('packed', math.nan):.1e}",
                "implementation": facts["implementation"],
                "workspace": facts["workspace"],
                "failures": "; ".join(f"{k}: {v}" for k, v in failures.items()),
            }
            lines.append(line)
            print(" ".join(f"{k}={v}" for k, v in line.items() if v != ""), flush=True)
            machine.forget()
    for op, precision, layout in itertools.product(
        options.ops.split(","), options.dtypes.split(","), options.layouts.split(",")
    ):
        ratios = [
            float(line["speedup"])
            for line in lines
            if (line["op"], line["precision"], line["layout"]) == (op, precision, layout) and line["speedup"]
        ]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{op} {precision} {layout}: geometric mean {mean:.2f}, least {min(ratios):.2f}, of {len(ratios)}")
    if options.out:
        with open(options.out, "w", newline="") as file:
            writer = csv.DictWriter(file, lines[0].keys())
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
