"""tconv.torch against PyTorch: values, strides, errors, gradients, and what surrounds a call."""

import copy
import io
import itertools
import pickle
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _functional, _native, _reasons  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 1e-2, torch.bfloat16: 8e-2}
PAIRS = ("stride", "padding", "output_padding", "dilation")


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


@pytest.fixture
def calls():
    return Calls()


def tensors(device="cpu", dtype=torch.float32, x=(2, 4, 5, 6), weight=(4, 3, 3, 2), bias=True, groups=1):
    made = [torch.randn(shape, device=device, dtype=torch.float64) for shape in (x, weight)]
    made.append(torch.randn(weight[1] * groups, device=device, dtype=torch.float64) if bias else None)
    return [None if t is None else t.to(dtype) for t in made]


def same(ours, theirs, dtype=None):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.device == theirs.device
    assert ours.stride() == theirs.stride()
    tolerance = TOLERANCE[dtype or ours.dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------------------------- values

ARGUMENTS = [
    dict(),
    dict(stride=2, padding=1, output_padding=1),
    dict(stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(2, 1)),
    dict(stride=[3, 3], dilation=2),
    dict(groups=2, stride=2),
    dict(groups=4),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_values_and_strides(device, dtype, arguments, calls):
    lying = (torch.contiguous_format, torch.channels_last)
    for input_format, weight_format, bias in itertools.product(lying, lying, (False, True)):
        x, weight, b = tensors(device, dtype, bias=bias, groups=arguments.get("groups", 1))
        x, weight = x.contiguous(memory_format=input_format), weight.contiguous(memory_format=weight_format)
        same(tt.conv_transpose2d(x, weight, b, **arguments), F.conv_transpose2d(x, weight, b, **arguments))
        same(OP(x, weight, b, **arguments), F.conv_transpose2d(x, weight, b, **arguments))
    assert len(calls) == 16


SHAPES = [
    ((4, 5, 6), (4, 3, 3, 2)),
    ((1, 4, 1, 1), (4, 3, 3, 2)),
    ((2, 1, 5, 6), (1, 3, 3, 2)),
    ((2, 4, 5, 6), (4, 1, 1, 1)),
    ((2, 1, 5, 1), (1, 1, 1, 2)),
]


def test_every_small_shape_however_it_lies(device, calls):
    """With one channel or one pixel a tensor lies in two layouts at once: strides of the result are PyTorch's, nothing
    that lies in its layout is copied."""
    formats = (torch.contiguous_format, torch.channels_last)
    for n, ci, h, w, co, kh, kw in itertools.product((1, 2), repeat=7):
        for input_format, weight_format, channels in itertools.product(formats, formats, (ci, ci + 1)):
            x = torch.randint(-4, 5, (n, channels, h, w), device=device).float()
            x = x.contiguous(memory_format=input_format)[:, :ci]
            weight = torch.randint(-4, 5, (ci, co, kh, kw), device=device).float()
            weight = weight.contiguous(memory_format=weight_format)
            same(tt.conv_transpose2d(x, weight), F.conv_transpose2d(x, weight))
            layer = calls[-1]
            assert layer.memory_format != input_format or not layer.copy_input
            assert not layer.copy_weight
    assert len(calls) == 128 * 8


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes_with_ones_and_without_images(device, shapes, calls):
    for input_format, weight_format in itertools.product((False, True), repeat=2):
        x, weight, bias = tensors(device, x=shapes[0], weight=shapes[1])
        if input_format and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        if weight_format:
            weight = weight.contiguous(memory_format=torch.channels_last)
        same(tt.conv_transpose2d(x, weight, bias), F.conv_transpose2d(x, weight, bias))
    assert len(calls) == 4


def test_no_images(device, calls):
    module, theirs = pair_of_modules(device)
    for x in (torch.randn(0, 4, 5, 6, device=device), torch.randn(0, 4, 5, 6, device=device, requires_grad=True)):
        same(module(x), theirs(x))
        module(x).sum().backward()
        assert torch.equal(module.weight.grad, torch.zeros_like(module.weight))
    assert len(calls) == 4


LYING = {
    "slice of channels": lambda t: torch.cat([t, t], 1)[:, : t.shape[1]],
    "slice of columns": lambda t: t.repeat_interleave(2, 3)[..., ::2],
    "transposed": lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
    "permuted": lambda t: t.permute(1, 0, 2, 3).contiguous().permute(1, 0, 2, 3),
    "expanded": lambda t: t[:1, :1].expand(t.shape),
    "negative bit": torch._neg_view,
    "negative bit and slice": lambda t: torch.complex(torch.zeros_like(t), t).conj().imag,
    "rows repeated": lambda t: t[:, :, :1].expand(t.shape),
    "images that overlap": lambda t: t.as_strided(t.shape, (t[0, 0].numel(), *t.stride()[1:])),
    "hwoi": lambda t: t.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1),
}


@pytest.mark.parametrize("lying", LYING)
def test_any_strides(device, lying, calls):
    x, weight, bias = tensors(device)
    expected = F.conv_transpose2d(LYING[lying](x), LYING[lying](weight), bias, 2)
    same(tt.conv_transpose2d(LYING[lying](x), LYING[lying](weight), bias, 2), expected)
    long = torch.stack([bias, bias], 1)
    same(tt.conv_transpose2d(x, weight, long[:, 0]), F.conv_transpose2d(x, weight, long[:, 0]))
    # A negative bit is PyTorch's to resolve; all else is computed by tconv.
    assert len(calls) == (1 if "negative bit" in lying else 2)


def test_channels_in_a_slice_are_read_as_they_lie(calls):
    x, weight, _ = tensors()
    tt.conv_transpose2d(LYING["slice of channels"](x), weight)
    tt.conv_transpose2d(LYING["slice of columns"](x), weight)
    assert [layer.copy_input for layer in calls] == [False, True]


# ------------------------------------------------------------------------------------------------------------- errors

X, W, B = tensors()
MISTAKES = [
    dict(input=X[0, 0]),
    dict(weight=W[0]),
    dict(weight=W[:3]),
    dict(bias=torch.randn(4)),
    dict(bias=torch.randn(3, 1)),
    dict(weight=W.double()),
    dict(bias=B.double()),
    dict(input=X.half()),
    dict(stride=0),
    dict(stride=-1),
    dict(padding=-1),
    dict(dilation=0),
    dict(output_padding=1),
    dict(output_padding=-1, stride=2),
    dict(groups=3),
    dict(groups=0),
    dict(groups=-1),
    dict(stride=(1, 2, 3)),
    dict(stride=1.0),
    dict(stride=(1.0, 1)),
    dict(stride="2"),
    dict(stride=2**62),
    dict(groups=1.0),
    dict(padding=30),
    dict(input=X[:, :, :0]),
    dict(input=X[:, :0], weight=W[:0]),
    dict(weight=W[..., :0]),
    dict(input=X.long(), weight=W.long(), bias=B.long()),
    dict(input=X.numpy()),
    dict(weight=None),
    dict(input=X.to_sparse()),
    dict(input=X.to(torch.complex64)),
    dict(input=X.to(torch.complex64), weight=W.to(torch.complex64), bias=None),
    dict(input=X.to_mkldnn(), weight=W.to_mkldnn(), bias=None),
    dict(stride=(2,)),
    dict(stride=torch.tensor(2)),
    dict(padding=True),
]


def outcome(function, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(**arguments)
        except Exception as error:
            return type(error), str(error)


@pytest.mark.parametrize("wrong", MISTAKES, ids=[f"{i}-{'-'.join(m)}" for i, m in enumerate(MISTAKES)])
def test_mistakes_are_answered_as_pytorch_does(wrong):
    arguments = {"input": X, "weight": W, "bias": B, **wrong}
    tt.conv_transpose2d(X, W, B)  # a cached layer must not answer for an argument that equals its own
    defaults = dict(input=X, weight=W, bias=B, stride=1, padding=0, output_padding=0, groups=1, dilation=1)
    positional = [{**defaults, **arguments}[name] for name in defaults]  # PyTorch's words differ for keywords
    ours = outcome(lambda: tt.conv_transpose2d(*positional), {})
    theirs = outcome(lambda: F.conv_transpose2d(*positional), {})
    if isinstance(theirs, tuple):
        assert ours == theirs
    else:
        assert ours.layout == theirs.layout
        torch.testing.assert_close(ours.to_dense(), theirs.to_dense())


@pytest.mark.parametrize("wrong", MISTAKES[:19], ids=[f"{i}-{'-'.join(m)}" for i, m in enumerate(MISTAKES[:19])])
def test_mistakes_of_the_operator(wrong):
    arguments = {"input": X, "weight": W, "bias": B, **wrong}
    if wrong.get("stride") == 1.0:
        return  # the dispatcher has words of its own
    ours, theirs = outcome(OP, arguments), outcome(F.conv_transpose2d, arguments)
    if isinstance(theirs, tuple):
        assert ours == theirs
    else:
        torch.testing.assert_close(ours, theirs)


# ------------------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("x", [(2, 4, 3, 2), (4, 3, 2)], ids=str)
@pytest.mark.parametrize("function", [tt.conv_transpose2d, OP], ids=["function", "operator"])
def test_gradcheck(device, arguments, x, function):
    inputs = tensors(device, torch.float64, x=x, weight=(4, 2, 2, 3), groups=arguments.get("groups", 1))
    for t in inputs:
        t.requires_grad_()

    def call(*tensors):
        return function(*tensors, **arguments)

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=3))[1:], ids=str)
@pytest.mark.parametrize("input_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_gradients_of_those_that_want_them(device, wanted, input_format):
    """Nothing else is computed: what a mode sees, and how many calls of the library there are without one."""
    asked = []

    class Asked(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), more=None):
            if function is torch.ops.aten.convolution_backward.default:
                asked.append(tuple(arguments[-1]))
            if function is torch.ops.tconv.conv_transpose2d_backward_data.default:
                asked.append("data")
            if function is torch.ops.tconv.conv_transpose2d_backward_weights.default:
                assert (arguments[0] is not None) == wanted[1]
                asked.append(tuple(arguments[-2]))
            return function(*arguments, **(more or {}))

    x, weight, bias = tensors(device)
    x = x.contiguous(memory_format=input_format)
    results = []
    for function in (tt.conv_transpose2d, OP, F.conv_transpose2d):
        leaves = [t.clone().requires_grad_(want) for t, want in zip((x, weight, bias), wanted, strict=True)]
        loss = function(*leaves, stride=2).square().sum()
        with Asked():
            loss.backward()
        results.append([leaf.grad for leaf in leaves])
    for ours in results[:2]:
        for got, expected, want in zip(ours, results[2], wanted, strict=True):
            assert (got is not None) == want == (expected is not None)
            if want:
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
                assert got.stride() == expected.stride() or (
                    got.shape == weight.shape and got.stride() == weight.stride()
                )
    ours = (["data"] if wanted[0] else []) + ([wanted[1:]] if any(wanted[1:]) else [])
    assert asked == [*ours, *ours, wanted]
    leaves = [t.clone().requires_grad_(want) for t, want in zip((x, weight, bias), wanted, strict=True)]
    loss, before = tt.conv_transpose2d(*leaves, stride=2).square().sum(), tt.counters().gradients
    loss.backward()
    fast = [_reasons.of_speed(name, x, "") is None for name in ("input", "weight" if wanted[1] else "bias")]
    count = sum(want and ours for want, ours in zip((wanted[0], any(wanted[1:])), fast, strict=True))
    assert tt.counters().gradients == before + count


