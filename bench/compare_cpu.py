#!/usr/bin/env python3
"""tconv against its peers on the CPU, in one process, on the same tensors, in turn, on as many threads each.

    compare_cpu.py --library build/release/libtconv.so --program build/release/cli/tconv [--out DIR] [CASE...]
    compare_cpu.py ... --budget 2 --runs 3 --peers nchw,nhwc             # both files of layers, medians of three runs
    compare_cpu.py ... --op backward_weights --bias with                 # a gradient; backward_data that of src
    compare_cpu.py ... --peers "" --variants f64,f16,bf16,avx2,single    # tconv's other ways, against their own floors
    compare_cpu.py --library ... --redraw JSON [JSON...] [--out DIR]     # the report of earlier runs, of several as one

Contenders: tconv in NCHW and NHWC, weights packed once, and in the variants asked for; PyTorch NCHW and channels_last
(oneDNN), PyTorch without oneDNN, oneDNN with weights packed once, ONNX Runtime and XNNPACK. Those that are not
installed are named and left out; README.md says where to get them. A gradient is compared with PyTorch's, computed
alone (aten::convolution_backward); the gradient of weights comes with that of bias where the layer has one.

Each round runs every contender twice in a row and times the second run, when its threads are awake; one that takes
longer than a tenth of a second runs once. The figure is the median over rounds. One of which a run takes longer than
--slow seconds is timed once, and a case gets no further round after --most seconds. With --runs 3 all cases are gone
through three times, and the median of the three counts; the report has the spread. The batch is cut, never raised, so
that a case stays at about BUDGET GFLOP. The floor is the larger of FLOP / FMA rate and bytes / copy rate of the same
dtype, instruction set and threads, measured by `tconv bench` before and after each run, the best of all; of dst's
gradient the bytes count that a tap reaches. Every result is compared with float64, in some of its channels.

Writes compare_cpu_<processor>.json.gz, .md (with a summary for each file of cases) and, with matplotlib, .svg to DIR;
without peers compare_cpu_<processor>_variants, of a gradient compare_cpu_<operation>_<processor>. The processor is
named by its microarchitecture, or by family and model. The JSON is kept up to date while it runs. The exit status is 1
where a result of tconv is wrong.
"""

import argparse
import ctypes
import datetime
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

# PyTorch brings an OpenMP run-time of its own, so that threads of two teams share the cores: those that wait must
# sleep, and none may be bound, because the second team would find itself on the cores that were left to the first one's
# master.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.pop("OMP_PROC_BIND", None)
import torch

import contenders as c
import cpu_runs
import operations
import processor
import report
import run_files
import tconv_ctypes

HERE = pathlib.Path(__file__).resolve().parent
VARIANTS = ("called", "f64", "f16", "bf16", "avx2", "single")
# GFLOP a case, where --budget says nothing: of the first file, and of those after it.
BUDGET, FURTHER_BUDGET = 20.0, 2.0
MOST_ROUNDS = 50
# What runs longer than this is not made faster by threads that are awake already.
LONG_SECONDS = 0.1
# How often what was found is written while more is measured.
SAVE_SECONDS = 15
# A peer's error beyond this is a mistake in how it is called here; tconv has its own bounds.
PEER_MISTAKE = 1e-4

