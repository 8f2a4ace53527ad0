#!/usr/bin/env python3
"""The transposed convolutions of whole networks by themselves, forward and both gradients: PyTorch's and tconv's.

    network_layers.py [--networks dcgan,sam,pix2pix,hifigan,nnunet] [--precisions strict,tf32,bf16]
                      [--layouts nchw,channels_last] [--benchmark off,on] [--every-gradient] [--device cuda|cpu]
                      [--small] [--rounds N] [--seconds S] [--out DIR]
    network_layers.py --redraw results/network_layers.json.gz --out results        # the tables again

The networks are those of networks.py; a forward pass tells which layers they have, with which inputs. Each layer is
called with autograd, as a training step calls it: forward, and by torch.autograd.grad the gradients of weight and bias,
and of the input where it wants one. PyTorch and tconv.torch take turns.

called: as it is called from Python, by events around each call: what the host takes counts where the GPU waits for it.
The precision is set around all calls, as a network's step sets it once for all of its layers.
together: called, too, but all layers in one: forward by each, then one torch.autograd.grad for all, as a training step
starts autograd's engine once and not for each layer.
graph: called as a CUDA graph. forward, input, weight: those parts, each as a graph of its own. Times are medians, and
but for together sums over the layers of a network; a speed-up is PyTorch's time over tconv's.

Whose the gradients are in tconv.torch is its rule (FAST_ON_CUDA in _reasons.py); --every-gradient makes all tconv's,
which is how the rule is judged. Gradients are right where they are off from PyTorch's, in relative L2, by no more than
the tolerance in the script.

Writes network_layers.json.gz and .md to DIR. The exit status is 1 where gradients disagree or are missing.
"""

import argparse
import dataclasses
import itertools
import math
import sys

import eager_timing
import report
import torch
import torch.nn.functional as F
from end_to_end import FORMATS, lying
from networks import NETWORKS

import tconv.torch
from tconv.torch import _reasons

SEED = 42
# The issue of training: sums of forward and both gradients as called, PyTorch's over tconv's.
BAR = 1.8
LAYERS = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d)
FUNCTIONS = {
    "before": {1: F.conv_transpose1d, 2: F.conv_transpose2d},
    "after": {1: tconv.torch.conv_transpose1d, 2: tconv.torch.conv_transpose2d},
}
WAYS = ("called", "together", "graph", "forward", "input", "weight")
WHOLE = WAYS[:3]
# In relative L2, of one layer: rounding in both.
TOLERANCE = {"strict": 1e-4, "tf32": 5e-3, "bf16": 2e-2}


@dataclasses.dataclass(frozen=True)
class Setting:
    network: str
    precision: str
    layout: str

    def __str__(self):
        return f"{self.network} {self.precision} {self.layout}"


@torch.no_grad()
def layers_of(setting, options):
    """The layers of the network with their inputs; the first layer's is the network's, which wants no gradient."""
    torch.manual_seed(SEED)
    network = NETWORKS[setting.network]
    model = network.make(network.small_width if options.small else network.width).to(options.device)
    x = torch.randn(network.small_shape if options.small else network.input_shape, device=options.device)
    model, x = lying(setting.layout, model, x)
    found = []

    def keep(layer, inputs, _):
        found.append((layer, inputs[0].clone(memory_format=torch.preserve_format), inputs[0] is not x))

    for module in model.modules():
        if isinstance(module, LAYERS):
            module.register_forward_hook(keep)
    with eager_timing.precision("strict", options.device):
        model(x)
    return found


