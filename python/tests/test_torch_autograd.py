"""Gradients of tconv.torch's functions by autograd: the node, what it saves, and who wants one."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_values import ARGUMENTS, OP, pair_of_modules, same, tensors  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _reasons  # noqa: E402


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
    fast = [
        _reasons.of_speed(name, x, "", torch.are_deterministic_algorithms_enabled()) is None
        for name in ("input", "weight" if wanted[1] else "bias")
    ]
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
