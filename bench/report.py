"""What compare_cpu.py found, as tables, summaries with verdicts, and a plot. gpu_report.py stands on this.

A run has the name of its operation as op, "forward" where it has none. A result is a dict: name, n, gflop, and
contenders, by name: ms, floor_ms (None where the floor was not measured), layout, runs_ms where there were several
runs, and for tconv's workspace_bytes and threads.
"""

import math
import pathlib
import re
import textwrap

import cpu_runs
import processor

TITLES = {
    "forward": "ConvTranspose2d",
    "backward_data": "ConvTranspose2d, gradient of src",
    "backward_weights": "ConvTranspose2d, gradients of weights and bias",
}
# Below this the cost of a call and of waking threads counts, and what is measured is not the kernel.
WORST_FROM_MS = 1.0
# Below this on one thread a second one has too little to do.
SPEEDUP_FROM_MS = 5.0
# A peer within this is level: what two runs of the same program differ by on a quiet machine is a third of it.
LEVEL = 1.10
# Layers are counted of which PyTorch's time over tconv's is below these, and so many of the worst are named.
COUNTED_BELOW = (0.95, 0.9, 0.85, 0.7)
WORST_LAYERS = 10
# Of layers that are slower than a peer so many are named.
MOST_NAMED = 20
# Characters of a line of prose.
LINE = 120
# What tconv is held against in each layout.
PYTORCH = {
    "nchw": ("PyTorch in its better layout", ["torch nchw", "torch nhwc"]),
    "nhwc": ("PyTorch in channels_last", ["torch nhwc"]),
}

# Figures that a bar can be set for, and whether the figure must stay below it. A bar is for f32 with all that the
# machine has; "mean-f64", say, is for that variant.
BARS = {
    "mean": ("geometric mean over the floor", True),
    "worst": (f"most over the floor from {WORST_FROM_MS:g} ms on", True),
    "half": ("time of f16 and bf16 over that of f32, geometric mean", True),
    "speedup": ("least speed-up on all threads over one", False),
    "workspace": ("most bytes of workspace for each thread", True),
}


def name_part(run):
    """What the operation adds to the name of a file."""
    op = run.get("op", "forward")
    return "" if op == "forward" else f"_{op}"


def heading_part(run):
    """And to the title of a report."""
    op = run.get("op", "forward")
    return "" if op == "forward" else f"{TITLES[op]}: "


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def parse_bar(text):
    name, _, value = text.partition("=")
    if name.partition("-")[0] not in BARS:
        raise ValueError(f"{name}: must be one of {', '.join(BARS)}, and - and a variant may follow")
    return name, float(value)


def verdict(value, figure, way, bars):
    """' (bar 1.3: met)' where a bar was set for this way to run tconv, else nothing."""
    key = f"{figure}-{way.split()[-1]}" if is_variant(way) else figure
    if not is_ours(way) or key not in bars:
        return ""
    met = value <= bars[key] if BARS[figure][1] else value >= bars[key]
    return f" (bar {bars[key]:g}: {'met' if met else 'MISSED'})"


def contender_names(results):
    names = {}
    for result in results:
        names.update(dict.fromkeys(result["contenders"]))
    return list(names)


def is_ours(name):
    return name.startswith("tconv")


def is_variant(name):
    return is_ours(name) and len(name.split()) > 2


def ratio_to_floor(result, name):
    found = result["contenders"].get(name)
    return found["ms"] / found["floor_ms"] if found and found["floor_ms"] else None


# --------------------------------------------------------------------------------------------------------------- summary


def floor_lines(results, bars):
    for name in contender_names(results):
        ratios = {r["name"]: ratio for r in results if (ratio := ratio_to_floor(r, name))}
        if not ratios:
            continue
        mean = geometric_mean(ratios.values())
        line = f"- {name} over floor: geometric mean {mean:.2f}{verdict(mean, 'mean', name, bars)}"
        long = {
            case: ratio
            for case, ratio in ratios.items()
            if next(r for r in results if r["name"] == case)["contenders"][name]["ms"] > WORST_FROM_MS
        }
        if is_ours(name) and long:
            worst = max(long, key=long.get)
            line += (
                f"; from {WORST_FROM_MS:g} ms on ({len(long)} layers) at most {long[worst]:.2f} ({worst})"
                + verdict(long[worst], "worst", name, bars)
            )
        yield line


