#!/usr/bin/env python3
"""Whole networks before and after tconv.torch.replace: inference, training steps and what training comes to.

    end_to_end.py [--networks unet,unet512,dcgan,sam,pix2pix,hifigan,codec,nnunet]
                  [--precisions strict,tf32,bf16] [--layouts nchw,channels_last] [--compile]
                  [--benchmark off,on] [--device cuda|cpu] [--small] [--rounds N] [--steps N] [--seconds S] [--out DIR]
    end_to_end.py --redraw results/end_to_end.json.gz --out results        # tables and verdicts again

The networks are those of networks.py.

Before and after are two copies of one network, called from Python, eager and with --compile also through
torch.compile, in turn, before first in one round and after in the next. After is compiled with
tconv.torch.fusion_options(). A training step is zero_grad, forward, loss,
backward and the optimizer's step (the generators Adam, the others SGD with momentum). strict is allow_tf32 off, tf32
on, bf16 autocast, entered for every call. Each setting of cudnn.benchmark has a process of its own. A speed-up is the
time before over the time after. The results' errors are against the network in float64, where they may be about as
large after as before.

Then both train from the same weights on the same data, and the losses of every step have to agree. So does a third:
the network before once more, its weights changed at random by one rounding step. By as much as that one drifts away,
the losses say nothing.

--small makes networks and images small enough to try the script on any machine; its speed-ups mean nothing. --seconds:
begins nothing further after so many.

Writes end_to_end.json.gz (after every setting of cudnn.benchmark) and end_to_end.md to DIR. The exit status is 1 where
results or losses disagree or are missing.
"""

import argparse
import copy
import dataclasses
import itertools
import math
import sys

import eager_timing
import report
import torch
import torch.nn.functional as F
from networks import NETWORKS

import tconv.torch

SEED = 42
FORMATS = {  # by the tensor's axes; of others there is one
    "nchw": {4: torch.contiguous_format, 5: torch.contiguous_format},
    "channels_last": {4: torch.channels_last, 5: torch.channels_last_3d},
}
# The most that the results may be off from the network in float64, in relative L2, or times as much as before: a deep
# network in bf16 is off by more whoever rounds. And the most that a loss may differ by, relative to the loss before.
RESULT_TOLERANCE = {"strict": 1e-4, "tf32": 5e-3, "bf16": 5e-2}
ERRORS = 1.25
LOSS_TOLERANCE = {"strict": 1e-3, "tf32": 1e-2, "bf16": 5e-2}
# Rounding alone drives a training apart by chance; within so many times of what it did once, losses agree.
DRIFTS = 3
ROUNDING = {"strict": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-9}
# A training step is not to be slower: within what two runs of the same program differ by.
LEVEL = 1.02


# ----------------------------------------------------------------------------------------------------------- measuring


@dataclasses.dataclass(frozen=True)
class Setting:
    network: str
    precision: str
    layout: str
    mode: str

    def __str__(self):
        return f"{self.network} {self.precision} {self.layout} {self.mode}"


def lying(layout, model, x):
    """The model and its input in the layout."""
    memory_format = FORMATS[layout].get(x.dim(), torch.preserve_format)
    return model.to(memory_format=memory_format), x.to(memory_format=memory_format)


def called(which, model, mode):
    """How the model is called, before or after: what is compiled after has tconv's pass."""
    if mode != "compile":
        return model
    return torch.compile(model, options=tconv.torch.fusion_options() if which == "after" else None)


