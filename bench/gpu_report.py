"""What compare_gpu.py found: tables, verdicts against the bars, bars over the floor and rooflines.

A run is a dict: op, heading, rates, left_out, seconds, and results, one for each layer: name, set, n, gflop, bytes (by
dtype, in NCHW), weights (elements), failures, and precisions, by name, of contenders, by name, as report.py has them. A
set is a file of workloads; what has none is of the first. What has no op is of the forward one.
"""

import dataclasses
import math

import report
from report import geometric_mean, named

TUNED, BROAD = "workloads", "workloads_broad"
SETS = {TUNED: "The layers that tconv was tuned for", BROAD: "Layers that it was not tuned for"}
# Milliseconds, sustained, in TF32 and NCHW, that these layers are to take on one H200.
SUSTAINED_BARS = {"kb57": 2.5, "kb65": 1.45, "kb69": 1.95, "kb71": 0.40, "kb75": 0.30, "kb78": 0.70, "kb81": 0.29}
# The most relative L2 error.
ERROR_BARS = {"f32": 1e-6, "tf32": 5e-4}


@dataclasses.dataclass(frozen=True)
class Bars:
    """What tconv is to reach in an operation. Figures against PyTorch are geometric means of its time over tconv's."""

    nchw: dict  # by precision, NCHW against NCHW
    either: dict  # NCHW against PyTorch in whichever layout is faster
    nhwc: dict  # NHWC against NHWC
    # Layers may be slower than PyTorch by so much: NCHW, NHWC. By precision, those that may be even slower (None: any).
    levels: tuple
    slower: dict
    floor_mean: float  # over the floor in TF32 and NCHW
    floor_worst: float
    workspace: float  # MiB; or so many times the weights in f32, whichever is more
    workspace_weights: float
    # By precision, for layers that nobody tuned for, as they are called from PyTorch: time over floor in the mean, of
    # 90 % of the layers and at most, in NCHW; the mean in NHWC; how many layers may be slower than PyTorch by more than
    # broad_level, in NCHW than its better layout, and in NHWC; how many times faster than PyTorch in NCHW and than its
    # better layout.
    broad: dict
    broad_level: float


def gradient_bars(tf32, f32, half, either, half_nhwc, slower, floor_mean, workspace, workspace_weights, broad):
    return Bars(
        nchw={"tf32": tf32, "f32": f32, "f16": half, "bf16": half},
        either={"tf32": either},
        nhwc={"f16": half_nhwc, "bf16": half_nhwc},
        levels=(1 / 0.8, 1 / 0.8),
        slower={"tf32": slower},
        floor_mean=floor_mean,
        floor_worst=float("inf"),
        workspace=workspace,
        workspace_weights=workspace_weights,
        broad={precision: {"better": broad, "slower": 20} for precision in ("tf32", "bf16")},
        broad_level=1 / 0.9,
    )


BARS = {
    "forward": Bars(
        nchw={"tf32": 3.5, "f32": 4.0, "f16": 4.0, "bf16": 4.0},
        either={"tf32": 2.2},
        nhwc=dict.fromkeys(("tf32", "f32", "f16", "bf16"), 1.7),
        levels=(1.0, 1.10),
        slower={"f32": {"kb69"}, "f16": None, "bf16": None},
        floor_mean=1.5,
        floor_worst=2.5,
        workspace=float("inf"),
        workspace_weights=0,
        broad={
            "tf32": {"mean": 1.9, "most": 3.5, "worst": 8, "nhwc": 1.8, "slower": 7, "nhwc_slower": 5, "times": 3.0},
            "bf16": {"mean": 2.1, "most": 3.8, "worst": 8, "nhwc": 1.9, "slower": 7, "nhwc_slower": 5, "times": 3.6},
            "f32": {"mean": 1.9, "most": 3.5, "worst": 8, "nhwc": 1.9, "slower": 4, "nhwc_slower": 4, "times": 3.2},
        },
        broad_level=1.03,
    ),
    "backward_data": gradient_bars(1.9, 2.1, 2.3, 1.1, 1.1, {"kb81"}, 1.75, 48, 0, 1.2),
    "backward_weights": gradient_bars(2.2, 2.4, 2.4, 1.5, 1.3, set(), 2.2, 64, 2, 1.3),
}
MOST_SHARE = 0.9
# What a roofline takes of the rate of matrix products (compare_gpu.py).
STRICT_PRODUCTS = 3


def is_judged_sustained(op, case, layout, precision):
    return op == "forward" and case in SUSTAINED_BARS and layout == "nchw" and precision == "tf32"


def sets(run):
    return list(dict.fromkeys(r.get("set", TUNED) for r in run["results"]))


