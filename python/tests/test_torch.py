"""tconv.torch against PyTorch: values, strides and errors."""

import itertools

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch_values import ARGUMENTS, DTYPES, OP, B, W, X, outcome, pair_of_modules, same, tensors  # noqa: E402

import tconv.torch as tt  # noqa: E402

# ------------------------------------------------------------------------------------------------------------- values


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
    dict(stride=()),
    dict(stride=torch.tensor(2)),
    dict(padding=True),
]


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


def quantized(t):
    return torch.quantize_per_tensor(t, 0.1, 0, torch.qint8)


@pytest.mark.parametrize("grad", ["input", "weight", "bias"])
@pytest.mark.parametrize("kind", [quantized, torch.Tensor.to_sparse, torch.Tensor.to_mkldnn, torch.Tensor.long])
@pytest.mark.parametrize("name", ["input", "weight", "bias"])
def test_tensors_that_tconv_has_not_where_gradients_are_wanted(name, kind, grad):
    """The answer is PyTorch's, error and node: nothing tells of what tconv's layers have in place of that."""
    arguments = {"input": X, "weight": W, "bias": B, name: kind({"input": X, "weight": W, "bias": B}[name])}
    if name != grad:
        arguments[grad] = arguments[grad].detach().clone().requires_grad_()
    tt.conv_transpose2d(X, W, B)  # is known by the same shapes and strides
    ours, theirs = (outcome(f, arguments) for f in (tt.conv_transpose2d, F.conv_transpose2d))
    if isinstance(theirs, tuple):
        assert ours == theirs
    else:
        torch.testing.assert_close(ours.to_dense(), theirs.to_dense())


ONE_NUMBER = [dict(stride=(2,)), dict(padding=[1]), dict(dilation=torch.Size([2])), dict(stride=3, output_padding=(2,))]


@pytest.mark.parametrize("arguments", ONE_NUMBER, ids=str)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_sequence_of_one_number_is_for_all_axes(device, arguments, requires_grad, calls):
    """tconv takes them, the gradients too, in eager calls, by the operator and by modules; explain says so."""
    inputs = [t.requires_grad_(requires_grad) for t in tensors(device)]
    module, theirs = pair_of_modules(device, 4, 3, 3, **arguments)
    assert tt.explain(tt.conv_transpose2d, *inputs, **arguments).taken
    expected = F.conv_transpose2d(*inputs, **arguments)
    for function in (tt.conv_transpose2d, tt.conv_transpose2d, OP):
        before, counted = len(calls), tt.counters()
        result = function(*inputs, **{k: [3, 3] if v == 3 else list(v) for k, v in arguments.items()})
        same(result, expected)
        assert len(calls) == before + 1
        if requires_grad:
            gradients = [torch.autograd.grad(y.sum(), inputs, retain_graph=True) for y in (result, expected)]
            torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
        assert tt.counters().passed_on == counted.passed_on
    same(module(inputs[0]), theirs(inputs[0]))


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