def test_the_node_is_a_native_one(device, calls):
    x, weight, bias = tensors(device)
    weight.requires_grad_()
    for function in (tt.conv_transpose2d, OP):
        ours = function(x, weight, bias)
        assert ours.grad_fn.name() == "ConvolutionOverrideableBackward0"
        assert ours.grad_fn.next_functions[1][0].variable is weight
    assert len(calls) == 2


def test_other_convolutions_stay_pytorchs(device, calls):
    x, weight, bias = tensors(device)
    negative = torch._neg_view(x)
    for function in (F.conv2d, F.conv_transpose2d):
        shaped = weight if function is F.conv_transpose2d else weight.transpose(0, 1)
        torch.testing.assert_close(function(negative, shaped), function(-x, shaped), rtol=1e-4, atol=1e-4)
        conjugated, complex_weight = torch.complex(x, 2 * x).conj(), torch.complex(shaped, shaped)
        expected = function(conjugated.resolve_conj(), complex_weight)
        torch.testing.assert_close(function(conjugated, complex_weight), expected, rtol=1e-4, atol=1e-4)
        assert not calls
    with pytest.raises(RuntimeError, match="3D"):  # after which the key must be gone
        tt.conv_transpose2d(x[0, 0], weight.requires_grad_(), bias)
    F.conv_transpose2d(x, weight, bias)
    assert not calls
    tt.conv_transpose2d(x, weight, bias)
    F.conv_transpose2d(x, weight, bias)
    assert len(calls) == 1


