#!/usr/bin/env python3
"""What freeze gains: the time of a layer with weights packed in every call and packed once, beside PyTorch's.

    freeze_gain.py [--device cpu|cuda] [--threads N] [--dtype float32]

Layers of many weights and few pixels, for which packing counts. Each figure is the least of several rounds, in which
the contenders take turns; on CUDA it is the time until the device is done.
"""

import argparse
import timeit

import torch
from torch import nn

import tconv.torch as tt

ROUNDS = 9
SECONDS = 0.2  # of a contender in a round
# Name, batch, height and width, and what ConvTranspose2d takes.
LAYERS = [
    ("2048 to 256, 8 x 6", 1, 8, 6, (2048, 256, 4, 2, 1)),
    ("2048 to 256, 8 x 6", 8, 8, 6, (2048, 256, 4, 2, 1)),
    ("1024 to 512, 4 x 4", 1, 4, 4, (1024, 512, 4, 2, 1)),
    ("1024 to 512, 4 x 4", 8, 4, 4, (1024, 512, 4, 2, 1)),
    ("DCGAN's first, 100 to 512, 1 x 1", 1, 1, 1, (100, 512, 4, 1, 0)),
    ("DCGAN's first, 100 to 512, 1 x 1", 64, 1, 1, (100, 512, 4, 1, 0)),
]


def least_seconds(contenders, device):
    """Seconds a call of each."""
    best = dict.fromkeys(contenders, float("inf"))

    def time(function, calls):
        start = timeit.default_timer()
        for _ in range(calls):
            function()
        if device == "cuda":
            torch.cuda.synchronize()
        return (timeit.default_timer() - start) / calls

    calls = {name: max(1, int(SECONDS / max(time(f, 2), time(f, 2)))) for name, f in contenders.items()}
    for _ in range(ROUNDS):
        for name, function in contenders.items():
            best[name] = min(best[name], time(function, calls[name]))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", default=1, type=int)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    more = dict(device=options.device, dtype=getattr(torch, options.dtype))
    print(f"PyTorch {torch.__version__}, {options.device}, {options.threads} threads, {options.dtype}; us a call")
    for name, batch, height, width, arguments in LAYERS:
        theirs = nn.ConvTranspose2d(*arguments, **more)
        packing, frozen = (tt.ConvTranspose2d(*arguments, **more) for _ in range(2))
        for layer in (packing, frozen):
            layer.load_state_dict(theirs.state_dict())
        assert tt.freeze(frozen).frozen
        x = torch.randn(batch, arguments[0], height, width, **more)
        contenders = {"PyTorch": theirs, "tconv": packing, "frozen": frozen}
        with torch.no_grad():
            assert torch.equal(packing(x), frozen(x))
            times = least_seconds({name: (lambda f=f, x=x: f(x)) for name, f in contenders.items()}, options.device)
        text = ", ".join(f"{name} {1e6 * seconds:.0f}" for name, seconds in times.items())
        print(f"{name}, batch {batch}: {text} ({times['tconv'] / times['frozen']:.2f} times as fast)")


if __name__ == "__main__":
    main()
