"""tconv's operators in a process without the package, beside PyTorch's: run by test_torch_operators_alone.py, with the
library and a device."""

import itertools
import sys

import torch
import torch.nn.functional as F

library, device = sys.argv[1:]
DTYPES = {torch.float32: 1e-4, torch.float64: 1e-10, torch.float16: 1e-2, torch.bfloat16: 5e-2}
# Of the input and the weight, and groups.
SHAPES = {
    2: [
        ((2, 4, 5, 6), (4, 3, 4, 4), 1),
        ((2, 4, 5, 6), (4, 3, 3, 2), 2),
        ((4, 5, 6), (4, 2, 2, 3), 2),
        ((1, 1, 5, 6), (1, 1, 3, 3), 1),
        ((2, 4, 1, 1), (4, 2, 2, 2), 1),
        ((3, 1, 1, 1), (1, 1, 1, 1), 1),
        ((2, 4, 1, 6), (4, 1, 1, 3), 1),
        ((0, 4, 5, 6), (4, 3, 4, 4), 1),
    ],
    1: [((2, 4, 9), (4, 3, 4), 1), ((4, 9), (4, 3, 1), 2), ((2, 1, 1), (1, 2, 3), 1), ((0, 4, 9), (4, 3, 4), 1)],
    3: [((2, 4, 3, 4, 5), (4, 3, 2, 3, 3), 1), ((2, 4, 1, 1, 1), (4, 2, 2, 2, 2), 2)],
}
# stride, padding, output_padding, dilation, by axis
ARGUMENTS = [((2, 2, 2), (0, 1, 1), (0, 0, 0), (1, 1, 1)), ((2, 1, 2), (1, 0, 1), (1, 0, 1), (1, 2, 1))]
THEIRS = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}  # by axes


def as_it_is(t):
    return t


def channels_last(t):
    return t.contiguous(memory_format=FORMATS[t.dim()]) if t.dim() in FORMATS else t.mT.contiguous().mT


def in_columns(t):
    return t.mT.contiguous().mT


def every_other_element(t):
    return torch.stack([t, t], -1)[..., 0]


def half_of_the_channels(t):
    at = 1 if t.dim() in FORMATS else -2
    return torch.cat([t, t], at).narrow(at, 0, t.shape[at])


def half_of_channels_last(t):
    if t.dim() not in FORMATS:
        return t
    return torch.cat([t, t], 1).contiguous(memory_format=FORMATS[t.dim()])[:, : t.shape[1]]


LAYOUTS = [as_it_is, channels_last, in_columns, half_of_channels_last, every_other_element, half_of_the_channels]


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except RuntimeError as error:
        return error


def check(spatial, x, w, b, stride, padding, output_padding, groups, dilation, tolerance):
    arguments = x, w, b, stride, padding, output_padding, groups, dilation
    theirs = outcome(THEIRS[spatial], *arguments)
    operator = getattr(torch.ops.tconv, f"conv_transpose{spatial}d")
    for _ in range(2):  # planned, and known
        ours = outcome(operator, *arguments)
        assert type(ours) is type(theirs), (ours, theirs)
        if isinstance(ours, RuntimeError):
            text = str(ours).splitlines()[0]  # which not every version passes on
            assert text == str(theirs).splitlines()[0] or "stderr may tell why" in text
            continue
        about = x.dtype, x.shape, x.stride(), w.stride(), ours.stride(), theirs.stride()
        assert ours.stride() == theirs.stride() and ours.shape == theirs.shape, about
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def check_grid():
    for (dtype, tolerance), (spatial, cases) in itertools.product(DTYPES.items(), SHAPES.items()):
        layouts = LAYOUTS if dtype is torch.float32 else LAYOUTS[:4]
        for (shape, weight_shape, groups), of_x, of_w in itertools.product(cases, layouts, LAYOUTS[:4]):
            x = of_x(torch.randn(shape, device=device, dtype=dtype))
            w = of_w(torch.randn(weight_shape, device=device, dtype=dtype))
            b = torch.randn(2 * weight_shape[1] * groups, device=device, dtype=dtype)[::2]
            for number, of_axes in enumerate(ARGUMENTS):
                stride, padding, output_padding, dilation = (list(values[3 - spatial :]) for values in of_axes)
                bias = b if number else None
                check(spatial, x, w, bias, stride, padding, output_padding, groups, dilation, tolerance)