def view(run, precision, of=TUNED):
    """The results of one precision and set as report.py takes them."""
    return [
        {**r, "contenders": r["precisions"][precision]}
        for r in run["results"]
        if r.get("set", TUNED) == of and r["precisions"].get(precision)
    ]


def precisions(run):
    return list(dict.fromkeys(p for r in run["results"] for p in r["precisions"]))


# -------------------------------------------------------------------------------------------------------------- verdicts


def met(condition):
    return "met" if condition else "MISSED"


def times_of(results, names):
    """The least milliseconds among these contenders, by layer."""
    found = {r["name"]: [r["contenders"][n]["ms"] for n in names if n in r["contenders"]] for r in results}
    return {name: min(values) for name, values in found.items() if values}


def speedups(results, ours, peers):
    mine, theirs = times_of(results, [ours]), times_of(results, peers)
    return {name: theirs[name] / mine[name] for name in mine if name in theirs}


def judged(value, bars, key):
    """The figure; where there is a bar for it, the verdict too."""
    return f"{value:.2f} (bar {bars[key]:g}: {met(value <= bars[key])})" if key in bars else f"{value:.2f}"


def reaches(value, bar):
    return "" if bar is None else f" (bar {bar:g}: {met(value >= bar)})"


def speedup_line(title, ratios, mean_bar, slower_allowed=None, level=1.0):
    """slower_allowed: the layers that may be slower by more than level, None: any."""
    mean, least = geometric_mean(ratios.values()), min(ratios, key=ratios.get)
    slower = {name: ratio for name, ratio in ratios.items() if ratio < 1 / level}
    line = (
        f"- {title}: {mean:.2f}x faster in geometric mean of {len(ratios)}{reaches(mean, mean_bar)}, least "
        f"{ratios[least]:.2f}x ({least}); slower{'' if level == 1 else f' by more than {level - 1:.0%}'}: {named(slower)}"
    )
    if slower_allowed is None:
        return line
    bar = "none" if not slower_allowed else "only " + ", ".join(sorted(slower_allowed))
    return f"{line} (bar {bar}: {met(set(slower) <= slower_allowed)})"


def floor_lines(results, precision, bars):
    for layout in ("nchw", "nhwc"):
        ratios = {r["name"]: x for r in results if (x := report.ratio_to_floor(r, f"tconv {layout}"))}
        if not ratios:
            continue
        mean, worst = geometric_mean(ratios.values()), max(ratios, key=ratios.get)
        known = {"mean": bars.floor_mean, "worst": bars.floor_worst}
        known = {
            key: bar for key, bar in known.items() if (precision, layout) == ("tf32", "nchw") and math.isfinite(bar)
        }
        burst = geometric_mean(
            f["ms"] / f["burst_floor_ms"] for r in results if (f := r["contenders"].get(f"tconv {layout}"))
        )
        most = judged(ratios[worst], known, "worst").replace(
            f"{ratios[worst]:.2f}", f"{ratios[worst]:.2f} ({worst})", 1
        )
        yield (
            f"- tconv {layout} over floor: geometric mean {judged(mean, known, 'mean')}, worst {most}; geometric mean over the "
            f"floor of the product in a burst {burst:.2f}"
        )
        torch = [x for r in results if (x := report.ratio_to_floor(r, f"torch {layout}"))]
        if torch:
            yield f"- torch {layout} over floor: geometric mean {geometric_mean(torch):.2f}"


def pytorch_lines(results, precision, bars):
    nchw, nhwc = (speedups(results, f"tconv {layout}", [f"torch {layout}"]) for layout in ("nchw", "nhwc"))
    either = speedups(results, "tconv nchw", ["torch nchw", "torch nhwc"])
    if nchw:
        slower = bars.slower.get(precision, set())
        yield speedup_line("tconv nchw against torch nchw", nchw, bars.nchw.get(precision), slower, bars.levels[0])
    if either and nchw and nhwc and precision in bars.either:
        title = "tconv nchw against torch in whichever layout is faster"
        yield speedup_line(title, either, bars.either[precision])
    if nhwc:
        yield speedup_line("tconv nhwc against torch nhwc", nhwc, bars.nhwc.get(precision), set(), bars.levels[1])


def error_lines(results, precision):
    for layout in ("nchw", "nhwc"):
        pairs = {
            r["name"]: [r["contenders"].get(f"{who} {layout}", {}).get("relative_l2") for who in ("tconv", "torch")]
            for r in results
        }
        ours = {name: pair[0] for name, pair in pairs.items() if pair[0] is not None}
        if not ours:
            continue
        worst = max(ours, key=ours.get)
        line = f"- tconv {layout}: relative L2 error at most {ours[worst]:.1e} ({worst}"
        line += f"; torch's there {pairs[worst][1]:.1e})" if pairs[worst][1] is not None else ")"
        if precision in ERROR_BARS:
            line += f" (bar {ERROR_BARS[precision]:g}: {met(ours[worst] <= ERROR_BARS[precision])})"
        if precision == "f32":
            worse = {name: own / other for name, (own, other) in pairs.items() if own and other and own > other}
            line += f"; more than torch's: {named(worse)} (bar none: {met(not worse)})"
        yield line