def named(ratios, most=None):
    """The layers with their ratios, the least first; of more than most only so many."""
    first = sorted(ratios.items(), key=lambda item: item[1])[:most]
    text = ", ".join(f"{name} {ratio:.2f}" for name, ratio in first) or "none"
    return text + (f" and {len(ratios) - len(first)} more" if len(first) < len(ratios) else "")


def peer_line(ours, peer, ratios):
    """ratios: the peer's time over ours, by layer."""
    slower = {name: ratio for name, ratio in ratios.items() if ratio < 1}
    behind = {name: ratio for name, ratio in ratios.items() if ratio < 1 / LEVEL}
    word = "ahead on all" if not slower else "level or ahead on all" if not behind else f"BEHIND on {len(behind)}"
    return (
        f"- {ours} against {peer}: {word} of {len(ratios)} layers; {geometric_mean(ratios.values()):.2f}x faster in "
        f"geometric mean, least {min(ratios.values()):.2f}x; slower on {len(slower)}: {named(slower, MOST_NAMED)}; "
        f"by more than {LEVEL - 1:.0%}: {named(behind, MOST_NAMED)}"
    )


def peer_lines(results):
    names = contender_names(results)
    peers = [name for name in names if not is_ours(name)]
    ours = [name for name in names if is_ours(name) and not is_variant(name)]

    def best(result, group):
        times = [result["contenders"][name]["ms"] for name in group if name in result["contenders"]]
        return min(times) if times else None

    anyone = ("the best of all peers in any layout", peers)
    pairs = [((name, [name]), opponent) for name in ours for opponent in [*((peer, [peer]) for peer in peers), anyone]]
    pairs.append((("tconv's better layout", ours), anyone))
    for (our_name, our_group), (peer_name, peer_group) in pairs:
        ratios = {
            r["name"]: theirs / mine
            for r in results
            if (theirs := best(r, peer_group)) and (mine := best(r, our_group))
        }
        if ratios:
            yield peer_line(our_name, peer_name, ratios)


def best_times(result, names):
    """The least milliseconds of these contenders in each run; nothing where none is there."""
    runs = [found.get("runs_ms", [found["ms"]]) for name in names if (found := result["contenders"].get(name))]
    return [min(times) for times in zip(*runs)]


def speedups(results, ours, peers):
    """The best peer's time over ours by layer, as medians of the runs have it; and its spread over the runs."""
    ratios, spreads = {}, {}
    for result in results:
        theirs = [found["ms"] for name in peers if (found := result["contenders"].get(name))]
        if theirs and ours in result["contenders"]:
            ratios[result["name"]] = min(theirs) / result["contenders"][ours]["ms"]
            by_run = [t / o for t, o in zip(best_times(result, peers), best_times(result, [ours]))]
            spreads[result["name"]] = max(by_run) / min(by_run)
    return ratios, spreads


def counts_below(ratios):
    return [sum(ratio < bound for ratio in ratios.values()) for bound in COUNTED_BELOW]