class Calls:
    """One library's calls of a layer."""

    def __init__(self, which, layer, x, wants):
        self.function, self.layer = FUNCTIONS[which][x.dim() - 2], layer
        self.x = x.detach().requires_grad_(wants)
        self.parameters = [p for p in (layer.weight, layer.bias) if p is not None]
        self.inputs = [self.x] if wants else []
        self.y = self.forward()
        torch.manual_seed(SEED)
        self.cotangent = torch.randn_like(self.y)

    def forward(self):
        layer = self.layer
        return self.function(
            self.x,
            layer.weight,
            layer.bias,
            layer.stride,
            layer.padding,
            layer.output_padding,
            layer.groups,
            layer.dilation,
        )

    def forward_alone(self):
        with torch.no_grad():
            return self.forward()

    @property
    def leaves(self):
        return [*self.inputs, *self.parameters]

    def step(self):
        return torch.autograd.grad(self.forward(), self.leaves, self.cotangent)

    def gradients(self, of):
        return torch.autograd.grad(self.y, of, self.cotangent, retain_graph=True)

    def ways(self):
        found = {"called": self.step, "graph": self.step, "forward": self.forward_alone}
        if self.inputs:
            found["input"] = lambda: self.gradients(self.inputs)
        return {**found, "weight": lambda: self.gradients(self.parameters)}


def step_of(calls):
    """A step of all layers: what torch.autograd.grad has for the calls of one library."""
    leaves = [leaf for call in calls for leaf in call.leaves]
    cotangents = [call.cotangent for call in calls]
    return lambda: torch.autograd.grad([call.forward() for call in calls], leaves, cotangents)


