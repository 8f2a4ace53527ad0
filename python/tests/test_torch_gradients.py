"""The gradients of tconv.torch's functions and their operators: against PyTorch's, of every order, in both modes,
under vmap and torch.compile; and what is PyTorch's where the library has no such operation."""

import functools
import itertools

import pytest

torch = pytest.importorskip("torch")

import torch.autograd.forward_ad as forward_ad  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.func import grad, jvp, vmap  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _gradients, _reasons  # noqa: E402

OURS = {1: tt.conv_transpose1d, 2: tt.conv_transpose2d}
THEIRS = {1: F.conv_transpose1d, 2: F.conv_transpose2d}
DATA = {1: torch.ops.tconv.conv_transpose1d_backward_data, 2: torch.ops.tconv.conv_transpose2d_backward_data}
WEIGHTS = {1: torch.ops.tconv.conv_transpose1d_backward_weights, 2: torch.ops.tconv.conv_transpose2d_backward_weights}

LAYERS = [
    dict(),
    dict(stride=(2, 3), padding=(1, 0), output_padding=(1, 2)),
    dict(stride=(2, 1), dilation=(3, 2), output_padding=(2, 1), padding=(0, 2)),  # output_padding >= stride
    dict(stride=(3, 2), groups=2),  # outputs without a tap
    dict(groups=4, dilation=(1, 2), stride=(2, 2)),
]


def of_axes(layer, spatial):
    return {name: value[-spatial:] if isinstance(value, tuple) else value for name, value in layer.items()}


def integers(*shape, dtype=torch.float64, device="cpu"):
    return torch.randint(-4, 5, shape, device=device).to(dtype)


def example(spatial, layer, dtype=torch.float64, device="cpu", make=integers):
    groups = layer.get("groups", 1)
    shapes = ((2, 4, *(4, 5)[-spatial:]), (4, 2, *(3, 2)[-spatial:]), (2 * groups,))
    return [make(*shape, dtype=dtype, device=device).requires_grad_() for shape in shapes]


def gradients_by(function, tensors, layer, cotangent=None, **more):
    result = function(*tensors, **layer)
    cotangent = integers(*result.shape, dtype=result.dtype, device=result.device) if cotangent is None else cotangent
    return torch.autograd.grad(result, tensors, cotangent, **more), cotangent


def counted(function):
    """The answer, how many calls of the layer there were for it, and how many of gradients."""
    before = tt.counters()
    answer = function()
    after = tt.counters()
    return answer, after.taken - before.taken, after.gradients - before.gradients


