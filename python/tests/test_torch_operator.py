"""The operators torch.ops.tconv.conv_transpose1d and conv_transpose2d: derivatives of both modes, torch.func's
transforms, modes, by themselves and below torch.compile, torch.export and tracing. Right or refused."""

import functools
import itertools
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.autograd.forward_ad as forward_ad  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import tconv.torch as tt  # noqa: E402

OPERATORS = {
    1: torch.ops.tconv.conv_transpose1d.default,
    2: torch.ops.tconv.conv_transpose2d.default,
    3: torch.ops.tconv.conv_transpose3d.default,
}
FUNCTIONS = {1: tt.conv_transpose1d, 2: tt.conv_transpose2d, 3: tt.conv_transpose3d}
PYTORCHS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
COMPILERS = {
    "eager": lambda function: function,
    "compiled": lambda function: torch.compile(function, backend="aot_eager", fullgraph=True),
}


def raw(spatial):
    """The operator with the function's arguments."""

    def call(input, weight, bias=None, stride=1, groups=1):
        return OPERATORS[spatial](input, weight, bias, [stride] * spatial, groups=groups)

    return call


def as_module(function):
    class Module(nn.Module):
        def forward(self, input, weight, bias):
            return function(input, weight, bias, 2)

    return Module()


def exported(spatial, tensors):
    return torch.export.export(as_module(FUNCTIONS[spatial]), tensors).module()


def traced(spatial, tensors):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(as_module(FUNCTIONS[spatial]), tensors)


# What is called, made from the number of spatial axes and example tensors.
CALLS = {
    "function": lambda spatial, tensors: as_module(FUNCTIONS[spatial]),
    "operator": lambda spatial, tensors: as_module(raw(spatial)),
    "exported": exported,
    "traced": traced,
}


def tensors(device="cpu", spatial=2, dtype=torch.float64):
    extents, kernel = {1: ((3,), (2,)), 2: ((3, 2), (2, 3)), 3: ((2, 1, 2), (1, 2, 2))}[spatial]
    shapes = ((2, 4, *extents), (4, 2, *kernel), (2,))
    return tuple(torch.randn(shape, dtype=dtype, device=device) for shape in shapes)


def counted(function):
    """The answer, and how many calls tconv computed for it."""
    before = tt.counters().taken
    return function(), tt.counters().taken - before


pytestmark = pytest.mark.usefixtures("compiled_anew")


# --------------------------------------------------------------------------------------------------------- derivatives


def dual(call, tensors):
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, t.square()) for t in tensors]
        return tuple(forward_ad.unpack_dual(call(*duals)))


TRANSFORMS = {
    "jvp": lambda call: lambda *t: jvp(call, t, tuple(2 * u for u in t)),
    "jvp of the input": lambda call: lambda x, *t: jvp(lambda a: call(a, *t), (x,), (x,)),
    "jvp of the weight": lambda call: lambda x, w, b: jvp(lambda a: call(x, a, b), (w,), (w,)),
    "jacfwd": lambda call: lambda *t: [jacfwd(call, i)(*t) for i in range(3)],
    "jacrev": lambda call: lambda *t: [jacrev(call, i)(*t) for i in range(3)],
    "grad": lambda call: grad(lambda *t: call(*t).square().sum(), (0, 1, 2)),
    "vjp": lambda call: lambda x, w, b: vjp(call, x, w, b)[1](call(x, w, b)),
    "hessian": lambda call: hessian(lambda *t: call(*t).pow(3).sum(), 1),
    "grad of grad": lambda call: grad(lambda *t: grad(lambda *u: call(*u).pow(3).sum())(*t).square().sum(), (0, 1)),
    "grad of jvp": lambda call: grad(lambda x, *t: jvp(lambda a: call(a, *t), (x,), (x * x,))[1].square().sum()),
    "jvp of grad": lambda call: lambda x, *t: jvp(grad(lambda a: call(a, *t).pow(3).sum()), (x,), (x,)),
    "jvp of jvp": lambda call: (
        lambda x, w, b: jvp(lambda a: jvp(lambda c: call(c, w * c.sum(), b), (a,), (a,))[1], (x,), (x,))
    ),
    "gradients of a map's parts": lambda call: (
        lambda x, *t: vmap(grad(lambda w, b, a: call(a, w, b).square().sum(), (0, 1)), (None, None, 0))(
            *t, torch.stack([x, -x])
        )
    ),
    "gradient of a map": lambda call: grad(
        lambda x, *t: vmap(lambda a: call(a, *t))(torch.stack([x, -x])).square().sum(), (0, 1, 2)
    ),
    "jvp of a map": lambda call: (
        lambda x, *t: jvp(lambda a: vmap(lambda c: call(c, *t))(torch.stack([a, -a])), (x,), (x,))
    ),
    "map of jvp": lambda call: (
        lambda x, *t: vmap(lambda a: jvp(lambda c: call(c, *t), (a,), (a,)))(torch.stack([x, -x]))
    ),
    "duals": lambda call: lambda *t: dual(call, t),
}
# PyTorch's own function cannot be compiled so either.
REFUSED = {("compiled", "jvp of jvp")}


