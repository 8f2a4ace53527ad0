#!/usr/bin/env python3
"""Whole networks before and after tconv.torch.replace: a U-Net, a DCGAN generator and a decoder as SAM's.

    end_to_end.py [--small] [--device cuda|cpu] [--math tf32,strict] [--runs N] [--steps N] [--json FILE] [NAME...]

For each network: inference, a training step (forward, backward and an SGD step), and the losses of so many training
steps from the same seed on the same data, which have to agree. Before and after are two copies of one model, called
from Python as a user would, in one precision, with cudnn.benchmark on for both. A speed-up is the time before over the
time after.

--small makes networks and images small enough to try the script on any machine; its speed-ups mean nothing.
"""

import argparse
import copy
import itertools
import json
import pathlib
import sys

import eager_timing  # first: it sets what PyTorch reads when it is imported
import torch
from torch import nn

import tconv.torch

SEED = 42
# Of the losses of the two runs, relative. Training is chaotic: rounding grows from step to step.
LOSS_TOLERANCE = {"strict": 1e-2, "tf32": 5e-2}
LEARNING_RATE = 1e-3


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Four times down by pooling, four times up by 2 x 2 transposed convolutions of stride 2."""

    def __init__(self, channels=64, classes=2):
        super().__init__()
        widths = [channels << level for level in range(5)]
        self.down = nn.ModuleList(double_conv(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(double_conv(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        skipped = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            skipped.append(x)
        skipped.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skipped.pop(), up(x)], 1))
        return self.head(x)


def dcgan(channels=64):
    """The generator: 100 numbers to 64 x 64 pixels, all of it transposed convolutions."""
    widths = [channels * 8, channels * 4, channels * 2, channels]
    layers = [nn.ConvTranspose2d(100, widths[0], 4, 1, 0, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    for a, b in itertools.pairwise(widths):
        layers += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1, bias=False), nn.Tanh())


class SamDecoder(nn.Module):
    """The image side of a mask decoder: attention over the pixels of the embedding, then four times larger by two
    transposed convolutions, then masks as products with a few tokens."""

    def __init__(self, channels=256, tokens=4):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(tokens, channels))
        self.attention = nn.TransformerDecoderLayer(channels, 8, 8 * channels, dropout=0, batch_first=True)
        self.up1 = nn.ConvTranspose2d(channels, channels // 4, 2, 2)
        self.norm = nn.GroupNorm(1, channels // 4)
        self.up2 = nn.ConvTranspose2d(channels // 4, channels // 8, 2, 2)
        self.project = nn.Linear(channels, channels // 8)

    def forward(self, x):
        tokens = self.attention(self.tokens.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2))
        x = nn.functional.gelu(self.up2(nn.functional.gelu(self.norm(self.up1(x)))))
        return torch.einsum("btc,bchw->bthw", self.project(tokens), x)


# The model and the shape of its input, at full size and small.
NETWORKS = {
    "unet": ((lambda: UNet(), (8, 3, 256, 256)), (lambda: UNet(4), (1, 3, 32, 32))),
    "dcgan": ((lambda: dcgan(), (128, 100, 1, 1)), (lambda: dcgan(4), (2, 100, 1, 1))),
    "sam": ((lambda: SamDecoder(), (8, 256, 64, 64)), (lambda: SamDecoder(32), (1, 32, 8, 8))),
}


class Training:
    """Steps towards a fixed random target."""

    def __init__(self, model, x):
        self.model, self.x = model.train(), x
        self.optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
        with torch.no_grad():
            shape = copy.deepcopy(model)(x).shape
        self.target = torch.rand(shape, device=x.device, generator=torch.Generator(x.device).manual_seed(SEED))

    def step(self):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(self.x), self.target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def losses(model, x, steps):
    training = Training(copy.deepcopy(model), x)
    return torch.stack([training.step() for _ in range(steps)]).cpu()


def measure(name, math_name, options):
    make, shape = NETWORKS[name][options.small]
    torch.manual_seed(SEED)
    before = make().to(options.device)
    after = copy.deepcopy(before)
    replaced = tconv.torch.replace(after)
    x = torch.rand(shape, device=options.device)
    result = {"network": name, "math": math_name, "swapped": replaced.swapped, "left": replaced.left, "ms": {}}
    for which, model in (("before", before), ("after", after)):
        eager_timing.displace_cudnn_choice(options.device)
        inference = copy.deepcopy(model).eval()
        with torch.no_grad():
            result["ms"][f"inference {which}"] = eager_timing.median_ms(
                lambda run=inference: run(x), options.device, options.runs
            )
        training = Training(copy.deepcopy(model), x)
        result["ms"][f"step {which}"] = eager_timing.median_ms(training.step, options.device, options.runs)
    first, second = (losses(model, x, options.steps) for model in (before, after))
    result["losses"] = {"before": first.tolist(), "after": second.tolist()}
    result["loss_difference"] = ((first - second).abs() / first.abs()).max().item()
    result["losses_agree"] = result["loss_difference"] <= LOSS_TOLERANCE[math_name]
    return result


def line(result):
    parts = []
    for what in ("inference", "step"):
        before, after = (result["ms"][f"{what} {which}"] for which in ("before", "after"))
        parts.append(f"{what} {before:.3f} -> {after:.3f} ms ({before / after:.2f}x)")
    agree = "losses agree" if result["losses_agree"] else "LOSSES DIFFER"
    return f"{result['network']} {result['math']}: {', '.join(parts)}, {agree} to {result['loss_difference']:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--math", default="tf32,strict")
    parser.add_argument("--runs", default=30, type=int)
    parser.add_argument("--steps", default=100, type=int)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if unknown := set(options.names) - set(NETWORKS):
        parser.error(f"no {', '.join(sorted(unknown))}")
    about = f"PyTorch {torch.__version__}, {eager_timing.machine_name(options.device)}"
    print(about, flush=True)
    results = []
    for math_name in options.math.split(","):
        for name in options.names or NETWORKS:
            with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=math_name == "tf32"):
                results.append(measure(name, math_name, options))
            print(line(results[-1]), flush=True)
            if options.json:
                options.json.write_text(json.dumps({"machine": about, "results": results}, indent=1) + "\n")
    return 0 if all(result["losses_agree"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
