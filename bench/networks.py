"""The networks of end_to_end.py, at full size and small enough to try the script.

unet: four levels of double convolutions, up by 2 x 2 transposed convolutions of stride 2, what comes up joined with
what went down. unet512: the same for images of 512 x 512 pixels. unet3d: the same for volumes. dcgan: a generator
of 64 x 64 pixels, all of it transposed convolutions. sam: the upscaling of a mask decoder as Segment Anything has
it, two 2 x 2 transposed convolutions of stride 2 with LayerNorm2d and GELU, and the masks as products with a few
vectors. pix2pix: its generator for 256 x 256 pixels, without dropout, which would tell the losses apart. hifigan:
the generator of HiFi-GAN (V1), in one dimension, without weight normalisation; it has one layout. codec: the
decoder of a neural codec, in one dimension too: that of DAC for 44.1 kHz (Kumar et al., High-Fidelity Audio
Compression with Improved RVQGAN, 2023), without weight normalisation, on the 32 frames of its training. nnunet: the
decoder of nnU-Net in two dimensions, for patches of 512 x 512 pixels; what an encoder would hand it is constant.
"""

import dataclasses
import functools
import itertools
import typing

import torch
import torch.nn.functional as F
from torch import nn

CONVOLUTIONS, NORMS = {2: nn.Conv2d, 3: nn.Conv3d}, {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
TRANSPOSED, POOLS = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}, {2: F.max_pool2d, 3: F.max_pool3d}


