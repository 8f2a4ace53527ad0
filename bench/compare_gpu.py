#!/usr/bin/env python3
"""tconv against PyTorch (cuDNN) on the GPU, in one process, on the same numbers, in turn, and both against the floor.

    compare_gpu.py --library build-gpu/libtconv.so [--dtypes f32,tf32,f16,bf16] [--layouts nchw,nhwc] [--out DIR] [CASE...]
    compare_gpu.py ... --op backward_data --seconds 500                  # a gradient; backward_weights those of weights and bias
    compare_gpu.py --redraw results/compare_gpu.json.gz --out results        # table, verdicts and plots again, no GPU

Contenders, for each precision and layout: tconv, weights packed once; tconv as it is called from PyTorch, which packs weights in
each call; PyTorch with input and weights in that layout, given for free, with cudnn.benchmark off and on, the faster of which
counts. f32 is strict on both sides (allow_tf32 off), tf32 is tconv's math = tf32 and PyTorch's allow_tf32. PyTorch allocates its
outputs from its cache, tconv writes where it is told. A gradient is compared with PyTorch's, computed alone
(aten::convolution_backward), and "as it is called" is a plan whose weights are not packed before; that of weights comes with that
of bias where the layer has one, and its sums are compared with float64 in full.

Protocol: every contender is a CUDA graph of one or more runs, so that calls from Python cost neither side anything. Runs take
turns over as many sets of src and dst as it takes to fill the L2 cache several times over; a layer that does so by itself has
one. "burst": in each of several rounds tconv and PyTorch in turn (in another order each round) get a pause, some replays to wake
the clocks, and some that are timed by events around each; the figure is the median of all. With benchmark off and on PyTorch has
such rounds of its own, since only one of its graphs may be there at a time. "sustained", for the layers and
precision with bars of their own: a second back to back, then the median of the replays right after it; every contender in turn.

The layers are those of workloads.csv, for which tconv was tuned, and of workloads_broad.csv, for which it was not; the report keeps
the two sets apart.

The floor is max(bytes / copy rate, FLOP / matrix product rate) + 3 us; bytes are src, weights and dst once each, of dst's gradient
the rows and 32-byte sectors that a tap reaches (all of it where the gradient of bias is computed too); rates are
measured in the same run by PyTorch, the product's as the GPU sustains it (in a burst its clocks stay higher; the report has the
mean over that floor too). Strict f32 counts three products of the TF32 rate. Results are compared with float64 on the first and
last image.

Writes compare_gpu.json.gz (after every layer), .md and, with matplotlib, .svg to DIR; of a gradient compare_gpu_<operation>.
"""

import argparse
import gc
import itertools
import os
import pathlib
import statistics
import time

import gpu_contenders as g  # first: it sets what PyTorch reads when it is imported
import torch

import contenders as c
import gpu_machine
import gpu_report
import operations
import report
import run_files
import tconv_ctypes

HERE = pathlib.Path(__file__).resolve().parent
LAUNCH_SECONDS = 3e-6
# Which matrix product bounds a precision, and how many of them it takes.
PRODUCTS = {"f32": ("tf32", 3), "tf32": ("tf32", 1), "f16": ("f16", 1), "bf16": ("bf16", 1), "f64": ("f64", 1)}
# The relative L2 error that is taken for a mistake, beside which a time means nothing.
MISTAKE = {**c.MISTAKE, "tf32": 5e-4}


class Rates:
    def __init__(self, machine, precisions, options):
        self.copy = machine.copy_rate()
        machine.forget()
        self.gemm = {}
        for name in sorted({PRODUCTS[p][0] for p in precisions}):
            dtype, _, tf32 = g.PRECISIONS[name]
            self.gemm[name] = machine.gemm_rates(c.DTYPES[dtype][0], tf32, options.idle, options.sustain)
            machine.forget()

    def floors_ms(self, precision, flop, size):
        """Of the sustained product, and of the burst's."""
        product, times = PRODUCTS[precision]
        burst, sustained = self.gemm[product]
        return {
            name: 1e3 * (max(size / self.copy, times * flop / rate) + LAUNCH_SECONDS)
            for name, rate in (("floor_ms", sustained), ("burst_floor_ms", burst))
        }

    def text(self):
        return [f"copy {self.copy * 1e-12:.2f} TB/s"] + [
            f"matrix product {name}: {burst * 1e-12:.0f} TFLOP/s in a burst, {sustained * 1e-12:.0f} sustained"
            for name, (burst, sustained) in self.gemm.items()
        ]


