"""The mean or the sum over the image of what a layer answers, which the graph pass computes without the layer. Graphs
are run node by node, but for that of test_code."""

import random

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch._inductor import metrics  # noqa: E402
from torch._inductor.utils import fresh_inductor_cache, run_and_get_code  # noqa: E402
from torch_fused import Programs, compiled  # noqa: E402
from torch_values import taken  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv.torch import _fusion_mean, _fusion_sums  # noqa: E402
from tconv.torch import _fusion_record as record  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_anew")

OURS = (None, tt.conv_transpose1d, tt.conv_transpose2d, tt.conv_transpose3d)
PYTORCHS = (None, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
C = 6


def errors():
    return tt.counters().graph.get("error", 0)


def run(function, *inputs, failures=0, **more):
    """The answers of the program, and the program."""
    programs, before = Programs(**more), errors()
    record.clear()
    with torch.no_grad():
        answers = compiled(function, programs)(*inputs)
    assert errors() - before == failures
    return answers, programs


def layers_of(programs):
    return len(programs.nodes("conv_transpose"))


# ------------------------------------------------------------------------------------------------- small whole numbers

# These functions of the layer's output and a tensor of channels stand between a layer and the mean. They are exact in
# whole numbers.
BETWEEN = (
    lambda y, v: y,
    lambda y, v: y * 0.5,
    lambda y, v: y / 4,
    lambda y, v: -y,
    lambda y, v: y + 2,
    lambda y, v: 2 - y,
    lambda y, v: (y * 3 - 1) * 2,
    lambda y, v: v[None] * y,
    lambda y, v: y + v,
    lambda y, v: v - y,
    lambda y, v: torch.sub(y, v, alpha=2) * v,
    lambda y, v: torch.add(v, y, alpha=-3) / 2,
)


def whole(generator, *shape):
    return torch.randint(-4, 5, shape, generator=generator).float()


class Case:
    """A layer of whole numbers, what follows it, and the reduction."""

    def __init__(self, spatial, size, kernel, bias=True, between=0, how=("mean", False, False), **more):
        generator = torch.Generator().manual_seed(1)
        groups = more.get("groups", 1)
        self.spatial, self.more, self.between, self.how = spatial, more, BETWEEN[between], how
        self.x = whole(generator, 2, 2 * groups, *size)
        self.weight = whole(generator, 2 * groups, 3, *kernel)
        self.bias = whole(generator, 3 * groups) if bias else None
        self.v = 2.0 ** torch.arange(3 * groups).remainder(3).reshape(-1, *[1] * spatial)

    def __call__(self, layer=OURS, dtype=torch.float32):
        x, weight, bias, v = (None if t is None else t.to(dtype) for t in (self.x, self.weight, self.bias, self.v))
        y = self.between(layer[self.spatial](x, weight, bias, **self.more), v)
        name, keepdim, negative = self.how
        axes = range(-1, -self.spatial - 1, -1) if negative else range(2, y.dim())
        return getattr(y, name)(tuple(axes), keepdim=keepdim)

    def has_products(self):
        """Whether an input comes to an output at all."""
        x, weight = torch.ones_like(self.x), torch.ones_like(self.weight)
        return bool(PYTORCHS[self.spatial](x, weight, **self.more).any())


def drawn(count):
    """Layers of every kind, with paddings beyond what the taps reach."""
    draw = random.Random(5)
    found = []
    while len(found) < count:
        spatial = draw.choice((1, 2, 2, 3))
        bounds = ((1, 6), (1, 4), (1, 3), (0, 4), (1, 3))
        size, kernel, stride, padding, dilation = ([draw.randint(*both) for _ in range(spatial)] for both in bounds)
        output_padding = [draw.randrange(max(pair)) for pair in zip(stride, dilation, strict=True)]
        outputs = [
            (i - 1) * s - 2 * p + d * (k - 1) + o + 1
            for i, k, s, p, d, o in zip(size, kernel, stride, padding, dilation, output_padding, strict=True)
        ]
        if min(outputs) < 1:
            continue
        how = draw.choice(("mean", "sum")), draw.random() < 0.5, draw.random() < 0.5
        more = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
        more["groups"] = draw.choice((1, 1, 2, 3))
        found.append(Case(spatial, size, kernel, draw.random() < 0.7, len(found) % len(BETWEEN), how, **more))
    return found


CORNERS = [
    Case(2, (5, 6), (3, 3)),
    Case(2, (5, 6), (3, 2), padding=(1, 0), stride=(2, 1)),
    Case(2, (4, 4), (3, 3), padding=1, stride=2, output_padding=1, how=("sum", True, True)),
    Case(2, (8, 7), (1, 1), padding=2),  # the outermost inputs have no tap
    Case(2, (10, 9), (3, 2), padding=4),  # nor have these
    Case(2, (2, 2), (7, 6), padding=(3, 2)),  # the first and the last taps reach no output
    Case(2, (1, 2), (1, 2), padding=(1, 0), stride=3, output_padding=(2, 0)),  # nothing but the bias
    Case(1, (40,), (16,), padding=4, stride=8, groups=3, how=("sum", False, True)),
    Case(3, (3, 4, 2), (3, 2, 3), padding=1, stride=2, bias=False),
]


@pytest.mark.parametrize("by_matrices", [False, True], ids=["element-wise", "matrices"])
def test_whole_numbers(by_matrices, monkeypatch):
    """As the layer in float64 and what follows it there: every sum is exact in float32, and is divided once."""
    if by_matrices:
        monkeypatch.setattr(_fusion_sums, "_MOST_PRODUCTS", 0)
    cases = CORNERS + drawn(36)
    answers, programs = run(lambda: [case() for case in cases])
    for case, answer in zip(cases, answers, strict=True):
        expected = case(PYTORCHS, torch.float64).float()
        assert torch.equal(answer, expected) and answer.stride() == expected.stride(), vars(case)
    assert layers_of(programs) == sum(not case.has_products() for case in cases) > 0
    assert bool(programs.nodes("bmm")) == by_matrices


# ------------------------------------------------------------------------------------------------------------ rounding


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_rounding(dtype):
    """In 16 bits only the result is rounded."""
    v = torch.rand(C, 1, 1).to(dtype) + 1
    layers = [
        tt.ConvTranspose2d(8, C, kernel, stride=2, padding=padding, dtype=dtype) for kernel, padding in ((3, 0), (4, 1))
    ]
    x = (torch.rand(2, 8, 40, 33) - 0.25).to(dtype)
    with torch.no_grad():
        exact = []
        for module in layers:
            wide = [each.double() for each in (x, module.weight, module.bias)]
            y = F.conv_transpose2d(*wide, 2, module.padding) * v.double() + v.double()
            magnitudes = F.conv_transpose2d(*[each.abs() for each in wide], 2, module.padding) * v.double() + v.double()
            exact.append((y.mean((2, 3)), magnitudes.mean((2, 3))))
    answers, programs = run(lambda x: [(module(x) * v + v).mean((2, 3)) for module in layers], x)
    assert layers_of(programs) == 0
    of_sums = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps
    for answer, (mean, magnitude) in zip(answers, exact, strict=True):
        assert answer.dtype is dtype
        bound = 8 * of_sums * magnitude + (torch.finfo(dtype).eps / 2 * mean.abs() if dtype.itemsize == 2 else 0)
        assert ((answer.double() - mean).abs() <= bound).all()


def test_sums_of_sixteen_bits():
    """As many digits as the program asks for."""
    module = tt.ConvTranspose2d(4, C, 3, padding=1, dtype=torch.bfloat16)
    x = torch.rand(2, 4, 9, 9).bfloat16()
    with torch.no_grad():
        wide = [each.double() for each in (x, module.weight, module.bias)]
        expected = F.conv_transpose2d(*wide, padding=1).mean((2, 3))

    def function(x):
        return module(x).float().mean((2, 3)), module(x).mean((2, 3), dtype=torch.float32), module(x).mean((2, 3))

    answers, programs = run(function, x)
    assert layers_of(programs) == 0
    assert [answer.dtype for answer in answers] == [torch.float32, torch.float32, torch.bfloat16]
    for answer in answers[:2]:
        torch.testing.assert_close(answer.double(), expected, rtol=1e-5, atol=1e-6)


def test_inputs_without_taps_are_not_read():
    """As the layer does not: NaN there does not come to the mean."""
    x = torch.full((1, 2, 5, 6), torch.nan)
    x[..., 1:-1, 2:-2] = 1
    weight = torch.ones(2, 3, 1, 1)
    answer, programs = run(lambda x: tt.conv_transpose2d(x, weight, padding=(1, 2)).mean((2, 3)), x)
    assert layers_of(programs) == 0 and torch.equal(answer, torch.full((1, 3), 2.0))


# --------------------------------------------------------------------------------------------------------------- forms


def layer(spatial=2, **more):
    kind = (tt.ConvTranspose1d, tt.ConvTranspose2d, tt.ConvTranspose3d)[spatial - 1]
    return kind(4, C, 3, stride=2, padding=1, **more)


def images(spatial=2):
    return torch.randn(2, 4, *(5, 6, 3)[:spatial])


V = torch.linspace(-1, 1, C).reshape(C, 1, 1)
PER_IMAGE = torch.linspace(-1, 1, 2 * C).reshape(2, C, 1, 1)
NORM = nn.BatchNorm2d(C).eval()
FORMS = {
    "kernelbench 44": lambda y: (y * 0.5).mean((2, 3), keepdim=True).mean((2, 3), keepdim=True),
    "kernelbench 42": lambda y: torch.logsumexp(y.mean((2, 3), keepdim=True) + V, 1, keepdim=True).sum((2, 3)) * 10,
    "adaptive": lambda y: F.adaptive_avg_pool2d(y, 1),
    "adaptive of two numbers": lambda y: F.adaptive_avg_pool2d(y * V, (1, 1)).flatten(1),
    "one axis after another": lambda y: (y.mean(3) + V[..., 0]).mean(2),
    "kept axes": lambda y: y.sum(2, keepdim=True).mean((2, 3)),
    "flattened": lambda y: y.flatten(2).mean(-1),
    "as one axis": lambda y: (y.reshape(2, C, -1) * V[..., 0]).sum(2),
    "channels too": lambda y: (y - 2).mean((1, 2, 3)),
    "images too": lambda y: (y * V).sum((0, -2, -1), keepdim=True),
    "normalized": lambda y: NORM(y).mean((2, 3)),
    "of images": lambda y: ((PER_IMAGE * y + PER_IMAGE) / 3).mean((2, 3)),
    "returned twice": lambda y: (y.mean((2, 3)),) * 2,
}
with torch.no_grad():
    for each in (*NORM.parameters(), *NORM.buffers()):
        if each.is_floating_point():
            each.copy_(torch.rand(each.shape) + 0.5)


def test_forms():
    layers, x = [layer() for _ in FORMS], images()

    def function(x):
        return [after(each(x)) for after, each in zip(FORMS.values(), layers, strict=True)]

    answers, programs = run(function, x)
    assert layers_of(programs) == 0
    with torch.no_grad():
        torch.testing.assert_close(answers, function(x), rtol=1e-5, atol=1e-6)
    report = tt.fusion_report()
    assert not report.left and len(report.fused) == len(FORMS)
    assert {text.removesuffix(" over the image") for text in report.fused.values()} == {"mean", "sum"}


def test_other_axes():
    """Of one and three axes, PyTorch's own layers, and another layout."""
    one, three, pytorchs = layer(1), layer(3), nn.ConvTranspose2d(4, C, 3, stride=2, padding=1)
    inputs = images(1), images(3), images(2).to(memory_format=torch.channels_last)

    def function(x, z, y):
        return F.adaptive_avg_pool1d(one(x), 1), F.adaptive_avg_pool3d(three(z), 1), pytorchs(y).mean((2, 3), True)

    answers, programs = run(function, *inputs, replace=True)
    assert layers_of(programs) == 0 and not programs.nodes("convolution")
    with torch.no_grad():
        for ours, theirs in zip(answers, function(*inputs), strict=True):
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------- what is left

WIDE = torch.linspace(0, 1, 11)
LEFT = {
    "returned, too": lambda y: (y, y.mean((2, 3))),
    "returned in between": lambda y: (y * 2, (y * 2).mean((2, 3))),
    "two reductions": lambda y: (y.mean((2, 3)), y.sum((2, 3))),
    "rows": lambda y: y.mean(2),
    "channels": lambda y: y.sum(1),
    "channels and rows": lambda y: y.mean((1, 2)),
    "channels before the image": lambda y: y.mean(1).sum((1, 2)),
    "channels with rows before columns": lambda y: y.sum((1, 2), keepdim=True).mean((2, 3)),
    "largest": lambda y: y.amax((2, 3)),
    "bent": lambda y: F.relu(y).mean((2, 3)),
    "square": lambda y: (y * y).mean((2, 3)),
    "divisor": lambda y: (V / (y + 9)).mean((2, 3)),
    "by a tensor of columns": lambda y: (y * WIDE).mean((2, 3)),
    "rounded": lambda y: y.half().float().mean((2, 3)),
    "of more digits": lambda y: y.mean((2, 3), dtype=torch.float64),
    "bits": lambda y: y.view(torch.int32).sum((2, 3)),
    "images and channels in one": lambda y: y.flatten(0, 1).mean((1, 2)),
    "infinite": lambda y: (y * torch.inf).mean((2, 3)),
}


def test_left():
    layers, x = [layer() for _ in LEFT], images()

    def function(x):
        return [after(each(x)) for after, each in zip(LEFT.values(), layers, strict=True)]

    answers, programs = run(function, x)
    assert layers_of(programs) == len(LEFT)
    assert not any("over the image" in text for text in tt.fusion_report().fused.values())
    with torch.no_grad():
        torch.testing.assert_close(answers, function(x), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_left_of_other_sizes():
    """A square of one pixel, a layer of one image that becomes two, and other bits as numbers."""
    weight, of_bits = torch.randn(4, C, 1, 1), layer(dtype=torch.bfloat16)

    def function(x):
        pixel, image = (tt.conv_transpose2d(each, weight) for each in (x[..., :1, :1], x[:1]))
        bits = of_bits(x.bfloat16()).view(torch.float16) * V
        return (pixel * pixel).mean((2, 3)), (image * PER_IMAGE).mean((2, 3)), bits.mean((2, 3))

    x = images()
    answers, programs = run(function, x)
    assert layers_of(programs) == 3
    torch.testing.assert_close(answers, function(x), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_many_ranges_are_left():
    x, weight = torch.randn(1, 2, 64), torch.randn(2, 3, 40)
    answers, programs = run(lambda x: [tt.conv_transpose1d(x, weight, padding=p).mean(2) for p in (7, 8)], x)
    assert layers_of(programs) == 1
    for padding, answer in zip((7, 8), answers, strict=True):
        torch.testing.assert_close(answer, F.conv_transpose1d(x, weight, padding=padding).mean(2), rtol=1e-5, atol=1e-6)


def test_dynamic_shapes_are_left():
    module, programs, before = layer(), Programs(), errors()
    program = compiled(lambda x: module(x).mean((2, 3)), programs, dynamic=True)
    with torch.no_grad():
        for height in (5, 7):
            x = torch.randn(2, 4, height, 6)
            torch.testing.assert_close(program(x), module(x).mean((2, 3)))
    assert layers_of(programs) == 1 and errors() == before


def test_training_is_left():
    module, programs = layer(), Programs()
    x = images().requires_grad_()

    def step(function):
        answer = function(x)
        return answer, torch.autograd.grad(answer.square().sum(), [x, *module.parameters()])

    answer = step(compiled(lambda x: (module(x) * 2).mean((2, 3)), programs))
    assert len(programs.nodes("conv_transpose2d.default") + programs.nodes("conv_transpose2d_post")) == 1
    torch.testing.assert_close(answer, step(lambda x: (module(x) * 2).mean((2, 3))), rtol=1e-5, atol=1e-5)


def test_a_failure_leaves_the_layer(monkeypatch):
    """The graph is as if nothing had been written, and what can be fused is."""
    monkeypatch.setattr(_fusion_mean, "as_dtype", lambda *arguments: 1 / 0)
    module, x = layer(), images()
    answer, programs = run(lambda x: (module(x) * 0.5).mean((2, 3)), x, failures=1)
    assert programs.lists() == ["linear(0.5, 0.0)"] and len(programs.nodes()) == 2
    with torch.no_grad():
        torch.testing.assert_close(answer, (module(x) * 0.5).mean((2, 3)))


# -------------------------------------------------------------------------------------------- PyTorch's code generator


@pytest.fixture
def counted_bytes():
    """How much compiled programs read and write, as PyTorch's compiler counts it."""
    torch._logging.set_logs(inductor_metrics=True)
    metrics.reset()
    yield lambda: metrics.num_bytes_accessed
    torch._logging.set_logs()


def test_code(device, counted_bytes):
    """No layer is called, and the input is read once, for all ranges of both layers."""
    layers = [layer().to(device), tt.ConvTranspose2d(4, C, 3).to(device)]

    def function(x):
        return (layers[0](x) * 0.5).mean((2, 3), keepdim=True).mean((2, 3), keepdim=True), layers[1](x + 1).sum((2, 3))

    x = torch.randn(2, 4, 64, 128, device=device)
    record.clear()
    with torch.no_grad(), fresh_inductor_cache():
        expected, before = function(x), taken()
        answers, codes = run_and_get_code(torch.compile(function, options=tt.fusion_options()), x)
    assert taken() == before and "ops.tconv" not in "".join(codes)
    assert sorted(tt.fusion_report().fused.values()) == ["mean over the image", "sum over the image"]
    torch.testing.assert_close(answers, expected, rtol=1e-4, atol=1e-4)
    assert 1 <= counted_bytes() / (x.numel() * x.element_size()) < 1.5
