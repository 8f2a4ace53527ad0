#!/usr/bin/env python3
"""tconv against its peers on the CPU, in one process, on the same tensors, in turn, on as many threads each.

    compare_cpu.py --library build/release/libtconv.so --program build/release/cli/tconv [--threads 2] [--out DIR] [CASE...]
    compare_cpu.py ... --peers "" --variants f64,f16,bf16,avx2,single      # tconv's other ways, against their own floors

Contenders: tconv in NCHW and NHWC, weights packed once, and in the variants asked for; PyTorch NCHW and channels_last
(oneDNN), PyTorch without oneDNN, oneDNN with weights packed once, ONNX Runtime and XNNPACK. Those that are not installed
are named and left out; README.md says where to get them.

Each round runs every contender twice in a row and times the second run, when its threads are awake; the figure is the
median over rounds. A peer of which one run takes longer than --slow seconds is timed once. The batch is cut, never raised,
so that a case stays at about BUDGET GFLOP. The floor is the larger of FLOP / FMA rate and bytes / copy rate of the same
dtype, instruction set and threads, measured by `tconv bench` before and after, the better of both. Every result is compared
with float64.

Writes compare_cpu.json, .md (the summary with its verdicts last) and, with matplotlib, .svg to DIR.
"""

import argparse
import ctypes
import gc
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import warnings

# PyTorch brings an OpenMP run-time of its own, so that threads of two teams share the cores: those that wait must sleep,
# and none may be bound, because the second team would find itself on the cores that were left to the first one's master.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.pop("OMP_PROC_BIND", None)
import torch

import contenders as c
import report
import tconv_ctypes

HERE = pathlib.Path(__file__).resolve().parent
VARIANTS = ("f64", "f16", "bf16", "avx2", "single")
MOST_ROUNDS = 50
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
        found["bytes"] = found.pop("elements") * c.ELEMENT_BYTES[way.dtype]
        old = self.rates.get(key, found)
        self.rates[key] = {name: max(value, old[name]) for name, value in found.items()}

    @staticmethod
    def key(way):
        return f"{way.dtype} {way.isa or 'best'} {way.threads}"

    def milliseconds(self, way, flop, size):
        """The copy does not depend on what the arithmetic is, so that the best one on as many threads counts."""
        copy = max(rates["bytes"] for key, rates in self.rates.items() if key.split()[-1] == str(way.threads))
        return 1e3 * max(flop / self.rates[self.key(way)]["flops"], size / copy)

    def text(self):
        return [
            f"{key} threads: {rates['flops'] * 1e-9:.1f} GFLOP/s, copy {rates['bytes'] * 1e-9:.1f} GB/s"
            for key, rates in self.rates.items()
        ]