def graph_of(run):
    """What replays a CUDA graph of the run, on the current stream."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        run()
    return graph.replay


def compare_layer(calls, options):
    """The milliseconds of each way, before and after, and how far the gradients are apart."""
    layer, x = calls["before"].layer, calls["before"].x
    ways = {which: calls[which].ways() for which in calls}
    gradients = [call.step() for call in calls.values()]
    off = max(eager_timing.difference(theirs[None], ours[None])[1] for ours, theirs in zip(*gradients, strict=True))
    gradients.clear()
    times = {}
    for way in ways["before"]:
        runs = {which: found[way] for which, found in ways.items()}
        if way != "called" and options.device == "cuda":
            runs = {which: graph_of(run) for which, run in runs.items()}
        times[way] = eager_timing.in_turn(runs, options.device, options.rounds)
    return {
        "weight": list(layer.weight.shape),
        "stride": list(layer.stride),
        "input": list(x.shape),
        "ms": times,
        "off": off,
    }


def compare(setting, options):
    dtype = torch.bfloat16 if setting.precision == "bf16" else torch.float32
    found = [(layer, x.to(dtype), wants) for layer, x, wants in layers_of(setting, options)]
    with eager_timing.precision(setting.precision, options.device, casts_once=False):
        calls = [{which: Calls(which, *of) for which in FUNCTIONS} for of in found]
        layers = [compare_layer(of, options) for of in calls]
        steps = {which: step_of([of[which] for of in calls]) for which in FUNCTIONS}
        together = eager_timing.in_turn(steps, options.device, options.rounds)
    sums = {
        way: {which: sum(layer["ms"][way][which] for layer in layers if way in layer["ms"]) for which in FUNCTIONS}
        for way in WAYS
    }
    sums["together"] = together
    off = max(layer["off"] for layer in layers)
    right = bool(layers) and off <= TOLERANCE[setting.precision]
    return {**dataclasses.asdict(setting), "sums_ms": sums, "off": off, "right": right, "layers": layers}


def speedup(times):
    return times["before"] / times["after"] if times["after"] else math.nan


def line(result):
    sums = result["sums_ms"]
    parts = ", ".join(f"{way} {speedup(sums[way]):.2f}x" for way in WAYS)
    setting = Setting(*(result[field.name] for field in dataclasses.fields(Setting)))
    called = sums["called"]
    return f"{setting}: {parts} ({called['before']:.3f} -> {called['after']:.3f} ms), off by {result['off']:.1e}"


def settings_of(options):
    every = itertools.product(options.precisions, options.networks, options.layouts)
    return [Setting(n, p, layout) for p, n, layout in every if NETWORKS[n].has_layout(layout)]


def measure(benchmark, options, seconds):
    """Every setting with cudnn.benchmark on or off, in a process of its own."""
    torch.backends.cudnn.benchmark = benchmark == "on"
    if options.every_gradient:
        _reasons.of_speed = lambda *_: None
    if options.device == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())
    titled = [(f"{setting}, benchmark {benchmark}", (setting,)) for setting in settings_of(options)]
    return eager_timing.measure_each(
        titled, lambda of: {"benchmark": benchmark, **compare(of, options)}, line, options.device, seconds
    )


# -------------------------------------------------------------------------------------------------------------- report


def row(result):
    cells = [result[key] for key in ("network", "precision", "layout", "benchmark")] + [str(len(result["layers"]))]
    for way in WHOLE:
        times = result["sums_ms"][way]
        cells += [f"{times['before']:.3f}", f"{times['after']:.3f}", f"{speedup(times):.2f}x"]
    cells += [f"{speedup(result['sums_ms'][way]):.2f}x" for way in WAYS[len(WHOLE) :]]
    return f"| {' | '.join(cells)} | {result['off']:.1e}{'' if result['right'] else ' WRONG'} |"


def markdown(run):
    columns = ["network", "precision", "layout", "cudnn.benchmark", "layers"]
    columns += [f"{way} {which}" for way in WHOLE for which in ("before", "after", "speed-up")]
    columns += [*WAYS[len(WHOLE) :], "difference"]
    lines = ["# Transposed convolutions of networks: forward and both gradients", ""]
    lines += [f"- {text}" for text in run["heading"]]
    lines.append("- " + ("all gradients by tconv" if run["every_gradient"] else "gradients by the rule of tconv.torch"))
    if run["small"]:
        lines.append("- networks cut to try the script: the speed-ups mean nothing")
    lines += ["", "Milliseconds, sums of medians; the last but one columns are speed-ups by graphs.", ""]
    lines += [f"| {' | '.join(columns)} |", "|---" * 4 + "|" + "---:|" * (len(columns) - 4)]
    lines += map(row, run["results"])
    lines.append("")
    for precision in dict.fromkeys(result["precision"] for result in run["results"]):
        found = [result for result in run["results"] if result["precision"] == precision]
        for way in WHOLE:
            ratios = [speedup(result["sums_ms"][way]) for result in found]
            mean = report.geometric_mean(ratios)
            reached = sum(ratio >= BAR for ratio in ratios)
            lines.append(
                f"- {precision}, {way}: {mean:.2f}x in geometric mean, {BAR}x or more {reached} of {len(found)}"
            )
    return "\n".join(lines + eager_timing.gap_lines(run)) + "\n"


# ---------------------------------------------------------------------------------------------------------------- main


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="dcgan,sam,pix2pix,hifigan,nnunet")
    parser.add_argument("--precisions", help="of strict, tf32, bf16; the CPU has no tf32")
    parser.add_argument("--layouts", default=",".join(FORMATS))
    parser.add_argument("--benchmark", default="off", help="of off, on")
    parser.add_argument("--every-gradient", action="store_true", help="none is left to PyTorch for its speed")
    eager_timing.add_options(parser)
    options = parser.parse_args()
    known = eager_timing.precisions_of(options.device)
    options.networks = eager_timing.names_of(parser, options.networks, NETWORKS, "networks")
    options.precisions = eager_timing.names_of(parser, options.precisions or ",".join(known), known, "precisions")
    options.layouts = eager_timing.names_of(parser, options.layouts, FORMATS, "layouts")
    options.benchmark = eager_timing.names_of(parser, options.benchmark, ("off", "on"), "benchmark")
    return options


def main():
    options = parse_arguments()
    facts = {"device": options.device, "small": options.small, "every_gradient": options.every_gradient}
    run = eager_timing.measure_and_report(measure, options.benchmark, options, facts, "network_layers", markdown)
    right = all(result["right"] for result in run["results"])
    return 0 if run["results"] and right and not run["failures"] else 1


if __name__ == "__main__":
    sys.exit(main())
