"""The shim's gradients: those of known layers without Python, and everything that it passes on."""

import itertools
import resource

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch_layers import FUNCTIONS, in_threads_that_forget, tensors  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _backward, _native, _reasons  # noqa: E402

pytestmark = pytest.mark.skipif(not _native.is_installed(), reason="libtconv_torch.so is not beside the library")


@pytest.fixture
def no_python_for_gradients(monkeypatch):
    def wanted(*arguments):
        raise AssertionError("Python was asked for gradients that are known")

    return lambda: monkeypatch.setattr(_backward, "_backward", wanted)


def differentiated(function, leaves, arguments, cotangent, **more):
    result = function(*leaves, *arguments)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    return torch.autograd.grad(result, wanted, torch.ones_like(result) if cotangent is None else cotangent, **more)


@pytest.mark.parametrize("spatial", FUNCTIONS)
@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=3))[1:], ids=str)
def test_known_gradients_need_no_python(device, spatial, wanted, no_python_for_gradients, deterministic):
    ours, theirs = FUNCTIONS[spatial]
    leaves = [t.requires_grad_(want) for t, want in zip(tensors(device, spatial), wanted, strict=True)]
    arguments, before = (2, 1, 1, 1, 2), None
    expected = differentiated(theirs, leaves, arguments, None)
    for _ in range(3):
        found = differentiated(ours, leaves, arguments, None)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        if before is not None:
            assert _native.gradients() == before + wanted[0] + (wanted[1] or wanted[2])
        no_python_for_gradients()
        before = _native.gradients()


LYING = {
    "contiguous": lambda t: t,
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "every other column": lambda t: t.repeat_interleave(2, 3)[..., ::2],
    "channels last of all": lambda t: t.transpose(1, 3).contiguous().transpose(1, 3),
}
COTANGENTS = ["contiguous", "channels_last", "expanded", "channels last of all"]
EXPANDED = {"expanded": lambda t: t[:1, :1, :1, :1].expand(t.shape)}  # as sum() makes it


@pytest.mark.parametrize("lying", list(itertools.product(LYING, LYING, COTANGENTS)), ids=str)
def test_gradients_of_copies_need_no_python(device, lying, no_python_for_gradients, deterministic):
    """Of tensors that lie in no way, or not in the same, in which a plan would read them."""
    x, weight, bias = tensors(device)
    cotangent = torch.randn(2, 3, 6, 7, device=device)
    x, weight, cotangent = ((LYING | EXPANDED)[how](t) for how, t in zip(lying, (x, weight, cotangent), strict=True))
    leaves = [x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()]
    expected = differentiated(F.conv_transpose2d, leaves, (), cotangent)
    for i in range(2):
        found = differentiated(tt.conv_transpose2d, leaves, (), cotangent)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        if i == 0:
            assert [t.stride() for t in (found[0], found[2])] == [t.stride() for t in (expected[0], expected[2])]
            no_python_for_gradients()


@pytest.mark.parametrize("left", [("input",), ("weight",), ("input", "weight", "bias")], ids=str)
@pytest.mark.parametrize("wanted", [(True, True, True), (True, True, False), (False, False, True)], ids=str)
def test_gradients_that_pytorch_computes_faster(left, wanted, monkeypatch, no_python_for_gradients):
    def of_speed(name, *_):
        return _reasons.Reason("speed", "a test") if name in left else None

    monkeypatch.setattr(_reasons, "of_speed", of_speed)
    forget_plans()
    try:
        leaves = [t.requires_grad_(want) for t, want in zip(tensors(), wanted, strict=True)]
        expected = differentiated(F.conv_transpose2d, leaves, (2, 1), None)
        operations = ["input"] * wanted[0] + (["weight"] if wanted[1] else ["bias"] * wanted[2])
        theirs = sum(name in left for name in operations)
        for i in range(3):
            before = tt.counters()
            found = differentiated(tt.conv_transpose2d, leaves, (2, 1), None)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
            after = tt.counters()
            assert after.gradients - before.gradients == len(operations) - theirs
            assert after.passed_on.get("speed", 0) - before.passed_on.get("speed", 0) == theirs
            if i == 0:
                no_python_for_gradients()
    finally:
        forget_plans()


def test_settings_are_a_part_of_gradients(device):
    if device == "cpu":
        pytest.skip("they concern CUDA")
    leaves = tensors(device, requires_grad=True)
    leaves = [t.double().detach().requires_grad_() for t in leaves[:2]]
    by_operation = [_reasons.FAST_ON_CUDA[name] for name in ("input", "weight")]
    assert torch.float64 not in by_operation[1]
    for deterministic in (False, True, False, True):
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        before = tt.counters()
        differentiated(tt.conv_transpose2d, leaves, (None, 2, 1), None)
        fast = [deterministic or torch.float64 in types for types in by_operation]
        assert tt.counters().gradients - before.gradients == sum(fast)
    torch.use_deterministic_algorithms(False)


