#!/usr/bin/env python3
"""The README's table and the sentence below it: how many times as fast as PyTorch tconv is, on the layers that it was
tuned for and on those that nobody tuned.

    headline.py [--results bench/results]      # prints both

Each side has its better layout for each layer: the ratio is the least time of PyTorch's over the least of tconv's, the
figure its geometric mean over the layers.
"""

import argparse
import pathlib

import cpu_runs
import gpu_report
import report
import run_files
import side_by_side
import speedups

HERE = pathlib.Path(__file__).resolve().parent
NONE = "\N{EN DASH}"
# The precisions of the table's rows; the pages on performance have the others.
FORWARD = {"f32": "strict f32", "tf32": "TF32", "bf16": "bf16"}
GRADIENTS = {"backward_data": "gradient of the input", "backward_weights": "gradient of the weights"}
GRADIENT_PRECISION = "tf32"
MOST_FIGURES = 12
AHEAD = 1.1


def of_contenders(results):
    """By layer, from results as compare_cpu.py and compare_gpu.py have them."""
    ours, theirs = ([f"{side} {layout}" for layout in speedups.LAYOUTS] for side in ("tconv", "torch"))
    mine, others = gpu_report.times_of(results, ours), gpu_report.times_of(results, theirs)
    return {layer: others[layer] / mine[layer] for layer in mine if layer in others}


def of_times(layers):
    """By layer, from the times of the files with a line for each."""
    return {
        layer: min(theirs for _, theirs in times.values()) / min(ours for ours, _ in times.values())
        for layer, times in layers.items()
    }


def rows(results):
    """(what, the ratios of the layers that tconv was tuned for, of those that it was not)"""
    gpu = run_files.load(results / "compare_gpu.json.gz")
    (_, forward), gradients = speedups.broad_forward(results), speedups.broad_gradients(results)
    for precision, label in FORWARD.items():
        tuned = of_contenders(gpu_report.view(gpu, precision))
        yield f"GPU, forward, {label}", tuned, of_times(forward[precision])
    for op, label in GRADIENTS.items():
        yield f"GPU, {label}, {FORWARD[GRADIENT_PRECISION]}", {}, of_times(gradients[op, GRADIENT_PRECISION])
    for run in side_by_side.load(results).values():
        sets = [of_contenders(cpu_runs.of_set(run, of)) for of in cpu_runs.SETS]
        yield f"{speedups.cores_of(run)} ({run['processor']['isa']}), forward, f32", *sets


def table(found):
    """The lines of the table."""
    tuned, untuned = (max(len(row[column]) for row in found) for column in (1, 2))
    lines = [
        f"| how many times as fast as PyTorch | {tuned} layers tconv was tuned for | {untuned} layers nobody tuned |",
        "|---|---:|---:|",
    ]
    for label, *sets in found:
        figures = [f"{report.geometric_mean(ratios.values()):.2f}" if ratios else NONE for ratios in sets]
        lines.append(f"| {' | '.join([label, *figures])} |")
    return lines


def sentence(found):
    """What the means hide, at most."""
    most = [max(sum(ratio < 1 / AHEAD for ratio in row[column].values()) for row in found) for column in (1, 2)]
    counts = [max(len(row[column]) for row in found) for column in (1, 2)]
    worst = max(1 / min(ratios.values()) for row in found for ratios in row[1:] if ratios)
    return (
        f"In no row is PyTorch ahead by more than a tenth on more than {most[0]} of the {counts[0]} layers or on more "
        f"than {most[1]} of the {counts[1]}, and on no layer by more than a factor of {worst:.1f}."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    found = list(rows(parser.parse_args().results))
    print("\n".join([*table(found), "", sentence(found)]))


if __name__ == "__main__":
    main()
