"""tconv.torch.cat: layers that store into their parts of a concatenation, and all that is torch.cat's."""

import copy
import itertools
from functools import partial

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_values import DTYPES, outcome, same  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv import post  # noqa: E402

FORMATS = [torch.contiguous_format, torch.channels_last]


def joined(call, *, times):
    """The answer of a call, in which so many layers store in place."""
    before = tt.counters()
    answer = call()
    after = tt.counters()
    assert after.joined - before.joined == times
    assert after.taken - before.taken >= times
    return answer


def stage(spatial=2, device="cpu", dtype=torch.float32, images=(2,), skip=3):
    """A layer, its input, and a tensor to lie beside the result."""
    kind = (tt.ConvTranspose1d, tt.ConvTranspose2d, tt.ConvTranspose3d)[spatial - 1]
    up = kind(4, 5, 3, stride=2, padding=1, output_padding=1).to(device, dtype)
    extents = {1: (3,), 2: (3, 4), 3: (2, 1, 2)}[spatial]
    x = torch.randn(*images, 4, *extents, device=device, dtype=dtype)
    beside = torch.randn(*images, skip, *(2 * extent for extent in extents), device=device, dtype=dtype)
    return up, x, beside


# ------------------------------------------------------------------------------------------------------ the same answer


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("images", [(), (1,), (2,)], ids=["image", "one", "two"])
def test_answers(device, dtype, spatial, images):
    up, x, beside = stage(spatial, device, dtype, images)
    dim = len(images)
    for place, others, wanted in itertools.product((0, 1, 2), ([beside], [beside, beside]), (False, True)):
        parts = [*others[:place], partial(up, x), *others[place:]]
        plain = [part() if isinstance(part, partial) else part for part in parts]
        with torch.set_grad_enabled(wanted):
            answer = joined(partial(tt.cat, parts, dim), times=1)
        assert answer.requires_grad == wanted
        same(answer.detach(), torch.cat(plain, dim).detach())
        same(tt.cat(tuple(parts), dim - len(images) - spatial - 1).detach(), answer.detach())


