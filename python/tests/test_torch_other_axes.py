"""The functions and modules of 1-D and 3-D layers against PyTorch's, vocoders made of the one and a network for volumes
made of the other."""

import copy
import io
import itertools
import pickle

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv.torch import _reasons  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 1e-2, torch.bfloat16: 8e-2}
# By the number of spatial axes: the package's, PyTorch's.
FUNCTIONS = {1: (tt.conv_transpose1d, F.conv_transpose1d), 3: (tt.conv_transpose3d, F.conv_transpose3d)}
MODULES = {1: (tt.ConvTranspose1d, nn.ConvTranspose1d), 3: (tt.ConvTranspose3d, nn.ConvTranspose3d)}
LAZY = {1: (tt.LazyConvTranspose1d, nn.LazyConvTranspose1d), 3: (tt.LazyConvTranspose3d, nn.LazyConvTranspose3d)}
EXTENTS, KERNELS = {1: (7,), 3: (3, 2, 4)}, {1: (4,), 3: (2, 3, 2)}
of_both = pytest.mark.parametrize("spatial", FUNCTIONS)
ARGUMENTS = [
    dict(),
    dict(stride=2, padding=1, output_padding=1),
    dict(stride=(3,), padding=(2,), output_padding=(1,), dilation=(2,)),
    dict(groups=2, stride=[2]),
    dict(groups=4),
]
OF_VOLUMES = [
    dict(stride=(1, 2, 3), padding=(0, 1, 1), output_padding=(0, 1, 2)),
    dict(stride=(3, 1, 2), dilation=[2, 1, 3], groups=2),
]
LAYERS = [*itertools.product(FUNCTIONS, ARGUMENTS), *((3, arguments) for arguments in OF_VOLUMES)]


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


def images(spatial, device="cpu", count=2, **more):
    return torch.randn(count, 4, *EXTENTS[spatial], device=device, **more)


def tensors(spatial, device="cpu", dtype=torch.float32, x=None, weight=None, groups=1):
    weight = weight or (4, 3, *KERNELS[spatial])
    shapes = (x or (2, 4, *EXTENTS[spatial]), weight, (weight[1] * groups,))
    return [torch.randn(shape, device=device, dtype=torch.float64).to(dtype) for shape in shapes]