def elapsed(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def judge(case, contender):
    """One run, its seconds, and whether its result is right: that of a peer may be wrong, which is said."""
    start = time.perf_counter()
    result = contender.run()
    seconds = time.perf_counter() - start
    result = result if isinstance(result, torch.Tensor) else case.dst(contender.layout, contender.dtype)
    ours = report.is_ours(contender.name)
    error = case.error(result, contender.dtype)
    if not error < (c.MISTAKE[contender.dtype] if ours else PEER_MISTAKE):
        message = f"{case.row['name']}: {contender.name} is wrong, relative L2 {error:.1e}"
        if ours:
            raise SystemExit(message)
        print(f"  {message}: left out")
        return None
    return seconds, error


def measure(case, entrants, options):
    """Milliseconds and error of each contender."""
    found, times = {}, {}
    for contender in entrants:
        judged = judge(case, contender)
        if judged:
            found[contender.name], times[contender.name] = judged, []
    quick = [e for e in entrants if e.name in found and found[e.name][0] <= options.slow]
    for contender in entrants:
        if contender.name in found and contender not in quick:
            times[contender.name].append(elapsed(contender.run))
    end, rounds = time.perf_counter() + options.seconds, 0
    while quick and rounds < MOST_ROUNDS and (rounds < options.rounds or time.perf_counter() < end):
        for contender in quick:
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
    case = c.Case(row)
    entrants = prepare(case, library, ways, peers)
    with torch.no_grad():
        measured = measure(case, entrants, options)
    threads = {way.name: way.threads for way in ways}
    return {
        "name": row["name"],
        "n": row["N"],
        "gflop": c.flop(row) * 1e-9,
        "gbyte": case.bytes() * 1e-9,
        "contenders": {
            e.name: {
                "ms": measured[e.name][0],
                "relative_l2": measured[e.name][1],
                "layout": e.layout,
                "dtype": e.dtype,
                "threads": threads.get(e.name, options.threads),
                "workspace_bytes": e.workspace_bytes,
                "floor_ms": None,
            }
            for e in entrants
            if e.name in measured
        },
    }


def set_floors(results, floor, ways, threads):
    """A peer's floor is that of tconv's plain way."""
    by_name, plain = {way.name: way for way in ways}, c.TconvWay("plain", "nchw", threads)
    for result in results:
        for name, found in result["contenders"].items():
            size = result["gbyte"] * 1e9 / c.ELEMENT_BYTES["f32"] * c.ELEMENT_BYTES[found["dtype"]]
            found["floor_ms"] = floor.milliseconds(by_name.get(name, plain), result["gflop"] * 1e9, size)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--library", required=True)
    parser.add_argument("--program", help="the tconv program, to measure the machine's floor")
    parser.add_argument("--workloads", default=HERE / "workloads.csv")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=20.0, help="GFLOP a case")
    parser.add_argument("--rounds", type=int, default=5, help="at least so many")
    parser.add_argument("--seconds", type=float, default=1.0, help="at least so long a case")
    parser.add_argument("--slow", type=float, default=3.0, help="seconds of a run from which on a peer is timed once")
    parser.add_argument("--peers", default=",".join(c.PEERS), help="of " + ",".join(c.PEERS))
    parser.add_argument("--layouts", default="nchw,nhwc", help="tconv's")
    parser.add_argument("--variants", default="", help="of " + ",".join(VARIANTS))
    parser.add_argument(
        "--bar",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what tconv is to reach, a verdict beside it; NAME-VARIANT for a variant. "
        + "; ".join(f"{n}: {b[0]}" for n, b in report.BARS.items()),
    )
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    options.peers = c.names_of(options.peers, c.PEERS, "peers")
    options.layouts = c.names_of(options.layouts, c.LAYOUTS, "layouts")
    options.variants = c.names_of(options.variants, VARIANTS, "variants")
    try:
        options.bars = dict(map(report.parse_bar, options.bar))
    except ValueError as error:
        parser.error(f"--bar {error}")
    return options


def print_row(result):
    print(
        f"{result['name']:12s} n {result['n']:4d} | "
        + " ".join(f"{name} {found['ms']:8.2f}" for name, found in result["contenders"].items())
        + f" | error {max(found['relative_l2'] for found in result['contenders'].values()):.0e}",
        flush=True,
    )


def main():
    options = parse_arguments()
    warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")  # about Intel's GPUs
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    libc = keep_freed_memory()
    library = tconv_ctypes.Library(str(pathlib.Path(options.library).resolve()))
    ways = c.tconv_ways(options.layouts, options.variants, options.threads)
    peers, heading = c.make_peers(options.peers, options.threads)
    floor = Floor(options.program) if options.program else None
    floor_ways = {Floor.key(way): way for way in ways}.values()
    print("\n".join(heading), flush=True)
    for way in floor_ways if floor else ():
        floor.measure(way)
    results = []
    for row in c.read_workloads(options.workloads, options.cases):
        results.append(compare(c.cut_batch(row, options.budget * 1e9), library, ways, peers, options))
        print_row(results[-1])
        gc.collect()
        libc.malloc_trim(0)
    if floor:
        for way in floor_ways:
            floor.measure(way)
        set_floors(results, floor, ways, options.threads)
        heading += floor.text()
    write(results, heading, floor, options)


def write(results, heading, floor, options):
    os.makedirs(options.out, exist_ok=True)
    heading = [
        f"{options.threads} threads, at most {options.budget:g} GFLOP a layer.",
        "",
        *(f"- {h}" for h in heading),
    ]
    with open(os.path.join(options.out, "compare_cpu.json"), "w") as file:
        json.dump(
            {
                "threads": options.threads,
                "budget_gflop": options.budget,
                "heading": heading,
                "rates": floor.rates if floor else {},
                "results": results,
            },
            file,
            indent=1,
        )
    text = report.markdown(results, heading, options.threads, options.bars)
    with open(os.path.join(options.out, "compare_cpu.md"), "w") as file:
        file.write(text)
    print(text)
    if floor:
        trouble = report.plot(results, options.threads, os.path.join(options.out, "compare_cpu.svg"))
        if trouble:
            print(trouble)


if __name__ == "__main__":
    main()