def double_convolution(inputs, outputs, axes):
    layers = []
    for channels in (inputs, outputs):
        layers += [CONVOLUTIONS[axes](channels, outputs, 3, padding=1, bias=False), NORMS[axes](outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width, axes=2, classes=2):
        super().__init__()
        widths = [width << level for level in range(5)]
        double = functools.partial(double_convolution, axes=axes)
        self.down = nn.ModuleList(map(double, [3, *widths[:-1]], widths))
        self.up = nn.ModuleList(TRANSPOSED[axes](2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.merge = nn.ModuleList(double(2 * w, w) for w in reversed(widths[:-1]))
        self.head = CONVOLUTIONS[axes](width, classes, 1)
        self.pool = POOLS[axes]

    def forward(self, x):
        skipped = []
        for block in self.down[:-1]:
            skipped.append(block(x))
            x = self.pool(skipped[-1], 2)
        x = self.down[-1](x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skipped.pop(), up(x)], dim=1))
        return self.head(x)


def dcgan(width, latent=100):
    widths = [8 * width, 4 * width, 2 * width, width]
    layers = [nn.ConvTranspose2d(latent, widths[0], 4, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


class LayerNorm2d(nn.Module):
    """Over the channels of each pixel."""

    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        off = x - x.mean(dim=1, keepdim=True)
        normal = off * torch.rsqrt(off.square().mean(dim=1, keepdim=True) + 1e-6)
        return normal * self.weight[:, None, None] + self.bias[:, None, None]


class SamUpscaling(nn.Module):
    def __init__(self, width, masks=4):
        super().__init__()
        self.upscale = nn.Sequential(
            nn.ConvTranspose2d(width, width // 4, 2, stride=2),
            LayerNorm2d(width // 4),
            nn.GELU(),
            nn.ConvTranspose2d(width // 4, width // 8, 2, stride=2),
            nn.GELU(),
        )
        self.masks = nn.Parameter(torch.randn(masks, width // 8))

    def forward(self, x):
        return torch.einsum("mc,nchw->nmhw", self.masks, self.upscale(x))


class Pix2Pix(nn.Module):
    """Each level halves the image; on the way up it is joined with what came down."""

    def __init__(self, width, levels=8):
        super().__init__()
        widths = [min(width << level, 8 * width) for level in range(levels)]
        self.down = nn.ModuleList([nn.Conv2d(3, width, 4, 2, 1)])
        for inputs, outputs in itertools.pairwise(widths):
            last = len(self.down) == levels - 1  # one pixel, which has no deviation
            norm = [] if last else [nn.BatchNorm2d(outputs)]
            self.down.append(nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(inputs, outputs, 4, 2, 1, bias=last), *norm))
        self.up = nn.ModuleList()
        for inputs, outputs in itertools.pairwise(reversed(widths)):
            joined = inputs if not self.up else 2 * inputs
            layer = nn.ConvTranspose2d(joined, outputs, 4, 2, 1, bias=False)
            self.up.append(nn.Sequential(nn.ReLU(), layer, nn.BatchNorm2d(outputs)))
        self.head = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(2 * width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
        kept.pop()
        for block in self.up:
            x = torch.cat([kept.pop(), block(x)], dim=1)
        return self.head(x)


class ResidualBlock1d(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        self.wide = nn.ModuleList(nn.Conv1d(channels, channels, kernel, padding="same", dilation=d) for d in (1, 3, 5))
        self.plain = nn.ModuleList(nn.Conv1d(channels, channels, kernel, padding="same") for _ in range(3))

    def forward(self, x):
        for wide, plain in zip(self.wide, self.plain, strict=True):
            x = x + plain(F.leaky_relu(wide(F.leaky_relu(x, 0.1)), 0.1))
        return x


class HifiGan(nn.Module):
    """80 bands of a spectrogram to 256 samples for each of its frames."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv1d(80, width, 7, padding="same")
        widths = [width >> level for level in range(5)]
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(inputs, outputs, 2 * rate, rate, rate // 2)
            for (inputs, outputs), rate in zip(itertools.pairwise(widths), (8, 8, 2, 2), strict=True)
        )
        self.mixed = nn.ModuleList(
            nn.ModuleList(ResidualBlock1d(channels, kernel) for kernel in (3, 7, 11)) for channels in widths[1:]
        )
        self.last = nn.Conv1d(widths[-1], 1, 7, padding="same")

    def forward(self, x):
        x = self.first(x)
        for up, blocks in zip(self.up, self.mixed, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(block(x) for block in blocks) / len(blocks)
        return torch.tanh(self.last(F.leaky_relu(x)))


class Snake(nn.Module):
    """x + sin(a x)^2 / a, with one a for each channel."""

    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x):
        return x + torch.sin(self.alpha * x).square() / (self.alpha + 1e-9)


class ResidualUnit1d(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.block = nn.Sequential(
            Snake(channels),
            nn.Conv1d(channels, channels, 7, padding="same", dilation=dilation),
            Snake(channels),
            nn.Conv1d(channels, channels, 1),
        )

    def forward(self, x):
        return x + self.block(x)


def codec_decoder(width, latent=1024):
    """A frame of the latent to 512 samples."""
    widths = [width >> level for level in range(5)]
    layers = [nn.Conv1d(latent, width, 7, padding="same")]
    for (inputs, outputs), rate in zip(itertools.pairwise(widths), (8, 8, 4, 2), strict=True):
        layers += [Snake(inputs), nn.ConvTranspose1d(inputs, outputs, 2 * rate, rate, rate // 2)]
        layers += [ResidualUnit1d(outputs, dilation) for dilation in (1, 3, 9)]
    return nn.Sequential(*layers, Snake(widths[-1]), nn.Conv1d(widths[-1], 1, 7, padding="same"), nn.Tanh())


def normed_convolution(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.InstanceNorm2d(outputs, affine=True), nn.LeakyReLU(0.01)
    )


class NnUNetDecoder(nn.Module):
    def __init__(self, width, levels=8, classes=4):
        super().__init__()
        widths = [min(width << level, 16 * width) for level in reversed(range(levels))]
        pairs = list(itertools.pairwise(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(inputs, outputs, 2, stride=2) for inputs, outputs in pairs)
        self.merge = nn.ModuleList(
            nn.Sequential(normed_convolution(2 * w, w), normed_convolution(w, w)) for w in widths[1:]
        )
        self.head = nn.Conv2d(width, classes, 1)
        for i, channels in enumerate(widths[1:]):
            self.register_buffer(f"encoded_{i}", torch.randn(1, channels, 1, 1))

    def forward(self, x):
        for i, (up, merge) in enumerate(zip(self.up, self.merge, strict=True)):
            x = up(x)
            x = merge(torch.cat([x, getattr(self, f"encoded_{i}").to(x.dtype).expand_as(x)], dim=1))
        return self.head(x)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=2e-4, betas=(0.5, 0.999))


@dataclasses.dataclass(frozen=True)
class Network:
    make: typing.Callable[[int], nn.Module]
    optimizer: typing.Callable
    width: int
    input_shape: tuple[int, ...]
    small_width: int
    small_shape: tuple[int, ...]

    def has_layout(self, layout):
        return layout == "nchw" or len(self.input_shape) >= 4


NETWORKS = {
    "unet": Network(UNet, sgd, 64, (8, 3, 256, 256), 4, (2, 3, 32, 32)),
    "unet512": Network(UNet, sgd, 64, (8, 3, 512, 512), 4, (2, 3, 32, 32)),
    "unet3d": Network(functools.partial(UNet, axes=3), sgd, 32, (2, 3, 128, 128, 128), 4, (2, 3, 16, 16, 16)),
    "dcgan": Network(dcgan, adam, 64, (128, 100, 1, 1), 4, (4, 100, 1, 1)),
    "sam": Network(SamUpscaling, sgd, 256, (16, 256, 64, 64), 32, (2, 32, 8, 8)),
    "pix2pix": Network(Pix2Pix, adam, 64, (16, 3, 256, 256), 2, (2, 3, 256, 256)),
    "hifigan": Network(HifiGan, adam, 512, (16, 80, 32), 16, (2, 80, 2)),
    "codec": Network(codec_decoder, adam, 1536, (16, 1024, 32), 16, (2, 1024, 2)),
    "nnunet": Network(NnUNetDecoder, sgd, 32, (12, 512, 4, 4), 2, (2, 32, 1, 1)),
}
