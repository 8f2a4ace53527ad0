#!/usr/bin/env python3
"""tconv.jax against XLA's convolutions: layers of workloads.csv, forward and gradients, in JAX's own layout.

jax_layers.py --out bench/results/jax_cpu_zen4.json.gz [--seconds 80]     # goes on where it was, for so long
jax_layers.py --platform cuda --out bench/results/jax_cuda_h200.json.gz
jax_layers.py --redraw bench/results/jax_cpu_zen4.json.gz                 # the report alone

Both sides are jitted functions of arrays that are there, called in turn; a figure is the median of its samples. On the
CPU a sample is a call. On CUDA a sample is so many calls, one queued behind another, that they take a millisecond, and
all programs are compiled before the first sample. Gradients are those of input, kernel and bias in one program. Images
are left out so that a layer has at most the platform's budget of multiply-adds, and rows where one image has more.
"""

import argparse
import concurrent.futures
import csv
import dataclasses
import datetime
import math
import pathlib
import statistics
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import processor
import run_files
from jax import lax

import tconv
import tconv.jax

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Platform:
    """How layers are timed on one of JAX's platforms."""

    title: str
    numbers: str  # what the report says of float32
    budget: float  # multiply-adds of a layer
    sample: float  # seconds that a sample lasts at least
    # How many samples both sides have: `most`, fewer after `seconds`, but `fewest` or for `most_seconds`.
    fewest: int
    most: int
    seconds: float
    most_seconds: float
    tolerance: dict  # between both sides, relative to the largest element, by dtype
    ahead: int  # threads that compile all programs before the first is timed; 0: each is compiled when its turn comes


PLATFORMS = {
    "cpu": Platform("the CPU", "f32", 0.5e9, 0, 3, 21, 1.5, 12, {"float32": 1e-4, "bfloat16": 5e-2}, 0),
    "cuda": Platform("CUDA", "f32 by TF32", 60e9, 1e-3, 3, 15, 0.2, 2, {"float32": 1e-2, "bfloat16": 5e-2}, 8),
}
# Layers of which users of JAX have reported how slow they are. The first is an inverse filter bank, as in jax#23783, of
# a size of our own; the second is that of jax#31662 with two axes of as many pixels, in bfloat16.
REPORTED = [
    {"name": "jax#23783", "N": 1, "Cin": 512, "H": 1, "W": 256, "Cout": 1, "kh": 1, "kw": 1024, "sh": 1, "sw": 256},
    {"name": "jax#31662", "N": 1, "Cin": 64, "H": 256, "W": 512, "Cout": 1, "kh": 3, "kw": 3, "sh": 2, "sw": 2,
     "ph": 1, "pw": 1, "oph": 1, "opw": 1, "bias": 1, "dtype": "bfloat16"},
]  # fmt: skip


def layers(platform):
    budget = PLATFORMS[platform].budget
    defaults = {"ph": 0, "pw": 0, "oph": 0, "opw": 0, "dh": 1, "dw": 1, "g": 1, "bias": 0, "dtype": "float32"}
    for row in csv.DictReader(run_files.text_of(HERE / "workloads.csv").splitlines()):
        layer = defaults | {key: value if key == "name" else int(value) for key, value in row.items()}
        per_image = layer["Cin"] * layer["H"] * layer["W"] * layer["Cout"] // layer["g"] * layer["kh"] * layer["kw"]
        images = max(1, min(layer["N"], int(budget / per_image)))
        rows = math.ceil(layer["H"] * min(1.0, budget / (images * per_image)))
        yield layer | {"N": images, "H": rows}
    for layer in REPORTED:
        yield defaults | layer