def workspace_lines(results, bars):
    for layout in ("nchw", "nhwc"):
        sizes = {
            r["name"]: f["workspace_bytes"] / 2**20 for r in results if (f := r["contenders"].get(f"tconv {layout}"))
        }
        if not sizes:
            continue
        most, bar = max(sizes, key=sizes.get), ""
        if math.isfinite(bars.workspace):
            allowed = {
                r["name"]: max(bars.workspace, bars.workspace_weights * r["weights"] * 4 / 2**20) for r in results
            }
            over = {name: size for name, size in sizes.items() if size > allowed[name]}
            times = f" or {bars.workspace_weights:g} x the weights in f32" if bars.workspace_weights else ""
            bar = f" (bar {bars.workspace:g} MiB{times}: {met(not over)}{': ' + ', '.join(over) if over else ''})"
        yield f"- tconv {layout}: workspace beside packed weights at most {sizes[most]:.1f} MiB ({most}){bar}"


def sustained_lines(results):
    for r in results:
        ours, torch = (r["contenders"].get(f"{who} nchw", {}) for who in ("tconv", "torch"))
        if "sustained_ms" in ours:
            ms, bar = ours["sustained_ms"], SUSTAINED_BARS[r["name"]]
            theirs = f", torch {torch['sustained_ms']:.3f}" if "sustained_ms" in torch else ""
            yield (
                f"- {r['name']}, sustained: {ms:.3f} ms (bar {bar:g}: {met(ms <= bar)}), "
                f"{ms / ours['floor_ms']:.2f} of its floor{theirs}"
            )


def call_lines(results):
    """tconv as it is called from PyTorch, where it is there."""
    for layout in ("nchw", "nhwc"):
        ratios = [x for r in results if (x := report.ratio_to_floor(r, f"tconv call {layout}"))]
        times = speedups(results, f"tconv call {layout}", [f"torch {layout}"])
        if ratios and times:
            yield (
                f"- tconv {layout} called from PyTorch, packing in each call: geometric mean {geometric_mean(ratios):.2f} over floor, "
                f"{geometric_mean(times.values()):.2f}x as fast as torch {layout}"
            )


def slower_than(ratios, bars, key, level):
    slower = {name: ratio for name, ratio in ratios.items() if ratio < 1 / level}
    bar = f" (bar {bars[key]}: {met(len(slower) <= bars[key])})" if key in bars else ""
    return f"by more than {level - 1:.0%} slower: {len(slower)}{bar}: {named(slower)}"


def broad_lines(results, precision, bars):
    """For layers that nobody tuned for: called from PyTorch, packing in each call, where weights are packed at all."""
    level, bars = bars.broad_level, bars.broad.get(precision, {})
    for layout in ("nchw", "nhwc"):
        called = any(f"tconv call {layout}" in r["contenders"] for r in results)
        ours = f"tconv call {layout}" if called else f"tconv {layout}"
        ratios = sorted(x for r in results if (x := report.ratio_to_floor(r, ours)))
        if not ratios:
            continue
        line = f"- tconv {layout} over floor: geometric mean "
        line += judged(geometric_mean(ratios), bars, "mean" if layout == "nchw" else "nhwc")
        if layout == "nchw":
            line += f", {MOST_SHARE:.0%} of {len(ratios)} layers under "
            line += judged(ratios[min(int(MOST_SHARE * len(ratios)), len(ratios) - 1)], bars, "most")
            line += f", worst {judged(ratios[-1], bars, 'worst')}"
        yield line
        same = speedups(results, ours, [f"torch {layout}"])
        if not same:
            continue
        peers = ["torch nchw", "torch nhwc"] if layout == "nchw" else ["torch nhwc"]
        better = speedups(results, ours, peers)
        times, mean = geometric_mean(same.values()), geometric_mean(better.values())
        line = f"- tconv {layout} {times:.2f}x as fast as torch {layout}"
        if layout == "nchw":
            line += f"{reaches(times, bars.get('times'))}; {mean:.2f}x as fast as torch in its better layout"
            line += f"{reaches(mean, bars.get('better'))}, "
        else:
            line += "; than torch nhwc "
        yield line + slower_than(better, bars, "slower" if layout == "nchw" else "nhwc_slower", level)