@pytest.mark.parametrize("of_x", FORMATS, ids=str)
@pytest.mark.parametrize("of_beside", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layouts(device, of_x, of_beside, dtype):
    up, x, beside = stage(2, device, dtype)
    x, beside = x.contiguous(memory_format=of_x), beside.contiguous(memory_format=of_beside)
    for first, wanted in itertools.product((False, True), repeat=2):
        parts, plain = [partial(up, x), beside], [up(x), beside]
        if not first:
            parts, plain = parts[::-1], plain[::-1]
        with torch.set_grad_enabled(wanted):
            same(joined(partial(tt.cat, parts, 1), times=1).detach(), torch.cat(plain, 1).detach())


def test_other_axes(device):
    """Parts of rows lie in no layout of tconv's: there the layer's result is copied, by the same rules."""
    for spatial, dim, times in (
        (2, 0, 1),
        (2, -4, 1),
        (2, 2, 1),
        (2, 3, 0),
        (2, -1, 0),
        (1, 0, 1),
        (1, 2, 1),
        (3, 1, 1),
        (3, 2, 1),
        (3, 3, 0),
    ):
        up, x, _ = stage(spatial, device)
        with torch.no_grad():
            result = up(x)
            answer = joined(partial(tt.cat, [partial(up, x), result], dim), times=times)
        same(answer, torch.cat([result, result], dim))


def test_functions_and_their_arguments(device):
    """All that a partial has, in every way of giving it."""
    _, x, beside = stage(device=device)
    weight, bias = torch.randn(4, 5, 3, 3, device=device), torch.randn(5, device=device)
    more = dict(stride=2, padding=1, output_padding=1)
    expected = torch.cat([F.conv_transpose2d(x, weight, bias, **more), beside], 1)
    function = tt.conv_transpose2d
    for call in (
        partial(function, x, weight, bias, 2, 1, 1),
        partial(function, x, weight, bias, **more),
        partial(function, weight=weight, input=x, bias=bias, **more),
        partial(partial(function, x, weight), bias, stride=(2, 2), padding=[1], output_padding=1),
    ):
        same(joined(partial(tt.cat, [call, beside], 1), times=1), expected)
    up = tt.ConvTranspose2d(4, 5, 3, stride=2, padding=1, device=device)
    for call in (partial(up, x, [6, 8]), partial(up, x, output_size=torch.Size([6, 8]))):
        same(
            joined(partial(tt.cat, [call, beside], 1), times=1).detach(),
            torch.cat([call(), beside], 1).detach(),
        )


def test_several_layers(device):
    up, x, beside = stage(device=device)
    other = tt.ConvTranspose2d(3, 2, 1, device=device)
    parts = [partial(up, x), beside, partial(other, beside), partial(up, x)]
    for wanted in (False, True):
        with torch.set_grad_enabled(wanted):
            answer = joined(lambda: tt.cat(parts, 1), times=3)
        same(answer.detach(), torch.cat([up(x), beside, other(beside), up(x)], 1).detach())


def test_post(device):
    """With post-ops where no gradients are wanted, as the function has it."""
    _, x, beside = stage(device=device)
    weight, residual = torch.randn(4, 5, 2, 2, device=device), torch.randn(2, 5, 6, 8, device=device)
    steps = [post.mul_channel(torch.rand(5, device=device)), post.add(residual, alpha=2), post.relu()]
    call = partial(tt.conv_transpose2d, x, weight, stride=2, post=steps)
    fused = tt.counters().fused
    answer = joined(lambda: tt.cat([beside, call], 1), times=1)
    assert tt.counters().fused - fused == 1
    expected = torch.cat([beside, call()], 1)
    same(answer, expected)
    weight.requires_grad_()
    with_graph = joined(lambda: tt.cat([beside, call], 1), times=0)
    same(with_graph.detach(), expected)
    with_graph.sum().backward()
    assert weight.grad is not None


def test_autocast(device):
    up, x, beside = stage(device=device)
    beside = beside.bfloat16()
    with torch.autocast(device, torch.bfloat16):
        answer = joined(lambda: tt.cat([partial(up, x), beside], 1), times=1)
        expected = torch.cat([up(x), beside], 1)
        # of float32 the whole is, too: the layer's result is converted
        wider = joined(lambda: tt.cat([partial(up, x), beside.float()], 1), times=0)
        assert wider.dtype is torch.float32
        same(wider, torch.cat([up(x), beside.float()], 1))
    assert answer.dtype is torch.bfloat16
    gradients = [torch.autograd.grad(y.float().square().sum(), [*up.parameters()]) for y in (answer, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        same(ours, theirs, torch.bfloat16)


def test_frozen(device):
    up, x, beside = stage(device=device)
    tt.freeze(up)
    with torch.inference_mode():
        expected = torch.cat([up(x), beside], 1)
        packings = tt.counters().packings
        for _ in range(3):
            torch.testing.assert_close(joined(lambda: tt.cat([partial(up, x), beside], 1), times=1), expected)
        assert tt.counters().packings - packings == 1
        up.weight.zero_()
        assert tt.cat([partial(up, x), beside], 1)[:, :5].eq(up.bias[:, None, None]).all()


# ------------------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("images", [(), (2,)], ids=["image", "images"])
def test_gradcheck(device, spatial, images):
    up, x, beside = stage(spatial, device, torch.float64, images)
    function = (tt.conv_transpose1d, tt.conv_transpose2d, tt.conv_transpose3d)[spatial - 1]
    weight, bias = up.weight.detach(), up.bias.detach()
    inputs = [t.clone().requires_grad_() for t in (x, weight, bias, beside)]

    def call(x, weight, bias, beside):
        layer = partial(function, x, weight, bias, stride=2, padding=1, output_padding=1)
        return tt.cat([beside, layer], len(images))

    joined(lambda: call(*inputs), times=1)
    assert torch.autograd.gradcheck(call, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(call, inputs, check_batched_grad=True)


def test_third_order_and_double_use(device):
    """One tensor in several parts, and one weight of two layers, whose gradients come together."""
    weight = torch.randn(2, 2, 1, 1, device=device, dtype=torch.float64, requires_grad=True)
    x = torch.randn(1, 2, 2, 2, device=device, dtype=torch.float64, requires_grad=True)

    def call(x, weight):
        layer = partial(tt.conv_transpose2d, x, weight)
        return tt.cat([x, layer, partial(tt.conv_transpose2d, 2 * x, weight), x], 1)

    def first(x, weight):
        (of_x, of_weight) = torch.autograd.grad(call(x, weight).pow(3).sum(), (x, weight), create_graph=True)
        return of_x, of_weight

    joined(lambda: call(x, weight), times=2)
    assert torch.autograd.gradcheck(call, (x, weight))
    assert torch.autograd.gradgradcheck(call, (x, weight))
    assert torch.autograd.gradgradcheck(first, (x, weight))


@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=4))[1:], ids=str)
def test_gradients_of_those_that_want_them(device, wanted):
    """Nothing else is computed, as a mode sees."""
    asked = []

    class Asked(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), more=None):
            if "backward" in function.__name__:
                asked.append((function.__name__, *(a for a in arguments if isinstance(a, (list, tuple)))))
            return function(*arguments, **(more or {}))

    up, x, beside = stage(device=device)
    results = []
    for whole in (tt.cat, lambda parts, dim: torch.cat([parts[0](), parts[1]], dim)):
        asked.append([])
        tensors = [
            t.detach().clone().requires_grad_(w) for t, w in zip((x, up.weight, up.bias, beside), wanted, strict=True)
        ]
        layer = partial(tt.conv_transpose2d, *tensors[:3], 2, 1, 1)
        loss = whole([layer, tensors[3]], 1).square().sum()
        with Asked():
            loss.backward()
        results.append([t.grad for t in tensors])
    half = asked.index([], 1)
    assert asked[1:half] == asked[half + 1 :]
    for ours, theirs, want in zip(*results, wanted, strict=True):
        assert (ours is not None) == (theirs is not None) == want
        if want:
            torch.testing.assert_close(ours, theirs)