def functions(layer):
    """The layer by tconv and by XLA, as functions of input, kernel and bias, and these arrays."""
    strides, dilation = (layer["sh"], layer["sw"]), (layer["dh"], layer["dw"])
    padding = [
        (layer[f"d{a}"] * (layer[f"k{a}"] - 1) - layer[f"p{a}"],
         layer[f"d{a}"] * (layer[f"k{a}"] - 1) - layer[f"p{a}"] + layer[f"op{a}"])
        for a in "hw"
    ]  # fmt: skip
    names = ("NHWC", "HWIO", "NHWC")

    def by_tconv(x, kernel, *bias):
        return tconv.jax.conv_transpose(
            x, kernel, strides, padding, dilation, bias=bias[0] if bias else None, feature_group_count=layer["g"]
        )

    def by_xla(x, kernel, *bias):
        y = lax.conv_general_dilated(
            x, kernel, (1, 1), padding, strides, dilation, names, feature_group_count=layer["g"]
        )
        return y + bias[0] if bias else y

    rng = np.random.default_rng(0)
    shapes = [
        (layer["N"], layer["H"], layer["W"], layer["Cin"]),
        (layer["kh"], layer["kw"], layer["Cin"] // layer["g"], layer["Cout"]),
        *[(layer["Cout"],)] * layer["bias"],
    ]
    arrays = [jnp.asarray(rng.standard_normal(shape, np.float32), layer["dtype"]) for shape in shapes]
    return by_tconv, by_xla, arrays


def sample(function, arrays, together):
    """The seconds of a call, of so many that are queued."""
    start = time.perf_counter()
    for _ in range(together):
        last = function(*arrays)
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / together


def in_turn(platform, functions, *arrays):
    """The median seconds of each function, and how many samples each has."""
    together = [1 + int(platform.sample / sample(function, arrays, 1)) for function in functions]
    times = [[] for _ in functions]
    samples = spent = 0
    while samples < platform.most and spent < (
        platform.seconds if samples >= platform.fewest else platform.most_seconds
    ):
        for function, seconds, calls in zip(functions, times, together, strict=True):
            seconds.append(sample(function, arrays, calls))
            spent += seconds[-1] * calls
        samples = len(times[0])
    return [statistics.median(seconds) for seconds in times], samples


@jax.jit
def difference(ours, theirs):
    """The largest, relative to the largest element of each result."""
    pairs = [(a.astype(jnp.float32), b.astype(jnp.float32)) for a, b in zip(ours, theirs, strict=True)]
    return jnp.stack([jnp.abs(a - b).max() / jnp.maximum(jnp.abs(b).max(), 1e-30) for a, b in pairs]).max()


def prepare(layer):
    """The layer, and by name both programs of forward and of gradients, and their operands."""
    by_tconv, by_xla, arrays = functions(layer)
    y = jax.eval_shape(by_tconv, *arrays)
    of_y = jnp.asarray(np.random.default_rng(1).standard_normal(y.shape, np.float32), y.dtype)

    def gradients(function):
        return lambda of_y, *arrays: jax.vjp(function, *arrays)[1](of_y)

    programs = {}
    for name, make, operands in (
        ("forward", lambda function: lambda *arrays: [function(*arrays)], arrays),
        ("gradients", gradients, [of_y, *arrays]),
    ):
        programs[name] = (
            [jax.jit(make(function)).lower(*operands).compile() for function in (by_tconv, by_xla)],
            operands,
        )
    return layer, programs


def measure(platform, layer, programs):
    result = {"layer": layer}
    for name, (both, operands) in programs.items():
        error = float(difference(*[function(*operands) for function in both]))
        if not error <= platform.tolerance[layer["dtype"]]:
            raise SystemExit(f"{layer['name']}, {name}: results differ by {error:.1e} of the largest element")
        (ours, theirs), samples = in_turn(platform, both, *operands)
        result[name] = {"tconv": ours, "xla": theirs, "calls": samples, "difference": error}
    return result


def prepared(platform, wanted):
    """Layers with their programs, which are compiled ahead where the platform says so."""
    if not platform.ahead:
        yield from map(prepare, wanted)
        return
    with concurrent.futures.ThreadPoolExecutor(platform.ahead) as pool:
        yield from list(pool.map(prepare, wanted))


def run(path, name, seconds, only, left_out):
    """Measures on a platform what the file does not have yet."""
    start = time.monotonic()
    jax.config.update("jax_platforms", name)
    platform = PLATFORMS[name]
    found = run_files.load(path) if pathlib.Path(path).exists() else {"results": []}
    order = [layer["name"] for layer in layers(name)]
    known = {result["layer"]["name"] for result in found["results"]}
    found |= {
        "platform": name,
        "device": jax.devices()[0].device_kind,
        "date": datetime.date.today().isoformat(),
        "processor": processor.identify(),
        "tconv": tconv.__version__,
        "jax": jax.__version__,
        "left_out": sorted({*found.get("left_out", []), *left_out}),
    }
    wanted = [
        layer
        for layer in layers(name)
        if layer["name"] not in {*known, *found["left_out"]} and (not only or layer["name"] in only)
    ]
    for layer, programs in prepared(platform, wanted):
        if time.monotonic() - start > seconds:
            print("not all yet: run again")
            break
        result = measure(platform, layer, programs)
        print(line(result), flush=True)
        found["results"] = sorted([*found["results"], result], key=lambda of: order.index(of["layer"]["name"]))
        run_files.save(path, found)


def milliseconds(value):
    return f"{value * 1e3:.3g}"


def line(result):
    layer = result["layer"]
    cells = [layer["name"], f"{layer['N']} x {layer['H']} x {layer['W']}"]
    for name in ("forward", "gradients"):
        times = result[name]
        ratio = times["xla"] / times["tconv"]
        cells += [milliseconds(times["tconv"]), milliseconds(times["xla"]), f"{ratio:.2f}"]
    return f"| {' | '.join(cells)} |"


def mean(results, name):
    return math.exp(statistics.fmean(math.log(result[name]["xla"] / result[name]["tconv"]) for result in results))


def report(path):
    found = run_files.load(path)
    of_csv, reported = [
        [result for result in found["results"] if ("#" in result["layer"]["name"]) == wanted]
        for wanted in (False, True)
    ]
    head = ["layer", "images, rows, columns", "forward, tconv", "XLA", "times", "gradients, tconv", "XLA", "times"]
    rows = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    means = {name: mean(of_csv, name) for name in ("forward", "gradients")}
    together = math.sqrt(math.prod(means.values()))
    least = {name: min(result[name]["xla"] / result[name]["tconv"] for result in of_csv) for name in means}
    name = found.get("platform", "cpu")
    device = found["device"] if name == "cuda" else processor.sentence(found["processor"])
    platform = PLATFORMS[name]
    queued = f", queued for {platform.sample * 1e3:.0f} ms at a time" if platform.sample else ""
    text = [
        f"# Transposed convolutions in JAX on {platform.title}",
        "",
        textwrap.fill(f"- {device}", 150, subsequent_indent="  "),
        f"- tconv {found['tconv']}, JAX {found['jax']}, {found['date']}; {platform.numbers} in NHWC, kernels in HWIO",
        f"- gradients of input, kernel and bias in one program; called in turn{queued}; medians in milliseconds",
        f"- images, and then rows, are left out, for at most {platform.budget / 1e9:g} billion products a layer",
        "",
        *rows,
        *map(line, of_csv),
        "",
        f"Geometric means of {len(of_csv)} layers: forward {means['forward']:.2f}, gradients {means['gradients']:.2f}, "
        f"both {together:.2f} times as fast as XLA. The least are {least['forward']:.2f} and {least['gradients']:.2f}.",
        "",
        *(
            [f"Left out, because XLA did not answer within two minutes: {', '.join(found['left_out'])}.", ""]
            * bool(found["left_out"])
        ),
        "Layers that users of JAX have reported as slow: an inverse filter bank, as in jax#23783, of a size of our own",
        "(512 channels of 256 frames, a kernel of 1024, stride 256), and that of jax#31662 with two axes of as many",
        "pixels, in bfloat16.",
        "",
        *rows,
        *map(line, reported),
        "",
    ]
    run_files.report_of(path).write_text("\n".join(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="the run, .json or .json.gz, which is gone on with where it is there")
    parser.add_argument("--redraw", metavar="RUN", help="write the report of a run")
    parser.add_argument("--platform", choices=PLATFORMS, default="cpu", help="JAX's, of a run that begins (cpu)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no layer after that many")
    parser.add_argument("--leave-out", action="append", default=[], help="by name; the report says so")
    parser.add_argument("--layer", action="append", help="these alone, by name")
    options = parser.parse_args()
    if not options.out and not options.redraw:
        parser.error("one of --out and --redraw is needed")
    if options.out:
        run(options.out, options.platform, options.seconds, options.layer, options.leave_out)
    report(options.redraw or options.out)


if __name__ == "__main__":
    main()
