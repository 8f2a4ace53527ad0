"""What the tests of calls share."""

import warnings

import torch
from torch import nn

import tconv.torch as tt
from tconv._plan import forget_plans
from tconv.torch import _compute, _native

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 1e-2, torch.bfloat16: 8e-2}
PAIRS = ("stride", "padding", "output_padding", "dilation")
ARGUMENTS = [
    dict(),
    dict(stride=2, padding=1, output_padding=1),
    dict(stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(2, 1)),
    dict(stride=[3, 3], dilation=2),
    dict(groups=2, stride=2),
    dict(groups=4),
]


def OP(input, weight, bias=None, **arguments):
    """The operator by itself, which takes pairs alone."""
    return torch.ops.tconv.conv_transpose2d.default(input, weight, bias, **as_pairs(arguments))


def as_pairs(arguments):
    return {k: [v, v] if k in PAIRS and isinstance(v, int) else v for k, v in arguments.items()}


def taken():
    return _compute.counts.taken + _native.taken()


class Calls:
    """What tconv computed: how often, and the layers, the one that was planned last at the end."""

    def __init__(self):
        forget_plans()
        self.before = taken()

    def __len__(self):
        return taken() - self.before

    def __getitem__(self, index):
        return list(_compute.layers._values.values())[index]

    def clear(self):
        self.before = taken()


def tensors(device="cpu", dtype=torch.float32, x=(2, 4, 5, 6), weight=(4, 3, 3, 2), bias=True, groups=1):
    made = [torch.randn(shape, device=device, dtype=torch.float64) for shape in (x, weight)]
    made.append(torch.randn(weight[1] * groups, device=device, dtype=torch.float64) if bias else None)
    return [None if t is None else t.to(dtype) for t in made]


def same(ours, theirs, dtype=None):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.device == theirs.device
    assert ours.stride() == theirs.stride()
    tolerance = TOLERANCE[dtype or ours.dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def outcome(function, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(**arguments)
        except Exception as error:
            return type(error), str(error)


def pair_of_modules(device, *arguments, **more):
    """Ours and PyTorch's with the same parameters."""
    arguments = arguments or (4, 3, 3)
    ours, theirs = (kind(*arguments, **more, device=device) for kind in (tt.ConvTranspose2d, nn.ConvTranspose2d))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


class Scaled(nn.ConvTranspose2d):
    def forward(self, input, output_size=None):
        return 2 * super().forward(input, output_size)


X, W, B = tensors()


def difference(before):
    """What the counters have counted since before."""
    now = tt.counters()
    causes = {cause: n - before.passed_on.get(cause, 0) for cause, n in now.passed_on.items()}
    return now.taken - before.taken, {cause: n for cause, n in causes.items() if n}