def pytorch_lines(results):
    """tconv, its weights packed before and in each call, against PyTorch, whose weights are as they are."""
    for name in contender_names(results):
        if not is_ours(name) or (is_variant(name) and not name.endswith(" called")):
            continue
        title, peers = PYTORCH[name.split()[1]]
        ratios, spreads = speedups(results, name, peers)
        if not ratios:
            continue
        least = min(ratios, key=ratios.get)
        below = ", ".join(f"{bound:g}: {found}" for bound, found in zip(COUNTED_BELOW, counts_below(ratios)))
        worst = {layer: ratios[layer] for layer in sorted(ratios, key=ratios.get)[:WORST_LAYERS]}
        runs = ""
        if len(best_times(results[0], [name])) > 1:
            widest = max(spreads, key=spreads.get)
            mean = geometric_mean(spreads.values())
            runs = f"; between runs the ratio spreads by {mean:.2f}, most {spreads[widest]:.2f} ({widest})"
        yield (
            f"- {name} against {title}: {geometric_mean(ratios.values()):.2f}x as fast in geometric mean of "
            f"{len(ratios)} layers, least {ratios[least]:.2f}x ({least}); layers below {below}{runs}; "
            f"the worst: {named(worst)}"
        )


def half_lines(results, bars):
    for name in contender_names(results):
        if not is_variant(name) or name.split()[-1] not in ("f16", "bf16"):
            continue
        full = " ".join(name.split()[:-1])
        ratios = {r["name"]: r["contenders"][name]["ms"] / r["contenders"][full]["ms"] for r in results}
        worst, mean = max(ratios, key=ratios.get), geometric_mean(ratios.values())
        yield (
            f"- {name} over f32's time: geometric mean {mean:.2f}{verdict(mean, 'half', full, bars)}; most "
            f"{ratios[worst]:.2f} ({worst})"
        )


def speedup_lines(results, threads, bars):
    for name in contender_names(results):
        if not is_variant(name) or not name.endswith("single"):
            continue
        all_threads = " ".join(name.split()[:-1])
        rows = [
            (r["name"], r["contenders"][name], r["contenders"][all_threads])
            for r in results
            if r["contenders"][name]["ms"] > SPEEDUP_FROM_MS
        ]
        if not rows:
            continue
        speedups = {case: one["ms"] / many["ms"] for case, one, many in rows}
        least = min(speedups, key=speedups.get)
        line = (
            f"- {all_threads}, 1 -> {threads} threads, {len(rows)} layers of more than {SPEEDUP_FROM_MS:g} ms on one: "
            f"{geometric_mean(speedups.values()):.2f}x faster in geometric mean, least {speedups[least]:.2f}x ({least})"
            + verdict(speedups[least], "speedup", all_threads, bars)
        )
        if rows[0][1]["floor_ms"]:
            line += f"; the floor falls by {geometric_mean(one['floor_ms'] / many['floor_ms'] for _, one, many in rows):.2f}x"
        yield line


def workspace_lines(results, bars):
    for name in contender_names(results):
        if not is_ours(name) or name.endswith(" called"):
            continue
        sizes = {
            r["name"]: r["contenders"][name]["workspace_bytes"] / r["contenders"][name]["threads"] for r in results
        }
        most = max(sizes, key=sizes.get)
        yield (
            f"- {name}: at most {sizes[most]:.0f} bytes of workspace for each thread ({most})"
            + verdict(sizes[most], "workspace", name, bars)
        )


def summary(results, threads, bars):
    """Lines of Markdown."""
    sections = [
        ("Over the machine's floor", floor_lines(results, bars)),
        ("Against PyTorch (its time over tconv's)", pytorch_lines(results)),
        ("Against the peers (their time over tconv's)", peer_lines(results)),
        ("Half precision", half_lines(results, bars)),
        ("Threads", speedup_lines(results, threads, bars)),
        ("Workspace, weights packed", workspace_lines(results, bars)),
    ]
    lines = []
    for title, found in sections:
        found = list(found)
        if found:
            lines += [f"**{title}**", "", *found, ""]
    return lines


# ----------------------------------------------------------------------------------------------------------------- table