@pytest.mark.parametrize("how", COMPILERS)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("called", CALLS)
def test_transforms(device, called, transform, how):
    if how == "compiled" and (called == "traced" or (called == "exported" and transform not in ("jvp", "grad"))):
        pytest.skip("torch.compile does not look into traced modules, and sees the operator in exported ones")
    spatials = (2,) if how == "compiled" or called == "exported" else (1, 2, 3)
    for spatial in spatials:
        given = tensors(device, spatial)
        call = CALLS[called](spatial, given)
        expected = TRANSFORMS[transform](as_module(PYTORCHS[spatial]))(*given)
        compiled = COMPILERS[how](TRANSFORMS[transform](call))
        if (how, transform) in REFUSED:
            with pytest.raises(RuntimeError):
                compiled(*given)
        else:
            result, calls = counted(lambda compiled=compiled, given=given: compiled(*given))
            torch.testing.assert_close(result, expected)
            assert calls


@pytest.mark.parametrize(("transform", "dynamic"), [("jvp", False), ("gradients of a map's parts", True)])
def test_transforms_by_inductor(device, transform, dynamic):
    given = tensors(device)
    compiled = torch.compile(TRANSFORMS[transform](as_module(tt.conv_transpose2d)), fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(*given), TRANSFORMS[transform](as_module(F.conv_transpose2d))(*given))


@pytest.mark.parametrize("transform", [linearize, torch.func.functionalize], ids=["linearize", "functionalize"])
def test_transforms_that_trace(device, transform):
    given = tensors(device)
    if transform is linearize:
        results = [linearize(f, *given)[1](*given) for f in (tt.conv_transpose2d, F.conv_transpose2d)]
    else:
        results = [transform(f)(*given) for f in (tt.conv_transpose2d, F.conv_transpose2d)]
    torch.testing.assert_close(*results)


def test_forward_level_inside_of_a_compiled_program(device):
    """Which enters it without torch.autograd.forward_ad's knowing."""
    given = tensors(device)
    for call in (tt.conv_transpose2d, raw(2)):
        compiled = torch.compile(lambda *t, call=call: dual(call, t), backend="aot_eager")
        torch.testing.assert_close(compiled(*given), dual(F.conv_transpose2d, given))


