"""The 1-D function and modules against PyTorch's, and vocoders made of them."""

import copy
import io
import itertools
import pickle

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tconv.torch as tt  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 1e-2, torch.bfloat16: 8e-2}
ARGUMENTS = [
    dict(),
    dict(stride=2, padding=1, output_padding=1),
    dict(stride=(3,), padding=(2,), output_padding=(1,), dilation=(2,)),
    dict(groups=2, stride=[2]),
    dict(groups=4),
]


class Taken:
    """How many calls tconv has computed since this was made."""

    def __init__(self):
        self.before = tt.counters().taken

    def __len__(self):
        return tt.counters().taken - self.before


@pytest.fixture
def taken():
    return Taken()


def same(ours, theirs):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.stride() == theirs.stride()
    tolerance = TOLERANCE[ours.dtype]
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def tensors(device="cpu", dtype=torch.float32, x=(2, 4, 7), weight=(4, 3, 4), groups=1):
    shapes = (x, weight, (weight[1] * groups,))
    return [torch.randn(shape, device=device, dtype=torch.float64).to(dtype) for shape in shapes]


def pair_of_modules(device, *arguments, **more):
    """Ours and PyTorch's with the same parameters."""
    arguments = arguments or (4, 3, 4)
    ours, theirs = (kind(*arguments, **more, device=device) for kind in (tt.ConvTranspose1d, nn.ConvTranspose1d))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


# -------------------------------------------------------------------------------------------------------- the function


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_values_and_strides(device, dtype, arguments, taken):
    for shape, with_bias in itertools.product([(2, 4, 7), (4, 7), (1, 4, 1), (0, 4, 7)], (False, True)):
        x, weight, bias = tensors(device, dtype, shape, groups=arguments.get("groups", 1))
        bias = bias if with_bias else None
        expected = F.conv_transpose1d(x, weight, bias, **arguments)
        same(tt.conv_transpose1d(x, weight, bias, **arguments), expected)
    assert len(taken) == 8


def test_any_strides(device, taken):
    x, weight, bias = tensors(device)
    lying = [
        x.transpose(0, 1).contiguous().transpose(0, 1),
        x.transpose(1, 2).contiguous().transpose(1, 2),
        torch.cat([x, x], 1)[:, :4],
        x.repeat_interleave(2, 2)[..., ::2],
        x[:1, :1].expand(x.shape),
    ]
    for t in lying:
        same(tt.conv_transpose1d(t, weight, bias, 2), F.conv_transpose1d(t, weight, bias, 2))
        same(
            tt.conv_transpose1d(t, weight.transpose(0, 2).contiguous().transpose(0, 2), bias),
            F.conv_transpose1d(t, weight, bias),
        )
    assert len(taken) == 10


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_gradcheck(device, arguments):
    inputs = tensors(device, torch.float64, (2, 4, 3), (4, 2, 2), arguments.get("groups", 1))
    for t in inputs:
        t.requires_grad_()

    def call(*tensors):
        return tt.conv_transpose1d(*tensors, **arguments)

    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize(
    "wrong",
    [dict(stride=0), dict(stride=(1, 2)), dict(padding=-1), dict(output_padding=5), dict(groups=3), dict(stride=1.0),
     dict(input=torch.randn(2, 3, 7)), dict(input=torch.randn(2, 4, 7, 7)), dict(weight=torch.randn(4, 3, 3, 3)),
     dict(bias=torch.randn(4)), dict(input=torch.randn(2, 4, 7).double()), dict(input=torch.randn(2, 4, 0))],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_mistakes_are_answered_as_pytorch_does(wrong):
    x, weight, bias = tensors()
    defaults = dict(input=x, weight=weight, bias=bias, stride=1, padding=0, output_padding=0, groups=1, dilation=1)
    arguments = list({**defaults, **wrong}.values())
    ours, theirs = outcome(tt.conv_transpose1d, *arguments), outcome(F.conv_transpose1d, *arguments)
    assert isinstance(theirs, tuple) and ours == theirs


# --------------------------------------------------------------------------------------------------------- the modules


def test_module_is_pytorchs_but_for_forward():
    made = []
    for kind in (tt.ConvTranspose1d, nn.ConvTranspose1d):
        torch.manual_seed(1)
        made.append(kind(4, 6, 3, 2, 1, 1, 2, False, 2, "zeros"))
    ours, theirs = made
    assert repr(ours) == repr(theirs) and ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours.weight, theirs.weight)
    assert [n for n in vars(tt.ConvTranspose1d) if not n.startswith("_")] == ["forward"]


def test_output_size_and_padding_mode(device, taken):
    ours, theirs = pair_of_modules(device, 4, 3, 4, stride=3, padding=1)
    for x in (torch.randn(2, 4, 7, device=device), torch.randn(4, 7, device=device)):
        for size in ([20], [22], torch.Size([*([2] if x.dim() == 3 else []), 3, 21])):
            same(ours(x, size), theirs(x, output_size=size))
        for size in ([19], [23], [1, 2, 3, 4]):
            assert outcome(ours, x, size) == outcome(theirs, x, size)
    assert len(taken) == 6
    ours.padding_mode = theirs.padding_mode = "circular"
    assert outcome(ours, x) == outcome(theirs, x)


