#!/usr/bin/env python3
"""KernelBench's seven 2-D transposed convolutions: the model with tconv in it against PyTorch's.

    run.py [--cases kb57,kb75] [--rivals eager,compile] [--math strict,tf32] [--device cuda|cpu] [--small]
           [--rounds N] [--seconds S] [--out DIR]
    run.py --redraw results/kernelbench.json.gz --out results        # table and verdicts again

Model and ModelNew are made from one seed, so that they have the same weights, and get the same input. ModelNew is
judged first: by its largest and its relative L2 difference from Model, in the same math, and on the first and the last
image by the relative L2 error against float64, where there is memory for it. Only then are they timed, as they are
called from Python, without gradients: medians of several rounds in which they take turns, ModelNew first in one and
last in the next.

Model has several ways to run, the rivals; each has a process of its own, with ModelNew beside it, because cuDNN's
choice for a layer outlives a change of cudnn.benchmark. What a rival wants is given for free: input and weights in
channels_last, compilation, tuning. ModelNew always runs eager, on the contiguous input that KernelBench gives, weights
unpacked.

strict is allow_tf32 off, tf32 is allow_tf32 on, for both. A speed-up is the rival's time over ModelNew's in the same
process. Begins no further layer when --seconds are over, of which every rival gets its share. --small cuts batch,
channels and image to try the script on any machine; its speed-ups mean nothing.

Writes kernelbench.json.gz (after every rival) and kernelbench.md to DIR. The exit status is 1 where a result is wrong
or one failed.
"""

import argparse
import copy
import dataclasses
import importlib
import math
import pathlib
import statistics
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import eager_timing
import report

CASES = ["kb57", "kb65", "kb69", "kb71", "kb75", "kb78", "kb81"]
SEED = 42
# The most that ModelNew may be off by: absolute, and by relative L2 from Model, and from float64.
TOLERANCES = {"strict": (1e-4, 1e-4), "tf32": (math.inf, 1e-3)}
# The geometric means of speed-ups over these rivals that are to be reached on an H200.
BARS = {"strict": 3.5, "tf32": 3.0}
BARRED_RIVALS = ("eager", "compile")


@dataclasses.dataclass(frozen=True)
class Rival:
    benchmark: bool = False
    compiled: bool = False
    channels_last: bool = False


RIVALS = {
    "eager": Rival(),
    "benchmark": Rival(benchmark=True),
    "compile": Rival(compiled=True),
    "channels_last": Rival(channels_last=True),
    "channels_last benchmark": Rival(channels_last=True, benchmark=True),
}


def rivals_on(device):
    """The CPU has no cuDNN."""
    return [name for name, rival in RIVALS.items() if device == "cuda" or not rival.benchmark]


# --------------------------------------------------------------------------------------------------------- one problem


def make(kind, problem, device):
    torch.manual_seed(SEED)
    return kind(*problem.get_init_inputs()).to(device).eval()


def float64_errors(model, x, outputs):
    """Of each output, by name, on the first and the last image; None without memory for it."""
    images = [0, len(x) - 1]
    try:
        expected = copy.deepcopy(model).double()(x[images].double())
        return {name: eager_timing.difference(found[images], expected)[1] for name, found in outputs.items()}
    except torch.cuda.OutOfMemoryError:
        return None


def judge(model, ours, x, math_name):
    expected, found = model(x), ours(x)
    most, relative = eager_timing.difference(found, expected)
    float64 = float64_errors(model, x, {"tconv": found, "torch": expected})
    most_bar, relative_bar = TOLERANCES[math_name]
    right = most <= most_bar and relative <= relative_bar and (float64 is None or float64["tconv"] <= relative_bar)
    return {"right": right, "max_abs": most, "relative_l2": relative, "float64": float64}


def compare(case, rival, math_name, options):
    """One problem against one rival."""
    module = importlib.import_module(case)
    problem = module.PROBLEM.cut() if options.small else module.PROBLEM
    model, ours = (make(kind, problem, options.device) for kind in (module.Model, module.ModelNew))
    torch.manual_seed(SEED)
    with torch.device(options.device):
        (x,) = problem.get_inputs()
    found = {
        "name": case,
        "math": math_name,
        "rival": rival,
        "input": list(x.shape),
        **judge(model, ours, x, math_name),
    }
    how, rival_x = RIVALS[rival], x
    if how.channels_last:
        model, rival_x = (value.to(memory_format=torch.channels_last) for value in (model, x))
    if how.compiled:
        model = torch.compile(model)
    contenders = {"tconv": lambda: ours(x), "rival": lambda: model(rival_x)}
    times = eager_timing.in_turn(contenders, options.device, options.rounds)
    return {**found, "tconv_ms": times["tconv"], "rival_ms": times["rival"], "speedup": times["rival"] / times["tconv"]}


def line(result):
    verdict = "right" if result["right"] else "WRONG"
    return (
        f"{result['name']} {result['math']:6s} tconv {result['tconv_ms']:9.4f} ms, {result['rival']} "
        f"{result['rival_ms']:9.4f} ms: {result['speedup']:.2f}x, {verdict}, max abs {result['max_abs']:.1e}, "
        f"relative L2 {result['relative_l2']:.1e}"
    )


