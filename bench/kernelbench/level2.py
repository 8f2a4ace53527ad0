#!/usr/bin/env python3
"""The eleven 2-D problems of KernelBench's second level: a transposed convolution and what follows it, by PyTorch and
by tconv, eager and compiled.

    level2.py [--numbers 2,5] [--precisions strict,tf32,bf16] [--contenders torch,tconv] [--device cuda|cpu] [--small]
              [--rounds N] [--seconds S] [--out DIR]
    level2.py --redraw results/kernelbench_level2.json.gz --out results        # tables and verdicts again

The problems are stated here by their sizes and steps. All contenders have the same weights and input, and run in one
process, without gradients, in turn, as they are called from Python:

torch, torch compiled     PyTorch, and through torch.compile
tconv                     after tconv.torch.replace
tconv fused               after tconv.torch.fuse, where that fuses something: modules right behind the layer
tconv compiled            replaced, and through torch.compile
tconv compiled fused      that with tconv.torch.fusion_options()
torch layer, tconv layer  the transposed convolution alone

strict is allow_tf32 off, tf32 on; in bf16 weights and input are bf16. The floor is the time in which the input, the
weights and the result of the last step are read or written once, at the rate of a copy that is measured in the same
run: what follows the layer costs nothing there, and neither does arithmetic.

A result is right where it is off from float64, in relative L2, by no more than the tolerance in the script, or a
quarter more than PyTorch's own. float64 is computed for the first and the last image; where there is no memory for it,
PyTorch's result in strict f32 takes its place. The input is as KernelBench has it, between 0 and 1, where times are
measured, and normal where results are judged: of the former every result of problem 93 is 0. --small cuts batch,
channels and image to try the script on any machine; its speed-ups mean nothing.

Writes kernelbench_level2.json.gz and .md to DIR. The exit status is 1 where a result is wrong or one failed.
"""

import argparse
import copy
import dataclasses
import math
import pathlib
import sys
import typing

import torch
import torch.nn.functional as F
from problem import Problem
from run import SEED, float64_errors
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import eager_timing
import gpu_machine
import report

import tconv.torch

# The most that a result may be off from float64, or so many times as much as PyTorch's own.
TOLERANCES = {"strict": 1e-4, "tf32": 1e-3, "bf16": 2e-2}
ERRORS = 1.25
CONTENDERS = (
    "torch",
    "torch compiled",
    "torch layer",
    "tconv",
    "tconv fused",
    "tconv compiled",
    "tconv compiled fused",
    "tconv layer",
)
# Speed-ups: what is said of each, PyTorch's contender and tconv's, the first of them that there is.
RATIOS = {
    "eager": ("torch", ("tconv",)),
    "eager, fused where it can be": ("torch", ("tconv fused", "tconv")),
    "compiled": ("torch compiled", ("tconv compiled",)),
    "compiled, fused": ("torch compiled", ("tconv compiled fused",)),
    "layer alone": ("torch layer", ("tconv layer",)),
}
# Programs from PyTorch's cache are not looked at by the pass, which then would say nothing.
UNCACHED = {"fx_graph_cache": False}


# -------------------------------------------------------------------------------------------------------- the problems


@dataclasses.dataclass(frozen=True)
class Followed:
    """A layer and what follows it: modules, made for so many channels, then a function of the model and the value."""

    name: str
    layer: Problem
    after: typing.Callable
    modules: typing.Callable = lambda channels: ()


def square(batch, inputs, image, outputs, kernel, stride, padding, output_padding=0):
    return Problem(batch, inputs, image, image, outputs, kernel, (stride, padding, output_padding))


def mean_of_image(y):
    return y.mean((2, 3), keepdim=True)