def prepare(entrant, case, layout, precision):
    """The contender ready, or why it cannot, as text."""
    try:
        return entrant.prepare(case, layout, precision)
    except (RuntimeError, tconv_ctypes.Error) as error:
        return str(error).splitlines()[0]


def burst(prepared, options):
    """Milliseconds of each, by name."""
    times = {p.name: [] for p in prepared}
    for turn in range(options.rounds):
        for p in prepared[turn % len(prepared) :] + prepared[: turn % len(prepared)]:
            time.sleep(options.idle)
            times[p.name] += p.replay.burst()
    return times


def found_by(case, p, dtype, floors):
    """What is known of a contender after the burst, its time aside; its error is that of the last replay."""
    return {**floors, "relative_l2": case.error(p.result(), dtype), **p.facts}


def best_of_torch(found):
    """The faster of PyTorch's two, both times beside it."""
    both = {name: found[name] for name in ("default", "tuned") if name in found}
    if not both:
        return None
    best = min(both, key=lambda name: both[name]["ms"])
    return {**both[best], "choice": best, **{f"{name}_ms": f["ms"] for name, f in both.items()}}


def compare(case, layout, precision, entrants, rates, options):
    """tconv's and PyTorch's results for a layer, by name, and what failed. tconv, which is first, takes turns with one of
    the others after the other: with graphs of both at once PyTorch crashed in replaying the older one (dw_up2)."""
    dtype, row = g.PRECISIONS[precision][0], case.row
    floors = rates.floors_ms(precision, c.flop(row), case.bytes(dtype, layout))
    sustains = gpu_report.is_judged_sustained(case.op.name, row["name"], layout, precision)
    ours, times, found, failures = prepare(entrants[0], case, layout, precision), {}, {}, {}
    for peer in entrants[1:]:
        theirs = prepare(peer, case, layout, precision)
        failures.update({e.name: p for e, p in ((entrants[0], ours), (peer, theirs)) if isinstance(p, str)})
        prepared = [p for p in (ours, theirs) if not isinstance(p, str)]
        for name, ms in burst(prepared, options).items():
            times.setdefault(name, []).extend(ms)
        for p in prepared:
            if p.name not in found:
                found[p.name] = found_by(case, p, dtype, floors)
                if sustains:
                    found[p.name]["sustained_ms"] = statistics.median(p.replay.sustained(options.sustain))
        theirs = p = None  # its graph goes before the next one is made
        prepared.clear()
        gc.collect()
    for name, ms in times.items():
        found[name]["ms"] = statistics.median(ms)
    results = {
        f"tconv {layout}": found.get("tconv"),
        f"tconv call {layout}": found.get("call"),
        f"torch {layout}": best_of_torch(found),
    }
    return {name: {**value, "layout": layout, "dtype": dtype} for name, value in results.items() if value}, failures


def print_row(row, precision, layout, results, failures, seconds):
    cells = [
        f"{name} {f['ms']:8.4f} ({f['ms'] / f['floor_ms']:.2f}) err {f['relative_l2']:.1e}"
        + (f" sustained {f['sustained_ms']:.4f}" if "sustained_ms" in f else "")
        + (f" {f['implementation']}" if "implementation" in f else "")
        + (f" [{f.get('default_ms', 0):.4f} {f.get('tuned_ms', 0):.4f}]" if "choice" in f else "")
        for name, f in results.items()
    ]
    print(
        f"{seconds:6.1f} s {row['name']:12s} {precision:5s}| "
        + " | ".join(cells)
        + "".join(f" | {name} FAILED: {text}" for name, text in failures.items()),
        flush=True,
    )