@pytest.fixture(autouse=True)
def compiled_anew():
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def gradients_are_ours():
    """Also on CUDA."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before)


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("spatial", [1, 2])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_are_pytorchs_exactly_on_integers(device, layer, spatial, dtype):
    layer = of_axes(layer, spatial)
    formats = (torch.contiguous_format, torch.channels_last) if spatial == 2 else (torch.contiguous_format,)
    for lying, images in itertools.product(itertools.product(formats, repeat=3), (True, False)):
        tensors = example(spatial, layer, dtype, device)
        if not images:
            tensors[0] = tensors[0][0]
        of_x, of_weight, of_dst = lying
        if images:
            tensors[0] = tensors[0].contiguous(memory_format=of_x)
        tensors[1] = tensors[1].contiguous(memory_format=of_weight)
        tensors = [t.detach().requires_grad_() for t in tensors]
        cotangent = integers(*THEIRS[spatial](*tensors, **layer).shape, dtype=dtype, device=device)
        if images:
            cotangent = cotangent.contiguous(memory_format=of_dst)
        expected, _ = gradients_by(THEIRS[spatial], tensors, layer, cotangent)
        (ours, _), _, calls = counted(lambda: gradients_by(OURS[spatial], tensors, layer, cotangent))  # noqa: B023
        for a, b in zip(ours, expected, strict=True):
            assert torch.equal(a, b)
        assert ours[0].stride() == expected[0].stride()
        assert ours[1].stride() == tensors[1].stride()
        assert calls == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bits(device, dtype):
    """Rounded once: within half a unit in the last place of the exact gradients of the same numbers."""
    layer = LAYERS[1]
    tensors = [t.to(dtype).detach().requires_grad_() for t in example(2, layer, device=device, make=torch.randn)]
    cotangent = torch.randn_like(F.conv_transpose2d(*tensors, **layer))
    ours, _ = gradients_by(tt.conv_transpose2d, tensors, layer, cotangent)
    exact, _ = gradients_by(
        F.conv_transpose2d, [t.detach().double().requires_grad_() for t in tensors], layer, cotangent.double()
    )
    for a, b in zip(ours, exact, strict=True):
        assert a.dtype == dtype
        unit = torch.finfo(dtype).eps
        assert ((a.double() - b).abs() <= 0.51 * unit * b.abs() + 1e-5).all()


def test_autocast(device):
    layer, x = tt.ConvTranspose2d(4, 3, 3, stride=2, device=device), torch.randn(2, 4, 5, 6, device=device)
    with torch.autocast(device, torch.bfloat16):
        result = layer(x.requires_grad_())
    _, _, calls = counted(lambda: result.float().square().sum().backward())
    assert calls == 2
    theirs = torch.nn.ConvTranspose2d(4, 3, 3, stride=2, device=device)
    theirs.load_state_dict(layer.state_dict())
    theirs(x).square().sum().backward()
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32
    torch.testing.assert_close(layer.weight.grad, theirs.weight.grad, rtol=0.05, atol=0.5)


LYING = {
    "expanded": lambda t: t[:1, :1, :1, :1].expand(t.shape),
    "every other column": lambda t: t.repeat_interleave(2, 3)[..., ::2],
    "slice of channels": lambda t: torch.cat([t, t], 1)[:, : t.shape[1]],
    "hwoi": lambda t: t.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1),
    "negative bit": torch._neg_view,
}


@pytest.mark.parametrize("which", ["x", "weight", "cotangent"])
@pytest.mark.parametrize("lying", LYING)
def test_any_strides(device, lying, which):
    layer = LAYERS[1]
    x, weight, bias = (t.detach() for t in example(2, layer, device=device))
    cotangent = integers(*F.conv_transpose2d(x, weight, bias, **layer).shape, device=device)
    given = dict(x=x, weight=weight, cotangent=cotangent)
    given[which] = LYING[lying](given[which])
    *tensors, cotangent = (
        given["x"].requires_grad_(),
        given["weight"].requires_grad_(),
        bias.requires_grad_(),
        given["cotangent"],
    )
    ours, theirs = (gradients_by(f, tensors, layer, cotangent)[0] for f in (tt.conv_transpose2d, F.conv_transpose2d))
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=3))[1:], ids=str)
def test_what_is_not_wanted_is_not_computed(wanted, monkeypatch):
    """The tensors that the library is given: src, weights, bias and dst."""
    tensors = [t.requires_grad_(want) for t, want in zip(example(2, LAYERS[1]), wanted, strict=True)]
    loss, given, real = tt.conv_transpose2d(*tensors, **LAYERS[1]).sum(), [], _compute.Plan.execute
    forget_plans()
    monkeypatch.setattr(
        _compute.Plan, "execute", lambda plan, *a: given.append([x != 0 for x in a[:4]]) or real(plan, *a)
    )
    loss.backward()
    expected = [[True, True, False, True]] if wanted[0] else []
    if wanted[1] or wanted[2]:
        expected.append([wanted[1], wanted[1], wanted[2], True])
    assert given == expected
    assert [t.grad is not None for t in tensors] == list(wanted)


def test_sum_sends_strides_of_zero(device, monkeypatch):
    """Which is copied once."""
    copies, real = [], _gradients._copy
    monkeypatch.setattr(_gradients, "_copy", lambda *arguments: copies.append(arguments) or real(*arguments))
    tensors = example(2, {}, device=device)
    for function in (tt.conv_transpose2d, F.conv_transpose2d):
        function(*tensors).sum().backward()
    for t in tensors:
        assert not (t.grad % 2).any()  # both added the same
    assert not copies


@pytest.mark.parametrize(("channels", "stride"), [((4, 6), 2), ((9, 2), 1)], ids=str)
def test_of_images_in_two_layouts_the_smaller_are_copied(device, monkeypatch, channels, stride):
    copied, real = [], _gradients._copy
    monkeypatch.setattr(_gradients, "_copy", lambda t, lying: copied.append(t.shape) or real(t, lying))
    inputs, outputs = channels
    x, weight = (
        integers(2, inputs, 5, 6, device=device),
        integers(inputs, outputs, 2, 2, device=device).requires_grad_(),
    )
    result = F.conv_transpose2d(x, weight, stride=stride)
    cotangent = integers(*result.shape, device=device).contiguous(memory_format=torch.channels_last)
    found, _ = WEIGHTS[2](x, cotangent, [2, 2], [stride, stride], [0, 0], 1, [1, 1], [True, False], False)
    assert torch.equal(found, torch.autograd.grad(result, weight, cotangent)[0])
    assert copied == [min(x, cotangent, key=torch.numel).shape]


def test_deterministic(device):
    tensors = example(2, LAYERS[1], torch.float32, device, torch.randn)
    torch.use_deterministic_algorithms(True)
    try:
        cotangent = torch.randn_like(tt.conv_transpose2d(*tensors, **LAYERS[1]))
        runs = [gradients_by(tt.conv_transpose2d, tensors, LAYERS[1], cotangent)[0] for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    for a, b, c in zip(*runs, strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)


# ---------------------------------------------------------------------------------------------------- of higher orders


@pytest.mark.parametrize("spatial", [1, 2])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_gradgradcheck(device, layer, spatial):
    layer = of_axes(layer, spatial)
    tensors = example(spatial, layer, device=device, make=torch.randn)
    call = functools.partial(OURS[spatial], **layer)
    assert torch.autograd.gradcheck(call, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, tensors, fast_mode=True)
    (answer, forward, backward) = counted(lambda: second_order(call, tensors))
    torch.testing.assert_close(answer, second_order(functools.partial(THEIRS[spatial], **layer), tensors))
    # the gradients of both; of each of these, its other operand's and a layer; and through the layer once more both
    assert forward >= 2 and backward == 2 + 2 + 2


def second_order(call, tensors):
    first = torch.autograd.grad(call(*tensors).pow(3).sum(), tensors, create_graph=True)
    return torch.autograd.grad(sum(t.square().sum() for t in first), tensors)


def operands(spatial, layer, device="cpu"):
    """Of both operators: tensors, and what follows them."""
    layer = of_axes(layer, spatial)
    x, weight, bias = (t.detach() for t in example(spatial, layer, device=device, make=torch.randn))
    diff_dst = torch.randn_like(THEIRS[spatial](x, weight, bias, **layer))
    ones, zeros = (1,) * spatial, (0,) * spatial
    rest = [layer.get("stride", ones), layer.get("padding", zeros), layer.get("groups", 1), layer.get("dilation", ones)]
    return x, weight, diff_dst, rest


def of_data(spatial, layer, device="cpu"):
    x, weight, diff_dst, rest = operands(spatial, layer, device)
    return lambda *t: DATA[spatial](*t, x.shape[2:], *rest, False), [diff_dst, weight]


def of_weights(spatial, layer, device="cpu"):
    x, weight, diff_dst, rest = operands(spatial, layer, device)
    return lambda *t: WEIGHTS[spatial](*t, weight.shape[2:], *rest, [True, True], False), [x, diff_dst]


@pytest.mark.parametrize("spatial", [1, 2])
@pytest.mark.parametrize("layer", LAYERS[1:4], ids=str)
@pytest.mark.parametrize("operator", [of_data, of_weights])
def test_operators_in_both_modes(device, operator, layer, spatial):
    call, tensors = operator(spatial, layer, device)
    tensors = [t.requires_grad_() for t in tensors]
    more = dict(check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert torch.autograd.gradcheck(call, tensors, fast_mode=True, **{**more, "check_batched_grad": False})
    assert torch.autograd.gradcheck(call, tensors, **more) if spatial == 1 else True
    assert torch.autograd.gradgradcheck(call, tensors, fast_mode=True, check_fwd_over_rev=True)
    tangents = tuple(torch.randn_like(t) for t in tensors)
    outputs, derivatives = jvp(call, tuple(t.detach() for t in tensors), tangents)
    first, second = (call(tangents[0], tensors[1]), call(tensors[0], tangents[1]))
    expected = first + second if isinstance(first, torch.Tensor) else (first[0] + second[0], second[1])
    torch.testing.assert_close(derivatives, expected)
    torch.testing.assert_close(outputs, call(*tensors))


def test_gradients_of_duals_without_a_graph(device):
    """Forward over reverse: the output's gradient has a tangent, or a saved tensor has."""
    x, weight, bias = example(2, LAYERS[1], device=device)
    results = []
    for f in (tt.conv_transpose2d, F.conv_transpose2d):
        before = f(x, weight, bias, **LAYERS[1])
        cotangent = torch.ones_like(before)
        with forward_ad.dual_level():
            of_cotangent = torch.autograd.grad(
                before, (x, weight, bias), forward_ad.make_dual(cotangent, 2 * before.detach())
            )
            inside = f(forward_ad.make_dual(x, 3 * x.detach()), weight, bias, **LAYERS[1])
            of_saved = torch.autograd.grad(inside.sum(), (x, weight))
            results.append([forward_ad.unpack_dual(t).tangent for t in (*of_cotangent, of_saved[1])])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