PROBLEMS = {
    "2": Followed(
        "BiasAdd_Clamp_Scaling_Clamp_Divide",
        square(128, 64, 128, 64, 3, 2, 1, 1),
        lambda model, y: torch.clamp(torch.clamp(y + model.vector, 0, 1) * 2.0, 0, 1) / 2.0,
    ),
    "5": Followed("Subtract_Tanh", square(32, 64, 256, 64, 4, 2, 1, 1), lambda model, y: torch.tanh(y - model.vector)),
    "10": Followed(
        "MaxPool_Hardtanh_Mean_Tanh",
        square(128, 64, 256, 64, 3, 1, 1),
        lambda model, y: torch.tanh(mean_of_image(F.hardtanh(F.max_pool2d(y, 2, 2)))),
    ),
    "11": Followed(
        "BatchNorm_Tanh_MaxPool_GroupNorm",
        square(512, 64, 32, 128, 5, 1, 1),
        lambda model, y: model.group_norm(F.max_pool2d(y, 2, 2)),
        lambda channels: (nn.BatchNorm2d(channels), nn.Tanh()),
    ),
    "16": Followed(
        "Mish_Add_Hardtanh_Scaling",
        square(128, 64, 128, 64, 3, 2, 1, 1),
        lambda model, y: F.hardtanh(y + 0.5) * 2,
        lambda channels: (nn.Mish(),),
    ),
    "19": Followed(
        "GELU_GroupNorm",
        square(128, 64, 256, 64, 3, 1, 0),
        lambda model, y: model.group_norm(y),
        lambda channels: (nn.GELU(),),
    ),
    "36": Followed(
        "Min_Sum_GELU_Add",
        square(16, 64, 128, 128, 3, 2, 1, 1),
        lambda model, y: F.gelu(y.min(1, keepdim=True)[0].sum(2, keepdim=True)) + model.vector[0],
    ),
    "42": Followed(
        "GlobalAvgPool_BiasAdd_LogSumExp_Sum_Multiply",
        square(16, 64, 512, 128, 3, 1, 0),
        lambda model, y: torch.logsumexp(mean_of_image(y) + model.vector, 1, keepdim=True).sum((2, 3)) * 10.0,
    ),
    "44": Followed(
        "Multiply_GlobalAvgPool_GlobalAvgPool_Mean",
        square(16, 64, 128, 128, 3, 2, 1, 1),
        lambda model, y: mean_of_image(mean_of_image(y * 0.5)),
    ),
    "91": Followed(
        "Softmax_BiasAdd_Scaling_Sigmoid",
        square(128, 64, 64, 128, 4, 2, 1, 1),
        lambda model, y: torch.sigmoid((torch.softmax(y, 1) + model.vector) * 2.0),
    ),
    "93": Followed(
        "Add_Min_GELU_Multiply",
        square(128, 64, 64, 128, 4, 2, 0),
        lambda model, y: F.gelu(torch.clamp(y + 0.5, max=0.0)) * 2.0,
    ),
}


class Net(nn.Module):
    def __init__(self, followed, problem):
        super().__init__()
        channels = problem.out_channels
        self.layers = nn.Sequential(nn.ConvTranspose2d(*problem.get_init_inputs()), *followed.modules(channels))
        self.vector = nn.Parameter(torch.randn(channels, 1, 1))
        self.group_norm = nn.GroupNorm(8, channels)
        self.after = followed.after

    def forward(self, x):
        return self.after(self, self.layers(x))


# ----------------------------------------------------------------------------------------------------------- measuring