# glibc's mallopt parameters (malloc.h).
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory():
    """Some peers allocate their output in every run. Without this each would pay for page faults, and we not."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    return libc


class Floor:
    """The machine's rates, as `tconv bench` measures them, by dtype, instruction set and threads."""

    # A layer bound by arithmetic and one bound by the copy, of which FLOP and elements are known.
    PROBLEMS = {
        "flops": ("n=1 ci=256 h=32 w=32 co=256 k=3", 2.0 * 32 * 32 * 256 * 256 * 9),
        "elements": ("n=1 ci=1 h=1024 w=1024 co=1 k=1", 2.0 * 1024 * 1024 + 1),
    }

    def __init__(self, program):
        self.program, self.rates = program, {}

    def measure(self, way):
        """Measures for one TconvWay; the better of this and what was measured before counts."""
        key = self.key(way)
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "floor.json")
            command = [
                self.program,
                "bench",
                "--backend",
                "cpu",
                "--repeat",
                "1",
                "--dtype",
                way.dtype,
                "--threads",
                str(way.threads),
                "--json",
                path,
            ]
            for problem, _ in self.PROBLEMS.values():
                command += ["--problem", problem]
            subprocess.run(command + (["--isa", way.isa] if way.isa else []), check=True, stdout=subprocess.DEVNULL)
            with open(path) as file:
                measured = json.load(file)
        found = {
            name: amount / measured[i]["floor_ms"] * 1e3 for i, (name, (_, amount)) in enumerate(self.PROBLEMS.items())
        }
        found["bytes"] = found.pop("elements") * cpu_runs.ELEMENT_BYTES[way.dtype]
        old = self.rates.get(key, found)
        self.rates[key] = {name: max(value, old[name]) for name, value in found.items()}

    @staticmethod
    def key(way):
        return f"{way.dtype} {way.isa or 'best'} {way.threads}"

    def milliseconds(self, way, flop, size):
        """The copy does not depend on what the arithmetic is, so that the best one on as many threads counts."""
        copy = max(rates["bytes"] for key, rates in self.rates.items() if key.split()[-1] == str(way.threads))
        return 1e3 * max(flop / self.rates[self.key(way)]["flops"], size / copy)


def elapsed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


class Wrong(Exception):
    """A result of tconv is wrong."""


def judge(case, contender):
    """One run: its seconds and its error, or None where a peer cannot or is wrong, which is said."""
    ours = report.is_ours(contender.name)
    case.forget_written(contender.layout, contender.dtype)
    start = time.perf_counter()
    try:
        result = contender.run()
    except RuntimeError as error:
        if ours:
            raise
        print(f"  {case.row['name']}: {contender.name} cannot: {str(error).splitlines()[0]}")
        return None
    seconds = time.perf_counter() - start
    error = case.error(result or case.written(contender.layout, contender.dtype), contender.dtype)
    if not error < (c.MISTAKE[contender.dtype] if ours else PEER_MISTAKE):
        message = f"{contender.name} is wrong, relative L2 {error:.1e}"
        if ours:
            raise Wrong(message)
        print(f"  {case.row['name']}: {message}: left out")
        return None
    return seconds, error


def measure(case, entrants, options):
    """Milliseconds and error of each contender."""
    begin, found = time.perf_counter(), {}
    for contender in entrants:
        judged = judge(case, contender)
        if judged:
            found[contender.name] = judged
    times = {name: [] for name in found}
    quick = []
    for contender in entrants:
        seconds = found[contender.name][0] if contender.name in found else None
        if seconds is not None and seconds <= options.slow:
            quick.append(contender)
        elif seconds is not None:  # the first run has more to do, but not much more where it is as long as that
            times[contender.name].append(elapsed(contender.run) if seconds <= options.most else seconds)
    end, rounds = time.perf_counter() + options.seconds, 0
    while quick and rounds < MOST_ROUNDS and (rounds < options.rounds or time.perf_counter() < end):
        if rounds > 0 and time.perf_counter() - begin > options.most:
            break
        for contender in quick:
            if found[contender.name][0] < LONG_SECONDS:
                contender.run()
            times[contender.name].append(elapsed(contender.run))
        rounds += 1
    return {name: (statistics.median(values) * 1e3, found[name][1]) for name, values in times.items()}


def prepare(case, library, ways, peers):
    entrants = [way.prepare(library, case) for way in ways]
    for peer in peers:
        try:
            entrants.append(peer.prepare(case))
        except RuntimeError as error:
            print(f"  {case.row['name']}: {peer.name} cannot: {str(error).splitlines()[0]}")
    return entrants


def compare(row, library, ways, peers, options):
    """The result of a layer, its floors still to come. What it allocated goes when it returns."""
    case = c.Case(row, op=options.op)
    entrants = prepare(case, library, ways, peers)
    with torch.no_grad():
        measured = measure(case, entrants, options)
    threads = {way.name: way.threads for way in ways}
    return {
        "name": row["name"],
        "set": row["set"],
        "n": row["N"],
        "gflop": c.flop(row) * 1e-9,
        "contenders": {
            e.name: {
                "ms": measured[e.name][0],
                "runs_ms": [measured[e.name][0]],
                "relative_l2": measured[e.name][1],
                "layout": e.layout,
                "dtype": e.dtype,
                "threads": threads.get(e.name, options.threads),
                "gbyte": case.bytes(e.dtype, e.layout) * 1e-9,
                "workspace_bytes": e.workspace_bytes,
                "floor_ms": None,
            }
            for e in entrants
            if e.name in measured
        },
    }


