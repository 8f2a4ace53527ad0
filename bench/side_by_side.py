#!/usr/bin/env python3
"""What compare_cpu.py found on each processor, side by side: the table of docs/performance.md.

side_by_side.py [--results bench/results]      # prints the table, from compare_cpu_*.json.gz there
"""

import argparse
import pathlib

import cpu_runs
import report
import run_files

HERE = pathlib.Path(__file__).resolve().parent
# The page that has the table, and the way from the page to the reports.
PAGE, BASE = "docs/performance.md", "../bench/results"
NONE = "\N{EN DASH}"


def load(results):
    """The runs against peers, by the name of their file, in the order of the processors' names."""
    paths = {run_files.stem(path): path for path in sorted(results.glob(f"compare_cpu_*{run_files.ENDING}"))}
    return {stem: cpu_runs.load(path) for stem, path in paths.items() if not stem.endswith("_variants")}


def numbers(values):
    return ", ".join(f"{value:.2f}" for value in values) or NONE


def over_floor(results, layout, suffix=""):
    name = f"tconv {layout}{suffix}"
    ratios = [ratio for result in results if (ratio := report.ratio_to_floor(result, name))]
    return numbers([report.geometric_mean(ratios)] if ratios else [])


def against_pytorch(results, layout, suffix=""):
    """The geometric mean, and in parentheses the least."""
    ratios, _ = report.speedups(results, f"tconv {layout}{suffix}", report.PYTORCH[layout][1])
    return f"{report.geometric_mean(ratios.values()):.2f} ({min(ratios.values()):.2f})" if ratios else NONE


def layers_below(results, layout, suffix=""):
    ratios, _ = report.speedups(results, f"tconv {layout}{suffix}", report.PYTORCH[layout][1])
    return ", ".join(map(str, report.counts_below(ratios))) if ratios else NONE


BOUNDS = ", ".join(f"{bound:.2f}".lstrip("0") for bound in report.COUNTED_BELOW)
# What a row says, its figure, of which layout and way to run.
ROWS = [
    ("NCHW, over the floor", over_floor, "nchw", ""),
    ("NHWC, over the floor", over_floor, "nhwc", ""),
    ("NCHW against PyTorch's better layout", against_pytorch, "nchw", ""),
    (f"layers below {BOUNDS} there", layers_below, "nchw", ""),
    ("the same, packing in each call", against_pytorch, "nchw", " called"),
    (f"layers below {BOUNDS}, packing in each call", layers_below, "nchw", " called"),
    ("NHWC against PyTorch's channels_last", against_pytorch, "nhwc", ""),
    (f"layers below {BOUNDS} in channels_last", layers_below, "nhwc", ""),
    ("the same in channels_last, packing in each call", against_pytorch, "nhwc", " called"),
]


def title(stem, run, base):
    found = run["processor"]
    return f"[{found['microarchitecture']}, {found['isa']}]({base}/{stem}.md)"


def table(runs, base):
    """The lines of the table: a column for each processor, the rows of each set one below the other."""
    lines = [
        f"| | {' | '.join(title(stem, run, base) for stem, run in runs.items())} |",
        "|---|" + "---:|" * len(runs),
        row("threads, date", [f"{run['threads']}, {run['date']}" for run in runs.values()]),
    ]
    for of in cpu_runs.SETS:
        results = [cpu_runs.of_set(run, of) for run in runs.values()]
        layers = max(map(len, results))
        if not layers:
            continue
        budgets = [f"{budget:g} GFLOP" if (budget := run["budget_gflop"].get(of)) else NONE for run in runs.values()]
        lines.append(row(f"**{layers} {cpu_runs.SETS[of]}**, cut to", budgets))
        for label, figure, layout, suffix in ROWS:
            cells = [figure(found, layout, suffix) for found in results]
            if any(cell != NONE for cell in cells):
                lines.append(row(label, cells))
    return lines


def row(label, cells):
    return f"| {label} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    runs = load(parser.parse_args().results)
    print("\n".join(table(runs, BASE)))


if __name__ == "__main__":
    main()
