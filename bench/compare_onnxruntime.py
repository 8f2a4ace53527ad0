#!/usr/bin/env python3
"""tconv's execution provider beside ONNX Runtime's own CPU provider: one node a model, both in turn.

    compare_onnxruntime.py [--output PREFIX] [--threads N] [--seconds S] [--match TEXT] [LIBRARY.so]

LIBRARY is libtconv_onnxruntime.so; without it the package onnxruntime_ep_tconv has one. Layers are those of
workloads.csv with one image, as a model that is deployed runs them, and the upsampling layers of vocoders and codecs.
Inputs and outputs are bound, so that nothing is allocated or copied for Python; each thread is bound to a processor.
Prints a table; writes PREFIX.json.gz, every time of a run, and PREFIX.md.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import numpy as np
import onnx
import onnxruntime
import processor
import run_files
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "adapters" / "onnxruntime" / "python"))
import onnxruntime_ep_tconv  # noqa: E402

# Input and output channels, length of the input, kernel, stride, padding, output padding, groups. Lengths are of a
# sentence of some two seconds (Piper, HiFi-GAN: 200 and 172 frames), of five seconds (Kokoro), and of a second (Mimi).
SPEECH = {
    "piper_medium_1": (256, 128, 200, 16, 8, 4, 0, 1),
    "piper_medium_2": (128, 64, 1600, 16, 8, 4, 0, 1),
    "piper_medium_3": (64, 32, 12800, 8, 4, 2, 0, 1),
    "piper_high_1": (512, 256, 200, 16, 8, 4, 0, 1),
    "piper_high_4": (64, 32, 25600, 4, 2, 1, 0, 1),
    "kokoro_pool": (1090, 1090, 200, 3, 2, 1, 1, 1090),
    "kokoro_1": (512, 256, 400, 20, 10, 5, 0, 1),
    "kokoro_2": (256, 128, 4000, 12, 6, 3, 0, 1),
    "hifigan_v1_1": (512, 256, 172, 16, 8, 4, 0, 1),
    "hifigan_v1_2": (256, 128, 1376, 16, 8, 4, 0, 1),
    "hifigan_v1_3": (128, 64, 11008, 4, 2, 1, 0, 1),
    "hifigan_v1_4": (64, 32, 22016, 4, 2, 1, 0, 1),
    "mimi_upsample": (512, 512, 13, 4, 2, 0, 0, 512),
    "mimi_1": (1024, 512, 25, 16, 8, 0, 0, 1),
    "mimi_2": (512, 256, 200, 12, 6, 0, 0, 1),
    "mimi_3": (256, 128, 1200, 10, 5, 0, 0, 1),
    "mimi_4": (128, 64, 6000, 8, 4, 0, 0, 1),
}
CPUS = sorted(os.sched_getaffinity(0))
MOST_FLOPS = 12e9  # so that a run takes a minute
# A layer that takes no time, which shows what a call costs.
TINY = ((1, 1, 2), (1, 1, 1), {})
# Runs of one session follow each other, because the threads of a session spin for a while after a run, on cores that
# the other session then lacks: blocks of both in turn, each after a pause and runs that wake threads and do not count.
PAUSE_SECONDS = 0.004
BLOCK_SECONDS = 0.03
WAKING_RUNS = 2
FEWEST_BLOCK_RUNS = 4
MOST_BLOCK_RUNS = 100
FEWEST_BLOCKS = 3


def layers():
    """Each layer's name, shapes of x and w, and attributes; those of more than MOST_FLOPS are left out."""
    for row in run_files.rows(HERE / "workloads.csv"):
        n = {key: int(value) for key, value in row.items() if key != "name"}
        attributes = {
            "strides": [n["sh"], n["sw"]], "pads": [n["ph"], n["pw"]] * 2, "group": n["g"],
            "dilations": [n["dh"], n["dw"]], "output_padding": [n["oph"], n["opw"]],
        }  # fmt: skip
        weights = (n["Cin"], n["Cout"] // n["g"], n["kh"], n["kw"])
        if 2 * n["H"] * n["W"] * np.prod(weights) > MOST_FLOPS:
            continue
        yield row["name"], (1, n["Cin"], n["H"], n["W"]), weights, attributes
    for name, (i, o, length, kernel, stride, pad, extra, groups) in SPEECH.items():
        attributes = {"strides": [stride], "pads": [pad, pad], "group": groups, "output_padding": [extra]}
        yield name, (1, i, length), (i, o // groups, kernel), attributes


def model(shape, weights, attributes, nodes=1):
    """A model of one node, or of some beside each other, with constant weights; a signal has any length."""
    rng = np.random.default_rng(0)
    dims = [1, shape[1], "length"] if len(shape) == 3 else shape
    made, outputs, kernels = [], [], []
    for i in range(nodes):
        kernels.append(numpy_helper.from_array(rng.standard_normal(weights, np.float32), f"w{i}"))
        made.append(helper.make_node("ConvTranspose", ["x", f"w{i}"], [f"y{i}"], **attributes))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None))
    graph = helper.make_graph(
        made, "layer", [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)], outputs, kernels
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def session(data, is_tconv, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if threads > 1:  # the second thread and so on each have a processor; their numbers count from 1
        options.add_session_config_entry(
            "session.intra_op_thread_affinities", ";".join(str(cpu + 1) for cpu in CPUS[1:threads])
        )
    if is_tconv:
        return onnxruntime_ep_tconv.session(data, options)
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


class Bound:
    """A session with its input and output bound."""

    def __init__(self, made, x, output_shape):
        self.session, self.binding = made, made.io_binding()
        self.input = onnxruntime.OrtValue.ortvalue_from_numpy(x)
        self.output = onnxruntime.OrtValue.ortvalue_from_numpy(np.empty(output_shape, np.float32))
        self.binding.bind_ortvalue_input("x", self.input)
        self.binding.bind_ortvalue_output("y0", self.output)

    def milliseconds(self):
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return 1e3 * (time.perf_counter() - start)

    def block(self):
        """Times of some runs one after another."""
        time.sleep(PAUSE_SECONDS)
        times, end = [], time.perf_counter() + BLOCK_SECONDS
        while len(times) < MOST_BLOCK_RUNS and (
            len(times) < WAKING_RUNS + FEWEST_BLOCK_RUNS or time.perf_counter() < end
        ):
            times.append(self.milliseconds())
        return times[WAKING_RUNS:]


def compare(shape, weights, attributes, threads, seconds):
    """Times of both in turn, in milliseconds, and the largest difference of their outputs."""
    data = model(shape, weights, attributes)
    sessions = {name: session(data, name == "tconv", threads) for name in ("tconv", "onnxruntime")}
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    outputs = {name: made.run(None, {"x": x})[0] for name, made in sessions.items()}
    difference = float(np.abs(outputs["tconv"] - outputs["onnxruntime"]).max() / np.abs(outputs["onnxruntime"]).max())
    bound = {name: Bound(made, x, outputs[name].shape) for name, made in sessions.items()}
    times = {name: [] for name in sessions}
    blocks, end = 0, time.perf_counter() + seconds
    while blocks < FEWEST_BLOCKS or time.perf_counter() < end:
        for name in sessions:
            times[name] += bound[name].block()
        blocks += 1
    return times, difference


def new_lengths(shape, weights, attributes, threads, count=9):
    """The median time of a first run at a length, over that of a second one."""
    made = session(model(shape, weights, attributes), True, threads)
    ratios = []
    for i in range(count):
        x = np.zeros((*shape[:-1], shape[-1] - i), np.float32)
        taken = []
        for _ in range(3):
            start = time.perf_counter()
            made.run(None, {"x": x})
            taken.append(time.perf_counter() - start)
        ratios.append(taken[0] / min(taken[1:]))
    return statistics.median(ratios[1:])


def creation(threads, nodes=40):
    """Milliseconds a node that the creation of a session takes longer than with the CPU provider."""
    data = model((1, 64, 128), (64, 32, 8), {"strides": [4]}, nodes)
    taken = {True: [], False: []}
    for _ in range(5):
        for is_tconv in taken:
            start = time.perf_counter()
            session(data, is_tconv, threads)
            taken[is_tconv].append(1e3 * (time.perf_counter() - start))
    return (min(taken[True]) - min(taken[False])) / nodes


def report(run):
    """The run as a page of Markdown."""
    rows = run["layers"]
    gains = [row["gain"] for row in rows]
    mean, median, tiny = statistics.geometric_mean(gains), statistics.median(gains), run["tiny_us"]
    lines = [
        "# tconv's execution provider beside ONNX Runtime's CPU provider",
        "",
        f"ONNX Runtime {run['onnxruntime']}, {run['threads']} threads, {run['date']}, f32, one image; medians of",
        "runs in turn. Written by `bench/compare_onnxruntime.py`.",
        "",
        f"{run['processor']}.",
        "",
        f"Over {len(rows)} layers tconv is {mean:.2f} times as fast in the geometric mean, {median:.2f} in the",
        f"median, {min(gains):.2f} at least. A node that computes next to nothing takes {tiny['tconv']:.1f} µs with",
        f"tconv and {tiny['onnxruntime']:.1f} µs without. A session takes {run['creation_ms']:.2f} ms more to create",
        "for each node.",
        "",
        "| layer | X | W | CPU provider, ms | tconv, ms | times as fast | new length / known length |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        new = f"{row['new_length']:.2f}" if row["new_length"] is not None else ""
        shapes = " | ".join("x".join(map(str, row[key])) for key in ("x", "w"))
        times = f"{row['onnxruntime_ms']:.3f} | {row['tconv_ms']:.3f} | {row['gain']:.2f}"
        lines.append(f"| {row['name']} | {shapes} | {times} | {new} |")
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library", nargs="?")
    parser.add_argument("--output")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.8, help="for each layer")
    parser.add_argument("--match", default="", help="only layers that have this in their names")
    return parser.parse_args()


def main():
    arguments = parse()
    if arguments.library:
        os.environ["TCONV_ONNXRUNTIME_LIBRARY"] = str(pathlib.Path(arguments.library).resolve())
    run = {
        "onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__, "threads": arguments.threads, "layers": [],
        "processor": processor.sentence(processor.identify()), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    compare(*TINY, arguments.threads, 0)  # tconv counts the processors
    os.sched_setaffinity(0, CPUS[:1])
    for name, shape, weights, attributes in layers():
        if arguments.match not in name:
            continue
        times, difference = compare(shape, weights, attributes, arguments.threads, arguments.seconds)
        medians = {key: statistics.median(values) for key, values in times.items()}
        new = new_lengths(shape, weights, attributes, arguments.threads) if len(shape) == 3 else None
        gain = medians["onnxruntime"] / medians["tconv"]
        run["layers"].append(
            {"name": name, "x": shape, "w": weights, "attributes": attributes, "times_ms": times, "gain": gain,
             "tconv_ms": medians["tconv"], "onnxruntime_ms": medians["onnxruntime"], "difference": difference,
             "new_length": new}
        )  # fmt: skip
        figures = f"{medians['onnxruntime']:10.3f} {medians['tconv']:10.3f} {gain:6.2f} {new or 0:6.2f}"
        print(f"{name:16} {figures} {difference:.1e}", flush=True)
    times, _ = compare(*TINY, arguments.threads, arguments.seconds)
    os.sched_setaffinity(0, CPUS)
    run["tiny_us"] = {key: 1e3 * statistics.median(values) for key, values in times.items()}
    run["creation_ms"] = creation(arguments.threads)
    if arguments.output:
        run_files.save(arguments.output + ".json.gz", run)
        pathlib.Path(arguments.output + ".md").write_text(report(run))
    print(report(run).split("\n\n")[3])


if __name__ == "__main__":
    main()
