"""Gradients that are PyTorch's: what the library does not have, the rule on CUDA, mistakes, exceptions."""

import functools

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.func import grad, jvp, vmap  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_differentiated import (  # noqa: E402
    DATA,
    LAYERS,
    WEIGHTS,
    counted,
    example,
    gradients_by,
    of_data,
    of_weights,
    operands,
    second_order,
)

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _gradients, _reasons  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_anew", "deterministic")


# ------------------------------------------------------------------------------------------------------- what is left


@pytest.mark.parametrize("missing", [("data",), ("weights",), ("data", "weights")], ids=str)
def test_what_the_library_does_not_have_is_pytorchs(monkeypatch, missing):
    """By one plan that is refused, for each operation by itself; explain says so, and counters."""
    refused = []

    def make_plan(desc, *more):
        if desc.op in [getattr(tconv._library, f"OP_BACKWARD_{name.upper()}") for name in missing]:
            refused.append(desc.op)
            raise tconv.UnsupportedError("TCONV_ERROR_UNSUPPORTED", "op", "op = some gradient: not on this device")
        return _compute.make_plan(desc, *more)

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

    def rule(name, implementation="cuda_wgrad", deterministic=False):
        return _reasons.of_speed(name, OnCuda, implementation, deterministic)

    monkeypatch.setitem(_reasons.FAST_ON_CUDA, "weight", frozenset({torch.float32}))
    assert rule("weight") is None and "general implementation" in rule("weight", "cuda_general").text
    assert "gradient of the bias" in rule("bias").text
    monkeypatch.setattr(OnCuda, "dtype", torch.bfloat16)
    assert "of the weight in torch.bfloat16" in rule("weight").text
    assert rule("weight", "cuda_general", True) is None is rule("bias", deterministic=True)
    assert rule("input") is None and rule("output", "cuda_general") is None
    monkeypatch.setitem(_reasons.FAST_ON_CUDA, "output", frozenset({torch.float32}))
    assert rule("output").text == "the output in torch.bfloat16 is as fast or faster by PyTorch on CUDA"
    monkeypatch.setattr(OnCuda, "dtype", torch.float32)
    monkeypatch.setitem(_reasons.SLOW_ON_CUDA, "output", frozenset({"cuda_general"}))
    assert rule("output") is None and "alone for the output" in rule("output", "cuda_general").text


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