def bytes_of(*tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def contenders_of(model, chosen):
    """What is called, by name, what replace has taken, and the modules that fuse has."""
    replaced, fused = copy.deepcopy(model), copy.deepcopy(model)
    swapped, answer = tconv.torch.replace(replaced).swapped, tconv.torch.fuse(fused)
    made = {
        "torch": lambda: model,
        "torch compiled": lambda: torch.compile(model),
        "torch layer": lambda: model.layers[0],
        "tconv": lambda: replaced,
        "tconv fused": lambda: fused,
        "tconv compiled": lambda: torch.compile(replaced),
        "tconv compiled fused": lambda: torch.compile(replaced, options=UNCACHED | tconv.torch.fusion_options()),
        "tconv layer": lambda: replaced.layers[0],
    }
    names = [name for name in chosen if name != "tconv fused" or answer.fused]
    modules = [type(fused.get_submodule(name)).__name__ for behind in answer.fused.values() for name in behind]
    return {name: made[name]() for name in names}, swapped, modules


def errors_of(model, x, outputs):
    """Relative L2, of each output, and from what."""
    errors = float64_errors(model, x, outputs)
    if errors is not None:
        return "float64", errors
    with eager_timing.precision("strict", x.device.type):
        expected = copy.deepcopy(model).float()(x.float())
    return "strict f32", {name: eager_timing.difference(found, expected)[1] for name, found in outputs.items()}


def passed(before):
    """What tconv's pass has made of layers since that report."""
    now = tconv.torch.fusion_report()
    fused = [post for name, post in now.fused.items() if name not in before.fused]
    left = [f"left: {why}" for name, why in now.left.items() if name not in before.left]
    return "; ".join(fused + left) or "-"


def compare(number, precision, copy_rate, options):
    """Everything about one problem in one precision."""
    followed = PROBLEMS[number]
    problem = followed.layer.cut() if options.small else followed.layer
    torch.manual_seed(SEED)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = Net(followed, problem).to(options.device, dtype).eval()
    called, swapped, eager_fused = contenders_of(model, options.contenders)
    before = tconv.torch.fusion_report()
    x = torch.randn(problem.input_shape, device=options.device, dtype=dtype)
    outputs = {name: call(x) for name, call in called.items() if not name.endswith("layer")}
    graph_fused = passed(before)
    floor = bytes_of(x, model.layers[0].weight, outputs["torch"]) / copy_rate
    against, errors = errors_of(model, x, outputs)
    outputs.clear()
    x.uniform_()
    runs = {name: lambda call=call: call(x) for name, call in called.items()}
    most = max(TOLERANCES[precision], ERRORS * errors["torch"])
    return {
        "number": number,
        "name": followed.name,
        "precision": precision,
        "input": list(x.shape),
        "ms": eager_timing.in_turn(runs, options.device, options.rounds),
        "floor_ms": 1e3 * floor,
        "against": against,
        "errors": errors,
        "fuse": eager_fused,
        "pass": graph_fused,
        "right": bool(swapped) and all(error <= most for name, error in errors.items() if name.startswith("tconv")),
    }


def speedup(result, ratio):
    """None where one of the two was not timed."""
    theirs, ours = RATIOS[ratio]
    names = [name for name in ours if name in result["ms"]]
    return result["ms"][theirs] / result["ms"][names[0]] if names and theirs in result["ms"] else None


def fastest(result, who):
    return min(ms for name, ms in result["ms"].items() if name.startswith(who) and not name.endswith("layer"))


def line(result):
    times = ", ".join(f"{name} {ms:.3f}" for name, ms in result["ms"].items())
    verdict = "right" if result["right"] else "WRONG"
    errors = ", ".join(f"{name} {error:.1e}" for name, error in result["errors"].items())
    return f"{result['number']} {result['precision']}: {times} ms, floor {result['floor_ms']:.3f}; {verdict}: {errors}"


@torch.no_grad()
def measure(_, options, seconds):
    """Every problem in every precision, in this process."""
    machine = (gpu_machine.GpuMachine if options.device == "cuda" else gpu_machine.CpuMachine)()
    copy_rate = machine.copy_rate()
    machine.forget()

    def compared(number, precision):
        with eager_timing.precision("strict" if precision == "bf16" else precision, options.device):
            return compare(number, precision, copy_rate, options)

    titled = [(f"{number} {name}", (number, name)) for name in options.precisions for number in options.numbers]
    part = eager_timing.measure_each(titled, compared, line, options.device, seconds)
    part["heading"].append(f"the floor is at {copy_rate / 1e12:.3f} TB/s")
    return part


# -------------------------------------------------------------------------------------------------------------- report


def ratio_text(value):
    return "-" if value is None else f"{value:.2f}x"


def row(result):
    cells = [result["number"], f"{result['floor_ms']:.3f}"]
    cells += [f"{result['ms'][name]:.3f}" if name in result["ms"] else "-" for name in CONTENDERS]
    cells += [ratio_text(speedup(result, ratio)) for ratio in RATIOS]
    ours, torchs = (
        max((error for name, error in result["errors"].items() if name.startswith(who)), default=math.nan)
        for who in ("tconv", "torch")
    )
    cells += [f"{torchs:.1e}", f"{ours:.1e}" + ("" if result["right"] else " WRONG")]
    return f"| {' | '.join([*cells, ', '.join(result['fuse']) or '-', result['pass']])} |"


def table(results):
    columns = ["problem", "floor", *CONTENDERS, *RATIOS, "error of torch", "error of tconv", "fuse", "pass"]
    lines = [f"| {' | '.join(columns)} |", "|---" + "|---:" * (len(columns) - 3) + "|---|---|"]
    return lines + [row(result) for result in results]


def verdicts(results):
    every = {ratio: {r["number"]: speedup(r, ratio) for r in results} for ratio in RATIOS}
    every["the faster of PyTorch's over the fastest of tconv's"] = {
        r["number"]: fastest(r, "torch") / fastest(r, "tconv") for r in results
    }
    for what, found in every.items():
        ratios = {number: value for number, value in found.items() if value is not None}
        if ratios:
            least = min(ratios, key=ratios.get)
            mean = report.geometric_mean(ratios.values())
            yield f"- {what}: {mean:.2f}x in geometric mean of {len(ratios)}, least {ratios[least]:.2f}x ({least})"
    for who in ("torch", "tconv"):
        over = {r["number"]: fastest(r, who) / r["floor_ms"] for r in results}
        yield f"- the fastest of {who} over the floor: {report.geometric_mean(over.values()):.2f} in geometric mean"


def markdown(run):
    results = run["results"]
    lines = ["# KernelBench's second level in PyTorch: a transposed convolution and what follows it", ""]
    lines += [f"- {text}" for text in run["heading"]]
    wrong = [f"{r['number']} {r['precision']}" for r in results if not r["right"]]
    lines.append(f"- results are right: {'all' if not wrong else 'NOT ' + ', '.join(wrong)}")
    for against in dict.fromkeys(r["against"] for r in results):
        named = dict.fromkeys(f"{r['number']} {r['precision']}" for r in results if r["against"] == against)
        lines.append(
            f"- errors are relative L2 from {against}" + ("" if against == "float64" else f": {', '.join(named)}")
        )
    if run["small"]:
        lines.append("- sizes cut to try the script: the speed-ups mean nothing")
    lines += ["", *(f"- {number}: {name}" for number, name in dict.fromkeys((r["number"], r["name"]) for r in results))]
    for precision in dict.fromkeys(r["precision"] for r in results):
        found = [r for r in results if r["precision"] == precision]
        lines += ["", f"**{precision}**: milliseconds, medians", "", *table(found), "", *verdicts(found)]
    return "\n".join(lines + eager_timing.gap_lines(run)) + "\n"


# ---------------------------------------------------------------------------------------------------------------- main


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", default=",".join(PROBLEMS))
    parser.add_argument("--precisions", help="of strict, tf32, bf16; the CPU has no tf32")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="torch and tconv are always among them")
    eager_timing.add_options(parser)
    options = parser.parse_args()
    known = eager_timing.precisions_of(options.device)
    options.numbers = eager_timing.names_of(parser, options.numbers, PROBLEMS, "numbers")
    options.precisions = eager_timing.names_of(parser, options.precisions or ",".join(known), known, "precisions")
    chosen = {"torch", "tconv", *eager_timing.names_of(parser, options.contenders, CONTENDERS, "contenders")}
    options.contenders = [name for name in CONTENDERS if name in chosen]
    return options


def main():
    options = parse_arguments()
    facts = {"device": options.device, "small": options.small}
    run = eager_timing.measure_and_report(measure, ["one process"], options, facts, "kernelbench_level2", markdown)
    return 0 if run["results"] and not run["failures"] and all(r["right"] for r in run["results"]) else 1


if __name__ == "__main__":
    sys.exit(main())
