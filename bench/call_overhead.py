#!/usr/bin/env python3
"""What a call of tconv.torch costs above PyTorch's own operator, on a layer so small that little else is left.

    call_overhead.py [--device cpu|cuda] [--calls N]

Each figure is the least of several rounds, in which the contenders take turns. On CUDA it is the time to enqueue.
"""

import argparse
import timeit

import torch
from torch import nn

import tconv.torch as tt

ROUNDS = 9


def least_us(functions, calls, device):
    """Microseconds a call of each function."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(ROUNDS):
        for name, function in functions.items():
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            best[name] = min(best[name], 1e6 * timeit.timeit(function, number=calls) / calls)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--calls", default=1000, type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.randn(1, 4, 2, 2, device=options.device)
    modules = [kind(4, 4, 2, 2, device=options.device) for kind in (nn.ConvTranspose2d, tt.ConvTranspose2d)]
    weight, bias = modules[0].weight.detach(), modules[0].bias.detach()
    theirs, ours = (
        {
            "function": lambda f=f: f(x, weight, bias, 2),
            "function, gradients wanted": lambda f=f: f(x, modules[0].weight, modules[0].bias, 2),
            "module": lambda m=m: m(x),
            "training": lambda m=m: m(x).sum().backward(),
        }
        for f, m in zip((nn.functional.conv_transpose2d, tt.conv_transpose2d), modules, strict=True)
    )
    print(f"PyTorch {torch.__version__}, {options.device}; us a call")
    for name in theirs:
        with torch.set_grad_enabled(name != "module"):
            times = least_us({"PyTorch": theirs[name], "tconv": ours[name]}, options.calls, options.device)
        before, after = times["PyTorch"], times["tconv"]
        print(f"{name}: PyTorch {before:.1f}, tconv {after:.1f} ({after - before:+.1f})")


if __name__ == "__main__":
    main()