def set_floors(run, floor, ways):
    """A peer's floor is that of tconv's plain way."""
    by_name, plain = {way.name: way for way in ways}, c.TconvWay("plain", "nchw", run["threads"])
    run["rates"] = floor.rates
    for result in run["results"]:
        for name, found in result["contenders"].items():
            way = by_name.get(name, plain)
            found["floor_ms"] = floor.milliseconds(way, result["gflop"] * 1e9, found["gbyte"] * 1e9)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    operations.add_options(parser)
    parser.add_argument("--library", required=True)
    parser.add_argument("--program", help="the tconv program, to measure the machine's floor")
    parser.add_argument(
        "--workloads", action="append", metavar="CSV", help="may be repeated; default: the two of README.md"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--budget", type=float, help=f"GFLOP a case; default {BUDGET:g} in the first file, {FURTHER_BUDGET:g} in others"
    )
    parser.add_argument("--runs", type=int, default=1, help="over all layers; medians of them count")
    parser.add_argument("--rounds", type=int, default=5, help="at least so many")
    parser.add_argument("--seconds", type=float, default=1.0, help="at least so long a case")
    parser.add_argument("--most", type=float, default=15.0, help="seconds after which a case gets no further round")
    parser.add_argument("--slow", type=float, default=3.0, help="seconds of a run from which on one is timed once")
    parser.add_argument("--within", type=float, default=float("inf"), help="seconds after which no further case begins")
    parser.add_argument(
        "--peers",
        help="of "
        + ",".join(c.PEERS)
        + "; 'torch nchw' is nchw; default: all, for gradients "
        + ",".join(c.GRADIENT_PEERS),
    )
    parser.add_argument("--layouts", default="nchw,nhwc", help="tconv's")
    parser.add_argument(
        "--variants", default="called", help="of " + ",".join(VARIANTS) + "; called: packing in each call"
    )
    parser.add_argument(
        "--bar",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what tconv is to reach in the first file, a verdict beside it; NAME-VARIANT for a variant. "
        + "; ".join(f"{n}: {b[0]}" for n, b in report.BARS.items()),
    )
    parser.add_argument("--redraw", nargs="+", metavar="JSON", help="only the report of earlier runs")
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    known = c.PEERS if options.op == "forward" else c.GRADIENT_PEERS
    options.peers = known if options.peers is None else c.names_of(options.peers.replace("torch ", ""), known, "peers")
    options.layouts = c.names_of(options.layouts, c.LAYOUTS, "layouts")
    options.variants = c.names_of(options.variants, VARIANTS, "variants")
    options.workloads = options.workloads or [HERE / "workloads.csv", HERE / "workloads_broad.csv"]
    try:
        options.bars = dict(map(report.parse_bar, options.bar))
    except ValueError as error:
        parser.error(f"--bar {error}")
    options.started = time.perf_counter()
    return options


def read_sets(options):
    """The rows of all files, cut, each with the name of its set; those of the cases that are asked for. And the budgets."""
    rows, budgets = [], {}
    for i, path in enumerate(map(pathlib.Path, options.workloads)):
        budgets[path.stem] = options.budget or (FURTHER_BUDGET if i else BUDGET)
        cut = (c.cut_batch(row, budgets[path.stem] * 1e9) for row in c.read_workloads(path, []))
        rows += [{**row, "set": path.stem} for row in cut]
    unknown = set(options.cases) - {row["name"] for row in rows}
    if unknown:
        raise SystemExit(f"no {', '.join(sorted(unknown))} in {', '.join(map(str, options.workloads))}")
    rows = [row for row in rows if not options.cases or row["name"] in options.cases]
    return operations.with_bias(rows, options.bias), budgets


def print_row(result, seconds):
    contenders = result["contenders"].items()
    print(
        f"{seconds:6.1f} s {result['name']:12s} n {result['n']:4d} | "
        + " ".join(f"{name} {found['ms']:8.2f}" for name, found in contenders)
        + f" | error {max((found['relative_l2'] for _, found in contenders), default=0):.0e}",
        flush=True,
    )


