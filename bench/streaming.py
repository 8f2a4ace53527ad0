#!/usr/bin/env python3
"""Decoders of speech and music one frame at a time: the step of a stream by tconv and by PyTorch, the state by hand.

    streaming.py [--device cpu|cuda] [--threads 1,2] [--models mimi,dac] [--dtypes float32,tf32,bfloat16]
                 [--batches 1,32] [--voices 64] [--runs N] [--seconds S] [--most S] [--out DIR]
    streaming.py --redraw results/streaming_zen5.json.gz --out results         # the tables again

The layers are the transposed convolutions of the decoders, each with as many columns as a frame has there. By hand is
what decoders do: a call of the layer, the tail added to its first columns, the new tail copied, without bias. Voices
are a batch of streams that come and go: slots in another order than the images, and a mask of those that take part; by
hand that is an index and a selection for the state.

replayed: the same tensors again and again, so that weights come from the nearest cache that they fit. cold: tensors of
many copies in turn, four times the last cache in all, so that they come from memory. On CUDA each is a graph of many
steps; on the CPU contenders take turns, and the least of several rounds counts. Weights are not packed ahead. The
floor is the time of the weights' bytes at the rate of a copy.

host: what a step of the smallest layer costs who calls it, on CUDA until it is enqueued. new lengths: the first call
with each length from 1 to 512, in random order, of a layer that is new.

Each of --runs goes through everything, and medians over the runs count. Writes streaming_<processor or GPU>.json.gz and
.md to DIR. The exit status is 1 where the contenders disagree.
"""

import argparse
import datetime
import itertools
import math
import pathlib
import random
import statistics
import textwrap
import time
import timeit

import gpu_machine
import processor
import run_files
import torch
import torch.nn.functional as F

import tconv
import tconv.torch as tt

# Input and output channels, kernel, stride, groups; and the columns of a frame of the first.
MODELS = {
    "mimi": (
        "Mimi, 12.5 frames a second",
        [(512, 512, 4, 2, 512), (1024, 512, 16, 8, 1), (512, 256, 12, 6, 1), (256, 128, 10, 5, 1), (128, 64, 8, 4, 1)],
    ),
    "dac": (
        "DAC at 44.1 kHz, 86 frames a second",
        [(1536, 768, 16, 8, 1), (768, 384, 16, 8, 1), (384, 192, 8, 4, 1), (192, 96, 4, 2, 1)],
    ),
}
SMALLEST = (1, 1, 4, 2, 1)
LENGTHS = 512
ROUNDS, LEAST_ROUNDS = 7, 3
TOLERANCE = {"float32": 1e-4, "tf32": 5e-3, "bfloat16": 5e-2, "float16": 1e-2, "float64": 1e-10}
CONTENDERS = ("by hand", "tconv")


# ----------------------------------------------------------------------------------------------------------- contenders


