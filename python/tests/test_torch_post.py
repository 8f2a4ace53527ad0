"""Post-ops of tensors: with the layer and after it they are the same, gradients are right, and what is refused."""

import functools
import math

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from torch_values import DTYPES, difference, tensors  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv import post  # noqa: E402

C = 3
CALL = dict(stride=2, padding=1)
PLACES = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}


def wide(v, y):
    return v.to(y.dtype).reshape(-1, *[1] * (y.dim() - 2))


# Each makes a step and PyTorch's function for it, given what makes tensors of channels and one like the result.
KINDS = {
    "add_channel": lambda v, t: (post.add_channel(v), lambda y: y + wide(v, y)),
    "mul_channel": lambda v, t: (post.mul_channel(v), lambda y: y * wide(v, y)),
    "add": lambda v, t: (post.add(t, 0.5), lambda y: y + 0.5 * t.to(y.dtype)),
    "linear": lambda v, t: (post.linear(0.5, -1), lambda y: y * 0.5 - 1),
    "clamp": lambda v, t: (post.clamp(-1, 2), lambda y: y.clamp(-1, 2)),
    "minimum": lambda v, t: (post.clamp(-math.inf, 0.5), lambda y: y.clamp(max=0.5)),
    "relu": lambda v, t: (post.relu(), F.relu),
    "leaky_relu": lambda v, t: (post.leaky_relu(0.2), lambda y: F.leaky_relu(y, 0.2)),
    "sigmoid": lambda v, t: (post.sigmoid(), torch.sigmoid),
    "tanh": lambda v, t: (post.tanh(), torch.tanh),
    "silu": lambda v, t: (post.silu(), F.silu),
    "gelu": lambda v, t: (post.gelu(), F.gelu),
    "gelu tanh": lambda v, t: (post.gelu("tanh"), lambda y: F.gelu(y, approximate="tanh")),
    "mish": lambda v, t: (post.mish(), F.mish),
    "elu": lambda v, t: (post.elu(0.5), lambda y: F.elu(y, 0.5)),
    "softplus": lambda v, t: (post.softplus(), lambda y: torch.logaddexp(y, torch.zeros_like(y))),
    "hardswish": lambda v, t: (post.hardswish(), lambda y: y * (y + 3).clamp(0, 6) / 6),
    "snake": lambda v, t: (post.snake(v, 1 / v), lambda y: y + torch.sin(wide(v, y) * y) ** 2 / wide(v, y)),
}
SEVERAL = ["mul_channel", "add_channel", "add", "snake", "leaky_relu", "linear", "clamp", "mish"]


def result_shape(spatial=2):
    return (2, C, *(5, 9, 10)[-spatial:])


def layer(device, dtype, spatial=2):
    """Integers, whose sums are exact in every dtype."""
    x = torch.randint(-2, 3, (2, 4, *(3, 5, 6)[-spatial:]), device=device).to(dtype)
    weight = torch.randint(-1, 2, (4, C, *(3, 3, 2)[-spatial:]), device=device).to(dtype)
    return [x, weight, torch.randint(-3, 4, (C,), device=device).to(dtype)]


def operands(device, dtype, spatial=2):
    shape = result_shape(spatial)
    v = torch.rand(C, device=device, dtype=torch.float64 if dtype is torch.float64 else torch.float32) + 0.5
    return v, torch.randint(-3, 4, shape, device=device).to(dtype)


def exactly(arguments, spatial=2):
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spatial - 1]
    return function(*(t.double() for t in arguments), **CALL)


def fused_calls(function):
    """Its answer, and how many calls computed post-ops."""
    before = tt.counters()
    answer = function()
    assert difference(before)[1] == {}
    return answer, tt.counters().fused - before.fused


def close(y, expected, steps=1):
    """To the rounding of the dtype, and some units of the type of sums for each step."""
    of_sums = 53 if y.dtype is torch.float64 else 24
    tolerance = 2.0 ** -PLACES[y.dtype] + steps * 2.0 ** (4 - of_sums)
    assert y.shape == expected.shape
    assert ((y.double() - expected).abs() <= tolerance * (expected.abs() + 1)).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(device, kind, dtype):
    arguments = layer(device, dtype)
    v, t = operands(device, dtype)
    step, function = KINDS[kind](v, t)
    expected = function(exactly(arguments))
    y, count = fused_calls(lambda: tt.conv_transpose2d(*arguments, **CALL, post=[step]))
    assert count == 1 and y.dtype == dtype and not y.requires_grad
    close(y, expected)
    weight = arguments[1].clone().requires_grad_()
    z, count = fused_calls(lambda: tt.conv_transpose2d(arguments[0], weight, arguments[2], **CALL, post=[step]))
    assert count == 0 and z.dtype == dtype and z.requires_grad and z.stride() == y.stride()
    close(z.detach(), expected)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lists(device, dtype, spatial):
    arguments = layer(device, dtype, spatial)
    v, t = operands(device, dtype, spatial)
    function = (tt.conv_transpose1d, tt.conv_transpose2d, tt.conv_transpose3d)[spatial - 1]
    expected, steps = exactly(arguments, spatial), []
    for name in SEVERAL:
        step, formula = KINDS[name](v, t)
        steps.append(step)
        expected = formula(expected)
        y, count = fused_calls(lambda: function(*arguments, **CALL, post=steps))
        assert count == 1
        close(y, expected, 4 ** len(steps))
        one = function(
            arguments[0][0], *arguments[1:], **CALL, post=[KINDS[n](v, t[0])[0] for n in SEVERAL[: len(steps)]]
        )
        assert torch.equal(one, y[0])