def test_error_from_inside_is_the_callers(monkeypatch):
    def fail(*arguments):
        raise tconv.TconvError("a status", "a field", "a message")

    x, weight, bias = tensors()
    weight.requires_grad_()
    forget_plans()
    with monkeypatch.context() as patch:
        patch.setattr(_compute.Plan, "execute", fail)
        with pytest.raises(tconv.TconvError, match="a message"):
            tt.conv_transpose2d(x, weight, bias)
    same(tt.conv_transpose2d(x, weight, bias), F.conv_transpose2d(x, weight, bias))


def test_hooks_of_saved_tensors_may_call_anything():
    """They run while the call is on its way."""
    x, weight, _ = tensors(x=(4, 4, 3, 3), weight=(4, 4, 3, 3), bias=False)
    weight.requires_grad_()
    packed = []

    def pack(tensor):
        packed.append((tensor.detach(), F.conv2d(tensor.detach(), tensor.detach())))
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = tt.conv_transpose2d(x, weight)
    same(result, F.conv_transpose2d(x, weight))
    (ours,), (theirs,) = (torch.autograd.grad(y.sum(), weight) for y in (result, F.conv_transpose2d(x, weight)))
    torch.testing.assert_close(ours, theirs)
    assert packed
    for tensor, convolved in packed:
        torch.testing.assert_close(convolved, F.conv2d(tensor, tensor))