class Training:
    """A copy of the model, trained on one batch. What torch.compile made of it serves every start."""

    def __init__(self, which, model, setting, x, target):
        self.setting, self.x, self.target = setting, x, target
        self.model = copy.deepcopy(model).train()
        self.forward = called(which, self.model, setting.mode)

    def start(self, model):
        """From this model's weights."""
        self.model.load_state_dict(model.state_dict())
        self.optimizer = NETWORKS[self.setting.network].optimizer(self.model.parameters())

    def step(self):
        self.optimizer.zero_grad()
        with eager_timing.precision(self.setting.precision, self.x.device.type):
            result = self.forward(self.x)
        loss = F.mse_loss(result.float(), self.target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def losses(self, model, steps):
        self.start(model)
        return torch.stack([self.step() for _ in range(steps)]).double().cpu()


def rounded(model, step):
    """The model with every weight changed at random by up to so much of itself."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for weight in changed.parameters():
            weight *= 1 + step * (2 * torch.rand_like(weight) - 1)
    return changed


def drift(losses, expected):
    """The largest relative difference; any NaN makes it NaN."""
    return ((losses - expected).abs() / expected.abs()).max().item()


@torch.no_grad()
def errors_of(results, model, x):
    """How far each is from what the model computes in float64, in relative L2. One image at a time saves memory."""
    exact = copy.deepcopy(model).eval().double()
    truth = torch.cat([exact(image.double()) for image in x.split(1)])
    return {name: eager_timing.difference(result, truth)[1] for name, result in results.items()}


@torch.no_grad()
def compare_inference(setting, before, after, x, options):
    """Times, the difference between the results, and their errors."""
    models = {"before": copy.deepcopy(before).eval(), "after": copy.deepcopy(after).eval()}
    models = {name: called(name, model, setting.mode) for name, model in models.items()}

    def run(model):
        with eager_timing.precision(setting.precision, options.device):  # autocast keeps no weights for the next call
            return model(x)

    runs = {name: lambda model=model: run(model) for name, model in models.items()}
    results = {name: run() for name, run in runs.items()}
    off = eager_timing.difference(results["after"], results["before"])[1]
    errors = errors_of(results, before, x)
    return with_speedup(eager_timing.in_turn(runs, options.device, options.rounds)), off, errors


def is_right(errors, precision):
    return errors["after"] <= max(RESULT_TOLERANCE[precision], ERRORS * errors["before"])


def with_speedup(times):
    return {"before_ms": times["before"], "after_ms": times["after"], "speedup": times["before"] / times["after"]}


def compare_training(setting, before, after, x, target, options):
    """Times, and the losses of all three trainings."""
    trainings = {
        name: Training(name, model, setting, x, target) for name, model in (("before", before), ("after", after))
    }
    control = rounded(before, ROUNDING[setting.precision])
    losses = {name: training.losses(before, options.steps) for name, training in trainings.items()}
    losses["rounded"] = trainings["before"].losses(control, options.steps)
    steps = {name: training.step for name, training in trainings.items()}
    return with_speedup(eager_timing.in_turn(steps, options.device, options.rounds)), losses


def compare(setting, options):
    """Everything about one network in one setting."""
    network = NETWORKS[setting.network]
    torch.manual_seed(SEED)
    before = network.make(network.small_width if options.small else network.width).to(options.device)
    x = torch.randn(network.small_shape if options.small else network.input_shape, device=options.device)
    before, x = lying(setting.layout, before, x)
    with torch.no_grad():
        target = torch.rand_like(copy.deepcopy(before)(x))
    after = copy.deepcopy(before)
    replaced = tconv.torch.replace(after)
    inference, off, errors = compare_inference(setting, before, after, x, options)
    training, losses = compare_training(setting, before, after, x, target, options)
    drifts = {name: drift(losses[name], losses["before"]) for name in ("after", "rounded")}
    agree = drifts["after"] <= max(LOSS_TOLERANCE[setting.precision], DRIFTS * drifts["rounded"])
    return {
        **dataclasses.asdict(setting),
        "input": list(x.shape),
        "swapped": replaced.swapped,
        "left": replaced.left,
        "inference": inference,
        "training": training,
        "relative_l2": off,
        "errors": errors,
        "drift": drifts,
        "right": bool(replaced.swapped) and is_right(errors, setting.precision),
        "losses_agree": agree and not math.isnan(drifts["rounded"]),
        "losses": {name: values.tolist() for name, values in losses.items()},
    }


def line(result):
    parts = [
        f"{what} {result[what]['before_ms']:.3f} -> {result[what]['after_ms']:.3f} ms ({result[what]['speedup']:.2f}x)"
        for what in ("inference", "training")
    ]
    verdicts = "right" if result["right"] else "WRONG", "agree" if result["losses_agree"] else "DIFFER"
    errors, drifts = result["errors"], result["drift"]
    return (
        f"{Setting(*(result[f.name] for f in dataclasses.fields(Setting)))}: {', '.join(parts)}, {verdicts[0]} to "
        f"{errors['after']:.1e} (before {errors['before']:.1e}), losses {verdicts[1]} to {drifts['after']:.1e} "
        f"(rounding alone {drifts['rounded']:.1e})"
    )


def settings_of(options):
    """Eager comes first, so that a run that is cut short lacks what was compiled."""
    every = itertools.product(options.modes, options.networks, options.precisions, options.layouts)
    return [
        Setting(network, precision, layout, mode)
        for mode, network, precision, layout in every
        if NETWORKS[network].has_layout(layout)
    ]


def measure(benchmark, options, seconds):
    """Every setting with cudnn.benchmark on or off, in a process of its own."""
    torch.backends.cudnn.benchmark = benchmark == "on"
    titled = [(f"{setting}, benchmark {benchmark}", (setting,)) for setting in settings_of(options)]
    return eager_timing.measure_each(
        titled, lambda of: {"benchmark": benchmark, **compare(of, options)}, line, options.device, seconds
    )


# -------------------------------------------------------------------------------------------------------------- report


def row(result):
    cells = [result[key] for key in ("network", "precision", "layout", "mode")]
    for what in ("inference", "training"):
        found = result[what]
        cells += [f"{found['before_ms']:.3f}", f"{found['after_ms']:.3f}", f"{found['speedup']:.2f}x"]
    cells += [f"{result['relative_l2']:.1e}", f"{result['errors']['before']:.1e}"]
    cells.append(f"{result['errors']['after']:.1e}" + ("" if result["right"] else " WRONG"))
    cells.append(f"{result['drift']['after']:.1e}" + ("" if result["losses_agree"] else " DIFFER"))
    return f"| {' | '.join([*cells, format(result['drift']['rounded'], '.1e')])} |"


def table(results):
    columns = ["network", "precision", "layout", "mode"]
    columns += [f"{what} {which}" for what in ("inference", "step") for which in ("before", "after", "speed-up")]
    columns += ["difference", "error before", "error after", "drift of losses", "of rounding"]
    lines = [f"| {' | '.join(columns)} |", "|---" * 4 + "|" + "---:|" * (len(columns) - 4)]
    return lines + [row(result) for result in results]


def verdicts(results):
    """By network and mode: the geometric mean over precisions and layouts, and what became slower."""
    for network, mode in dict.fromkeys((r["network"], r["mode"]) for r in results):
        found = [r for r in results if (r["network"], r["mode"]) == (network, mode)]
        for what, level in (("inference", 1), ("training", LEVEL)):
            ratios = {f"{r['precision']} {r['layout']}": r[what]["speedup"] for r in found}
            slower = {name: ratio for name, ratio in ratios.items() if ratio < 1 / level}
            by = "" if level == 1 else f" by more than {level - 1:.0%}"
            mean = report.geometric_mean(ratios.values())
            yield f"- {network}, {mode}, {what}: {mean:.2f}x in geometric mean; slower{by}: {report.named(slower)}"


def agreement(run):
    for what, key in (("results", "right"), ("losses", "losses_agree")):
        off = [
            f"{r['network']} {r['precision']} {r['layout']} {r['mode']} benchmark {r['benchmark']}"
            for r in run["results"]
            if not r[key]
        ]
        yield f"- {what} agree: {'all' if not off else 'NOT ' + ', '.join(off)}"
    yield f"- losses of {run['steps']} steps"


def markdown(run):
    lines = ["# Networks in PyTorch", "", *(f"- {text}" for text in run["heading"]), *agreement(run)]
    if run["small"]:
        lines.append("- networks cut to try the script: the speed-ups mean nothing")
    for benchmark in dict.fromkeys(r["benchmark"] for r in run["results"]):
        results = [r for r in run["results"] if r["benchmark"] == benchmark]
        lines += ["", f"**cudnn.benchmark {benchmark}**: milliseconds, medians", "", *table(results), ""]
        lines += verdicts(results)
    return "\n".join(lines + eager_timing.gap_lines(run)) + "\n"


# ---------------------------------------------------------------------------------------------------------------- main


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--precisions", help="of strict, tf32, bf16; the CPU has no tf32")
    parser.add_argument("--layouts", default=",".join(FORMATS))
    parser.add_argument("--compile", action="store_true", help="torch.compile beside eager")
    parser.add_argument("--benchmark", default="off", help="of off, on")
    eager_timing.add_options(parser)
    parser.add_argument("--steps", type=int, default=100, help="of which losses are compared")
    options = parser.parse_args()
    known = eager_timing.precisions_of(options.device)
    options.networks = eager_timing.names_of(parser, options.networks, NETWORKS, "networks")
    options.precisions = eager_timing.names_of(parser, options.precisions or ",".join(known), known, "precisions")
    options.layouts = eager_timing.names_of(parser, options.layouts, FORMATS, "layouts")
    options.benchmark = eager_timing.names_of(parser, options.benchmark, ("off", "on"), "benchmark")
    options.modes = ["eager", "compile"] if options.compile else ["eager"]
    return options


def main():
    options = parse_arguments()
    facts = {"device": options.device, "small": options.small, "steps": options.steps}
    run = eager_timing.measure_and_report(measure, options.benchmark, options, facts, "end_to_end", markdown)
    right = all(result["right"] and result["losses_agree"] for result in run["results"])
    return 0 if run["results"] and right and not run["failures"] else 1


if __name__ == "__main__":
    sys.exit(main())