def check_posts():
    """Every kind, with numbers that a locale might read otherwise."""
    x, w, b = torch.randn(2, 3, 4, 5), torch.randn(3, 4, 3, 3), torch.randn(4)
    v, pairs, t = torch.randn(4), torch.rand(2, 4), torch.randn(2, 4, 9, 11)
    kinds = {
        "add_channel": (lambda y: y + v[:, None, None], v),
        "mul_channel": (lambda y: y * v[:, None, None], v),
        "add(0.5)": (lambda y: y + t / 2, t),
        "linear(1.5, -0.25)": (lambda y: 1.5 * y - 0.25, None),
        "clamp(-inf, 0.75)": (lambda y: y.clamp(max=0.75), None),
        "leaky_relu(0.125)": (lambda y: F.leaky_relu(y, 0.125), None),
        "sigmoid": (torch.sigmoid, None),
        "tanh": (torch.tanh, None),
        "silu": (F.silu, None),
        "gelu": (F.gelu, None),
        "gelu_tanh": (lambda y: F.gelu(y, approximate="tanh"), None),
        "mish": (F.mish, None),
        "elu(1.5)": (lambda y: F.elu(y, 1.5), None),
        "softplus": (F.softplus, None),
        "hardswish": (F.hardswish, None),
        "snake": (lambda y: y + pairs[1, :, None, None] * (pairs[0, :, None, None] * y).sin() ** 2, pairs.flatten()),
    }
    arguments = x, w, b, [2, 2], [0, 0], [0, 0], 1, [1, 1]
    moved = [each.to(device) if isinstance(each, torch.Tensor) else each for each in arguments]
    post = torch.ops.tconv.conv_transpose2d_post
    for name, (function, operand) in kinds.items():
        operands = [] if operand is None else [operand]
        expected = function(torch.conv_transpose2d(*arguments))
        for lay in (as_it_is, every_other_element, torch.Tensor.double):  # the last two are copied
            given = [lay(each).to(device) for each in operands]
            if lay is torch.Tensor.double and name.startswith("add("):
                continue
            answer = post(*moved, name, given)
            torch.testing.assert_close(answer.cpu(), expected, rtol=1e-4, atol=1e-5, msg=name)
    both = post(*moved, "mul_channel tanh add(1.0)", [v.to(device), t.to(device)])
    expected = (torch.conv_transpose2d(*arguments) * v[:, None, None]).tanh() + t
    torch.testing.assert_close(both.cpu(), expected, rtol=1e-4, atol=1e-5)
    for text in (
        "",
        "relu",
        "linear(1.0)",
        "linear(1.0, 2.0",
        "linear(1,5, 2.0)",
        "tanh(1.0)",
        "tanh,tanh",
        "tanh " * 9,
    ):
        assert isinstance(outcome(post, *moved, text, []), RuntimeError), text
    for wrong in ([], [v.to(device)] * 2, [t.to(device)], [v.to(device)[1:]]):
        assert isinstance(outcome(post, *moved, "add_channel", wrong), RuntimeError)


def check_what_is_pytorchs():
    """Errors are PyTorch's own, as are dtypes that the library does not have."""
    x, w = torch.randn(2, 3, 4, 5, device=device), torch.randn(3, 4, 3, 3, device=device)
    check(2, x, w, None, [0, 1], [0, 0], [0, 0], 1, [1, 1], 0)
    check(2, x, w[1:], None, [1, 1], [0, 0], [0, 0], 1, [1, 1], 0)
    check(2, x, w, x[0, 0, 0], [1, 1], [0, 0], [0, 0], 1, [1, 1], 0)
    check(2, x, w, None, [1, 1], [0, 0], [5, 5], 1, [1, 1], 0)
    check(2, x, w.double(), None, [1, 1], [0, 0], [0, 0], 1, [1, 1], 0)
    check(2, x.to(torch.complex64), w.to(torch.complex64), None, [1, 1], [0, 0], [0, 0], 1, [1, 1], 1e-4)


def check_threads():
    x, w = torch.randn(2, 3, 40, 50), torch.randn(3, 4, 3, 3)
    one = torch.ops.tconv.conv_transpose2d(x, w)
    torch.set_num_threads(2)
    assert torch.equal(one, torch.ops.tconv.conv_transpose2d(x, w))


torch.manual_seed(0)
torch.backends.cudnn.allow_tf32 = False
torch.set_num_threads(1)
torch.ops.load_library(library)
check_grid()
check_posts()
check_what_is_pytorchs()
check_threads()
assert "tconv" not in sys.modules
print("right")