# ---------------------------------------------------------------------------------------------------- maps, compilation


@pytest.mark.parametrize("spatial", [1, 2])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("operator", [of_data, of_weights])
def test_a_map_is_one_call(device, operator, layer, spatial):
    call, tensors = operator(spatial, layer, device)
    for dims in ((0, None), (None, 1), (0, 2), (-1, 0)):
        given = [t if d is None else torch.stack([t, -2 * t, 3 * t], d) for t, d in zip(tensors, dims, strict=True)]
        results, _, calls = counted(lambda: vmap(call, dims)(*given))  # noqa: B023
        parts = [
            call(*(t if d is None else t.select(d, i) for t, d in zip(given, dims, strict=True))) for i in range(3)
        ]
        expected = torch.stack(parts) if operator is of_data else tuple(map(torch.stack, zip(*parts, strict=True)))
        torch.testing.assert_close(results, expected)
        assert calls == 1


@pytest.mark.parametrize("wanted", [(False, True), (True, False), (True, True)], ids=str)
def test_maps_of_what_is_wanted(wanted):
    x, weight, diff_dst, rest = operands(2, LAYERS[3])

    def call(x, diff_dst):
        return WEIGHTS[2](x, diff_dst, weight.shape[2:], *rest, wanted, False)

    for dims in ((0, None), (None, 0), (0, 0)):
        if not wanted[0] and dims[1] is None:
            continue
        given = [t if d is None else torch.stack([t, 2 * t]) for t, d in zip((x, diff_dst), dims, strict=True)]
        results = vmap(call, dims)(*given)
        last = call(*(t if d is None else t[1] for t, d in zip(given, dims, strict=True)))
        for result, part, want in zip(results, last, wanted, strict=True):
            torch.testing.assert_close(result[1], part)
            assert (part.numel() > 0) == want