def compare_layer(row, entrants, machine, rates, options):
    case = c.Case(row, machine.device, (0, row["N"] - 1), checked_channels=None, op=options.op)
    dtypes = {g.PRECISIONS[p][0] for p in options.dtypes}
    result = {
        "name": row["name"],
        "set": row["set"],
        "n": row["N"],
        "gflop": c.flop(row) * 1e-9,
        "bytes": {dtype: case.bytes(dtype) for dtype in dtypes},
        "weights": case.elements("weights"),
        "precisions": {},
        "failures": [],
    }
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = False
    for dtype in dtypes:
        case.expected(dtype)
    for precision, layout in itertools.product(options.dtypes, options.layouts):
        found, failures = compare(case, layout, precision, entrants, rates, options)
        for name, f in found.items():
            if name.startswith("tconv") and not f["relative_l2"] < MISTAKE[precision]:
                failures["tconv"] = f"wrong, relative L2 error {f['relative_l2']:.1e}"
        result["precisions"].setdefault(precision, {}).update(found)
        result["failures"] += [f"{name} {layout} {precision}: {text}" for name, text in failures.items()]
        print_row(row, precision, layout, found, failures, time.perf_counter() - options.started)
        gc.collect()
        machine.forget()
    return result


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    operations.add_options(parser)
    parser.add_argument("--library", help="libtconv.so, built with CUDA")
    parser.add_argument(
        "--workloads",
        default=f"{HERE / 'workloads.csv'},{HERE / 'workloads_broad.csv'}",
        help="files, each a set of the report by its name",
    )
    parser.add_argument("--dtypes", default="tf32,f32,f16,bf16", help="of " + ",".join(g.PRECISIONS))
    parser.add_argument("--layouts", default="nchw,nhwc")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=0.03, help="seconds of pause before a burst")
    parser.add_argument("--sustain", type=float, default=1.0, help="seconds back to back before a sustained time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begins no further layer after so many")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to try the script, on small batches"
    )
    parser.add_argument("--redraw", metavar="JSON", help="only the report of an earlier run")
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    options.dtypes = c.names_of(options.dtypes, g.PRECISIONS, "dtypes")
    options.layouts = c.names_of(options.layouts, c.LAYOUTS, "layouts")
    if not options.library and not options.redraw:
        parser.error("--library is needed")
    options.started = time.perf_counter()
    return options


def path_of(run, options, ending):
    return os.path.join(options.out, f"compare_gpu{report.name_part(run)}.{ending}")


def save(run, options):
    os.makedirs(options.out, exist_ok=True)
    run_files.save(path_of(run, options, "json.gz"), run)


def read_sets(options):
    """The rows of all files, each with the name of its set; those of the cases that are asked for."""
    rows = []
    for path in map(pathlib.Path, str(options.workloads).split(",")):
        rows += [{**row, "set": path.stem} for row in c.read_workloads(path, [])]
    unknown = set(options.cases) - {row["name"] for row in rows}
    if unknown:
        raise SystemExit(f"no {', '.join(sorted(unknown))} in {options.workloads}")
    rows = [row for row in rows if not options.cases or row["name"] in options.cases]
    return operations.with_bias(rows, options.bias)


def measure(options):
    torch.manual_seed(1)
    machine = gpu_machine.GpuMachine() if options.device == "cuda" else gpu_machine.CpuMachine()
    rates = Rates(machine, options.dtypes, options)
    version = torch.backends.cudnn.version() if options.device == "cuda" else "none"
    run = {
        "op": options.op,
        "heading": [machine.name, f"PyTorch {torch.__version__}, cuDNN {version}", *rates.text()],
        "rates": {"copy": rates.copy, "gemm": rates.gemm},
        "left_out": [],
        "results": [],
    }
    print("\n".join(run["heading"]), flush=True)
    library = tconv_ctypes.Library(str(pathlib.Path(options.library).resolve()))
    entrants = g.make_entrants(operations.OPERATIONS[options.op], library, machine)
    for row in read_sets(options):
        if time.perf_counter() - options.started > options.seconds:
            run["left_out"].append(row["name"])
            continue
        row = row if options.device == "cuda" else c.cut_batch(row, 1e8)
        try:
            run["results"].append(compare_layer(row, entrants, machine, rates, options))
        except (
            RuntimeError,
            tconv_ctypes.Error,
        ) as error:  # no memory, or an error of the device, after which nothing runs any more
            run["left_out"].append(f"{row['name']} ({str(error).splitlines()[0]})")
            print(run["left_out"][-1], flush=True)
        save(run, options)
    run["seconds"] = time.perf_counter() - options.started
    save(run, options)
    return run


def main():
    options = parse_arguments()
    if options.redraw:
        run = run_files.load(options.redraw)
    else:
        run = measure(options)
    text = gpu_report.markdown(run)
    with open(path_of(run, options, "md"), "w") as file:
        file.write(text)
    print(text)
    trouble = gpu_report.plot(run, path_of(run, options, "svg"))
    if trouble:
        print(trouble)


if __name__ == "__main__":
    main()