def pair_of_modules(spatial, device, *arguments, **more):
    """Ours and PyTorch's with the same parameters."""
    arguments = arguments or (4, 3, KERNELS[spatial])
    ours, theirs = (kind(*arguments, **more, device=device) for kind in MODULES[spatial])
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def outcome(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


# ------------------------------------------------------------------------------------------------------- the functions


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spatial, arguments", LAYERS, ids=str)
def test_values_and_strides(device, dtype, spatial, arguments, taken):
    ours, theirs = FUNCTIONS[spatial]
    extents = EXTENTS[spatial]
    shapes = [(2, 4, *extents), (4, *extents), (1, 4, *{1: (1,), 3: (2, 1, 3)}[spatial]), (0, 4, *extents)]
    for shape, with_bias in itertools.product(shapes, (False, True)):
        x, weight, bias = tensors(spatial, device, dtype, shape, groups=arguments.get("groups", 1))
        bias = bias if with_bias else None
        same(ours(x, weight, bias, **arguments), theirs(x, weight, bias, **arguments))
    assert len(taken) == 8


@of_both
def test_any_strides(device, spatial, taken):
    ours, theirs = FUNCTIONS[spatial]
    x, weight, bias = tensors(spatial, device)
    lying = [
        x.transpose(0, 1).contiguous().transpose(0, 1),
        x.movedim(1, -1).contiguous().movedim(-1, 1),
        torch.cat([x, x], 1)[:, :4],
        x.repeat_interleave(2, -1)[..., ::2],
        x[:1, :1].expand(x.shape),
        x.transpose(2, -1).contiguous().transpose(2, -1),
    ]
    for t in lying:
        same(ours(t, weight, bias, 2), theirs(t, weight, bias, 2))
        other = weight.transpose(0, -1).contiguous().transpose(0, -1)
        same(ours(t, other, bias), theirs(t, other, bias))
    assert len(taken) == 12


def test_volumes_in_channels_last(device, taken):
    """With the channels inside, of the input, the weight or both: the result and the input's gradient lie as PyTorch's
    do, the weight's as the weight, where that is not PyTorch's."""
    ours = device == "cpu" or torch.float64 in _reasons.FAST_ON_CUDA["weight"]
    formats = (torch.contiguous_format, torch.channels_last_3d)
    for of_x, of_weight in itertools.product(formats, repeat=2):
        x, weight, bias = tensors(3, device, torch.float64)
        leaves = x.contiguous(memory_format=of_x), weight.contiguous(memory_format=of_weight), bias
        leaves = [t.detach().requires_grad_() for t in leaves]
        results = [function(*leaves, 2, 1) for function in FUNCTIONS[3]]
        same(*results)
        found, expected = (torch.autograd.grad(y.square().sum(), leaves) for y in results)
        same(found[0], expected[0])
        assert found[1].stride() == weight.contiguous(memory_format=of_weight).stride() or not ours
        torch.testing.assert_close(found[1:], expected[1:])
    assert len(taken) == 4


@pytest.mark.parametrize("spatial, arguments", LAYERS, ids=str)
def test_gradcheck(device, spatial, arguments):
    extents, kernel = ((3,), (2,)) if spatial == 1 else ((2, 1, 2), (2, 2, 1))
    inputs = tensors(spatial, device, torch.float64, (2, 4, *extents), (4, 2, *kernel), arguments.get("groups", 1))
    if isinstance(outcome(lambda: FUNCTIONS[spatial][1](*inputs, **arguments)), tuple):
        inputs = tensors(spatial, device, torch.float64, (1, 4, *[3] * spatial), (4, 1, *[2] * spatial),
                         arguments.get("groups", 1))  # fmt: skip
    for t in inputs:
        t.requires_grad_()

    def checked(function):
        call = lambda *tensors: function(*tensors, **arguments)  # noqa: E731
        return torch.autograd.gradcheck(call, inputs) and torch.autograd.gradgradcheck(call, inputs)

    theirs, ours = FUNCTIONS[spatial][1], FUNCTIONS[spatial][0]
    try:
        assert checked(ours)
    except RuntimeError as refused:  # cuDNN refuses gradients of volumes without an element, which PyTorch asks it for
        if device == "cpu" or "CUDNN" not in str(refused):
            raise
        with pytest.raises(RuntimeError, match="CUDNN"):
            checked(theirs)


WRONG = [
    dict(stride=0), dict(stride=(1, 2)), dict(padding=-1), dict(output_padding=5), dict(groups=3), dict(stride=1.0),
    dict(bias=torch.randn(4)),
]  # fmt: skip
WRONG_TENSORS = {
    1: [
        dict(input=torch.randn(2, 3, 7)), dict(input=torch.randn(2, 4, 7, 7)), dict(weight=torch.randn(4, 3, 3, 3)),
        dict(input=torch.randn(2, 4, 7).double()), dict(input=torch.randn(2, 4, 0)),
    ],
    3: [
        dict(input=torch.randn(2, 3, 3, 2, 4)), dict(input=torch.randn(4, 2, 4)), dict(weight=torch.randn(4, 3, 3, 3)),
        dict(input=torch.randn(2, 4, 3, 2, 4).double()), dict(input=torch.randn(2, 4, 0, 2, 4)),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "spatial, wrong",
    [(spatial, wrong) for spatial in FUNCTIONS for wrong in [*WRONG, *WRONG_TENSORS[spatial]]],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else str(value),
)
def test_mistakes_are_answered_as_pytorch_does(spatial, wrong):
    x, weight, bias = tensors(spatial)
    defaults = dict(input=x, weight=weight, bias=bias, stride=1, padding=0, output_padding=0, groups=1, dilation=1)
    arguments = list({**defaults, **wrong}.values())
    ours, theirs = (outcome(function, *arguments) for function in FUNCTIONS[spatial])
    assert isinstance(theirs, tuple) and ours == theirs


# --------------------------------------------------------------------------------------------------------- the modules


@of_both
def test_module_is_pytorchs_but_for_forward(spatial):
    made = []
    for kind in MODULES[spatial]:
        torch.manual_seed(1)
        made.append(kind(4, 6, 3, 2, 1, 1, 2, False, 2, "zeros"))
    ours, theirs = made
    assert repr(ours) == repr(theirs) and ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours.weight, theirs.weight)
    assert [n for n in vars(type(ours)) if not n.startswith("_")] == ["forward"]


@of_both
def test_output_size_and_padding_mode(device, spatial, taken):
    ours, theirs = pair_of_modules(spatial, device, 4, 3, 4, stride=3, padding=1)
    least = [3 * (extent - 1) + 2 for extent in EXTENTS[spatial]]
    for x in (images(spatial, device), images(spatial, device)[0]):
        sizes = [least, [n + 2 for n in least]]
        sizes.append(torch.Size([*([2] if x.dim() == spatial + 2 else []), 3, *(n + 1 for n in least)]))
        for size in sizes:
            same(ours(x, size), theirs(x, output_size=size))
        for size in ([n - 1 for n in least], [n + 3 for n in least], [1, 2, 3, 4, 5, 6]):
            assert outcome(ours, x, size) == outcome(theirs, x, size)
    assert len(taken) == 6
    ours.padding_mode = theirs.padding_mode = "circular"
    assert outcome(ours, x) == outcome(theirs, x)


@of_both
def test_lazy(spatial, taken):
    lazy, theirs = (kind(3, 3) for kind in LAZY[spatial])
    assert repr(lazy) == repr(theirs)
    lazy(images(spatial))
    assert type(lazy) is MODULES[spatial][0] and lazy.in_channels == 4 and len(taken) == 1


@of_both
def test_copies_and_pickles(spatial):
    ours, _ = pair_of_modules(spatial, "cpu")
    x = images(spatial)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False)):
        assert type(other) is MODULES[spatial][0] and torch.equal(other(x), ours(x))