def test_lazy(taken):
    lazy = tt.LazyConvTranspose1d(3, 3)
    assert repr(lazy) == repr(nn.LazyConvTranspose1d(3, 3))
    lazy(torch.randn(2, 4, 7))
    assert type(lazy) is tt.ConvTranspose1d and lazy.in_channels == 4 and len(taken) == 1


def test_copies_and_pickles():
    ours, _ = pair_of_modules("cpu")
    x = torch.randn(2, 4, 7)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False)):
        assert type(other) is tt.ConvTranspose1d and torch.equal(other(x), ours(x))


def test_training(device, taken):
    """The same parameters after some steps."""
    ours, theirs = pair_of_modules(device, 4, 3, 4, stride=2)
    x = torch.randn(2, 4, 7, device=device)
    optimizer = torch.optim.SGD([*ours.parameters(), *theirs.parameters()], lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        result = ours(x)
        (result.square().sum() + theirs(x).square().sum()).backward()
        optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)
    assert len(taken) == 3 and result.grad_fn.name() == "ConvolutionOverrideableBackward0"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(device, dtype, taken):
    ours, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 7, device=device)
    with torch.autocast(device, dtype):
        same(ours(x), theirs(x))
    assert len(taken) == 1


def test_compile_without_graph_breaks(device, taken):
    ours, theirs = pair_of_modules(device, 4, 3, 4, stride=2)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for size in (7, 9):
        x = torch.randn(2, 4, size, device=device, requires_grad=True)
        result, expected = compiled(x), theirs(x)
        torch.testing.assert_close(result, expected)
        gradients = (torch.autograd.grad(y.square().sum(), [x])[0] for y in (result, expected))
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert len(taken) == 2


def test_export_tracing_and_scripting(device):
    ours, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 7, device=device)
    for made in (
        torch.export.export(ours, (x,)).module(),
        torch.jit.script(ours),
        torch.jit.trace(ours, x),
        torch.fx.symbolic_trace(nn.Sequential(ours)),
    ):
        torch.testing.assert_close(made(x), theirs(x))


def test_meta(taken):
    ours, theirs = pair_of_modules("meta")
    x = torch.randn(2, 4, 7, device="meta")
    assert ours(x).shape == theirs(x).shape and ours(x).is_meta and not len(taken)


# ------------------------------------------------------------------------------------------------------------ vocoders


def compare(model, call, device, taken):
    """A model before and after replace, with gradients for its parameters; how many calls were tconv's."""
    model.to(device)
    classes = {type(m) for m in model.modules()}
    results = []
    for replaced in (False, True):
        if replaced:
            answer = tt.replace(model)
            assert not answer.left and len(answer.swapped) > 1
        model.zero_grad()
        before = len(taken)
        y = call(model)
        y.square().sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append((y.detach(), gradients))
    assert len(taken) - before == len(answer.swapped)
    (expected, their_gradients), (got, our_gradients) = results
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert our_gradients.keys() == their_gradients.keys() and our_gradients
    for name, gradient in their_gradients.items():
        largest = gradient.abs().max().item()
        torch.testing.assert_close(our_gradients[name], gradient, rtol=1e-3, atol=1e-3 * max(largest, 1e-3))
    with torch.no_grad():
        torch.testing.assert_close(call(model), expected, rtol=1e-4, atol=1e-5)
        frozen = tt.freeze(model)
        assert sorted([*frozen.frozen, *frozen.left]) == sorted(answer.swapped)
        for _ in range(2):
            torch.testing.assert_close(call(model), expected, rtol=1e-4, atol=1e-5)
        assert tt.restore(model).restored == answer.swapped
        before = len(taken)
        torch.testing.assert_close(call(model), expected, rtol=1e-4, atol=1e-5)
    assert len(taken) == before and {type(m) for m in model.modules()} == classes


def test_hifigan(device, taken):
    transformers = pytest.importorskip("transformers")
    config = transformers.SpeechT5HifiGanConfig(
        model_in_dim=20, upsample_initial_channel=32, upsample_rates=[4, 4, 2], upsample_kernel_sizes=[8, 8, 4]
    )
    model = transformers.SpeechT5HifiGan(config).eval()
    spectrogram = torch.randn(2, 12, 20, device=device)
    compare(model, lambda m: m(spectrogram), device, taken)
    model.apply_weight_norm()  # as it is trained
    compare(model, lambda m: m(spectrogram), device, taken)


def test_encodec(device, taken):
    transformers = pytest.importorskip("transformers")
    config = transformers.EncodecConfig(
        hidden_size=16, num_filters=4, upsampling_ratios=[4, 2, 2], codebook_size=32, codebook_dim=16, num_lstm_layers=1
    )
    model = transformers.EncodecModel(config)
    audio = torch.randn(1, 1, 1600, device=device)
    with torch.no_grad():
        codes = model.to(device).eval().encode(audio).audio_codes
    for module in model.modules():
        if isinstance(module, torch.nn.LSTM):
            module.train()  # the same numbers; cuDNN's has no gradients otherwise
    compare(model, lambda m: m.decode(codes, [None])[0], device, taken)