def test_no_graph_without_need():
    x, weight, bias = tensors()
    assert tt.conv_transpose2d(x, weight, bias).grad_fn is None
    with torch.no_grad():
        assert not tt.conv_transpose2d(x, weight.requires_grad_(), bias).requires_grad
    with torch.inference_mode():
        assert tt.conv_transpose2d(x, weight, bias).is_inference()


def test_weights_changed_in_place_are_seen(device):
    module, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device)
    module(x)
    optimizer = torch.optim.SGD([*module.parameters(), *theirs.parameters()], lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        (module(x).square().sum() + theirs(x).square().sum()).backward()
        optimizer.step()
        torch.testing.assert_close(module(x), theirs(x), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        before = module(x)
        module.weight.mul_(2)
        module.bias.zero_()
        assert not torch.allclose(module(x), before)


def test_changed_saved_tensor_is_an_error():
    x, weight, _ = tensors(bias=False)
    weight.requires_grad_()
    result = tt.conv_transpose2d(x, weight)
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


# -------------------------------------------------------------------------------------------- the dispatcher's business


def test_opcheck(device):
    for arguments, unbatched, channels_last in itertools.product(ARGUMENTS, (False, True), (False, True)):
        inputs = tensors(device, x=(4, 5, 6) if unbatched else (2, 4, 5, 6), groups=arguments.get("groups", 1))
        if channels_last:
            inputs[1] = inputs[1].contiguous(memory_format=torch.channels_last)
        for t in inputs:
            t.requires_grad_()
        torch.library.opcheck(torch.ops.tconv.conv_transpose2d.default, tuple(inputs), as_pairs(arguments))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_graph_breaks(device, dynamic, backend, calls):
    class Model(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x.relu()).sigmoid() + F.silu(tt.conv_transpose2d(x, self.layer.weight, None, 2))

    module, _ = pair_of_modules(device, stride=2)
    model = Model(module)
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)
    for size in (5, 7) if dynamic else (5,):
        x = torch.randn(2, 4, size, 6, device=device, requires_grad=True)
        expected, before = model(x), len(calls)
        result = compiled(x)
        assert len(calls) == before + 2
        torch.testing.assert_close(result, expected)
        ours, theirs = (torch.autograd.grad(y.square().sum(), [x, module.weight]) for y in (result, expected))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_compiled_channels_last_keeps_strides(device):
    module, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device).contiguous(memory_format=torch.channels_last)
    same(torch.compile(module, fullgraph=True, backend="aot_eager")(x), theirs(x))


