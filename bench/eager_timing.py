"""Times of models as they are called from Python, on a GPU or the CPU: what kernelbench/run.py and end_to_end.py
share.

A GPU is timed by events around each run, without CUDA graphs: what a call costs in Python counts where the GPU has to
wait for it, as it does for whoever calls the model. The CPU is timed by the clock on the wall.

cuDNN's choice for a layer is kept by PyTorch whichever way it was made, cudnn.benchmark or not, for as long as the
process lives. So cudnn.benchmark is set once in a process, before anything runs, and each setting has a process of its
own.
"""

import contextlib
import gc
import itertools
import math
import multiprocessing
import pathlib
import statistics
import time
from concurrent import futures

import report
import run_files
import torch

import tconv

# Runs before the first that counts: compilation, cuDNN's choice, plans and allocations.
FIRST_RUNS = 3
# A turn takes about so long, so that clocks and caches come to rest; before it, runs that do not count.
TURN_MS = {"cuda": 40.0, "cpu": 20.0}
WAKE_MS = {"cuda": 5.0, "cpu": 0.0}
LEAST_RUNS, MOST_RUNS = 3, 100


def precisions_of(device):
    """The CPU has no TF32."""
    return ["strict", "tf32", "bf16"] if device == "cuda" else ["strict", "bf16"]


@contextlib.contextmanager
def precision(name, device, casts_once=True):
    """strict: f32 as it is; tf32: convolutions and products may round to TF32; bf16: autocast. Autocast ends with the
    block, TF32 stays as it was set, for the backward pass. In a block of many steps autocast must not keep what it has
    cast (casts_once), or all steps but the first do without."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    with torch.autocast(device, torch.bfloat16, enabled=name == "bf16", cache_enabled=casts_once):
        yield


def heading(device):
    """What is measured, as lines; an error where tconv would leave the device to PyTorch."""
    versions = f"tconv {tconv.__version__}, PyTorch {torch.__version__}"
    if device == "cpu":
        return [f"a CPU, {torch.get_num_threads()} threads", versions]
    if not tconv.info()["cuda"]["available"]:
        raise RuntimeError("tconv has no CUDA here")
    return [torch.cuda.get_device_name(), f"{versions}, cuDNN {torch.backends.cudnn.version()}"]


def _timed(run, count, device):
    """Milliseconds of each of so many runs in a row."""
    if device == "cpu":
        marks = [time.perf_counter()]
        for _ in range(count):
            run()
            marks.append(time.perf_counter())
        return [1e3 * (b - a) for a, b in itertools.pairwise(marks)]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def _runs(budget_ms, run_ms, least):
    return max(least, min(MOST_RUNS, math.ceil(budget_ms / max(run_ms, 1e-3))))


def in_turn(contenders, device, rounds):
    """The median milliseconds of each contender, a function by name. All take turns, in their order in one round and in
    the reverse of it in the next."""
    estimates = {}
    for name, run in contenders.items():
        for _ in range(FIRST_RUNS):
            run()
        estimates[name] = statistics.median(_timed(run, LEAST_RUNS, device))
    times = {name: [] for name in contenders}
    for turn in range(rounds):
        for name in list(contenders)[:: -1 if turn % 2 else 1]:
            run = contenders[name]
            for _ in range(_runs(WAKE_MS[device], estimates[name], 0)):
                run()
            times[name] += _timed(run, _runs(TURN_MS[device], estimates[name], LEAST_RUNS), device)
    return {name: statistics.median(found) for name, found in times.items()}


def difference(found, expected):
    """The largest absolute difference and the relative L2 difference, image by image to save memory."""
    most, squares, total = (torch.zeros((), dtype=torch.float64, device=found.device) for _ in range(3))
    if found.shape != expected.shape:
        return math.inf, math.inf
    for a, b in zip(found, expected, strict=True):
        off = a.double() - b.double()
        most = torch.maximum(most, off.abs().max())
        squares += off.square().sum()
        total += b.double().square().sum()
    return most.item(), (squares / total).sqrt().item()


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]


def in_own_process(function, *arguments):
    """The function's answer, computed in a fresh process."""
    with futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure_parts(measure, parts, options, facts, path):
    """One run of measure(part, options, seconds) after the other, each in its own process with its share of the seconds
    that are left. Their headings, results, failures and what they left out are put together, and written to the path
    after each."""
    started = time.perf_counter()
    path.parent.mkdir(parents=True, exist_ok=True)
    run = {"heading": [], **facts, "results": [], "failures": [], "left_out": []}
    for i, part in enumerate(parts):
        share = (options.seconds - (time.perf_counter() - started)) / (len(parts) - i)
        try:
            found = in_own_process(measure, part, options, share)
        except Exception as error:  # the process died, or could not begin
            found = {"failures": [f"{part}: {first_line(error)}"]}
        for key, value in found.items():
            run[key] = value if key == "heading" else run[key] + value
        run["seconds"] = time.perf_counter() - started
        run_files.save(path, run)
    return run


def measure_each(titled, compare, line, device, seconds):
    """A part of a run: what compare returns for each (title, arguments), printed by line, begun within so many seconds.
    What fails leaves the others."""
    started = time.perf_counter()
    part = {"heading": heading(device), "results": [], "failures": [], "left_out": []}
    for title, arguments in titled:
        if time.perf_counter() - started > seconds:
            part["left_out"].append(title)
            continue
        try:
            part["results"].append(compare(*arguments))
            print(line(part["results"][-1]), flush=True)
        except Exception as error:  # whatever stops one
            part["failures"].append(f"{title}: {first_line(error)}")
            print(part["failures"][-1], flush=True)
        torch.compiler.reset()
        gc.collect()
        try:
            if device == "cuda":
                torch.cuda.empty_cache()
        except RuntimeError:  # after an error of the device nothing runs any more
            part["left_out"].append(f"what comes after {title}")
            break
    return part


def gap_lines(run):
    """The end of a report in Markdown: what failed and what was left out, if anything was."""
    gaps = [f"- failed: {text}" for text in run["failures"]]
    gaps += [f"- left out: {', '.join(run['left_out'])}"] if run["left_out"] else []
    return ["", "**Failures and gaps**", "", *gaps] if gaps else []


def measure_and_report(measure, parts, options, facts, name, markdown):
    """Measures the parts, or with --redraw takes an earlier run; writes and prints the report that markdown makes of
    it. Returns the run."""
    if options.redraw:
        run = run_files.load(options.redraw)
    else:
        run = measure_parts(measure, parts, options, facts, options.out / f"{name}{run_files.ENDING}")
    text = report.filled(markdown(run))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.md").write_text(text)
    print(text)
    return run


def add_options(parser):
    """The options that every script of these has."""
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--redraw", metavar="JSON", help="only the report of an earlier run")
    parser.add_argument("--out", type=pathlib.Path, default=".")


def names_of(parser, text, known, what):
    """The names in a list with commas, all of them known."""
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"--{what} {', '.join(unknown)}: must be among {', '.join(known)}")
    return names