class Survey:
    """All layers, once or several times, and what was found on the way."""

    def __init__(self, options):
        self.options = options
        self.rows, budgets = read_sets(options)
        self.library = tconv_ctypes.Library(str(pathlib.Path(options.library).resolve()))
        self.ways = c.tconv_ways(options.layouts, options.variants, options.threads, options.op)
        self.peers, heading = c.make_peers(options.peers, options.threads)
        self.floor = Floor(options.program) if options.program else None
        self.floor_ways = list({Floor.key(way): way for way in self.ways}.values()) if self.floor else []
        self.saved = time.perf_counter()
        self.run = {
            "op": options.op,
            "processor": processor.identify(),
            "date": datetime.date.today().isoformat(),
            "threads": options.threads,
            "budget_gflop": budgets,
            "heading": heading,
            "rates": {},
            "failures": [],
            "left_out": [],
            "results": [],
        }

    def seconds(self):
        return time.perf_counter() - self.options.started

    def measure_floor(self):
        for way in self.floor_ways:
            self.floor.measure(way)

    def save(self):
        known = {r["name"] for r in self.run["results"]} | {text.split(":")[0] for text in self.run["failures"]}
        self.run["left_out"] = [row["name"] for row in self.rows if row["name"] not in known]
        if self.floor:
            set_floors(self.run, self.floor, self.ways)
        write_json(self.run, self.options)
        self.saved = time.perf_counter()

    def measure_layer(self, row):
        try:
            found = compare(row, self.library, self.ways, self.peers, self.options)
        except (RuntimeError, tconv_ctypes.Error, Wrong) as error:  # the other layers still count
            failure = f"{row['name']}: {str(error).splitlines()[0]}"
            print(f"  FAILED: {failure}", flush=True)
            if failure not in self.run["failures"]:
                self.run["failures"].append(failure)
            return
        cpu_runs.add(self.run["results"], found)
        print_row(found, self.seconds())

    def go_through(self, libc):
        for row in self.rows:
            if self.seconds() > self.options.within:
                break
            self.measure_layer(row)
            gc.collect()
            libc.malloc_trim(0)
            if time.perf_counter() - self.saved > SAVE_SECONDS:
                self.save()
        self.measure_floor()
        self.save()

    def measure(self):
        libc = keep_freed_memory()
        print("\n".join([processor.sentence(self.run["processor"]), *self.run["heading"]]), flush=True)
        self.measure_floor()
        for _ in range(self.options.runs):
            torch.manual_seed(1)
            self.go_through(libc)
        return self.run


def redrawn(paths):
    """Earlier runs as one, with floors by the better of their rates."""
    run = cpu_runs.merged([cpu_runs.load(path) for path in paths])
    if run["rates"]:
        floor = Floor(None)
        floor.rates = run["rates"]
        set_floors(run, floor, c.tconv_ways(c.LAYOUTS, VARIANTS, run["threads"]))
    return run


def path_of(run, options, ending):
    names = report.contender_names(run["results"])
    op = report.name_part(run)
    variants = "_variants" if names and all(map(report.is_ours, names)) else ""
    return os.path.join(options.out, f"compare_cpu{op}_{run['processor']['slug']}{variants}.{ending}")


def write_json(run, options):
    run_files.save(path_of(run, options, "json.gz"), run)


def write_report(run, options):
    text = report.markdown(run, options.bars)
    with open(path_of(run, options, "md"), "w") as file:
        file.write(text)
    print(text)
    first = cpu_runs.of_set(run, next(iter(cpu_runs.sets(run)), None))
    if report.has_floor(first):
        trouble = report.plot(first, run["op"], run["threads"], path_of(run, options, "svg"))
        if trouble:
            print(trouble)


def main():
    options = parse_arguments()
    os.makedirs(options.out, exist_ok=True)
    if options.redraw:
        run = redrawn(options.redraw)
    else:
        warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")  # about Intel's GPUs
        torch.set_num_threads(options.threads)
        run = Survey(options).measure()
    if len(options.redraw or ()) != 1:  # one that is there already is left as it is
        write_json(run, options)
    write_report(run, options)
    sys.exit(1 if run["failures"] else 0)


if __name__ == "__main__":
    main()