def test_gradients_of_each_sample(device):
    """One call of each operation for the whole batch, the samples as groups."""
    x, weight, bias = (t.detach() for t in example(2, LAYERS[3], device=device, make=torch.randn))
    images = torch.stack([x, -x, 2 * x])

    def loss(f, weight, bias, x):
        return f(x, weight, bias, **LAYERS[3]).pow(2).sum()

    results = []
    for f in (tt.conv_transpose2d, F.conv_transpose2d):
        each = vmap(grad(functools.partial(loss, f), (0, 1)), (None, None, 0))
        answer, forward, backward = counted(lambda: each(weight, bias, images))  # noqa: B023
        results.append(answer)
        if f is tt.conv_transpose2d:
            assert (forward, backward) == (1, 1)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("spatial", [1, 2])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_graphs_have_the_operators(device, dynamic, spatial):
    graphs = []

    def keep(module, inputs):
        graphs.append([node.target for node in module.graph.nodes if node.op == "call_function"])
        return module.forward

    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    layer = of_axes(LAYERS[1], spatial)
    tensors = example(spatial, layer, device=device)
    compiled = torch.compile(
        functools.partial(OURS[spatial], **layer), backend=backend, fullgraph=True, dynamic=dynamic
    )
    ours, cotangent = gradients_by(compiled, tensors, {})
    expected, _ = gradients_by(THEIRS[spatial], tensors, layer, cotangent)
    for a, b in zip(ours, expected, strict=True):
        assert torch.equal(a, b)
    backward = [target for target in graphs[-1] if "conv" in str(target)]
    assert backward == [DATA[spatial].default, WEIGHTS[spatial].default]