@of_both
def test_training(device, spatial, taken):
    """The same parameters after some steps."""
    ours, theirs = pair_of_modules(spatial, device, 4, 3, 4, stride=2)
    x = images(spatial, device)
    optimizer = torch.optim.SGD([*ours.parameters(), *theirs.parameters()], lr=1e-5)
    for _ in range(3):
        optimizer.zero_grad()
        result = ours(x)
        (result.square().sum() + theirs(x).square().sum()).backward()
        optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)
    assert len(taken) == 3 and result.grad_fn.name() == "ConvolutionOverrideableBackward0"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@of_both
def test_autocast(device, dtype, spatial, taken):
    ours, theirs = pair_of_modules(spatial, device)
    x = images(spatial, device)
    with torch.autocast(device, dtype):
        same(ours(x), theirs(x))
    assert len(taken) == 1


@of_both
def test_compile_without_graph_breaks(device, spatial, taken):
    ours, theirs = pair_of_modules(spatial, device, 4, 3, 4, stride=2)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for more in (0, 2):
        extents = [extent + more for extent in EXTENTS[spatial]]
        x = torch.randn(2, 4, *extents, device=device, requires_grad=True)
        result, expected = compiled(x), theirs(x)
        torch.testing.assert_close(result, expected)
        gradients = (torch.autograd.grad(y.square().sum(), [x])[0] for y in (result, expected))
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    assert len(taken) == 2


@of_both
def test_export_tracing_and_scripting(device, spatial):
    ours, theirs = pair_of_modules(spatial, device)
    x = images(spatial, device)
    for made in (
        torch.export.export(ours, (x,)).module(),
        torch.jit.script(ours),
        torch.jit.trace(ours, x),
        torch.fx.symbolic_trace(nn.Sequential(ours)),
    ):
        torch.testing.assert_close(made(x), theirs(x))