def test_export(device):
    module, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
    assert any("tconv.conv_transpose2d" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(torch.cat([x, x])), theirs(torch.cat([x, x])))


def test_fake_and_meta_tensors():
    from torch._subclasses import FakeTensorMode

    module, theirs = pair_of_modules("meta")
    x = torch.randn(2, 4, 5, 6, device="meta")
    assert module(x).shape == theirs(x).shape and module(x).is_meta
    assert OP(x, module.weight).shape == (2, 3, 7, 8)
    lying = X.contiguous(memory_format=torch.channels_last)
    with FakeTensorMode() as mode:
        x, weight = mode.from_tensor(lying), mode.from_tensor(W)
        ours, reference = tt.conv_transpose2d(x, weight), F.conv_transpose2d(x, weight)
    assert ours.stride() == reference.stride()
    ours = tt.conv_transpose2d(x, weight)  # fake tensors outside their mode
    assert type(ours) is type(reference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(device, dtype, calls):
    module, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device)
    with torch.autocast(device, dtype):
        ours, reference = module(x), theirs(x)
        same(ours, reference)
        assert tt.conv_transpose2d(X.double().to(device), W.double().to(device)).dtype == torch.float64
        with torch.autocast(device, enabled=False):
            assert module(x).dtype == torch.float32
    ours.float().sum().backward()
    reference.float().sum().backward()
    assert module.weight.grad.dtype == torch.float32
    torch.testing.assert_close(module.weight.grad, theirs.weight.grad, rtol=0.05, atol=0.5)
    assert len(calls) == 3


def test_autocast_casts_a_weight_once(device):
    """As PyTorch does until the block ends."""
    module, _ = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device)
    with torch.autocast(device, torch.bfloat16):
        casts = [module(x).grad_fn.next_functions[1][0] for _ in range(2)]
    assert casts[0] is casts[1] and "ToCopy" in casts[0].name()


def test_autocast_needs_no_dispatcher(device, monkeypatch):
    def through(*arguments):
        raise AssertionError("an eager call went through the dispatcher")

    monkeypatch.setattr(_functional, "_through_the_dispatcher", through)
    x, weight, bias = tensors(device)
    weight.requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        same(tt.conv_transpose2d(x, weight, bias), F.conv_transpose2d(x, weight, bias))
        long = [t.long() for t in (x, weight.detach(), bias)]  # PyTorch's, which does not cast these
        arguments = dict(zip(("input", "weight", "bias"), long, strict=True))
        ours, theirs = outcome(tt.conv_transpose2d, arguments), outcome(F.conv_transpose2d, arguments)
        assert ours == theirs if isinstance(theirs, tuple) else torch.equal(ours, theirs)


def test_deterministic_algorithms_do_not_complain(device):
    module, _ = pair_of_modules(device)
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.randn(2, 4, 5, 6, device=device, requires_grad=True)
        assert torch.equal(module(x), module(x))
        module(x).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_transforms_and_forward_derivatives():
    x, weight, bias = tensors(dtype=torch.float64)
    many = torch.stack([x, 2 * x])
    for f in (tt.conv_transpose2d, F.conv_transpose2d):
        mapped = torch.func.vmap(f, (0, None, None))(many, weight, bias)
        torch.testing.assert_close(mapped[1], F.conv_transpose2d(2 * x, weight, bias))
        gradient = torch.func.grad(lambda w, f=f: f(x, w).square().sum())(weight)
        torch.testing.assert_close(gradient, torch.func.grad(lambda w: F.conv_transpose2d(x, w).square().sum())(weight))
        _, tangent = torch.func.jvp(lambda x, f=f: f(x, weight), (x,), (x,))
        torch.testing.assert_close(tangent, F.conv_transpose2d(x, weight))