@pytest.mark.parametrize("channels_last", [False, True])
def test_an_addend_may_lie_in_any_way(device, channels_last):
    x, weight, bias = layer(device, torch.float32)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    z = tt.conv_transpose2d(x, weight, bias, **CALL)
    n, c, h, w = z.shape
    t = torch.randint(-3, 4, z.shape, device=device).float()
    memories = [
        torch.empty(n, c, h, 2 * w, device=device)[..., ::2],
        torch.empty(n, c + 2, h, w, device=device)[:, 1:-1],
        torch.empty(n, h, w, c, device=device).permute(0, 3, 1, 2),
        torch.empty(n, h, w, c + 3, device=device).permute(0, 3, 1, 2)[:, :c],
    ]
    for addend in [*(memory.copy_(t) for memory in memories), t[:1, :, :1, :1].expand_as(t)]:
        steps = [post.add(addend), post.relu()]
        y, count = fused_calls(functools.partial(tt.conv_transpose2d, x, weight, bias, **CALL, post=steps))
        assert count == 1 and torch.equal(y, F.relu(z + addend)) and y.stride() == z.stride()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(device, kind):
    """By finite differences, of everything that is a tensor."""
    x, weight, bias = (t.requires_grad_() for t in tensors(device, torch.float64, (1, 2, 2, 3), (2, C, 3, 2)))
    v = (torch.rand(C, device=device, dtype=torch.float64) + 0.5).requires_grad_()
    shape = F.conv_transpose2d(x, weight, bias, **CALL).shape
    t = torch.randn(shape, device=device, dtype=torch.float64).requires_grad_()

    def function(x, weight, bias, v, t):
        return tt.conv_transpose2d(x, weight, bias, **CALL, post=[KINDS[kind](v, t)[0], post.linear(2, 1)])

    assert torch.autograd.gradcheck(function, (x, weight, bias, v, t))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_are_those_of_the_functions(device, dtype):
    arguments = [t.requires_grad_() for t in layer(device, dtype)]
    v, t = operands(device, dtype)
    v.requires_grad_()
    t.requires_grad_()
    inputs = [*arguments, v, t]
    steps = [KINDS[name](v, t) for name in SEVERAL[:5]]
    y = tt.conv_transpose2d(*arguments, **CALL, post=[step for step, _ in steps])
    y.sum().backward()
    found = [tensor.grad.double() for tensor in inputs]
    doubles = [tensor.detach().double().requires_grad_() for tensor in inputs]
    z = F.conv_transpose2d(*doubles[:3], **CALL)
    for name in SEVERAL[:5]:
        z = KINDS[name](doubles[3], doubles[4])[1](z)
    z.sum().backward()
    for ours, theirs in zip(found, doubles, strict=True):
        scale = theirs.grad.abs().max()
        assert (ours - theirs.grad).abs().max() <= scale * 2.0 ** (4 - PLACES[dtype])


def test_operands_alone_may_want_gradients(device):
    arguments = layer(device, torch.float32)
    v, _ = operands(device, torch.float32)
    y, count = fused_calls(
        lambda: tt.conv_transpose2d(*arguments, **CALL, post=[post.mul_channel(v.requires_grad_()), post.tanh()])
    )
    assert count == 0 and y.requires_grad
    with torch.no_grad():
        z, count = fused_calls(lambda: tt.conv_transpose2d(*arguments, **CALL, post=[post.mul_channel(v), post.tanh()]))
    assert count == 1
    torch.testing.assert_close(y, z, rtol=1e-6, atol=1e-6)


def test_who_looks_on_sees_the_layer(device):
    """Modes, transforms, tracing and torch.compile; the numbers are the same."""
    arguments = layer(device, torch.float32)
    v, _ = operands(device, torch.float32)

    def call(x):
        steps = [post.mul_channel(v), post.relu()]
        return tt.conv_transpose2d(x, *arguments[1:], **CALL, post=steps)

    expected, count = fused_calls(lambda: call(arguments[0]))
    assert count == 1
    with FlopCounterMode(display=False) as flops:
        seen = call(arguments[0])
    assert flops.get_total_flops() > 0
    mapped = torch.vmap(call)(arguments[0][:, None])[:, 0]
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)(arguments[0])
    traced = torch.jit.trace(call, arguments[0])(arguments[0])
    for y in (seen, mapped, compiled, traced):
        torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-6)


