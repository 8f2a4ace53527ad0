#!/usr/bin/env python3
"""Which implementation usually wins where: the table of docs/architecture.md, from the times of all of CUDA's.

    winners.py [--times bench/results/h200_implementations.csv.gz]      # prints the table

A layer is of the first class in CLASSES that it belongs to. In each class, precision and layout the script counts how
often each implementation is the fastest; the table names the one that is the fastest most often, with its share in
percent, and the next one if that has at least a fifth of the layers.

The file lacks times of kernels that have changed since. A layer whose time of cuda_igemm is lacking, although
cuda_igemm takes the layer, is not counted in that precision and layout: the fastest of the others need not be the
fastest of all.
"""

import argparse
import collections
import pathlib

import run_files

HERE = pathlib.Path(__file__).resolve().parent
TIMES = HERE / "results" / "h200_implementations.csv.gz"
MODES = {"f16": "f16", "tf32": "TF32", "f32": "strict f32"}
LAYOUTS = {"nchw": "NCHW", "nhwc": "NHWC"}
NAMED_FROM = 0.2
SHORT = {"cuda_gemm_col2im": "gcol2im"}  # so that the lines of the table stay short
# Longer strides have more phases than cuda_igemm takes.
IGEMM, IGEMM_MOST_PHASES = "cuda_igemm", 16


class Layer:
    """A layer's numbers, as its line has them."""

    def __init__(self, line):
        numbers = {name: int(value) for name, value in line.items() if name in COLUMNS}
        self.__dict__.update(numbers)
        self.ins, self.outs = self.Cin // self.g, self.Cout // self.g
        self.weights, self.pixels = self.Cin * self.outs * self.kh * self.kw, self.N * self.H * self.W
        self.stride = max(self.sh, self.sw)

    def is_taken_by_igemm(self):
        """Of groups cuda_igemm takes some, by their channels."""
        return self.g == 1 and self.stride <= IGEMM_MOST_PHASES


COLUMNS = set("N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g".split(","))
FEW_OUTPUTS, FEW_INPUTS, LONG_KERNEL, FEW_PIXELS = 4, 16, 16, 256
CLASSES = [
    ("one input channel a group", lambda of: of.ins == 1),
    (f"kernels over {LONG_KERNEL} taps", lambda of: max(of.kh, of.kw) > LONG_KERNEL),
    (f"≤ {FEW_OUTPUTS} outputs", lambda of: of.outs <= FEW_OUTPUTS),
    (f"≤ {FEW_INPUTS} inputs", lambda of: of.ins <= FEW_INPUTS),
    (f"≤ {FEW_PIXELS} pixels", lambda of: of.pixels <= FEW_PIXELS),
    ("kernel as large as the stride", lambda of: of.stride > 1 and (of.kh, of.kw) == (of.sh, of.sw)),
    ("stride 1", lambda of: of.stride == 1),
    ("stride 2", lambda of: of.stride == 2),
    ("longer strides", lambda of: True),
]


def class_of(layer):
    return next(name for name, belongs in CLASSES if belongs(layer))


def fastest(path):
    """{(class, mode, layout): how often each implementation is the fastest}, and the number of layers of each class"""
    times, layers = collections.defaultdict(dict), {}
    for line in run_files.rows(path):
        times[line["layer"], line["mode"], line["layout"]][line["implementation"]] = float(line["ms"])
        layers[line["layer"]] = Layer(line)
    wins = collections.defaultdict(collections.Counter)
    for (name, mode, layout), found in times.items():
        if IGEMM in found or not layers[name].is_taken_by_igemm():
            wins[class_of(layers[name]), mode, layout][min(found, key=found.get)] += 1
    return wins, collections.Counter(map(class_of, layers.values()))


def cell(wins):
    """The usual winner with its share of the layers, and the next one."""
    ranked = [
        (SHORT.get(name, name.removeprefix("cuda_")), count / wins.total()) for name, count in wins.most_common(2)
    ]
    return ", ".join(
        f"{name} {100 * share:.0f}" for place, (name, share) in enumerate(ranked) if place == 0 or share >= NAMED_FROM
    )


def table(path=TIMES):
    """The lines of the table."""
    wins, layers = fastest(path)
    columns = [(mode, layout) for layout in LAYOUTS for mode in MODES]
    lines = [
        f"| class | layers | {' | '.join(f'{MODES[mode]} {LAYOUTS[layout]}' for mode, layout in columns)} |",
        "|---|---:|" + "---|" * len(columns),
    ]
    for name, _ in CLASSES:
        cells = [cell(wins[name, mode, layout]) for mode, layout in columns]
        lines.append(f"| {name} | {layers[name]} | {' | '.join(cells)} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=pathlib.Path, default=TIMES)
    print("\n".join(table(parser.parse_args().times)))


if __name__ == "__main__":
    main()