def test_forward_derivatives_of_compiled_programs(device):
    given = tensors(device)
    compiled = torch.compile(tt.conv_transpose2d, backend="aot_eager")
    compiled(*given)
    torch.testing.assert_close(dual(compiled, given), dual(F.conv_transpose2d, given))
    with torch.no_grad():
        torch.testing.assert_close(dual(tt.conv_transpose2d, given), dual(F.conv_transpose2d, given))
    with forward_ad.dual_level(), forward_ad._set_fwd_grad_enabled(False):
        assert forward_ad.unpack_dual(raw(2)(*given)).tangent is None


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("called", ["function", "operator"])
def test_gradcheck_of_both_modes(device, called, images, groups, spatial):
    x, weight, bias = tensors(device, spatial)
    given = (x if images else x[0], weight, bias.repeat(groups))
    call = functools.partial((FUNCTIONS[spatial], raw(spatial))[called == "operator"], stride=2, groups=groups)
    for t in given:
        t.requires_grad_()
    assert torch.autograd.gradcheck(
        call, given, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(call, given, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_pytorchs_samples_in_forward_mode(device):
    methods = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)
    for spatial in (1, 2, 3):
        (info,) = [op for op in methods.op_db if op.name == f"nn.functional.conv_transpose{spatial}d"]
        for sample in info.sample_inputs(device, torch.float64):
            given = [sample.input, *(t for t in sample.args if t is not None)]
            results = [
                jvp(lambda *t, f=f, sample=sample: f(*t, **sample.kwargs), tuple(given), tuple(given))
                for f in (FUNCTIONS[spatial], PYTORCHS[spatial])
            ]
            torch.testing.assert_close(*results)


# ---------------------------------------------------------------------------------------------------------------- vmap


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("images", [False, True])
def test_a_map_is_one_call(device, images, groups, spatial):
    shapes = [(3, 4, *[3] * spatial)[not images :], (4, 2, *[2] * spatial), (2 * groups,)]
    for x, weight, bias in itertools.product((None, 0, 1, -1), (None, 0, 2, -1), (None, 0, 1, False)):
        if (x, weight) == (None, None) and bias in (None, False):
            continue
        given = []
        for shape, dim in zip(shapes, (x, weight, bias), strict=True):
            t = torch.randn(shape, dtype=torch.float64, device=device)
            moved = dim is not None and dim is not False
            given.append(None if dim is False else torch.stack([t, -t, 2 * t], dim) if moved else t)
        dims = (x, weight, None if bias is False else bias)
        ours, calls = counted(lambda: vmap(lambda *t: FUNCTIONS[spatial](*t, 2, groups=groups), dims)(*given))  # noqa: B023
        torch.testing.assert_close(ours, vmap(lambda *t: PYTORCHS[spatial](*t, 2, groups=groups), dims)(*given))
        assert calls == 1


@pytest.mark.parametrize("called", CALLS)
@pytest.mark.parametrize("how", COMPILERS)
def test_maps(device, called, how):
    if how == "compiled" and called == "traced":
        pytest.skip("torch.compile does not look into traced modules")
    given = tensors(device)
    call = CALLS[called](2, given)
    for dims in ((0, None, None), (None, 0, None), (0, 0, 0), (0, None, 0)):
        torch._dynamo.reset()
        many = [t if dim is None else torch.stack([t, 2 * t]) for t, dim in zip(given, dims, strict=True)]
        result = COMPILERS[how](vmap(call, dims))(*many)
        torch.testing.assert_close(result, vmap(as_module(F.conv_transpose2d), dims)(*many))


@pytest.mark.parametrize("how", COMPILERS)
def test_maps_of_maps(device, how):
    x, weight, bias = tensors(device)
    images, weights = torch.stack([x, 2 * x, -x]), torch.stack([weight, -weight])

    def nested(call):
        return lambda images, weights: vmap(lambda x: vmap(lambda w: call(x, w, bias))(weights))(images)

    result, calls = counted(lambda: COMPILERS[how](nested(tt.conv_transpose2d))(images, weights))
    torch.testing.assert_close(result, nested(F.conv_transpose2d)(images, weights))
    assert calls == 1


def test_ensembles_of_modules(device):
    """One call for all of them, and gradients by plain autograd around the map."""
    modules = [tt.ConvTranspose2d(4, 2, 3, dtype=torch.float64, device=device) for _ in range(3)]
    parameters, _ = torch.func.stack_module_state(modules)
    x, *_ = tensors(device)

    def call(parameters, x):
        return torch.func.functional_call(modules[0], parameters, (x,))

    for how in COMPILERS.values():
        result, calls = counted(lambda how=how: how(vmap(call, (0, None)))(parameters, x))
        expected = torch.stack([F.conv_transpose2d(x, m.weight, m.bias) for m in modules])
        torch.testing.assert_close(result, expected)
        assert calls == 1
        ours = torch.autograd.grad(result.square().sum(), list(parameters.values()))
        theirs = torch.autograd.grad(expected.square().sum(), [p for m in modules for p in (m.weight, m.bias)])
        torch.testing.assert_close(ours, (torch.stack(theirs[::2]), torch.stack(theirs[1::2])))


def test_a_map_of_mistakes_says_what_a_part_says():
    x, weight, bias = (torch.stack([t, t]) for t in tensors())
    mistakes = [
        (x[:, :, :3], weight, bias),
        (x[:, 0, 0], weight, bias),
        (x, weight[:, :3], bias),
        (x, weight.float(), bias),
        (x, weight, bias[:, :1]),
        (x.float(), weight, bias),
    ]
    for given in mistakes:
        errors = []
        for call in (lambda: vmap(tt.conv_transpose2d)(*given), lambda: F.conv_transpose2d(*(t[0] for t in given))):  # noqa: B023
            with pytest.raises(RuntimeError) as error:
                call()
            errors.append(str(error.value))
        assert errors[0] == errors[1]
    with pytest.raises(RuntimeError, match="groups"):
        vmap(lambda x: tt.conv_transpose2d(x, weight[0], groups=0))(x)


def test_a_map_under_autocast_has_the_type_of_its_parts(device):
    x, weight, bias = tensors(device, dtype=torch.float32)
    with torch.autocast(device, torch.bfloat16):
        for dims in ((0, None, None), (0, None, 0), (0, 0, 0)):
            pairs = list(zip((x, weight, bias), dims, strict=True))
            mapped = vmap(tt.conv_transpose2d, dims)(
                *(t if dim is None else torch.stack([t, 2 * t]) for t, dim in pairs)
            )
            last = F.conv_transpose2d(*(t if dim is None else 2 * t for t, dim in pairs))
            torch.testing.assert_close(mapped[1], last, rtol=0.05, atol=0.1)


# ------------------------------------------------------------------------------------------------------ what modes see


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        self.operators.append(function)
        return function(*arguments, **(more or {}))


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("wanted", [False, True])
def test_modes_see_the_operator_alone(device, wanted, spatial):
    given = [t.requires_grad_(wanted) for t in tensors(device, spatial)]
    for call in (FUNCTIONS[spatial], raw(spatial)):
        with Seen() as seen:
            call(*given)
        assert seen.operators == [OPERATORS[spatial]]
    graph = make_fx(lambda *t: FUNCTIONS[spatial](*t))(*given).graph
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [OPERATORS[spatial]]


def test_subclasses_see_the_operator(device):
    x, weight, _ = tensors(device)
    both = TwoTensor(x, 2 * x)
    for call in (tt.conv_transpose2d, raw(2), torch.compile(raw(2), backend="aot_eager", fullgraph=True)):
        result = call(both, weight.requires_grad_())
        torch.testing.assert_close(result.b, 2 * result.a)
        torch.testing.assert_close(result.a, F.conv_transpose2d(x, weight))


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_flops_are_pytorchs(device, spatial):
    x, weight, bias = tensors(device, spatial)
    totals = []
    for call in (FUNCTIONS[spatial], raw(spatial), PYTORCHS[spatial]):
        with FlopCounterMode(display=False) as counter:
            call(x, weight.requires_grad_(), bias, 2).sum().backward()
        totals.append(counter.get_total_flops())
    assert totals[0] == totals[1] == totals[2] > 0
    with FlopCounterMode(display=False) as counter:
        FUNCTIONS[spatial](x[0], weight.detach())  # where PyTorch's goes through an image of its own
        raw(spatial)(x[0], weight.detach())
    assert counter.get_total_flops() == 2 * weight.numel() * x[0, 0].numel() * 2


@pytest.mark.parametrize("kept", [False, True])
def test_selective_checkpointing_by_the_operator(device, kept):
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    x, weight, bias = (t.requires_grad_() for t in tensors(device))
    listed = [OPERATORS[2]] if kept else [torch.ops.aten.convolution.default]
    contexts = functools.partial(create_selective_checkpoint_contexts, listed)

    def block(*given):
        return tt.conv_transpose2d(*given).relu().square().sum()

    def run():
        checkpoint(block, x, weight, bias, use_reentrant=False, context_fn=contexts).backward()

    _, calls = counted(run)
    assert calls == (1 if kept else 2)
    expected = torch.autograd.grad(F.conv_transpose2d(x, weight, bias).relu().square().sum(), (x, weight, bias))
    torch.testing.assert_close((x.grad, weight.grad, bias.grad), expected)


# ----------------------------------------------------------------------------------------- rules, and what lies around


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_opcheck(device, spatial, images):
    x, weight, bias = (t.requires_grad_() for t in tensors(device, spatial, torch.float32))
    for options in (dict(), dict(stride=[2] * spatial, padding=[1] * spatial, dilation=[2] * spatial, groups=2)):
        given = (x if images else x[0].detach(), weight, bias.repeat(options.get("groups", 1)))
        torch.library.opcheck(OPERATORS[spatial], tuple(t.detach().requires_grad_() for t in given), options)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_decompositions(device, spatial):
    given = tensors(device, spatial)
    graph = make_fx(lambda *t: raw(spatial)(*t), decomposition_table=tt.decompositions())(*given)
    assert [node.target for node in graph.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.convolution.default
    ]
    torch.testing.assert_close(graph(*given), PYTORCHS[spatial](*given))


def test_conjugated_tensors(device):
    """Their dispatch key is the operator's way below autograd."""
    x, weight, _ = tensors(device)
    x, weight = torch.complex(x, 2 * x).conj(), torch.complex(weight, -weight)
    plain = x.resolve_conj()
    torch.testing.assert_close(F.conv2d(x, x), F.conv2d(plain, plain))
    for call in (F.conv_transpose2d, tt.conv_transpose2d, raw(2)):
        torch.testing.assert_close(call(x, weight), F.conv_transpose2d(plain, weight))
        torch.testing.assert_close(
            torch.autograd.grad(call(x, weight.requires_grad_()).abs().sum(), weight),
            torch.autograd.grad(F.conv_transpose2d(plain, weight).abs().sum(), weight),
        )
        assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Conjugate)


def test_error_leaves_no_key_behind():
    x, weight, _ = tensors()
    with pytest.raises(RuntimeError, match="3D"):
        raw(2)(x[0, 0], weight.requires_grad_())
    assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Conjugate)
    _, calls = counted(lambda: F.conv_transpose2d(x, weight))
    assert not calls


def test_the_node_is_a_native_one(device):
    x, weight, bias = (t.requires_grad_() for t in tensors(device))
    result = raw(2)(x, weight, bias)
    assert result.grad_fn.name() == "ConvolutionOverrideableBackward0"
    with torch.no_grad():
        weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