def test_autocast(device):
    arguments = layer(device, torch.float32)
    v, t = operands(device, torch.float32)
    with torch.autocast(device, torch.bfloat16):
        y, count = fused_calls(lambda: tt.conv_transpose2d(*arguments, **CALL, post=[post.mul_channel(v), post.tanh()]))
        z, apart = fused_calls(lambda: tt.conv_transpose2d(*arguments, **CALL, post=[post.add(t), post.tanh()]))
    assert (count, apart) == (1, 0) and y.dtype == z.dtype == torch.bfloat16
    close(y, torch.tanh(exactly(arguments) * wide(v, exactly(arguments))))
    close(z, torch.tanh(exactly(arguments) + t))


def test_what_tconv_has_not_is_pytorchs(device):
    x, weight, _ = layer(device, torch.float32)
    before = tt.counters()
    y = tt.conv_transpose2d(x.to(torch.complex64), weight.to(torch.complex64), **CALL, post=[post.linear(2, 1)])
    assert torch.equal(y.real, 2 * F.conv_transpose2d(x, weight, **CALL) + 1) and y.is_complex()
    assert tt.counters().fused == before.fused and tt.counters().passed_on != before.passed_on


def test_an_empty_list_is_no_list(device, calls):
    arguments = layer(device, torch.float32)
    y = tt.conv_transpose2d(*arguments, **CALL)
    for none in (None, [], ()):
        assert torch.equal(tt.conv_transpose2d(*arguments, **CALL, post=none), y)


def test_explain(device):
    arguments = layer(device, torch.float32)
    answer = tt.explain(tt.conv_transpose2d, *arguments, **CALL, post=[post.relu()])
    assert answer.taken and answer.why == ""
    arguments[1].requires_grad_()
    answer = tt.explain(tt.conv_transpose2d, *arguments, **CALL, post=[post.relu()])
    assert answer.taken and "computed by PyTorch" in answer.why


FULL = torch.zeros(result_shape())
REFUSED = [
    ("post", lambda: post.relu()),
    ("post[1]", lambda: [post.relu(), torch.relu]),
    ("post_count", lambda: [post.relu()] * 9),
    ("post[0].beta", lambda: [post.clamp(2, 1)]),
    ("post[0].alpha", lambda: [post.leaky_relu(math.nan)]),
    ("post[1].kind", lambda: [post.add(FULL), post.add(FULL)]),
    ("post[0]", lambda: [post.add(FULL[:1])]),
    ("post[0]", lambda: [post.add(FULL[0])]),
    ("post[0]", lambda: [post.add(FULL.double())]),
    ("post[0]", lambda: [post.add(FULL.to("meta"))]),
    ("post[0]", lambda: [post.add(FULL.int())]),
    ("post[1]", lambda: [post.relu(), post.mul_channel(torch.ones(4))]),
    ("post[0]", lambda: [post.mul_channel(torch.ones(1))]),
    ("post[0]", lambda: [post.mul_channel(torch.ones(C, dtype=torch.float64))]),
    ("post[0]", lambda: [post.mul_channel([1.0, 2.0, 3.0])]),
    ("post[0].b", lambda: [post.snake(torch.ones(C), torch.ones(C, 1))]),
]


@pytest.mark.parametrize("with_graph", [False, True])
def test_nan_and_infinities(device, with_graph):
    x = torch.tensor([math.nan, -math.inf, math.inf], device=device).reshape(1, 1, 1, 3)
    weight = torch.ones(1, 1, 1, 1, device=device, requires_grad=with_graph)
    v, t = torch.ones(1, device=device), torch.zeros(1, 1, 1, 3, device=device)
    for name, make in KINDS.items():
        step, _ = make(v, t)
        y = tt.conv_transpose2d(x, weight, post=[step]).flatten()
        assert y[0].isnan(), name
        if name == "relu":
            assert y[1] == 0 and y[2] == math.inf
        if name in ("silu", "gelu", "gelu tanh", "mish", "hardswish") and not with_graph:
            assert y[1] == 0 and y[1].signbit() and y[2] == math.inf, name


@pytest.mark.parametrize("with_graph", [False, True])
@pytest.mark.parametrize("field, make", REFUSED, ids=[f"{i} {each[0]}" for i, each in enumerate(REFUSED)])
def test_what_is_refused(field, make, with_graph):
    x, weight, bias = layer("cpu", torch.float32)
    with pytest.raises(tconv.TconvError) as caught:
        tt.conv_transpose2d(x, weight.requires_grad_(with_graph), bias, **CALL, post=make())
    assert caught.value.field == field