def table(results, names, floor_of=None):
    """Milliseconds; tconv's also as a multiple of its floor. The floor of floor_of gets a column, each of tconv's
    layouts
    one for PyTorch's time over it."""
    floor_title = ["floor ms"] if floor_of else []
    held = {name: speedups(results, name, PYTORCH[name.split()[1]][1]) for name in names if is_ours(name)}
    held = {name: found for name, found in held.items() if found[0]}
    columns = ["case", "n", *floor_title, *names, *(f"PyTorch / {name}" for name in held)]
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    for result in results:
        floor = [number(result["contenders"].get(floor_of, {}).get("floor_ms"))] if floor_of else []
        cells = [*(cell(result, name) for name in names), *(ratio_cell(result, *found) for found in held.values())]
        lines.append(f"| {' | '.join([result['name'], str(result['n']), *floor, *cells])} |")
    return lines


def number(value):
    return "–" if value is None else f"{value:.2f}"


def cell(result, name):
    found, ratio = result["contenders"].get(name), ratio_to_floor(result, name)
    return number(found and found["ms"]) + (f" ({ratio:.2f})" if ratio and is_ours(name) else "")


def ratio_cell(result, ratios, spreads):
    """The ratio, and in brackets by how much it spreads between runs, if it does."""
    layer = result["name"]
    return number(ratios.get(layer)) + (f" [{spreads[layer]:.2f}]" if spreads.get(layer, 1) != 1 else "")


def rate_lines(rates):
    return [
        f"{key} threads: {found['flops'] * 1e-9:.1f} GFLOP/s, copy {found['bytes'] * 1e-9:.1f} GB/s"
        for key, found in rates.items()
    ]


def has_floor(results):
    return bool(results) and any(found["floor_ms"] for found in results[0]["contenders"].values())


def heading(run):
    where = processor.sentence(run["processor"]) + (f", {run['date']}" if "date" in run else "")
    runs = cpu_runs.count(run)
    how = f"{run['threads']} threads, medians of {runs} runs." if runs > 1 else f"{run['threads']} threads, one run."
    return [f"{where}. {how}", "", *(f"- {line}" for line in [*run["heading"], *rate_lines(run["rates"])])]


def set_section(run, of, bars):
    """Tables and summary of a set. Bars are for the layers that tconv was tuned for."""
    results = cpu_runs.of_set(run, of)
    names = contender_names(results)
    plain = [name for name in names if not is_variant(name)]
    variants = [name for name in names if is_variant(name)]
    where = f"`{of}.csv`, at most {run['budget_gflop'][of]:g} GFLOP a layer."
    title = f"{len(results)} {cpu_runs.SETS.get(of, 'layers')}"
    floor_of = plain[0] if has_floor(results) else None
    lines = [f"## {title}", "", where, "", *table(results, plain, floor_of), ""]
    if variants:
        lines += ["tconv's variants, each over its own floor:", "", *table(results, variants), ""]
    return lines + summary(results, run["threads"], bars if of == cpu_runs.TUNED else {})


def gap_lines(run):
    """What is missing, and why."""
    lines = [f"- {text}" for text in run["failures"]]
    lines += [f"- left out: {', '.join(run['left_out'])}"] if run["left_out"] else []
    return ["## Failures and gaps", "", *lines, ""] if lines else []