def test_what_the_graph_keeps(device):
    up, x, beside = stage(device=device)
    y = tt.cat([partial(up, x), beside], 1)
    y.mul_(2)  # it is no view
    y.sum().backward()
    x = x.clone().requires_grad_()
    y = tt.cat([partial(up, x * 1), beside], 1)
    with torch.no_grad():
        up.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(device, reentrant):
    up, x, beside = stage(device=device)
    x.requires_grad_()

    def block(x):
        return tt.cat([partial(up, x), beside], 1).square()

    expected = torch.autograd.grad(torch.cat([up(x), beside], 1).square().sum(), (x, up.weight))
    joined(lambda: checkpoint(block, x, use_reentrant=reentrant).sum().backward(), times=2)
    torch.testing.assert_close((x.grad, up.weight.grad), expected)
    with torch.autograd.graph.save_on_cpu():
        y = joined(lambda: block(x), times=1)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), (x, up.weight)), expected)


# -------------------------------------------------------------------------------------------------- what is torch.cat's


class Doubled(tt.ConvTranspose2d):
    def forward(self, input, output_size=None):
        return 2 * super().forward(input, output_size)


def test_what_is_called_by_itself(device):
    """Layers that somebody looks at, and whatever is no layer of tconv's, is made first, once."""
    up, x, beside = stage(device=device)
    expected = torch.cat([up(x), beside], 1).detach()
    seen = []
    hooked = copy.deepcopy(up)
    hooked.register_forward_hook(lambda *given: seen.append(1))
    theirs = nn.ConvTranspose2d(4, 5, 3, stride=2, padding=1, output_padding=1, device=device)
    theirs.load_state_dict(up.state_dict())
    for call in (partial(hooked, x), partial(theirs, x), partial(lambda: up(x)), partial(nn.Sequential(up), x)):
        same(joined(partial(tt.cat, [call, beside], 1), times=0).detach(), expected)
    assert seen == [1]
    handle = nn.modules.module.register_module_forward_hook(lambda *given: seen.append(2))
    try:
        joined(lambda: tt.cat([partial(up, x), beside], 1), times=0)
    finally:
        handle.remove()
    assert seen == [1, 2]
    scaled = Doubled(4, 5, 3, stride=2, padding=1, output_padding=1, device=device)
    same(
        joined(lambda: tt.cat([partial(scaled, x), beside], 1), times=0).detach(),
        tt.cat([scaled(x), beside], 1).detach(),
    )
    order = []
    tt.cat([partial(up, x), partial(lambda: order.append(1) or beside), partial(lambda: order.append(2) or beside)], 1)
    assert order == [1, 2]


def test_other_dtypes(device):
    """Of a layer that is PyTorch's, and beside a tensor of another dtype."""
    up, x, beside = stage(device=device)
    double = copy.deepcopy(up).double()
    for layer, input, other in ((up, x, beside.double()), (up, x, beside.bfloat16()), (double, x.double(), beside)):
        parts = [partial(layer, input), other]
        answer = joined(partial(tt.cat, parts, 1), times=0)
        same(answer.detach(), torch.cat([layer(input), other], 1).detach())
    layer, input = copy.deepcopy(up).to(torch.complex64), x.to(torch.complex64)
    parts = [partial(layer, input), beside.to(torch.complex64)]
    torch.testing.assert_close(joined(lambda: tt.cat(parts, 1), times=0), torch.cat([layer(input), parts[1]], 1))