class Layer:
    """Tensors of a layer and of its streams, in as many copies as it takes."""

    def __init__(self, sizes, columns, dtype, batch, voices, device, copies=1):
        self.sizes, self.voices = sizes, voices
        ins, outs, width, self.stride, self.groups = sizes
        self.tail = width - self.stride
        of_sums = torch.float64 if dtype is torch.float64 else torch.float32
        make = {"device": device, "dtype": dtype}
        self.sets = []
        for _ in range(copies):
            x = torch.randn(batch, ins, columns, **make)
            weight = torch.randn(ins, outs // self.groups, width, **make) / math.sqrt(ins // self.groups)
            bias = torch.randn(outs, **make)
            ours = torch.zeros(batch, outs, self.tail, device=device, dtype=of_sums)
            self.sets.append((x, weight, bias, torch.zeros(batch, outs, self.tail, **make), ours))
        self.slots = torch.randperm(batch, device=device).int()
        self.active = torch.arange(batch, device=device) % 4 != 3

    def by_hand(self, i):
        x, weight, bias, state, _ = self.sets[i]
        y = F.conv_transpose1d(x, weight, bias, self.stride, groups=self.groups)
        held = state.index_select(0, self.slots) if self.voices else state
        y[..., : self.tail] += held
        rest = y[..., -self.tail :] - bias[:, None]
        if self.voices:
            state.index_copy_(0, self.slots.long(), torch.where(self.active.view(-1, 1, 1), rest, held))
        else:
            state.copy_(rest)
        return y[..., : -self.tail]

    def tconv(self, i):
        x, weight, bias, _, state = self.sets[i]
        rows = {"slots": self.slots, "active": self.active} if self.voices else {}
        return tt.conv_transpose1d_step(x, weight, bias, state, stride=self.stride, groups=self.groups, **rows)

    def run(self, name, i):
        return (self.by_hand if name == "by hand" else self.tconv)(i)

    def agree(self, tolerance):
        """Whether two steps of both are the same but for rounding."""
        for _ in range(2):
            theirs, ours = (self.run(name, 0).double() for name in CONTENDERS)
            if self.voices:
                theirs, ours = theirs[self.active], ours[self.active]
            error = float((theirs - ours).norm() / theirs.norm())
            if not error <= tolerance:
                return False
        return True

    def weight_bytes(self):
        weight = self.sets[0][1]
        return weight.numel() * weight.element_size()

    def bytes(self):
        return sum(tensor.numel() * tensor.element_size() for tensor in self.sets[0])


# --------------------------------------------------------------------------------------------------------------- clocks


class Host:
    """The CPU: contenders take turns."""

    device = "cpu"

    def __init__(self, options):
        found = processor.identify()
        self.slug, self.sentence = found["slug"], processor.sentence(found)
        self.seconds, self.most = options.seconds, options.most
        self.cache_bytes = found["l3_bytes"] or found["l2_bytes"]

    def microseconds(self, layer):
        copies, calls, least = len(layer.sets), {}, dict.fromkeys(CONTENDERS, math.inf)
        for name in CONTENDERS:
            start = time.perf_counter()
            for i in range(copies):
                layer.run(name, i)
            once = (time.perf_counter() - start) / copies
            calls[name] = max(copies, min(10000, math.ceil(self.seconds / once)))
        end = time.perf_counter() + self.most
        for done in range(ROUNDS):
            if done >= LEAST_ROUNDS and time.perf_counter() > end:
                break
            for name, count in calls.items():
                run = layer.by_hand if name == "by hand" else layer.tconv
                start = time.perf_counter()
                for i in range(count):
                    run(i % copies)
                least[name] = min(least[name], (time.perf_counter() - start) / count)
        return {name: 1e6 * seconds for name, seconds in least.items()}

    def copy_rate(self):
        """Bytes read and written in a second."""
        a = torch.zeros(2**26)
        b = torch.empty_like(a)
        return 2 * a.numel() * a.element_size() / min(timeit.repeat(lambda: b.copy_(a), number=1, repeat=9))

    def synchronize(self):
        pass


class Gpu:
    """Graphs of many steps."""

    device = "cuda"

    def __init__(self):
        self.machine = gpu_machine.GpuMachine()
        self.slug = self.machine.name.lower().removeprefix("nvidia ").replace(" ", "-")
        self.sentence, self.cache_bytes = self.machine.name, self.machine.cache_bytes

    def microseconds(self, layer):
        found = {}
        for name in CONTENDERS:
            for i in range(len(layer.sets)):
                layer.run(name, i)
            replay = self.machine.capture(lambda i, name=name: layer.run(name, i), len(layer.sets))
            found[name] = 1e3 * statistics.median(replay.burst())
        return found

    def copy_rate(self):
        return self.machine.copy_rate()

    def synchronize(self):
        torch.cuda.synchronize()


# --------------------------------------------------------------------------------------------------------- measurements


def layers(options):
    """Model, sizes, columns of a frame, batch and whether these are voices."""
    for model, batch in itertools.product(options.models, [*options.batches, -options.voices]):
        columns = 1
        for sizes in MODELS[model][1]:
            if batch:
                yield model, sizes, columns, abs(batch), batch < 0
            columns *= sizes[3]


def measure_layers(clock, options, threads, add):
    for dtype_name, (model, sizes, columns, batch, voices) in itertools.product(options.dtypes, layers(options)):
        dtype = torch.float32 if dtype_name == "tf32" else getattr(torch, dtype_name)
        torch.backends.cudnn.allow_tf32 = dtype_name == "tf32"
        probe = Layer(sizes, columns, dtype, batch, voices, clock.device)
        if not probe.agree(TOLERANCE[dtype_name]):
            raise SystemExit(f"streaming.py: {model} {sizes} {dtype_name} batch {batch}: the contenders disagree")
        for cache in ("replayed", "cold"):
            copies = 1 if cache == "replayed" else gpu_machine.sets_for(probe.bytes(), clock.cache_bytes)
            layer = Layer(sizes, columns, dtype, batch, voices, clock.device, copies)
            key = {"model": model, "layer": sizes, "columns": columns, "dtype": dtype_name, "batch": batch}
            key |= {"voices": voices, "cache": cache, "threads": threads, "weight_bytes": probe.weight_bytes()}
            add(key, clock.microseconds(layer))
            del layer


def measure_host(clock, add):
    """The calls by themselves."""
    layer = Layer(SMALLEST, 1, torch.float32, 1, False, clock.device)
    x, weight, bias, _, state = layer.sets[0]
    module = tt.StreamingConvTranspose1d(1, 1, 4, 2, device=clock.device)
    mask = torch.ones(1, dtype=torch.bool, device=clock.device)
    calls = {
        "PyTorch's layer alone": lambda: F.conv_transpose1d(x, weight, bias, 2),
        "PyTorch by hand": lambda: layer.by_hand(0),
        "conv_transpose1d_step": lambda: layer.tconv(0),
        "conv_transpose1d_step with a mask": lambda: tt.conv_transpose1d_step(
            x, weight, bias, state, stride=2, active=mask
        ),
        "StreamingConvTranspose1d": lambda: module(x),
    }
    least = dict.fromkeys(calls, math.inf)
    with module.streaming(1):
        for _, (name, call) in itertools.product(range(ROUNDS), calls.items()):
            call()
            clock.synchronize()
            least[name] = min(least[name], 1e6 * timeit.timeit(call, number=1000) / 1000)
            clock.synchronize()
    add({"part": "host"}, least)


def measure_lengths(clock, add):
    """The first call of each length, by dtype's default, and the second one."""
    ins = 1 + int.from_bytes(random.randbytes(1), "big") % 7  # a layer that no run before has had
    weight = torch.randn(ins, 1, 6, device=clock.device)
    state = torch.zeros(1, 1, 4, device=clock.device)
    lengths = random.sample(range(1, LENGTHS + 1), LENGTHS)
    chunks = {length: torch.randn(1, ins, length, device=clock.device) for length in lengths}
    tconv.reload_environment()  # forgets all plans
    times = [[], []]
    for part, length in itertools.product(times, lengths):
        clock.synchronize()
        start = time.perf_counter()
        tt.conv_transpose1d_step(chunks[length], weight, None, state, stride=2)
        part.append(1e6 * (time.perf_counter() - start))
    first, again = times
    ranks = statistics.quantiles(first, n=100)
    add(
        {"part": "new lengths"},
        {
            "median of first calls": statistics.median(first),
            "99 % of first calls are below": ranks[98],
            "the longest": max(first),
            "median of second calls": statistics.median(again),
        },
    )


def run(options):
    clock = Host(options) if options.device == "cpu" else Gpu()
    found = {
        "machine": clock.sentence,
        "device": clock.device,
        "date": str(datetime.date.today()),
        "tconv": tconv.__version__,
        "torch": torch.__version__,
        "note": options.note,
        "copy_rate": {},
        "results": [],
    }
    known = {}
    path = pathlib.Path(options.out) / f"streaming_{clock.slug}.json.gz"

    def add(key, times):
        name = tuple(map(str, key.values()))
        if name not in known:
            known[name] = {**key, "runs_us": {contender: [] for contender in times}}
            found["results"].append(known[name])
        for contender, microseconds in times.items():
            known[name]["runs_us"][contender].append(round(microseconds, 3))
        run_files.save(path, found)

    for _ in range(options.runs):
        for threads in options.threads if clock.device == "cpu" else [1]:
            torch.set_num_threads(threads)
            rate = clock.copy_rate()
            found["copy_rate"][str(threads)] = max(rate, found["copy_rate"].get(str(threads), 0))
            measure_layers(clock, options, threads, add)
        torch.set_num_threads(1)
        measure_host(clock, add)
        measure_lengths(clock, add)
    return path


# --------------------------------------------------------------------------------------------------------------- report


def median(result, contender):
    return statistics.median(result["runs_us"][contender])


def figure(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def table_of(found, of_model):
    """The layers of a model in one dtype, batch and number of threads."""
    replayed, cold = ([r for r in of_model if r["cache"] == cache] for cache in ("replayed", "cold"))
    head = ["layer", "columns", "replayed, by hand", "tconv", "times", "cold, by hand", "tconv", "times", "floor"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    sums = [0.0] * 5
    for warm, swept in zip(replayed, cold, strict=True):
        ins, outs, width, stride, groups = warm["layer"]
        name = f"{ins}-{outs} k{width} s{stride}{' depthwise' if groups == ins else ''}"
        times = [median(r, name) for r in (warm, swept) for name in CONTENDERS]
        floor = 1e6 * warm["weight_bytes"] / found["copy_rate"][str(warm["threads"])]
        lines.append(line(name, str(warm["columns"]), [*times, floor]))
        sums = [a + b for a, b in zip(sums, [*times, floor], strict=True)]
    return [*lines, line("**sum**", "", sums)]


def line(name, columns, times):
    theirs, ours, cold_theirs, cold_ours, floor = times
    cells = [name, columns, figure(theirs), figure(ours), f"{theirs / ours:.2f}"]
    cells += [figure(cold_theirs), figure(cold_ours), f"{cold_theirs / cold_ours:.2f}", figure(floor)]
    return f"| {' | '.join(cells)} |"


def report(path):
    found = run_files.load(path)
    results = [r for r in found["results"] if "model" in r]
    runs = max(len(times) for r in found["results"] for times in r["runs_us"].values())
    rates = ", ".join(f"{rate / 1e9:.1f} GB/s ({threads})" for threads, rate in found["copy_rate"].items())
    said = [
        found["machine"],
        f"tconv {found['tconv']}, PyTorch {found['torch']}, {found['date']}; called from PyTorch, weights not packed",
        f"{runs} run{'s' * (runs > 1)}, medians; microseconds a step; a copy reads and writes {rates}"
        + (" by threads" if found["device"] == "cpu" else ""),
        *([found["note"]] if found["note"] else []),
        "replayed: from the nearest cache that weights fit. cold: from memory",
        "floor: the weights' bytes at the copy's rate",
    ]
    text = ["# Streams of frames", "", *(textwrap.fill(f"- {line}", 140, subsequent_indent="  ") for line in said), ""]
    of_table = lambda r: (r["threads"], r["model"], r["dtype"], r["voices"], r["batch"])  # noqa: E731
    for key, group in itertools.groupby(sorted(results, key=of_table), of_table):
        threads, model, dtype, voices, batch = key
        count = f"{batch} voices that come and go" if voices else f"batch {batch}"
        on = f", {threads} thread{'s' * (threads > 1)}" if found["device"] == "cpu" else ""
        text += [f"## {MODELS[model][0]}: {dtype}, {count}{on}", "", *table_of(found, list(group)), ""]
    for part, title in (
        ("host", "The host's time of a call, of a layer of one channel"),
        ("new lengths", f"The first call of {LENGTHS} lengths, of a layer that is new"),
    ):
        for result in (r for r in found["results"] if r.get("part") == part):
            text += [f"## {title}", "", "| | µs |", "|---|---:|"]
            text += [f"| {name} | {figure(median(result, name))} |" for name in result["runs_us"]] + [""]
    run_files.report_of(path).write_text("\n".join(text).rstrip("\n") + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    listed = lambda kind: lambda text: [kind(item) for item in text.split(",") if item]  # noqa: E731
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=listed(int), default=[1, 2])
    parser.add_argument("--models", type=listed(str), default=list(MODELS))
    parser.add_argument("--dtypes", type=listed(str), default=["float32", "bfloat16"])
    parser.add_argument("--batches", type=listed(int), default=[1, 32])
    parser.add_argument("--voices", type=int, default=64, help="0: none")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a contender in a round, on the CPU")
    parser.add_argument("--most", type=float, default=2, help="seconds after which a layer gets no further round")
    parser.add_argument("--note", default="", help="a line of the report about the machine")
    parser.add_argument("--out", default=".", help="the directory")
    parser.add_argument("--redraw", metavar="RUN", help="write the report of a run")
    options = parser.parse_args()
    if options.redraw:
        path = pathlib.Path(options.out) / pathlib.Path(options.redraw).name
        run_files.save(path, run_files.load(options.redraw))
    else:
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        with torch.no_grad():
            path = run(options)
    report(path)


if __name__ == "__main__":
    main()