@of_both
def test_explain_and_freeze(device, spatial):
    layer, theirs = pair_of_modules(spatial, device, 4, 3, 2, stride=2)
    x = images(spatial, device)
    found = tt.explain(layer, x)
    assert found.taken and found.gradients.keys() == {"weight", "bias"}
    assert "replace" in tt.explain(theirs, x).why and "tconv.torch" in tt.explain(FUNCTIONS[spatial][1], x).why
    layer.requires_grad_(False)
    assert tt.freeze(layer).frozen == [""] and tt.explain(layer, x).why == "weights are packed once"
    packed = tt.counters().packings
    same(layer(x), theirs(x))
    same(layer(x), theirs(x))
    assert tt.counters().packings == packed + 1
    assert "torch.int32" in tt.explain(FUNCTIONS[spatial][0], x.int(), theirs.weight).why


@of_both
def test_meta(spatial, taken):
    ours, theirs = pair_of_modules(spatial, "meta")
    x = images(spatial, "meta")
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


# ------------------------------------------------------------------------------------------------------------- volumes


class Stage(nn.Module):
    """What nnU-Net has of a resolution: two convolutions with instance norm."""

    def __init__(self, before, channels, stride=1):
        super().__init__()
        layers = []
        for ci, step in ((before, stride), (channels, 1)):
            layers += [
                nn.Conv3d(ci, channels, 3, step, 1, bias=False),
                nn.InstanceNorm3d(channels, affine=True),
                nn.LeakyReLU(0.01),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class Network(nn.Module):
    """nnU-Net, with few channels: its transposed convolutions have kernels as large as their strides, and the first
    ones of anisotropic volumes none along depth."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([Stage(1, 4), Stage(4, 6, (1, 2, 2)), Stage(6, 8, 2)])
        self.up = nn.ModuleList([nn.ConvTranspose3d(8, 6, 2, 2), nn.ConvTranspose3d(6, 4, (1, 2, 2), (1, 2, 2))])
        self.behind = nn.ModuleList([Stage(12, 6), Stage(8, 4)])
        self.last = nn.Conv3d(4, 2, 1)

    def forward(self, x):
        skipped = []
        for stage in self.down:
            x = stage(x)
            skipped.append(x)
        for up, behind, skip in zip(self.up, self.behind, skipped[-2::-1], strict=True):
            x = behind(torch.cat([up(x), skip], 1))
        return self.last(x)


@pytest.mark.parametrize("lying", [torch.contiguous_format, torch.channels_last_3d], ids=str)
def test_nnunet(device, lying, taken):
    volumes = torch.randn(2, 1, 4, 8, 8, device=device).contiguous(memory_format=lying)
    compare(Network().to(memory_format=lying), lambda m: m(volumes), device, taken)


def test_nnunet_as_it_is_trained(device):
    """Compiled and under autocast, against the same network of PyTorch's in eager mode: losses and every gradient."""
    theirs = Network().to(device)
    ours = copy.deepcopy(theirs)
    assert len(tt.replace(ours).swapped) == 2
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    volumes, labels = torch.randn(2, 1, 4, 8, 8, device=device), torch.randint(2, (2, 4, 8, 8), device=device)
    for dtype in (None, torch.bfloat16):
        before, losses = tt.counters(), []
        for model in (compiled, theirs):
            with torch.autocast(device, dtype or torch.bfloat16, enabled=dtype is not None):
                loss = F.cross_entropy(model(volumes).float(), labels)
            model.zero_grad()
            loss.backward()
            losses.append(loss.detach())
        after = tt.counters()
        assert after.taken - before.taken == 2
        # on CUDA gradients may be PyTorch's for its speed
        assert after.gradients - before.gradients == 4 or device == "cuda"
        tolerance = 1e-3 if dtype is None else 5e-2
        torch.testing.assert_close(*losses, rtol=tolerance, atol=tolerance)
        # The gradient of a bias before a norm is what rounding leaves of 0: the module's largest is its scale.
        for (name, a), b in zip(ours.named_modules(), theirs.modules(), strict=True):
            pairs = list(zip(a.parameters(recurse=False), b.parameters(recurse=False), strict=True))
            largest = max((q.grad.abs().max().item() for _, q in pairs), default=0)
            for p, q in pairs:
                assert p.grad.stride() == q.grad.stride(), name
                torch.testing.assert_close(p.grad, q.grad, rtol=tolerance, atol=tolerance * max(largest, 1e-3))