def test_mistakes(device):
    """PyTorch's own errors."""
    up, x, beside = stage(device=device)
    for parts, dim in (
        ([partial(up, x), beside[:, :, :2]], 1),
        ([partial(up, x), beside[0]], 1),
        ([partial(up, x), beside], 4),
        ([partial(up, x), beside], "C"),
        ([partial(up, x), beside], None),
        ([partial(up, x), 1], 1),
        ([partial(up, x), None], 1),
        ([partial(up, x[:, :3]), beside], 1),
        ([partial(up, x, [1, 1]), beside], 1),
        ([partial(up), beside], 1),
        ([partial(tt.conv_transpose2d, x), beside], 1),
        ([partial(tt.conv_transpose2d, x, up.weight, groups=3), beside], 1),
        ([], 1),
        (beside, 1),
        (7, 1),
    ):

        def plain(parts, dim):
            if isinstance(parts, list):
                parts = [part() if isinstance(part, partial) else part for part in parts]
            return torch.cat(parts, dim)

        given = dict(parts=parts, dim=dim)
        ours, theirs = outcome(lambda parts, dim: tt.cat(parts, dim), given), outcome(plain, given)
        assert isinstance(theirs, tuple) and ours == theirs
    weight = torch.randn(4, 5, 2, 2, device=device)
    with pytest.raises(tconv.InvalidArgumentError, match=r"post\[0\]") as raised:
        steps = [post.mul_channel(torch.rand(4, device=device))]
        tt.cat([partial(tt.conv_transpose2d, x, weight, stride=2, post=steps), beside], 1)
    assert raised.value.field == "post[0]"
    with pytest.raises(tconv.InvalidArgumentError, match=r"post\[0\].beta"):
        steps = [post.clamp(1, 0)]
        tt.cat([partial(tt.conv_transpose2d, x, weight, stride=2, post=steps), beside], 1)


def test_captured(device):
    """Transforms, modes, tracers and torch.compile see PyTorch's torch.cat and the layer's operator."""
    up, x, beside = stage(device=device)

    def program(x, beside):
        return tt.cat([partial(up, x), beside], 1)

    expected = program(x, beside).detach()
    functional = torch.func.vmap(program)(x[:, None], beside[:, None])[:, 0]
    torch.testing.assert_close(functional.detach(), expected)
    _, tangent = torch.func.jvp(program, (x, beside), (x, beside))
    torch.testing.assert_close(
        tangent.detach(),
        expected - torch.cat([up.bias[None, :, None, None].expand(2, 5, 6, 8), 0 * beside], 1).detach(),
    )
    gradient = torch.func.grad(lambda x: program(x, beside).sum())(x)
    torch.testing.assert_close(gradient, torch.autograd.grad(up(x.requires_grad_()).sum(), x)[0])
    x = x.detach()
    up.requires_grad_(False)
    traced = torch.jit.trace(program, (x, beside), check_trace=False)
    torch.testing.assert_close(traced(x, beside).detach(), expected)
    with torch.no_grad():
        graph = torch.fx.experimental.proxy_tensor.make_fx(program)(x, beside)
    assert [
        node.target for node in graph.graph.nodes if node.op == "call_function" and "detach" not in str(node.target)
    ] == [
        torch.ops.tconv.conv_transpose2d.default,
        torch.ops.aten.cat.default,
    ]
    with torch.profiler.profile() as profile, torch.no_grad():
        joined(lambda: program(x, beside), times=1)
    assert "tconv::conv_transpose2d" in {event.key for event in profile.key_averages()}
    up.to("meta")
    assert joined(lambda: program(x.to("meta"), beside.to("meta")), times=0).shape == expected.shape


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = tt.ConvTranspose2d(4, 5, 2, stride=2)

    def forward(self, x, beside):
        return tt.cat([partial(self.up, x), beside], 1)


def test_graphs_of_modules():
    made, x, beside = Stage(), torch.randn(2, 4, 3, 4), torch.randn(2, 3, 6, 8)
    expected = made(x, beside).detach()
    traced = torch.fx.symbolic_trace(made)
    torch.testing.assert_close(traced(x, beside).detach(), expected)
    functions = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert functions == [tt.conv_transpose2d, torch.cat]
    exported = torch.export.export(made, (x, beside))
    torch.testing.assert_close(exported.module()(x, beside).detach(), expected)
    torch._dynamo.reset()
    compiled = torch.compile(made, backend="aot_eager", fullgraph=True)
    y = compiled(x, beside)
    torch.testing.assert_close(y.detach(), expected)
    y.sum().backward()
    assert made.up.weight.grad is not None