def test_compiled_by_inductor(device):
    layer = torch.nn.Sequential(tt.ConvTranspose2d(4, 3, 3, stride=2), torch.nn.ReLU()).to(device)
    x = torch.randn(2, 4, 5, 6, device=device).contiguous(memory_format=torch.channels_last).requires_grad_()
    tensors = [x, *layer.parameters()]
    results = [torch.autograd.grad(f(x).square().sum(), tensors) for f in (torch.compile(layer, fullgraph=True), layer)]
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spatial", [1, 2])
@pytest.mark.parametrize("operator", [of_data, of_weights])
def test_opcheck(device, operator, spatial):
    _, tensors = operator(spatial, LAYERS[3], device)
    x, weight, _, rest = operands(spatial, LAYERS[3], device)
    for channels_last in (False, True)[:spatial]:
        if operator is of_data:
            checked, sizes = DATA[spatial].default, [list(x.shape[2:]), *rest, channels_last]
        else:
            checked, sizes = WEIGHTS[spatial].default, [list(weight.shape[2:]), *rest, [True, True], channels_last]
        torch.library.opcheck(checked, (*(t.detach().requires_grad_() for t in tensors), *sizes))


@pytest.mark.parametrize("operator", [of_data, of_weights])
def test_decompositions(operator):
    call, tensors = operator(2, LAYERS[2])
    graph = make_fx(call, decomposition_table=tt.decompositions())(*tensors)
    assert "tconv" not in str(graph.graph) and "convolution_backward" in str(graph.graph)
    torch.testing.assert_close(graph(*tensors), call(*tensors))


# ------------------------------------------------------------------------------------------------------- what is left


@pytest.mark.parametrize("missing", [("data",), ("weights",), ("data", "weights")], ids=str)
def test_what_the_library_does_not_have_is_pytorchs(monkeypatch, missing):
    """By one plan that is refused, for each operation by itself; explain says so, and counters."""
    refused = []

    def make_plan(desc, device):
        if desc.op in [getattr(tconv._library, f"OP_BACKWARD_{name.upper()}") for name in missing]:
            refused.append(desc.op)
            raise tconv.UnsupportedError("TCONV_ERROR_UNSUPPORTED", "op", "op = some gradient: not on this device")
        return _compute.make_plan(desc, device)

    forget_plans()
    monkeypatch.setattr(_gradients, "make_plan", make_plan)
    try:
        tensors = example(2, LAYERS[1])
        expected, cotangent = gradients_by(F.conv_transpose2d, tensors, LAYERS[1])
        before = tt.counters()
        for _ in range(2):
            ours, _ = gradients_by(tt.conv_transpose2d, tensors, LAYERS[1], cotangent)
            for a, b in zip(ours, expected, strict=True):
                assert torch.equal(a, b)
        after = tt.counters()
        assert len(refused) == len(missing)
        assert after.passed_on["operation"] - before.passed_on.get("operation", 0) == 2 * len(missing)
        assert after.gradients - before.gradients == 2 * (2 - len(missing))
        found = tt.explain(tt.conv_transpose2d, *tensors, **LAYERS[1])
        ours = {"input": "data" not in missing, "weight": "weights" not in missing, "bias": "weights" not in missing}
        assert {name: how.startswith("tconv, by cpu_") for name, how in found.gradients.items()} == ours
        assert "PyTorch: op = some gradient: not on this device" in found.gradients.values()
        for operator in (of_data, of_weights):
            call, given = operator(2, LAYERS[1])
            graph = make_fx(call, decomposition_table=tt.decompositions())(*given)
            torch.testing.assert_close(call(*given), graph(*given))
    finally:
        forget_plans()