def test_checkpoint_and_hooks():
    from torch.utils.checkpoint import checkpoint

    module, theirs = pair_of_modules("cpu")
    seen = []
    module.register_forward_hook(lambda *arguments: seen.append("forward"))
    module.weight.register_hook(lambda grad: seen.append("weight"))
    x = torch.randn(2, 4, 5, 6, requires_grad=True)
    checkpoint(module, x, use_reentrant=False).sum().backward()
    assert seen[0] == "forward" and seen[-1] == "weight"
    theirs(x).sum().backward()
    torch.testing.assert_close(module.weight.grad, theirs.weight.grad)


def test_profiler_names_the_operator():
    with torch.profiler.profile() as profile:
        tt.conv_transpose2d(X, W)
    assert "tconv::conv_transpose2d" in {event.key for event in profile.key_averages()}


def test_tracing_and_scripting():
    module, theirs = pair_of_modules("cpu")
    torch.testing.assert_close(torch.jit.script(module)(X), theirs(X))
    torch.testing.assert_close(torch.jit.trace(module, X)(X), theirs(X))
    graph = torch.fx.symbolic_trace(nn.Sequential(module))
    torch.testing.assert_close(graph(X), theirs(X))
    assert tt.conv_transpose2d in {node.target for node in graph.graph.nodes}


def test_number_of_threads_is_pytorchs(calls):
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            tt.conv_transpose2d(X, W)
    finally:
        torch.set_num_threads(before)
    assert len({id(layer) for layer in calls}) == 2


def test_threads_share_the_cache():
    forget_plans()
    inputs = [torch.randn(1, 4, 5, 6 + i) for i in range(4)]
    expected = [F.conv_transpose2d(x, W) for x in inputs]
    wrong = []

    def work():
        for i in list(range(4)) * 50:
            if not torch.allclose(tt.conv_transpose2d(inputs[i], W), expected[i], atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(_compute.layers) == 4


def test_unaligned_memory_is_computed_by_pytorch():
    memory = bytearray(1 + 4 * X.numel())
    x = torch.frombuffer(memory, dtype=torch.float32, offset=1, count=X.numel()).view(X.shape).copy_(X)
    assert x.data_ptr() % 4
    torch.testing.assert_close(tt.conv_transpose2d(x, W, B), F.conv_transpose2d(X, W, B))
    torch.testing.assert_close(tt.conv_transpose2d(x[0], W, B), F.conv_transpose2d(X[0], W, B))


def test_refused_by_tconv_is_computed_by_pytorch(monkeypatch):
    def refuse(*arguments):
        raise tconv.UnavailableError("TCONV_ERROR_UNAVAILABLE", "backend", "not here")

    forget_plans()
    monkeypatch.setattr(_compute, "Plan", refuse)
    same(tt.conv_transpose2d(X, W, B), F.conv_transpose2d(X, W, B))
    forget_plans()


# ----------------------------------------------------------------------------------------------------------- the module


def pair_of_modules(device, *arguments, **more):
    """Ours and PyTorch's with the same parameters."""
    arguments = arguments or (4, 3, 3)
    ours, theirs = (kind(*arguments, **more, device=device) for kind in (tt.ConvTranspose2d, nn.ConvTranspose2d))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def test_module_is_pytorchs_but_for_forward():
    torch.manual_seed(1)
    ours = tt.ConvTranspose2d(4, 6, (3, 2), 2, 1, 1, 2, False, 2, "zeros")
    torch.manual_seed(1)
    theirs = nn.ConvTranspose2d(4, 6, (3, 2), 2, 1, 1, 2, False, 2, "zeros")
    assert repr(ours) == repr(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours.weight, theirs.weight)
    assert [n for n in vars(tt.ConvTranspose2d) if not n.startswith("_")] == ["forward"]


@pytest.mark.parametrize("wrong", [(4, 3, 3, 1, 0, 0, 3), (4, 3, 3, 1, 0, 0, 1, True, 1, "reflect"), (4, 3)])
def test_constructor_mistakes(wrong):
    assert outcome(lambda: tt.ConvTranspose2d(*wrong), {}) == outcome(lambda: nn.ConvTranspose2d(*wrong), {})


def test_output_size(device):
    ours, theirs = pair_of_modules(device, 4, 3, 3, stride=(2, 3), padding=1)
    for x in (torch.randn(2, 4, 5, 6, device=device), torch.randn(4, 5, 6, device=device)):
        for size in ([9, 16], [10, 18], torch.Size([9, 17]), [*([2] if x.dim() == 4 else []), 3, 10, 16]):
            same(ours(x, size), theirs(x, output_size=size))
        for size in ([8, 16], [11, 16], [9], [1, 2, 3, 4, 5]):
            assert outcome(ours, dict(input=x, output_size=size)) == outcome(theirs, dict(input=x, output_size=size))


def test_padding_mode_changed_later():
    ours, theirs = pair_of_modules("cpu")
    ours.padding_mode = theirs.padding_mode = "circular"
    assert outcome(ours, dict(input=X)) == outcome(theirs, dict(input=X))


def test_copies_pickles_and_saves():
    ours, _ = pair_of_modules("cpu")
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False)]
    for other in copies:
        assert type(other) is tt.ConvTranspose2d and torch.equal(other(X), ours(X))
    weights = io.BytesIO()
    torch.save(ours.state_dict(), weights)
    weights.seek(0)
    loaded = nn.ConvTranspose2d(4, 3, 3)
    loaded.load_state_dict(torch.load(weights, weights_only=True))
    assert torch.equal(loaded.weight, ours.weight)


