"""What the tests of frozen layers share."""

import torch
import torch.nn.functional as F
from torch import nn

import tconv.torch as tt

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 1e-2, torch.bfloat16: 8e-2}
LAYERS = [
    (tt.ConvTranspose2d, (8, 6, 3, 2, 1), (2, 8, 5, 6)),
    (tt.ConvTranspose2d, (64, 32, 4, 2, 1), (1, 64, 4, 4)),
    (tt.ConvTranspose2d, (8, 8, 3, 2, 1, 1, 8), (2, 8, 5, 6)),
    (tt.ConvTranspose2d, (8, 4, 3), (8, 5, 6)),
    (tt.ConvTranspose1d, (8, 4, 8, 4, 2), (2, 8, 9)),
]


class Packings:
    """How often weights were packed since this was made."""

    def __init__(self):
        self.before = tt.counters()

    def __int__(self):
        return tt.counters().packings - self.before.packings

    def taken(self):
        return tt.counters().taken - self.before.taken


def frozen_layer(device="cpu", dtype=torch.float32, kind=tt.ConvTranspose2d, arguments=(8, 6, 3, 2, 1)):
    layer = kind(*arguments, device=device, dtype=dtype)
    assert tt.freeze(layer).frozen == [""]
    return layer


def reference(layer, x):
    """PyTorch's answer."""
    one = isinstance(layer, nn.ConvTranspose1d)
    function = F.conv_transpose1d if one else F.conv_transpose2d
    arguments = (layer.stride, layer.padding, layer.output_padding, layer.groups, layer.dilation)
    return function(x, layer.weight, layer.bias, *arguments)


def same(ours, theirs):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.stride() == theirs.stride()
    tolerance = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