def test_explain_tells_of_those_that_are_wanted(device):
    x, weight, bias = (t.detach() for t in example(2, {}, device=device))
    assert tt.explain(tt.conv_transpose2d, x, weight, bias).gradients == {}
    assert list(tt.explain(tt.conv_transpose2d, x, weight, bias.requires_grad_()).gradients) == ["bias"]
    x.requires_grad_()
    found = tt.explain(tt.conv_transpose1d, x[..., 0], weight[..., 0], bias)
    assert list(found.gradients) == ["input", "bias"] and "gradient of input: " in str(found)
    with torch.no_grad():
        assert tt.explain(tt.conv_transpose2d, x, weight, bias).gradients == {}


def test_exceptions_of_hooks_keep_their_type(device):
    """Checkpointing ends its second forward pass by one."""

    class Mine(Exception):
        pass

    def fail(tensor):
        raise Mine("a message")

    tensors = example(2, {}, device=device)
    for _ in range(2):
        with pytest.raises(Mine, match="a message"), torch.autograd.graph.saved_tensors_hooks(fail, lambda t: t):
            tt.conv_transpose2d(*tensors)
    ours, cotangent = gradients_by(tt.conv_transpose2d, tensors, {})
    for a, b in zip(ours, gradients_by(F.conv_transpose2d, tensors, {}, cotangent)[0], strict=True):
        assert torch.equal(a, b)


def test_an_error_in_the_backward_pass_is_the_callers(monkeypatch):
    def fail(*arguments):
        raise tconv.TconvError("a status", "a field", "a message")

    tensors = example(2, {})
    result = tt.conv_transpose2d(*tensors)
    forget_plans()
    with monkeypatch.context() as patch:
        patch.setattr(_compute.Plan, "execute", fail)
        with pytest.raises(tconv.TconvError, match="a message"):
            result.sum().backward(retain_graph=True)
    result.sum().backward()


def test_meta_and_other_types(device):
    for layer in (tt.ConvTranspose2d(4, 3, 3, device="meta"), tt.ConvTranspose1d(4, 3, 3, device="meta")):
        x = torch.empty((2, 4, 5, 6)[: layer.weight.dim()], device="meta", requires_grad=True)
        layer(x).sum().backward()
        assert x.grad.shape == x.shape and layer.weight.grad.shape == layer.weight.shape
    x = torch.randn(2, 4, 5, 6, dtype=torch.complex64, device=device, requires_grad=True)
    weight = torch.randn(4, 3, 3, 2, dtype=torch.complex64, device=device)
    ours, theirs = (
        torch.autograd.grad(f(x, weight).abs().sum(), x)[0] for f in (tt.conv_transpose2d, F.conv_transpose2d)
    )
    torch.testing.assert_close(ours, theirs)


def test_mistakes_of_the_operators():
    x, weight, diff_dst, rest = operands(2, {})
    with pytest.raises(RuntimeError, match="input is None"):
        WEIGHTS[2](None, diff_dst, [3, 2], *rest, [True, True], False)
    for wrong in (diff_dst[..., :3], diff_dst[0], diff_dst.float()):
        with pytest.raises(RuntimeError):
            DATA[2](wrong, weight, x.shape[2:], *rest, False)
        with pytest.raises(RuntimeError):
            WEIGHTS[2](x, wrong, weight.shape[2:], *rest, [True, True], False)
    with pytest.raises(RuntimeError):
        DATA[2](diff_dst[:, :1], weight, x.shape[2:], *rest, False)
    with pytest.raises(RuntimeError, match="input has 2 images, diff_dst 1"):
        WEIGHTS[2](x, diff_dst[:1], weight.shape[2:], *rest, [True, True], False)


# ------------------------------------------------------------------------------------------------ the default on CUDA


