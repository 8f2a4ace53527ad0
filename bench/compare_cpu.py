#!/usr/bin/env python3
"""tconv against its peers on the CPU, in one process, on the same tensors, in turn.

    compare_cpu.py --library build/libtconv.so [--program build/cli/tconv] [--threads 2] [--budget 2] [--out DIR] [CASE...]

Contenders: tconv (NCHW and NHWC, weights packed once), PyTorch NCHW and channels_last (oneDNN), PyTorch without oneDNN, and
ONNX Runtime where it is installed. Each round runs every contender twice in a row and times the second run, when its
threads are awake; the figure is the median over rounds. The batch is cut so that a case stays at about BUDGET GFLOP. floor_ms is the larger of FLOP / FMA rate and bytes / copy rate, both
measured by `tconv bench` just before. Writes compare_cpu.json, .md and (with matplotlib) .svg to DIR.
"""
import argparse
import csv
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

# PyTorch brings an OpenMP run-time of its own, so that threads of two teams share the cores: those that wait must sleep,
# and none may be bound, because the second team would find itself on the cores that were left to the first one's master.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.pop("OMP_PROC_BIND", None)
import torch
import torch.nn.functional as F

import tconv_ctypes as t

HERE = pathlib.Path(__file__).resolve().parent


def workloads(path, names):
    with open(path) as file:
        rows = [{key: value if key == "name" else int(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return [row for row in rows if not names or row["name"] in names]


def flop(row):
    return 2.0 * row["N"] * row["H"] * row["W"] * row["Cin"] * (row["Cout"] // row["g"]) * row["kh"] * row["kw"]


def tconv_contender(library, row, x, w, b, layout, threads):
    desc = library.desc(
        batch=row["N"], in_channels=row["Cin"], in_h=row["H"], in_w=row["W"], out_channels=row["Cout"],
        kernel_h=row["kh"], kernel_w=row["kw"], stride_h=row["sh"], stride_w=row["sw"], pad_top=row["ph"],
        pad_bottom=row["ph"], pad_left=row["pw"], pad_right=row["pw"], output_padding_h=row["oph"],
        output_padding_w=row["opw"], dilation_h=row["dh"], dilation_w=row["dw"], groups=row["g"], layout=layout)
    plan = library.plan(desc, backend=t.BACKEND_CPU, threads=threads)
    plan.pack(w.data_ptr())
    workspace = torch.empty(max(1, plan.workspace_size), dtype=torch.uint8)
    shape = library.output_shape(desc)
    if layout == t.NHWC:
        x = x.contiguous(memory_format=torch.channels_last)
        y = torch.empty(shape, memory_format=torch.channels_last)
    else:
        y = torch.empty(shape)
    run = plan.bind(x.data_ptr(), None, None if b is None else b.data_ptr(), y.data_ptr(), workspace.data_ptr())
    run.keep = (plan, x, b, y, workspace)
    run.result = y
    return run


def torch_contender(row, x, w, b, memory_format, onednn):
    x, w = x.contiguous(memory_format=memory_format), w.contiguous(memory_format=memory_format)
    arguments = ((row["sh"], row["sw"]), (row["ph"], row["pw"]), (row["oph"], row["opw"]), row["g"], (row["dh"], row["dw"]))

    def run():
        with torch.backends.mkldnn.flags(enabled=onednn):
            run.result = F.conv_transpose2d(x, w, b, *arguments)
    return run


def onnx_contender(row, x, w, b, threads):
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    names = ["x", "w"] + (["b"] if b is not None else [])
    node = onnx.helper.make_node(
        "ConvTranspose", names, ["y"], kernel_shape=[row["kh"], row["kw"]], strides=[row["sh"], row["sw"]],
        pads=[row["ph"], row["pw"]] * 2, output_padding=[row["oph"], row["opw"]], dilations=[row["dh"], row["dw"]],
        group=row["g"])
    value = onnx.helper.make_tensor_value_info
    constants = [onnx.numpy_helper.from_array(a.numpy(), name) for name, a in (("w", w), ("b", b)) if a is not None]
    graph = onnx.helper.make_graph([node], "layer", [value("x", onnx.TensorProto.FLOAT, list(x.shape))],
                                   [value("y", onnx.TensorProto.FLOAT, None)], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # its threads would take the next one's cores
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    array = x.numpy()

    def run():
        run.result = session.run(None, {"x": array})[0]
    return run


def machine_floor(program, threads):
    """(GFLOP/s of FMAs, GB/s of a copy), as `tconv bench` measures them, from a layer bound by each."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "floor.json")
        rows = {}
        for bound, problem in (("flop", "n=1 ci=256 h=32 w=32 co=256 k=3"), ("copy", "n=1 ci=1 h=1024 w=1024 co=1 k=1")):
            subprocess.run([program, "bench", "--problem", problem, "--threads", str(threads), "--backend", "cpu", "--json",
                            path], check=True, stdout=subprocess.DEVNULL)
            with open(path) as file:
                loaded = json.load(file)
            rows[bound] = (loaded["results"] if isinstance(loaded, dict) else loaded)[0]
    gflop = 2e-9 * 32 * 32 * 256 * 256 * 9
    gbyte = 4e-9 * (2 * 1024 * 1024 + 1)
    return gflop / rows["flop"]["floor_ms"] * 1e3, gbyte / rows["copy"]["floor_ms"] * 1e3


def measure(contenders, rounds, seconds):
    for run in contenders.values():
        run()
    times = {name: [] for name in contenders}
    end = time.perf_counter() + seconds
    while len(times[next(iter(times))]) < rounds or (time.perf_counter() < end and len(times[next(iter(times))]) < 50):
        for name, run in contenders.items():
            run()
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) * 1e3 for name, values in times.items()}


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--library", required=True)
    parser.add_argument("--program", help="the tconv program, to measure the machine's floor")
    parser.add_argument("--workloads", default=HERE / "workloads.csv")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=2.0, help="GFLOP a case")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="at least so long a case")
    parser.add_argument("--peers", default="nchw,nhwc,native,ort")
    parser.add_argument("--layouts", default="nchw,nhwc")
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    library = t.Library(str(pathlib.Path(options.library).resolve()))
    peak, copy = machine_floor(options.program, options.threads) if options.program else (None, None)
    results, peers = [], options.peers.split(",")
    print(f"torch {torch.__version__}, {options.threads} threads, FMA {peak} GFLOP/s, copy {copy} GB/s")
    for row in workloads(options.workloads, options.cases):
        row["N"] = max(1, min(row["N"], int(options.budget * 1e9 / (flop(row) / row["N"]))))
        x = torch.rand(row["N"], row["Cin"], row["H"], row["W"]) - 0.5
        w = torch.rand(row["Cin"], row["Cout"] // row["g"], row["kh"], row["kw"]) - 0.5
        b = torch.rand(row["Cout"]) if row["bias"] else None
        contenders = {}
        if "nchw" in options.layouts.split(","):
            contenders["tconv nchw"] = tconv_contender(library, row, x, w, b, t.NCHW, options.threads)
        if "nhwc" in options.layouts.split(","):
            contenders["tconv nhwc"] = tconv_contender(library, row, x, w, b, t.NHWC, options.threads)
        if "nchw" in peers:
            contenders["torch nchw"] = torch_contender(row, x, w, b, torch.contiguous_format, True)
        if "nhwc" in peers:
            contenders["torch nhwc"] = torch_contender(row, x, w, b, torch.channels_last, True)
        if "native" in peers:
            contenders["torch native"] = torch_contender(row, x, w, b, torch.contiguous_format, False)
        if "ort" in peers:
            run = onnx_contender(row, x, w, b, options.threads)
            if run:
                contenders["ort"] = run
        with torch.no_grad():
            ms = measure(contenders, options.rounds, options.seconds)
        y = next(iter(contenders.values())).result
        expected = F.conv_transpose2d(x[:1].double(), w.double(), None if b is None else b.double(), (row["sh"], row["sw"]),
                                      (row["ph"], row["pw"]), (row["oph"], row["opw"]), row["g"], (row["dh"], row["dw"]))
        error = ((y[:1].double() - expected).norm() / expected.norm()).item()
        size = 4e-9 * (x.numel() + w.numel() + y.numel())
        floor = max(flop(row) * 1e-9 / peak, size / copy) * 1e3 if peak else None
        results.append({"name": row["name"], "n": row["N"], "gflop": flop(row) * 1e-9, "gbyte": size, "floor_ms": floor,
                        "ms": ms, "relative_l2": error})
        print(f"{row['name']:12s} N {row['N']:4d} floor {floor or 0:8.2f} | "
              + " ".join(f"{name} {value:8.2f}" for name, value in ms.items()) + f" | error {error:.1e}", flush=True)
        if not error < 1e-6:
            raise SystemExit(f"{row['name']}: tconv is wrong, relative L2 {error}")
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "compare_cpu.json"), "w") as file:
        json.dump({"threads": options.threads, "fma_gflops": peak, "copy_gbps": copy, "results": results}, file, indent=1)
    write_table(results, options.out)
    if peak:
        write_plot(results, options.threads, options.out)


def write_plot(results, threads, out):
    """Bars of time over floor for each layer and contender, with the geometric means last."""
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no plot")
        return
    matplotlib.use("svg")
    import matplotlib.pyplot as plot
    matplotlib.rcParams["svg.hashsalt"] = "tconv"
    names = list(results[0]["ms"])
    layers = [r["name"] for r in results] + ["geometric mean"]
    figure, axes = plot.subplots(figsize=(14, 4.5))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        ratios = [r["ms"][name] / r["floor_ms"] for r in results]
        axes.bar([x + i * width for x in range(len(layers))], ratios + [geometric_mean(ratios)], width, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylabel("time over the machine's floor")
    axes.set_xticks([x + 0.4 - width / 2 for x in range(len(layers))], layers, rotation=60, ha="right", fontsize=8)
    axes.set_title(f"ConvTranspose2d, f32, {threads} threads: lower is better, 1 is the machine's limit", fontsize=10)
    axes.legend(fontsize=8, ncols=len(names))
    figure.tight_layout()
    figure.savefig(os.path.join(out, "compare_cpu.svg"), metadata={"Date": None})


def write_table(results, out):
    names = list(results[0]["ms"])
    ours = names[0]
    lines = ["| case | n | floor ms | " + " | ".join(names) + f" | {ours} / floor |", "|---" * (len(names) + 4) + "|"]
    for r in results:
        times_floor = r["ms"][ours] / r["floor_ms"] if r["floor_ms"] else float("nan")
        lines.append(f"| {r['name']} | {r['n']} | {r['floor_ms'] or 0:.2f} | "
                     + " | ".join(f"{r['ms'][name]:.2f}" for name in names) + f" | {times_floor:.2f} |")
    if results[0]["floor_ms"]:
        lines.append("")
        for name in names:
            lines.append(f"- {name} over floor, geometric mean: "
                         f"{geometric_mean([r['ms'][name] / r['floor_ms'] for r in results]):.2f}")
    lines.append("")
    for name in names:
        if name.startswith("tconv"):
            continue
        ratios = [r["ms"][name] / r["ms"][ours] for r in results]
        slower = [r["name"] for r, ratio in zip(results, ratios) if ratio < 1]
        lines.append(f"- {ours} against {name}: {geometric_mean(ratios):.2f}x faster in geometric mean, "
                     f"least {min(ratios):.2f}x; slower on {', '.join(slower) or 'none'}")
    text = "\n".join(lines) + "\n"
    with open(os.path.join(out, "compare_cpu.md"), "w") as file:
        file.write(text)
    print(text)


if __name__ == "__main__":
    main()