def test_who_looks_on_sees_known_gradients(deterministic, monkeypatch):
    """Modes, subclasses, tangents, transforms and graphs, of a layer that the shim knows."""
    x, weight, bias = tensors(requires_grad=True)
    result, expected = (f(x, weight, bias, 2, 1) for f in (tt.conv_transpose2d, F.conv_transpose2d))
    cotangent = torch.randn_like(expected)
    for _ in range(2):
        torch.autograd.grad(result, (x, weight), cotangent, retain_graph=True)
        torch.autograd.grad(result, weight, cotangent, retain_graph=True)
    asked, backward = [], _backward._backward
    monkeypatch.setattr(_backward, "_backward", lambda *arguments: asked.append(1) or backward(*arguments))

    class Seen(torch.utils._python_dispatch.TorchDispatchMode):
        names: list = []  # noqa: RUF012

        def __torch_dispatch__(self, function, types, arguments=(), more=None):
            self.names.append(function.name())
            return function(*arguments, **(more or {}))

    with Seen():
        torch.autograd.grad(result, (x, weight), cotangent, retain_graph=True)
    assert [name for name in Seen.names if "tconv::" in name] == [
        "tconv::conv_transpose2d_backward_data",
        "tconv::conv_transpose2d_backward_weights",
    ]

    class Own(torch.Tensor):
        seen: list = []  # noqa: RUF012

        @classmethod
        def __torch_dispatch__(cls, function, types, arguments=(), more=None):
            cls.seen.append(function.name())
            with torch._C._DisableTorchDispatch():
                plain = [t.as_subclass(torch.Tensor) if isinstance(t, Own) else t for t in arguments]
                return function(*plain, **(more or {}))

    torch.autograd.grad(result, (x, weight), torch.Tensor._make_subclass(Own, cotangent), retain_graph=True)
    assert "tconv::conv_transpose2d_backward_data" in Own.seen
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(cotangent, 2 * cotangent)
        for ours, theirs in zip(
            *(torch.autograd.grad(r, (x, weight), dual, retain_graph=True) for r in (result, expected)), strict=True
        ):
            pairs = [torch.autograd.forward_ad.unpack_dual(t) for t in (ours, theirs)]
            torch.testing.assert_close(pairs[0].tangent, pairs[1].tangent, rtol=1e-4, atol=1e-4)
        saved = [f(torch.autograd.forward_ad.make_dual(x, x.detach()), weight, bias, 2, 1) for f in FUNCTIONS[2]]
        of_weight = [torch.autograd.grad(r, weight, cotangent)[0] for r in saved]
        pairs = [torch.autograd.forward_ad.unpack_dual(t) for t in of_weight]
        torch.testing.assert_close(pairs[0].tangent, pairs[1].tangent, rtol=1e-4, atol=1e-4)
    first = torch.autograd.grad(result, (x, weight), cotangent, create_graph=True)
    assert all(t.requires_grad for t in first)
    maps = [
        torch.func.vmap(lambda c, r=r: torch.autograd.grad(r, (x, weight), c, retain_graph=True))
        for r in (result, expected)
    ]
    many = torch.stack([cotangent, 2 * cotangent])
    torch.testing.assert_close(*(each(many) for each in maps), rtol=1e-4, atol=1e-4)
    each = [torch.func.grad(lambda t, f=f: f(t, weight.detach()).pow(2).sum())(x.detach()) for f in FUNCTIONS[2]]
    torch.testing.assert_close(*each, rtol=1e-4, atol=1e-4)
    assert len(asked) == 6  # a mode, a subclass, two tangents, a graph, a transform; the map has a kernel of its own


def test_errors_of_known_gradients_keep_their_type(monkeypatch):
    """Where the table's way fails Python is asked, and its error is the caller's, wherever the gradient goes."""

    class Mine(Exception):
        pass

    def fail(*arguments):
        raise Mine("a message")

    leaves = tensors(requires_grad=True)
    leaves[2].requires_grad_()
    forget_plans()
    monkeypatch.setattr(_backward, "_backward", fail)
    for which in (slice(0, 1), slice(1, 2), slice(2, 3), slice(None)):
        with pytest.raises(Mine, match="a message"):
            torch.autograd.grad(tt.conv_transpose2d(*leaves).sum(), leaves[which])
        with pytest.raises(Mine, match="a message"):
            tt.conv_transpose2d(*leaves).sum().backward(inputs=leaves[which])
    assert all(leaf.grad is None for leaf in leaves)


def test_gradients_from_many_threads():
    leaves = tensors(requires_grad=True)
    cotangent = torch.ones(2, 3, 6, 7)
    expected = differentiated(F.conv_transpose2d, leaves, (), cotangent)
    wrong = []

    def work(_):
        for _ in range(200):
            found = differentiated(tt.conv_transpose2d, leaves, (), cotangent)
            if not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found, expected, strict=True)):
                wrong.append(found)

    in_threads_that_forget(work)
    assert not wrong


def test_gradients_leak_nothing(monkeypatch):
    leaves = tensors(requires_grad=True)
    result = tt.conv_transpose2d(*leaves)
    cotangent = torch.ones_like(result)

    def calls(count):
        for _ in range(count):
            torch.autograd.grad(result, leaves[:2], cotangent, retain_graph=True)

    def both(count):
        monkeypatch.setattr(_reasons, "of_speed", lambda name, *_: None)
        calls(count)
        forget_plans()
        monkeypatch.setattr(
            _reasons, "of_speed", lambda name, *_: _reasons.Reason("speed", "a test") if name == "weight" else None
        )
        calls(count)
        forget_plans()

    both(1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    both(10000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048