@pytest.mark.parametrize("lying", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_each_gradient_is_whose_is_faster(device, dtype, lying):
    """By the rule, and all tconv's where algorithms are to be deterministic. explain tells before, counters after."""
    tensors = [t.detach().requires_grad_() for t in example(2, LAYERS[1], dtype, device)]
    tensors[0] = tensors[0].detach().contiguous(memory_format=lying).requires_grad_()
    expected, cotangent = gradients_by(F.conv_transpose2d, tensors, LAYERS[1])
    cotangent = cotangent.contiguous(memory_format=lying)
    for deterministic in (False, True, False):
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        ours = device == "cpu" or deterministic
        fast = [ours or dtype in _reasons.FAST_ON_CUDA[name] for name in ("input", "weight")]
        found = tt.explain(tt.conv_transpose2d, *tensors, **LAYERS[1]).gradients
        assert [by.startswith("tconv, by ") or "general" in by for by in found.values()] == [*fast, fast[1]]
        before = tt.counters()
        (gradients, _), _, count = counted(lambda: gradients_by(tt.conv_transpose2d, tensors, LAYERS[1], cotangent))
        left = tt.counters().passed_on.get("speed", 0) - before.passed_on.get("speed", 0)
        assert count == sum(found[name].startswith("tconv") for name in ("input", "weight")) and left == 2 - count
        for a, b in zip(gradients, expected, strict=True):
            assert torch.equal(a, b)


def test_rule_of_speed(monkeypatch):
    """What is not computed here: gradients on CUDA, of tensors that are there in name alone."""

    class OnCuda:
        is_cuda, dtype = True, torch.float32

    def rule(name, implementation="cuda_outer"):
        return _reasons.of_speed(name, OnCuda, implementation)

    torch.use_deterministic_algorithms(False)
    monkeypatch.setitem(_reasons.FAST_ON_CUDA, "weight", frozenset({torch.float32}))
    assert rule("weight") is None and "general implementation" in rule("weight", "cuda_general").text
    assert "gradient of the bias" in rule("bias").text
    monkeypatch.setattr(OnCuda, "dtype", torch.bfloat16)
    assert "of the weight in torch.bfloat16" in rule("weight").text
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert rule("weight", "cuda_general") is None is rule("bias")


@pytest.mark.parametrize("left", ["input", "weight"])
def test_a_pass_by_both_libraries(device, monkeypatch, left):
    """Of every order, in both modes, mapped and compiled: one of the two gradients is PyTorch's for its speed."""
    monkeypatch.setattr(
        _reasons, "of_speed", lambda name, *_: _reasons.Reason("speed", "a test") if name == left else None
    )
    forget_plans()
    try:
        tensors = example(2, LAYERS[3], device=device, make=torch.randn)
        call, theirs = (functools.partial(f, **LAYERS[3]) for f in (tt.conv_transpose2d, F.conv_transpose2d))
        expected, cotangent = gradients_by(theirs, tensors, {})
        (ours, _), _, count = counted(lambda: gradients_by(call, tensors, {}, cotangent))
        torch.testing.assert_close(ours, expected)
        assert count == 1
        for alone in range(3):
            of_one = torch.autograd.grad(call(*tensors), tensors[alone], cotangent)
            torch.testing.assert_close(of_one[0], expected[alone])
        torch.testing.assert_close(second_order(call, tensors), second_order(theirs, tensors))
        tangents = tuple(torch.randn_like(t) for t in tensors)
        plain = tuple(t.detach() for t in tensors)
        along = [jvp(lambda *t, f=f: grad(lambda *u: f(*u).pow(3).sum())(*t), plain, tangents) for f in (call, theirs)]
        torch.testing.assert_close(*along)
        maps = [vmap(grad(lambda w, x, f=f: f(x, w, None).pow(2).sum()), (None, 0)) for f in (call, theirs)]
        torch.testing.assert_close(*(each(plain[1], torch.stack([plain[0], -plain[0]])) for each in maps))
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(gradients_by(compiled, tensors, {}, cotangent)[0], expected)
    finally:
        forget_plans()