def test_lazy(calls):
    lazy = tt.LazyConvTranspose2d(3, 3)
    theirs = nn.LazyConvTranspose2d(3, 3)
    assert repr(lazy) == repr(theirs)
    lazy(X)
    assert type(lazy) is tt.ConvTranspose2d and lazy.in_channels == 4 and len(calls) == 1


# ------------------------------------------------------------------------------------------------------------- replace


class Scaled(nn.ConvTranspose2d):
    def forward(self, input, output_size=None):
        return 2 * super().forward(input, output_size)


def test_replace(calls):
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 3, 3),
        nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.Conv2d(4, 4, 1)),
        nn.utils.weight_norm(nn.ConvTranspose2d(4, 4, 3)),
        parametrizations.weight_norm(nn.ConvTranspose2d(4, 4, 3)),
        parametrizations.spectral_norm(nn.ConvTranspose2d(4, 4, 3)),
        Scaled(4, 4, 3),
        nn.LazyConvTranspose2d(4, 3),
        nn.ConvTranspose2d(4, 4, 3),
        tt.ConvTranspose2d(4, 4, 1),
        torch.jit.script(nn.ConvTranspose2d(4, 4, 1)),
    )
    model[7].forward = model[7].forward
    seen = []
    model[0].register_forward_hook(lambda *arguments: seen.append(0))
    model.eval()
    expected = model(X)
    parameters, modules = dict(model.named_parameters()), list(model.modules())
    names = [str(i) for i in (0, "1.0", 2, 3, 4, 6)]
    model[6] = nn.LazyConvTranspose2d(4, 3)
    replaced = tt.replace(model)
    assert replaced.swapped == names
    assert set(replaced.left) == {"5", "7", "9"} and "Scaled" in replaced.left["5"] and "forward" in replaced.left["7"]
    assert "1.0: tconv" in str(replaced) and "9: left, it is scripted" in str(replaced)
    assert [*map(id, modules[:9])] == [*map(id, [*model.modules()][:9])]
    for name, parameter in model.named_parameters():
        if not name.startswith("6."):
            assert parameters[name] is parameter
    assert not any(module.training for name, module in model.named_modules() if name != "6")
    model[6](torch.randn(1, 4, 2, 2))
    assert type(model[6]) is tt.ConvTranspose2d
    model[6].load_state_dict({name[2:]: p for name, p in parameters.items() if name.startswith("6.")})
    calls.clear()
    torch.testing.assert_close(model(X), expected, rtol=1e-4, atol=1e-5)
    assert len(calls) == 7 and seen == [0, 0]
    assert tt.replace(model).swapped == []


def test_replaced_parametrizations_come_off():
    layer = parametrizations.weight_norm(nn.ConvTranspose2d(4, 3, 3))
    expected = layer(X)
    assert tt.replace(layer).swapped == [""]
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is tt.ConvTranspose2d
    torch.testing.assert_close(layer(X), expected)


