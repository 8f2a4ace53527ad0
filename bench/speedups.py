#!/usr/bin/env python3
"""How many times as fast as each peer tconv is, in one panel: the README's picture, from what compare_cpu.py and
compare_gpu.py found and from the times of the layers that nobody tuned.

    speedups.py [--results bench/results]      # writes speedups.svg and, for dark pages, speedups-dark.svg there

A peer's time over tconv's in the same layout, the geometric mean over the layers. headline.py makes the README's table
of the same files.
"""

import argparse
import dataclasses
import pathlib

import cpu_runs
import gpu_report
import report
import run_files
import side_by_side

HERE = pathlib.Path(__file__).parent
# The processor of bench/results that was compared with all peers.
PROCESSOR = "zen4"

# Contenders by layout, as compare_cpu.py names them, in the order of the picture.
CPU_PEERS = {
    "PyTorch (oneDNN)": {"nchw": "torch nchw", "nhwc": "torch nhwc"},
    "oneDNN, packed": {"nhwc": "onednn nhwc packed"},
    "ONNX Runtime": {"nchw": "ort"},
    "XNNPACK": {"nhwc": "xnnpack nhwc"},
    "PyTorch, no oneDNN": {"nchw": "torch native"},
}
GPU_PRECISIONS = {"f32": "strict f32", "tf32": "TF32", "f16": "f16", "bf16": "bf16"}
GRADIENTS = {"backward_data": "input", "backward_weights": "weights"}
PYTORCH = {"nchw": "torch nchw", "nhwc": "torch nhwc"}
# The pages that have the picture's figures: those of GPUs, those of CPUs.
PAGES = {True: "docs/performance-cuda.md", False: "docs/performance.md"}
LAYOUTS = {"nchw": "NCHW", "nhwc": "NHWC (channels_last)"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the picture: the ratios by layout and, in each, by layer."""

    label: str
    ratios: dict

    def mean(self, layout):
        return report.geometric_mean(self.ratios[layout].values())


def cpu_rows(run):
    results = cpu_runs.of_set(run, cpu_runs.TUNED)
    for label, peers in CPU_PEERS.items():
        found = {layout: gpu_report.speedups(results, f"tconv {layout}", [peer]) for layout, peer in peers.items()}
        yield Row(label, found)


def pytorch_rows(run):
    """PyTorch alone, a row for each set of layers."""
    for of in cpu_runs.sets(run):
        results = cpu_runs.of_set(run, of)
        found = {layout: gpu_report.speedups(results, f"tconv {layout}", [peer]) for layout, peer in PYTORCH.items()}
        yield Row(f"{len(results)} layers, {'tuned' if of == cpu_runs.TUNED else 'not tuned'}", found)


def gpu_rows(run):
    for precision, label in GPU_PRECISIONS.items():
        results = gpu_report.view(run, precision)
        yield Row(
            label, {layout: gpu_report.speedups(results, f"tconv {layout}", [peer]) for layout, peer in PYTORCH.items()}
        )


def broad_times(path, keys, theirs):
    """{key: {layer: {layout: (tconv's time, PyTorch's)}}}, a key being what these columns of the file hold."""
    times = {}
    for line in run_files.rows(path):
        layers = times.setdefault(tuple(line[key] for key in keys), {})
        layers.setdefault(line["layer"], {})[line["layout"]] = float(line["tconv_us"]), float(line[theirs])
    return times


def broad_of_run(run):
    """The same by precision of a run of compare_gpu.py: tconv as it is called, its weights packed in each call."""
    times = {}
    for precision in gpu_report.precisions(run):
        for result in gpu_report.view(run, precision, gpu_report.BROAD):
            found = result["contenders"]
            for layout in LAYOUTS:
                ours = found.get(f"tconv call {layout}") or found.get(f"tconv {layout}")
                if ours and f"torch {layout}" in found:
                    layers = times.setdefault(precision, {})
                    layers.setdefault(result["name"], {})[layout] = ours["ms"], found[f"torch {layout}"]["ms"]
    return times


def broad_forward(results):
    """The GPU and the times of the layers that nobody tuned, by precision: of compare_gpu.py's run, if it has them."""
    run = run_files.load(results / "compare_gpu.json.gz")
    if found := broad_of_run(run):
        return run["heading"][0], found
    times = broad_times(results / "broad_h200.csv", ["precision"], "torch_us")
    return "NVIDIA H200", {precision: times[(precision,)] for precision in GPU_PRECISIONS if (precision,) in times}


def broad_gradients(results):
    """Times of their gradients on an H200, by operation and precision: of compare_gpu.py's runs, if they have them."""
    times = broad_times(results / "gradients_broad_h200.csv", ["op", "mode"], "pytorch_us")
    for op in GRADIENTS:
        if found := broad_of_run(run_files.load(results / f"compare_gpu_{op}.json.gz")):
            times = {key: layers for key, layers in times.items() if key[0] != op}
            times |= {(op, precision): layers for precision, layers in found.items()}
    return times


def broad_row(label, layers):
    ratios = {layout: {} for layout in LAYOUTS}
    for layer, times in layers.items():
        for layout, (ours, theirs) in times.items():
            ratios[layout][layer] = theirs / ours
    return Row(label, ratios)


def gradient_rows(times):
    for op, what in GRADIENTS.items():
        for mode, label in GPU_PRECISIONS.items():
            if (op, mode) in times:
                yield broad_row(f"of {what}, {label}", times[op, mode])


def load(results):
    """The groups of the picture: a title and its rows."""
    cpus = side_by_side.load(results)
    cpu = cpus.pop(f"compare_cpu_{PROCESSOR}")
    gpu = run_files.load(results / "compare_gpu.json.gz")
    tuned = len(cpu_runs.of_set(cpu, cpu_runs.TUNED))
    machine, forward = broad_forward(results)
    layers = len(next(iter(forward.values())))
    forward_rows = [broad_row(GPU_PRECISIONS[precision], found) for precision, found in forward.items()]
    return [
        (f"NVIDIA H200, PyTorch with cuDNN: {tuned} layers that tconv was tuned for", list(gpu_rows(gpu))),
        (f"{machine}, PyTorch with cuDNN: {layers} layers that nobody tuned", forward_rows),
        (
            f"NVIDIA H200, PyTorch with cuDNN: gradients of the {layers} layers",
            list(gradient_rows(broad_gradients(results))),
        ),
        *((f"{cores_of(run)}, f32, against PyTorch (oneDNN)", list(pytorch_rows(run))) for run in cpus.values()),
        (f"{cores_of(cpu)}, f32: the {tuned} layers that tconv was tuned for, against", list(cpu_rows(cpu))),
    ]


def is_of_gpu(title):
    return title.startswith("NVIDIA")


def cores_of(run):
    return f"{run['threads']} cores of {run['processor']['microarchitecture']}"


def figures(groups):
    """The lines of the picture in words, which it also carries inside."""
    for title, rows in groups:
        for row in rows:
            for layout, ratios in row.ratios.items():
                least = min(ratios, key=ratios.get)
                figure = f"{row.mean(layout):.2f}, least {ratios[least]:.2f} ({least})"
                yield f"{title}: {row.label}, {LAYOUTS[layout]}: {figure}"


def table(groups):
    """The picture as the lines of a table: means and, in parentheses, the layer that gains least."""
    lines = [f"| | {' | '.join(LAYOUTS.values())} |", "|---|" + "---:|" * len(LAYOUTS)]
    for title, rows in groups:
        lines.append(f"| **{title}** | | |")
        for row in rows:
            cells = []
            for layout in LAYOUTS:
                ratios = row.ratios.get(layout)
                least = min(ratios, key=ratios.get) if ratios else None
                cells.append(f"{row.mean(layout):.2f} ({ratios[least]:.2f}, {least})" if ratios else "\N{EN DASH}")
            lines.append(f"| {row.label} | {' | '.join(cells)} |")
    return lines


# ------------------------------------------------------------------------------------------------------------- picture

# Points: the page, which a README shows at about its own size; where the bars begin; a bar, and what is between rows.
WIDTH, LEFT, RIGHT, TOP, BOTTOM, HEADING, BAR, GAP = 620, 146, 14, 32, 44, 27, 12, 6
INCH = 72
MOST = 4.6
TIMES = "\N{MULTIPLICATION SIGN}"
# On white, and on whatever a dark page has.
THEMES = {
    "speedups.svg": {"page": "#ffffff", "text": "#1f2328", "grid": "#d1d9e0", "nchw": "#b5232a", "nhwc": "#e8888c"},
    "speedups-dark.svg": {"page": "none", "text": "#f0f6fc", "grid": "#4a525c", "nchw": "#ff7b72", "nhwc": "#a8545a"},
}


def height_of(row):
    return len(row.ratios) * BAR + GAP


def draw(pyplot, groups, colours, path):
    inner = sum(HEADING + sum(map(height_of, rows)) for _, rows in groups)
    height = inner + TOP + BOTTOM
    figure = pyplot.figure(figsize=(WIDTH / INCH, height / INCH))
    axes = figure.add_axes((LEFT / WIDTH, BOTTOM / height, 1 - (LEFT + RIGHT) / WIDTH, inner / height))
    axes.set_axis_off()
    axes.set_xlim(0, MOST)
    axes.set_ylim(inner, 0)

    def write(text, x, y, right=0, size=12, **more):
        """At x in times and y in points from above, moved by points to the right."""
        axes.annotate(
            text, (x, y), (right, 0), textcoords="offset points", va="center_baseline", color=colours["text"],
            fontsize=size, annotation_clip=False, **more,
        )  # fmt: skip

    write("How many times as fast as its peers", 0, -16, 10 - LEFT, 14, weight="bold")
    for layout, x in zip(LAYOUTS, (2.55, 3.3), strict=True):
        axes.add_patch(pyplot.Rectangle((x - 0.15, -21), 0.1, 10, color=colours[layout], clip_on=False))
        write(LAYOUTS[layout], x, -16, size=11)
    y = 0
    for title, rows in groups:
        write(title, 0, y + HEADING / 2, 10 - LEFT, weight="bold")
        y += HEADING
        bottom = y + sum(map(height_of, rows))
        axes.vlines(range(int(MOST) + 1), y, bottom, color=colours["grid"], linewidth=0.8, zorder=0)
        for row in rows:
            write(row.label, 0, y + height_of(row) / 2, -8, ha="right")
            for i, layout in enumerate(row.ratios):
                middle, mean = y + GAP / 2 + (i + 0.5) * BAR, row.mean(layout)
                axes.barh(middle, mean, BAR - 1, color=colours[layout])
                write(f"{mean:.1f}", mean, middle, 4, 11)
            y += height_of(row)
        axes.vlines(1, bottom - sum(map(height_of, rows)), bottom, color=colours["text"], linewidth=1.4, zorder=3)
    for times in range(int(MOST) + 1):
        write(f"{times}{TIMES}" if times else "0", times, inner + 9, size=11, ha="center")
    layers = sorted({len(ratios) for _, rows in groups for row in rows for ratios in row.ratios.values()})
    counts = " or ".join(map(str, layers))
    note = f"1{TIMES}: as fast. Geometric means of {counts} layers; NCHW against NCHW, NHWC against NHWC."
    write(note, 0, inner + 30, 10 - LEFT, 11)
    figure.savefig(path, metadata={"Date": None, "Description": "; ".join(figures(groups))}, facecolor=colours["page"])
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    results = parser.parse_args().results
    groups = load(results)
    for of_gpu, page in PAGES.items():
        lines = table([(title, rows) for title, rows in groups if is_of_gpu(title) == of_gpu])
        print("\n".join([f"{page}:", "", *lines, ""]))
    pyplot = report.load_pyplot()
    if pyplot is None:
        raise SystemExit("no matplotlib: no picture")
    for name, colours in THEMES.items():
        draw(pyplot, groups, colours, results / name)


if __name__ == "__main__":
    main()