def filled(text):
    """The text with every line but tables and titles cut at words, so that a report can be read in a terminal."""
    lines = []
    for line in text.split("\n"):
        if line.startswith(("|", "#")) or len(line) <= LINE:
            lines.append(line)
        else:
            indent = "  " if line.startswith("- ") else ""
            lines += textwrap.wrap(line, LINE, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def markdown(run, bars):
    peers = any(not is_ours(name) for name in contender_names(run["results"]))
    title = "Against the peers on the CPU" if peers else "tconv's ways to run on the CPU"
    lines = [
        f"# {heading_part(run)}{title}: {run['processor']['microarchitecture']}",
        "",
        *heading(run),
        "",
        "Milliseconds, medians; in parentheses tconv's over its floor"
        + ("; PyTorch is its better layout against tconv's NCHW, and channels_last against NHWC." if peers else "."),
    ]
    if cpu_runs.count(run) > 1:
        lines[-1] += " In brackets: the largest ratio of the runs over the smallest."
    lines.append("")
    for of in cpu_runs.sets(run):
        lines += set_section(run, of, bars)
    return filled("\n".join(lines + gap_lines(run)))


# ------------------------------------------------------------------------------------------------------------------ plot

COLOURS = {"tconv": "#c1272d"}
PEER_COLOURS = ["#0b3c5d", "#328cc1", "#a3c4dc", "#6b6b6b", "#b0a990"]


def load_pyplot():
    """matplotlib's pyplot, drawing SVG that is the same for the same figures; None where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot

    matplotlib.rcParams["svg.hashsalt"] = "tconv"
    return pyplot


def label_layers(axes, results):
    """The layers' names below a panel of bars."""
    layers = [r["name"] for r in results]
    axes.set_xticks(
        [*range(len(layers)), len(layers) + 0.5], [*layers, "geometric mean"], rotation=60, ha="right", fontsize=8
    )


def compact(svg):
    """The same picture in less text: a tenth of a point is enough, and a group of one element is only a name."""
    svg = re.sub(r'(?<= d=")[^"]*', lambda d: " ".join(rounded(d[0]).split()), svg)
    svg = re.sub(r'(?<= [xy]=")[^"]*', lambda place: rounded(place[0]), svg)
    svg = re.sub(r'<g id="\w+">\s*(<(?:path|use)[^<>]*/>)\s*</g>', r"\1", svg)
    return re.sub(r"\n\s+", "\n", svg)


def rounded(numbers):
    return re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), numbers)


def save_figure(pyplot, figure, path):
    """Text stays text, which the page's own sans-serif draws."""
    figure.tight_layout()
    with pyplot.rc_context({"svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    path = pathlib.Path(path)
    path.write_text(compact(path.read_text()))


def plot(results, op, threads, path):
    """Bars of time over floor for each layer and contender, a panel for each layout, the geometric means last."""
    pyplot = load_pyplot()
    if pyplot is None:
        return "no matplotlib: no plot"
    names = [name for name in contender_names(results) if not is_variant(name)]
    layouts = {}
    for name in names:
        layout = next(r["contenders"][name]["layout"] for r in results if name in r["contenders"])
        layouts.setdefault(layout, []).append(name)
    figure, panels = pyplot.subplots(
        len(layouts), figsize=(14, 3.6 * len(layouts)), squeeze=False, sharex=True, sharey=True
    )
    for axes, (layout, group) in zip(panels[:, 0], sorted(layouts.items())):
        draw_panel(axes, results, group)
        axes.set_ylabel(f"{layout.upper()}: time / floor")
        axes.legend(fontsize=8, ncols=len(group), loc="upper left")
    label_layers(panels[-1, 0], results)
    panels[0, 0].set_title(
        f"{TITLES[op]}, f32, {threads} thread{'s' if threads > 1 else ''}: lower is better, 1 is the machine's limit",
        fontsize=10,
    )
    save_figure(pyplot, figure, path)
    return None


def draw_panel(axes, results, names):
    width = 0.8 / len(names)
    peers = [name for name in names if not is_ours(name)]
    for i, name in enumerate(names):
        ratios = [ratio_to_floor(r, name) for r in results]
        places = [x for x, ratio in enumerate(ratios) if ratio] + [len(results) + 0.5]
        heights = [ratio for ratio in ratios if ratio]
        colour = COLOURS["tconv"] if is_ours(name) else PEER_COLOURS[peers.index(name) % len(PEER_COLOURS)]
        axes.bar(
            [x + (i - (len(names) - 1) / 2) * width for x in places],
            heights + [geometric_mean(heights)],
            width,
            label=name,
            color=colour,
        )
    axes.axhline(1, color="black", linewidth=0.8)
    axes.axvline(len(results) - 0.25, color="grey", linewidth=0.5)
    axes.set_xlim(-0.6, len(results) + 1.1)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.8)
    axes.set_yticks([1, 2, 5, 10, 20, 50, 100], ["1", "2", "5", "10", "20", "50", "100"])
    axes.grid(axis="y", linewidth=0.3)