@torch.no_grad()
def measure(rival, options, seconds):
    """All problems against one rival, in a process of its own."""
    torch.backends.cudnn.benchmark = RIVALS[rival].benchmark

    def compared(case, math_name):
        with eager_timing.precision(math_name, options.device):
            return compare(case, rival, math_name, options)

    titled = [(f"{case} {name} {rival}", (case, name)) for case in options.cases for name in options.math]
    return eager_timing.measure_each(titled, compared, line, options.device, seconds)


# -------------------------------------------------------------------------------------------------------------- report


def speedups(run, math_name, rival):
    """By case; a wrong result has none."""
    found = [r for r in run["results"] if (r["math"], r["rival"]) == (math_name, rival)]
    return {r["name"]: r["speedup"] for r in found if r["right"]}


def rivals_of(run):
    return list(dict.fromkeys(r["rival"] for r in run["results"]))


def table(run, math_name):
    rivals = rivals_of(run)
    lines = [
        f"| case | tconv ms | {' | '.join(rivals)} | max abs | relative L2 |",
        "|---|" + "---:|" * (len(rivals) + 3),
    ]
    for case in dict.fromkeys(r["name"] for r in run["results"]):
        found = {r["rival"]: r for r in run["results"] if (r["name"], r["math"]) == (case, math_name)}
        if not found:
            continue
        cells = [f"{found[n]['rival_ms']:.4f} ({found[n]['speedup']:.2f}x)" if n in found else "-" for n in rivals]
        ours = statistics.median(r["tconv_ms"] for r in found.values())
        errors = [f"{max(r[key] for r in found.values()):.1e}" for key in ("max_abs", "relative_l2")]
        lines.append(f"| {' | '.join([case, f'{ours:.4f}', *cells, *errors])} |")
    means = [f"{report.geometric_mean(speedups(run, math_name, n).values()):.2f}x" for n in rivals]
    return [*lines, f"| geometric mean | | {' | '.join(means)} | | |"]


def bar_text(run, math_name, rival, mean, ratios):
    """The verdict where a bar is set: for full sizes on a GPU."""
    if run["small"] or run["device"] != "cuda" or rival not in BARRED_RIVALS:
        return ""
    met = ["met" if condition else "MISSED" for condition in (mean >= BARS[math_name], min(ratios.values()) > 1)]
    return f" (bar {BARS[math_name]:g}: {met[0]}; faster on all: {met[1]})"


def verdicts(run, math_name):
    fastest = {}
    for rival in rivals_of(run):
        ratios = speedups(run, math_name, rival)
        if not ratios:
            continue
        mean, least = report.geometric_mean(ratios.values()), min(ratios, key=ratios.get)
        yield (
            f"- against {rival}: {mean:.2f}x in geometric mean of {len(ratios)}"
            f"{bar_text(run, math_name, rival, mean, ratios)}, least {ratios[least]:.2f}x ({least})"
        )
        for name, ratio in ratios.items():
            fastest[name] = min(ratio, fastest.get(name, math.inf))
    if fastest:
        yield (
            f"- against the fastest rival of each: {report.geometric_mean(fastest.values()):.2f}x in geometric mean: "
            f"{report.named(fastest)}"
        )


def error_lines(run, math_name):
    results = [r for r in run["results"] if r["math"] == math_name]
    wrong = [f"{r['name']} beside {r['rival']}" for r in results if not r["right"]]
    most_bar, relative_bar = TOLERANCES[math_name]
    within = f"relative L2 {relative_bar:g}" + ("" if most_bar == math.inf else f", max abs {most_bar:g}")
    yield f"- within {within} of Model: {'all' if not wrong else 'WRONG: ' + ', '.join(wrong)}"
    for who in ("tconv", "torch"):
        errors = {r["name"]: r["float64"][who] for r in results if r["float64"]}
        if errors:
            worst = max(errors, key=errors.get)
            yield f"- {who} against float64: relative L2 error at most {errors[worst]:.1e} ({worst})"


def markdown(run):
    lines = ["# KernelBench's layers in PyTorch", "", *(f"- {text}" for text in run["heading"])]
    if run["small"]:
        lines.append("- sizes cut to try the script: the speed-ups mean nothing")
    for math_name in dict.fromkeys(r["math"] for r in run["results"]):
        lines += [
            "",
            f"**{math_name}**: milliseconds, medians; in parentheses the speed-up, over tconv beside that rival.",
            "",
        ]
        lines += [*table(run, math_name), "", *verdicts(run, math_name), *error_lines(run, math_name)]
    return "\n".join(lines + eager_timing.gap_lines(run)) + "\n"


# ---------------------------------------------------------------------------------------------------------------- main


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    eager_timing.add_options(parser)
    parser.add_argument("--rivals", help="of " + ", ".join(RIVALS))
    parser.add_argument("--math", help="of strict, tf32; the CPU has strict alone")
    options = parser.parse_args()
    maths = [name for name in eager_timing.precisions_of(options.device) if name in TOLERANCES]
    options.cases = eager_timing.names_of(parser, options.cases, CASES, "cases")
    options.rivals = eager_timing.names_of(
        parser, options.rivals or ",".join(rivals_on(options.device)), RIVALS, "rivals"
    )
    options.math = eager_timing.names_of(parser, options.math or ",".join(maths), maths, "math")
    return options


def main():
    options = parse_arguments()
    facts = {"device": options.device, "small": options.small}
    run = eager_timing.measure_and_report(measure, options.rivals, options, facts, "kernelbench", markdown)
    return 0 if run["results"] and not run["failures"] and all(r["right"] for r in run["results"]) else 1


if __name__ == "__main__":
    sys.exit(main())