def summary(run):
    lines, bars = [], BARS[run.get("op", "forward")]
    for of, precision in ((of, precision) for of in sets(run) for precision in precisions(run)):
        results = view(run, precision, of)
        if not results:
            continue
        if of == TUNED:
            found = [
                *floor_lines(results, precision, bars),
                *pytorch_lines(results, precision, bars),
                *call_lines(results),
            ]
        else:
            found = [*broad_lines(results, precision, bars)]
        found += [*error_lines(results, precision), *workspace_lines(results, bars)]
        found += sustained_lines(results) if precision == "tf32" else []
        lines += [f"**{SETS.get(of, of)}, {precision}**", "", *found, ""]
    failures = [f"- {r['name']}: {text}" for r in run["results"] for text in r["failures"]]
    left_out = [f"- left out: {', '.join(run['left_out'])}"] if run["left_out"] else []
    return lines + (["**Failures and gaps**", "", *failures, *left_out, ""] if failures or left_out else [])


# ----------------------------------------------------------------------------------------------------------------- table


def cell(result, name):
    f = result["contenders"].get(name)
    return f"{f['ms']:.4f} ({f['ms'] / f['floor_ms']:.2f})" if f else "–"


def table(results):
    names = report.contender_names(results)
    columns = ["case", "n", "floor ms", *names, *(f"{name} error" for name in names), "implementation"]
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 2) + "---|"]
    for r in results:
        found = [r["contenders"].get(name) for name in names]
        cells = [
            r["name"],
            str(r["n"]),
            f"{next(f for f in found if f)['floor_ms']:.4f}",
            *(cell(r, name) for name in names),
            *(f"{f['relative_l2']:.1e}" if f else "–" for f in found),
            ", ".join(dict.fromkeys(f["implementation"] for f in found if f and "implementation" in f)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def markdown(run):
    lines = [
        f"# {report.heading_part(run)}Against PyTorch on the GPU",
        "",
        *(f"- {line}" for line in run["heading"]),
        "",
    ]
    for of, precision in ((of, precision) for of in sets(run) for precision in precisions(run)):
        results = view(run, precision, of)
        if results:
            lines += [
                f"**{SETS.get(of, of)}, {precision}**: milliseconds in a burst, medians; in parentheses over the floor. torch is the "
                "faster of cudnn.benchmark on and off, call is tconv called from PyTorch, which packs the weights in each call.",
                "",
                *table(results),
                "",
            ]
    return report.filled("\n".join(lines + ["## Verdicts", ""] + summary(run)))


# ------------------------------------------------------------------------------------------------------------------ plot

MARKERS = {
    "tconv nchw": ("#c1272d", "o"),
    "tconv nhwc": ("#e58e91", "o"),
    "torch nchw": ("#0b3c5d", "s"),
    "torch nhwc": ("#a3c4dc", "s"),
}


def draw_roofline(axes, run, results, precision):
    dtype = next(f["dtype"] for r in results for f in r["contenders"].values())
    product = "tf32" if precision == "f32" else precision
    peak = run["rates"]["gemm"][product][1] / (STRICT_PRODUCTS if precision == "f32" else 1)
    intensity = [1e9 * r["gflop"] / r["bytes"][dtype] for r in results]
    reach = [min(intensity) / 2, peak / run["rates"]["copy"], 2 * max([*intensity, peak / run["rates"]["copy"]])]
    axes.plot(reach, [1e-12 * min(peak, x * run["rates"]["copy"]) for x in reach], color="black", linewidth=1)
    for name in MARKERS:
        points = [
            (x, r["gflop"] / r["contenders"][name]["ms"]) for x, r in zip(intensity, results) if name in r["contenders"]
        ]
        colour, marker = MARKERS[name]
        if points:
            axes.plot(*zip(*points), linestyle="", marker=marker, markersize=4, color=colour, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"{precision}: TFLOP/s over FLOP/byte", fontsize=10)
    axes.legend(fontsize=7)
    axes.grid(linewidth=0.3)


def plot(run, path):
    """A row for each precision of the first set: time over floor in NCHW and in NHWC, and a roofline."""
    pyplot = report.load_pyplot()
    if pyplot is None:
        return "no matplotlib: no plot"
    shown = precisions(run)
    figure, panels = pyplot.subplots(
        len(shown), 3, figsize=(26, 4 * len(shown)), squeeze=False, gridspec_kw={"width_ratios": [5, 5, 3]}
    )
    for row, precision in zip(panels, shown):
        results = view(run, precision, sets(run)[0])
        for axes, layout in zip(row, ("nchw", "nhwc")):
            names = [n for n in report.contender_names(results) if n in MARKERS and n.endswith(layout)]
            if names:
                report.draw_panel(axes, results, names)
                axes.legend(fontsize=8)
            axes.set_title(f"{precision} {layout.upper()}: time / floor, lower is better", fontsize=10)
            report.label_layers(axes, results)
        draw_roofline(row[2], run, results, precision)
    report.save_figure(pyplot, figure, path)
    return None
