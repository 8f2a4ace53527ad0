"""The gradients of tconv.torch's functions and their operators, against PyTorch's, of every order."""

import functools
import itertools

import pytest

torch = pytest.importorskip("torch")

import torch.autograd.forward_ad as forward_ad  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.func import jvp  # noqa: E402
from torch_differentiated import (  # noqa: E402
    CHANNELS_LAST,
    LAYERS,
    OURS,
    THEIRS,
    WEIGHTS,
    counted,
    example,
    gradients_by,
    integers,
    of_axes,
    of_data,
    of_weights,
    second_order,
)

import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _gradients  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_anew", "deterministic")


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_are_pytorchs_exactly_on_integers(device, layer, spatial, dtype):
    layer = of_axes(layer, spatial)
    formats = [torch.contiguous_format, *([CHANNELS_LAST[spatial]] if spatial > 1 else [])]
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


@pytest.mark.parametrize("spatial", [1, 2, 3])
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


@pytest.mark.parametrize("spatial", [1, 2, 3])
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
