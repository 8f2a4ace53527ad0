"""What compare_cpu.py found, as a table, a summary with verdicts, and a plot. gpu_report.py stands on this.

A result is a dict: name, n, gflop, and contenders, by name: ms, floor_ms (None where the floor was not measured), layout,
and for tconv's workspace_bytes and threads.
"""

import math

# Below this the cost of a call and of waking threads counts, and what is measured is not the kernel.
WORST_FROM_MS = 1.0
# Below this on one thread a second one has too little to do.
SPEEDUP_FROM_MS = 5.0
# A peer within this is level: what two runs of the same program differ by on a quiet machine is a third of it.
LEVEL = 1.10

# Figures that a bar can be set for, and whether the figure must stay below it. A bar is for f32 with all that the machine
# has; "mean-f64", say, is for that variant.
BARS = {
    "mean": ("geometric mean over the floor", True),
    "worst": (f"most over the floor from {WORST_FROM_MS:g} ms on", True),
    "half": ("time of f16 and bf16 over that of f32, geometric mean", True),
    "speedup": ("least speed-up on all threads over one", False),
    "workspace": ("most bytes of workspace for each thread", True),
}


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


def named(ratios):
    return (
        ", ".join(f"{name} {ratio:.2f}" for name, ratio in sorted(ratios.items(), key=lambda item: item[1])) or "none"
    )


def peer_line(ours, peer, ratios):
    """ratios: the peer's time over ours, by layer."""
    slower = {name: ratio for name, ratio in ratios.items() if ratio < 1}
    behind = {name: ratio for name, ratio in ratios.items() if ratio < 1 / LEVEL}
    word = "ahead on all" if not slower else "level or ahead on all" if not behind else f"BEHIND on {len(behind)}"
    return (
        f"- {ours} against {peer}: {word} of {len(ratios)} layers; {geometric_mean(ratios.values()):.2f}x faster in "
        f"geometric mean, least {min(ratios.values()):.2f}x; slower on {len(slower)}: {named(slower)}; by more than "
        f"{LEVEL - 1:.0%}: {named(behind)}"
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
        if not is_ours(name):
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
    """Milliseconds; tconv's also as a multiple of its floor. The floor of floor_of gets a column."""
    floor_title = ["floor ms"] if floor_of else []
    columns = ["case", "n", *floor_title, *names]
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    for result in results:
        cells = []
        for name in names:
            found = result["contenders"].get(name)
            ratio = ratio_to_floor(result, name)
            cells.append(
                "–" if not found else f"{found['ms']:.2f}" + (f" ({ratio:.2f})" if ratio and is_ours(name) else "")
            )
        floor = [f"{result['contenders'][floor_of]['floor_ms']:.2f}"] if floor_of else []
        lines.append(f"| {' | '.join([result['name'], str(result['n']), *floor, *cells])} |")
    return lines


def markdown(results, heading, threads, bars):
    names = contender_names(results)
    plain = [name for name in names if not is_variant(name)]
    variants = [name for name in names if is_variant(name)]
    measured = plain[0] if ratio_to_floor(results[0], plain[0]) else None
    title = (
        "Against the peers on the CPU" if any(not is_ours(name) for name in plain) else "tconv's ways to run on the CPU"
    )
    lines = [
        f"# {title}",
        "",
        *heading,
        "",
        "Milliseconds, medians; in parentheses tconv's over its floor.",
        "",
        *table(results, plain, measured),
        "",
    ]
    if variants:
        lines += ["tconv's variants, each over its own floor:", "", *table(results, variants), ""]
    return "\n".join(lines + summary(results, threads, bars))


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


def save_figure(pyplot, figure, path):
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def plot(results, threads, path):
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
        f"ConvTranspose2d, f32, {threads} thread{'s' if threads > 1 else ''}: lower is better, 1 is the "
        "machine's limit",
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
