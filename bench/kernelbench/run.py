#!/usr/bin/env python3
"""KernelBench's seven 2-D transposed convolutions: ModelNew, which has tconv in it, against the nn.ConvTranspose2d
model.

    run.py [--small] [--device cuda|cpu] [--math tf32,strict] [--runs N] [--json FILE] [NAME...]

Both models are made from the same seed, and get the same inputs. First the answers: strict against strict, element by
element within 1e-4 (absolute and relative, KernelBench's), TF32 against PyTorch's strict answer within 1e-2. Then the
times, called from Python as a user would: tconv eager, against PyTorch eager, with cudnn.benchmark, with
torch.compile, and with model and input in channels_last; in one precision on both sides. The figure is the median; a
speed-up is PyTorch's time over tconv's.

--small makes images and batches small enough to try the script on any machine; its speed-ups mean nothing.
"""

import argparse
import contextlib
import gc
import importlib.util
import json
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import eager_timing  # noqa: E402  first: it sets what PyTorch reads when it is imported
import torch  # noqa: E402

PROBLEMS = ("kb57", "kb65", "kb69", "kb71", "kb75", "kb78", "kb81")
RIVALS = ("eager", "benchmark", "compile", "channels_last")
TOLERANCE = {"strict": 1e-4, "tf32": 1e-2}
SEED = 42
SMALL_EXTENT = 16


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_inputs(problem, small, device):
    if small:
        n, channels, h, w = problem.SHAPE
        problem.SHAPE = (min(n, 2), channels, min(h, SMALL_EXTENT), min(w, 2 * SMALL_EXTENT))
    torch.manual_seed(SEED)
    return [x.to(device) for x in problem.get_inputs()]


def make_model(kind, problem, device):
    torch.manual_seed(SEED)
    return kind(*problem.get_init_inputs()).to(device)


def flags(math_name, benchmark=False):
    return torch.backends.cudnn.flags(enabled=True, benchmark=benchmark, allow_tf32=math_name == "tf32")


def largest_excess(ours, theirs, tolerance):
    """Of |ours - theirs| over what is allowed: at most 1 is right. Image by image: the tensors are large."""
    return max(
        ((a - b).abs() / (tolerance + tolerance * b.abs())).max().item() for a, b in zip(ours, theirs, strict=True)
    )


def rival(name, model, inputs):
    """The call that is timed, and the flag for cudnn.benchmark."""
    if name == "compile":
        torch.compiler.reset()
        model = torch.compile(model)
    elif name == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = [x.contiguous(memory_format=torch.channels_last) for x in inputs]
    return lambda: model(*inputs), name in ("benchmark", "channels_last")


def measure(name, math_name, options):
    problem = load(name)
    inputs = make_inputs(problem, options.small, options.device)
    ours = make_model(problem.ModelNew, problem, options.device)
    theirs = make_model(problem.Model, problem, options.device)
    with flags("strict"):
        expected = theirs(*inputs)
    with flags(math_name):
        excess = largest_excess(ours(*inputs), expected, TOLERANCE[math_name])
    del expected
    result = {"problem": name, "math": math_name, "right": excess <= 1, "error_over_tolerance": excess, "ms": {}}
    with flags(math_name):
        result["ms"]["tconv"] = eager_timing.median_ms(lambda: ours(*inputs), options.device, options.runs)
    for rival_name in options.rivals:
        run, benchmark = rival(rival_name, make_model(problem.Model, problem, options.device), inputs)
        eager_timing.displace_cudnn_choice(options.device)
        with flags(math_name, benchmark), warnings_to(result, rival_name):
            result["ms"][rival_name] = eager_timing.median_ms(run, options.device, options.runs)
        del run
        release(options.device)
    return result


@contextlib.contextmanager
def warnings_to(result, name):
    """A rival that cannot run is missing, and says why."""
    try:
        yield
    except Exception as error:
        result.setdefault("missing", {})[name] = str(error).splitlines()[0]


def release(device):
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def speedups(result, rivals):
    return {name: result["ms"][name] / result["ms"]["tconv"] for name in rivals if name in result["ms"]}


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(results, math_name, rivals):
    lines = [f"{math_name}: ms, and PyTorch's time over tconv's", ""]
    lines.append(f"| problem | right | tconv ms | {' | '.join(rivals)} |")
    lines.append("|---|---|" + "---:|" * (1 + len(rivals)))
    rows = [result for result in results if result["math"] == math_name]
    for result in rows:
        faster = speedups(result, rivals)
        cells = [f"{faster[name]:.2f}x" if name in faster else "-" for name in rivals]
        right = "yes" if result["right"] else f"NO: {result['error_over_tolerance']:.1f} x tolerance"
        lines.append(f"| {result['problem']} | {right} | {result['ms']['tconv']:.3f} | {' | '.join(cells)} |")
    means = [geometric_mean(s[name] for r in rows if name in (s := speedups(r, rivals))) for name in rivals]
    lines.append(f"| geometric mean | | | {' | '.join(f'{mean:.2f}x' for mean in means)} |")
    best = geometric_mean(min(speedups(result, rivals).values()) for result in rows)
    return [*lines, "", f"against the best of them on each problem: {best:.2f}x", ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROBLEMS)}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--math", default="tf32,strict")
    parser.add_argument("--rivals", default=",".join(RIVALS), type=lambda text: text.split(","))
    parser.add_argument("--runs", default=20, type=int)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if unknown := set(options.names) - set(PROBLEMS):
        parser.error(f"no {', '.join(sorted(unknown))}")
    about = f"PyTorch {torch.__version__}, {eager_timing.machine_name(options.device)}"
    print(about, flush=True)
    results = []
    with torch.no_grad():
        for math_name in options.math.split(","):
            for name in options.names or PROBLEMS:
                results.append(measure(name, math_name, options))
                release(options.device)
                if options.json:
                    options.json.write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")
            print("\n".join(table(results, math_name, options.rivals)), flush=True)
    return 0 if all(result["right"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