# ----------------------------------------------------------------------------------------------------------- CUDA alone


@pytest.fixture
def cuda(request):
    from conftest import cuda_missing

    if why := cuda_missing():
        pytest.skip(f"this needs a GPU: {why}")
    return "cuda"


@pytest.mark.cuda
def test_tf32_follows_pytorchs_flag(cuda, calls):
    x, weight, _ = tensors(cuda, x=(2, 64, 32, 32), weight=(64, 64, 3, 3), bias=False)
    exact = F.conv_transpose2d(x.double(), weight.double())

    def error():
        return ((tt.conv_transpose2d(x, weight) - exact).norm() / exact.norm()).item()

    assert error() < 1e-6
    torch._C._set_cudnn_allow_tf32(True)
    assert 1e-6 < error() < 5e-4
    if hasattr(torch._C, "_set_fp32_precision_setter"):  # torch.backends.cudnn.conv.fp32_precision
        torch._C._set_fp32_precision_setter("cuda", "conv", "ieee")
        assert error() < 1e-6
    assert all(layer.plan.implementation.startswith("cuda_") for layer in calls)


@pytest.mark.cuda
def test_strides_without_cudnn(cuda):
    x, weight, _ = tensors(cuda, bias=False)
    x = x.contiguous(memory_format=torch.channels_last)
    strides = set()
    for enabled in (True, False):
        before = torch._C._get_cudnn_enabled()
        torch._C._set_cudnn_enabled(enabled)
        try:
            same(tt.conv_transpose2d(x, weight), F.conv_transpose2d(x, weight))
            strides.add(F.conv_transpose2d(x, weight).stride())
        finally:
            torch._C._set_cudnn_enabled(before)
    assert len(strides) == 2


@pytest.mark.cuda
def test_current_stream_is_used(cuda):
    x, weight, bias = tensors(cuda, x=(8, 64, 64, 64), weight=(64, 64, 3, 3))
    expected = F.conv_transpose2d(2 * x, weight, bias)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            later = x * 2
            result = tt.conv_transpose2d(later, weight, bias)
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.cuda
def test_graph_capture_and_replay(cuda):
    module, theirs = pair_of_modules(cuda, 64, 32, 4, stride=2, padding=1)
    x = torch.randn(4, 64, 16, 16, device=cuda)
    with torch.no_grad():
        module(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module(x)
        for _ in range(3):
            x.normal_()
            module.weight.mul_(1.5)
            theirs.weight.mul_(1.5)
            graph.replay()
            torch.testing.assert_close(result, theirs(x), rtol=1e-3, atol=1e-3)


@pytest.mark.cuda
def test_second_device(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("this needs two GPUs")
    module, theirs = pair_of_modules("cuda:1")
    x = torch.randn(2, 4, 5, 6, device="cuda:1")
    same(module(x), theirs(x))
    assert torch.cuda.current_device() == 0
    assert outcome(module, dict(input=x.to("cuda:0"))) == outcome(theirs, dict(input=x.to("cuda:0")))


@pytest.mark.cuda
def test_devices_that_differ(cuda):
    arguments = dict(input=X.to(cuda), weight=W)
    assert outcome(tt.conv_transpose2d, arguments) == outcome(F.conv_transpose2d, arguments)
    arguments = dict(input=X.to(cuda), weight=W.to(cuda), bias=B)
    assert outcome(tt.conv_transpose2d, arguments) == outcome(F.conv_transpose2d, arguments)


@pytest.mark.cuda
def test_dlpack_on_cuda(cuda):
    x, weight, bias = tensors(cuda)
    expected = F.conv_transpose2d(x, weight, bias)
    same(tconv.conv_transpose2d(x, weight, bias), expected)
    out = torch.empty_like(expected)
    assert tconv.conv_transpose2d(x, weight, bias, out=out) is out
    same(out, expected)
    staged = tconv.conv_transpose2d(*(t.cpu().numpy() for t in (x, weight, bias)), backend="cuda")
    torch.testing.assert_close(torch.from_numpy(staged), expected.cpu(), rtol=1e-5, atol=1e-5)
