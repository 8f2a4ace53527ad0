"""The graph pass for torch.compile: what it makes of what follows a layer, in inference and in training, and what it
leaves alone. Graphs are run node by node; test_torch_fusion_compiled.py has PyTorch's code generator, and
test_torch_fusion_mean.py means over the image."""

import math
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import fx, nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch_fused import Programs, Unfused, compiled  # noqa: E402
from torch_values import TOLERANCE  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv.torch._fusion_pass import FusionPass  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_anew")

C = 6
V = torch.linspace(-1, 1, C).reshape(C, 1, 1)


def layer(dtype=torch.float32, spatial=2, **more):
    kind = (tt.ConvTranspose1d, tt.ConvTranspose2d, tt.ConvTranspose3d)[spatial - 1]
    return kind(4, C, 3, stride=2, padding=1, dtype=dtype, **more)


def images(dtype=torch.float32, spatial=2, batch=2):
    return torch.randn(batch, 4, *(5, 6, 3)[:spatial], dtype=dtype)


def normalization(kind=nn.BatchNorm2d, **more):
    made = kind(C, **more).eval()
    with torch.no_grad():
        for tensor in [*made.parameters(), *made.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return made


def of_inference(function, *inputs, **more):
    """The answers of the program and of eager calls, and the lists of post-ops."""
    programs = Programs(**more)
    with torch.no_grad():
        expected = function(*inputs)
        answer = compiled(function, programs)(*inputs)
    return answer, expected, programs.lists()


def same(ours, theirs, dtype=torch.float32):
    assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# --------------------------------------------------------------------------------------------------- each activation

ACTIVATIONS = {
    "gelu": (F.gelu, "gelu"),
    "gelu tanh": (lambda y: F.gelu(y, approximate="tanh"), "gelu_tanh"),
    "gelu by hand": (lambda y: 0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0))), "gelu"),
    "silu": (F.silu, "silu"),
    "silu by hand": (lambda y: y * torch.sigmoid(y), "silu"),
    "mish": (F.mish, "mish"),
    "softplus": (F.softplus, "softplus"),
    "softplus of another threshold": (lambda y: F.softplus(y, threshold=18), "softplus"),
    "elu": (F.elu, "elu(1.0)"),
    "elu of alpha": (lambda y: F.elu(y, 0.3), "elu(0.3)"),
    "hardswish": (F.hardswish, "hardswish"),
    "hardtanh": (lambda y: F.hardtanh(y, -0.5, 0.25), "clamp(-0.5, 0.25)"),
    "relu6": (F.relu6, "clamp(0.0, 6.0)"),
    "leaky_relu": (lambda y: F.leaky_relu(y, 0.2), "leaky_relu(0.2)"),
    "relu": (F.relu, "leaky_relu(0.0)"),
    "sigmoid": (torch.sigmoid, "sigmoid"),
    "tanh": (torch.tanh, "tanh"),
    "clamp min": (lambda y: y.clamp(min=0.25), "clamp(0.25, inf)"),
    "clamp max": (lambda y: y.clamp(max=0.25), "clamp(-inf, 0.25)"),
    "maximum": (lambda y: torch.maximum(y, torch.zeros_like(y)), "clamp(0.0, inf)"),
    "min with a number": (lambda y: torch.min(y, torch.tensor(0.25)), "clamp(-inf, 0.25)"),
    "bounds the wrong way round": (lambda y: y.clamp(0.5, 0.25), "clamp(0.25, 0.25)"),
    "snake": (lambda y: y + (V + 2) * torch.sin((V + 2) * y).pow(2), "snake"),
    "negative": (torch.neg, "linear(-1.0, 0.0)"),
}


def all_at_once(cases, x):
    """The answers of a program in which each of the cases follows a layer of its own, and of eager calls, and lists."""
    layers = [layer(x.dtype) for _ in cases]

    def function(x):
        return [after(each(x)) for after, each in zip(cases, layers, strict=True)]

    answers, expected, lists = of_inference(function, x)
    for ours, theirs in zip(answers, expected, strict=True):
        same(ours, theirs, x.dtype)
    return lists


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_each_activation(dtype):
    # PyTorch's threshold of Softplus is too low for float64, and Snake's tensors are of float32.
    without = {torch.float32: (), torch.bfloat16: ("snake",), torch.float64: ("snake", "softplus")}[dtype]
    cases = [case for name, case in ACTIVATIONS.items() if not name.startswith(tuple(without) or "-")]
    lists = all_at_once([activation for activation, _ in cases], 2 * images(dtype))
    assert lists == [expected for _, expected in cases]


def test_softplus_of_float64_is_left():
    assert all_at_once([F.softplus], images(torch.float64)) == []


# ------------------------------------------------------------------------------------------------------------- chains

CHAINS = {
    "kernelbench 2": (
        lambda y: torch.clamp(torch.clamp(y + V, 0, 1) * 2.0, 0, 1) / 2.0,
        "add_channel clamp(0.0, 1.0) linear(2.0, 0.0) clamp(0.0, 1.0) linear(0.5, 0.0)",
    ),
    "kernelbench 5": (lambda y: torch.tanh(y - V), "add_channel tanh"),
    "kernelbench 16": (
        lambda y: F.hardtanh(F.mish(y) + 0.5, -1, 1) * 2,
        "mish linear(1.0, 0.5) clamp(-1.0, 1.0) linear(2.0, 0.0)",
    ),
    "kernelbench 93": (
        lambda y: F.gelu(torch.clamp(y + 0.5, max=0.0)) * 2.0,
        "linear(1.0, 0.5) clamp(-inf, 0.0) gelu linear(2.0, 0.0)",
    ),
    "kernelbench 19": (lambda y: F.group_norm(F.gelu(y), 2), "gelu"),
    "kernelbench 11": (lambda y: F.max_pool2d(torch.tanh(NORM(y)), 2, 2), "mul_channel add_channel tanh"),
    "scaled, largest": (lambda y: (y * 0.5).amax((2, 3)), "linear(0.5, 0.0)"),
    "number minus": (lambda y: F.relu(1 - y), "linear(-1.0, 1.0) leaky_relu(0.0)"),
    "channels minus": (lambda y: V - y, "linear(-1.0, 0.0) add_channel"),
    "times channels": (lambda y: V[None] * y, "mul_channel"),
    "one number for all": (lambda y: y * V[:1], "mul_channel"),
    "two normalizations": (
        lambda y: NORM(F.relu(NORM(y))),
        "mul_channel add_channel leaky_relu(0.0) mul_channel add_channel",
    ),
    "nine steps": (
        lambda y: torch.tanh(torch.tanh(torch.tanh(torch.tanh(y) * 2) * 2) * 2) * 2 + 1,
        "tanh linear(2.0, 0.0) " * 3 + "tanh linear(2.0, 0.0)",
    ),
}
NORM = normalization()


def test_chains():
    assert all_at_once([after for after, _ in CHAINS.values()], images()) == [text for _, text in CHAINS.values()]


def test_division_by_three():
    """PyTorch divides on the CPU, so that a reciprocal would be another number, and multiplies on CUDA."""
    assert all_at_once([lambda y: torch.tanh(y) / 3], images()) == ["tanh"]
    with FakeTensorMode() as mode:
        graph = fx.Graph()
        nodes = [graph.placeholder(name) for name in "xw"]
        for node, shape in zip(nodes, [(2, 4, 5, 6), (4, C, 3, 3)], strict=True):
            node.meta["val"] = torch.empty(shape, device="cuda")
        for target, more in ((torch.ops.tconv.conv_transpose2d.default, ()), (torch.ops.aten.div.Tensor, (3.0,))):
            arguments = (*nodes, *more)
            nodes = [graph.call_function(target, arguments)]
            nodes[0].meta["val"] = target(*fx.map_arg(arguments, lambda node: node.meta["val"]))
        graph.output((nodes[0],))
    assert mode is not None
    FusionPass()(graph)
    (node,) = (node for node in graph.nodes if node.op == "call_function")
    assert node.args[8] == f"linear({(1 / torch.tensor(3.0)).item()}, 0.0)"


@pytest.mark.parametrize("alpha", [1, -1, 0.5])
def test_residual(alpha):
    module, residual = layer(), torch.randn(2, C, 9, 11)
    answer, expected, lists = of_inference(lambda x, t: F.relu(module(x) + alpha * t), images(), residual)
    assert lists == [f"add({float(alpha)}) leaky_relu(0.0)"]
    same(answer, expected)
    answer, expected, lists = of_inference(lambda x, t: t - module(x), images(), residual)
    assert lists == ["linear(-1.0, 0.0) add(1.0)"]
    same(answer, expected)


def test_a_residual_that_is_computed_in_passing_is_left():
    """PyTorch's loop over it would compute it without writing it."""
    module, residual = layer(), torch.randn(2, C, 9, 11)
    _, _, lists = of_inference(lambda x, t: module(x) + torch.sin(t), images(), residual)
    assert lists == []


def test_two_residuals():
    module, residual = layer(), torch.randn(2, C, 9, 11)
    answer, expected, lists = of_inference(lambda x, t: (module(x) + t) * 2 + t, images(), residual)
    assert lists == ["add(1.0) linear(2.0, 0.0)"]
    same(answer, expected)


def test_sixteen_bits_keep_more():
    """Conversions inside of a chain are dropped: the result is nearer to that of exact steps than eager's is."""
    module, norm = layer(torch.bfloat16), normalization().to(torch.bfloat16)

    def exact(x):
        wide = [t.double() for t in (x, module.weight, module.bias)]
        y = F.conv_transpose2d(*wide, 2, 1)
        return torch.tanh(normalized(y)) * 3

    def normalized(y):
        numbers = [t.double() for t in (norm.running_mean, norm.running_var, norm.weight, norm.bias)]
        return F.batch_norm(y, *numbers, eps=norm.eps)

    x = images(torch.bfloat16)
    answer, expected, lists = of_inference(lambda x: torch.tanh(norm(module(x))) * 3, x)
    assert lists == ["mul_channel add_channel tanh linear(3.0, 0.0)"]
    same(answer, expected, torch.bfloat16)
    with torch.no_grad():
        errors = [(y.double() - exact(x)).abs().max() for y in (answer, expected)]
    assert errors[0] < errors[1]


def test_roundings_to_sixteen_bits_in_a_program_of_float32_stay():
    module = layer()
    answer, expected, lists = of_inference(lambda x: F.relu(module(x).half()).float(), images())
    assert lists == [] and torch.equal(answer, expected)
    module = layer(torch.float64)
    answer, expected, lists = of_inference(lambda x: F.relu(module(x).float()).double(), images(torch.float64))
    assert lists == [] and torch.equal(answer, expected)


# ------------------------------------------------------------------------------------------- what a layer may be like


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_axes(spatial):
    module = layer(spatial=spatial)
    v = V.reshape(C, *[1] * spatial)
    x = images(spatial=spatial)
    answer, expected, lists = of_inference(lambda x: torch.tanh(module(x) * v), x)
    assert lists == ["mul_channel tanh"]
    same(answer, expected)
    answer, expected, _ = of_inference(lambda x: torch.tanh(module(x) * v), x[0])
    same(answer, expected)


@pytest.mark.parametrize(
    "lie",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.repeat(1, 1, 1, 2)[..., ::2],
        lambda x: x.repeat(1, 2, 1, 1).to(memory_format=torch.channels_last)[:, :4],
        lambda x: x.permute(2, 1, 0, 3).contiguous().permute(2, 1, 0, 3),
    ],
    ids=["channels_last", "every other column", "half of the channels", "images inside"],
)
def test_strides(lie):
    module = layer()
    answer, expected, lists = of_inference(lambda x: F.silu(module(x) - V), lie(images()))
    assert lists == ["add_channel silu"]
    same(answer, expected)


def test_dynamic_shapes():
    module, programs = layer(), Programs()
    program = compiled(lambda x, t: torch.tanh(F.relu(module(x) * V) + t), programs, dynamic=True)
    with torch.no_grad():
        for height in (5, 7, 8):
            x = torch.randn(height - 3, 4, height, 6)
            t = torch.randn(height - 3, C, 2 * height - 1, 11)
            same(program(x, t), torch.tanh(F.relu(module(x) * V) + t))
    assert programs.lists() == ["mul_channel leaky_relu(0.0) add(1.0) tanh"]


# With the cause that is counted.
LEFT = [
    (lambda y: F.relu(y) + y, "needed"),
    (lambda y: F.relu(y.amax((2, 3))), "no post-op"),
    (lambda y: y + torch.linspace(0, 1, 11), "no post-op"),
    (lambda y: y.unsqueeze(0) + torch.ones(3, 1, 1, 1, 1), "no post-op"),
    (lambda y: y + torch.ones(1, 1, 1, 1, 1), "shape"),
    (lambda y: F.softplus(y, threshold=5), "needed"),
    (lambda y: F.softplus(y, beta=2), "needed"),
    (lambda y: y.exp(), "no post-op"),
    (lambda y: y, "nothing follows"),
]


def test_left():
    before = tt.counters().graph
    assert all_at_once([after for after, _ in LEFT], images()) == []
    counted = Counter(tt.counters().graph) - Counter(before)
    assert counted == Counter(cause for _, cause in LEFT)


def compared(activation, *comparisons):
    """The activation of a layer's result, and what comparisons of the result give."""
    return lambda y: (activation(y), *(compare(y) for compare in comparisons))


@pytest.mark.parametrize(
    "function, fused",
    [
        (compared(F.relu, lambda y: y > 0, lambda y: y <= 0), True),
        (compared(F.relu, lambda y: y >= 0), False),
        (compared(lambda y: F.leaky_relu(y, 0.2), lambda y: y > 0), True),
        (compared(lambda y: F.leaky_relu(y, 0.2), lambda y: y < 0), False),
        (compared(lambda y: F.leaky_relu(y, 0.2), lambda y: y > 0.5), False),
        (compared(lambda y: y.clamp(-1, 1), lambda y: y > -1, lambda y: y >= 1, lambda y: y < 0.5), True),
        (compared(lambda y: y.clamp(-1, 1), lambda y: y >= -1), False),
        (compared(lambda y: y.clamp(-1, 1), lambda y: y > 1), True),  # its lower bound
        (compared(lambda y: y.clamp(-1, 1), lambda y: y > 1, lambda y: y < -1), False),
        (compared(torch.tanh, lambda y: y > 0), False),
    ],
)
def test_comparisons_with_the_result_in_place_of_the_value(function, fused):
    """As backward passes have them. The values are those that an input of whole numbers has."""
    x, weight = torch.arange(-3.0, 4).reshape(1, 1, 1, 7), torch.ones(1, 1, 1, 1)
    answer, expected, lists = of_inference(lambda x: function(tt.conv_transpose2d(x, weight)), x)
    assert len(lists) == fused
    for ours, theirs in zip(answer, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_value_that_is_needed_ends_the_list():
    module = layer()

    def two(x):
        y = F.relu(module(x))
        return y, torch.tanh(y)

    answer, expected, lists = of_inference(two, images())
    assert lists == ["leaky_relu(0.0)"]
    for ours, theirs in zip(answer, expected, strict=True):
        same(ours, theirs)


# ------------------------------------------------------------------------------------------------------------ training


def _ends_before_bounds():
    """Whether clamp has no derivative where a value is at a bound, as in newer versions of PyTorch. With one, it cannot
    be told from the result."""
    zero = torch.zeros((), requires_grad=True)
    return torch.autograd.grad(zero.clamp(min=0), zero)[0].item() == 0


ENDS_BEFORE_BOUNDS = _ends_before_bounds()
TRAINED = {
    "relu": (F.relu, "leaky_relu(0.0)"),
    "leaky_relu": (lambda y: F.leaky_relu(y, 0.2), "leaky_relu(0.2)"),
    "clamp": (lambda y: y.clamp(-0.25, 0.375), "clamp(-0.25, 0.375)" if ENDS_BEFORE_BOUNDS else None),
    "hardtanh": (lambda y: F.hardtanh(y, -0.25, 0.375), "clamp(-0.25, 0.375)"),
    "relu6": (F.relu6, "clamp(0.0, 6.0)"),
    "clamp max": (lambda y: y.clamp(max=0.25), "clamp(-inf, 0.25)" if ENDS_BEFORE_BOUNDS else None),
    "tanh": (torch.tanh, "tanh"),
    "sigmoid": (torch.sigmoid, "sigmoid"),
    "elu": (F.elu, "elu(1.0)"),
    "elu of alpha": (lambda y: F.elu(y, 0.5), "elu(0.5)"),
    "shifted": (lambda y: F.relu(2 * y + V), "linear(2.0, 0.0) add_channel leaky_relu(0.0)"),
    "scaled afterwards": (lambda y: F.relu(y) * 2, "leaky_relu(0.0)"),
    "normalized": (lambda y: F.relu(FROZEN(y)), "mul_channel add_channel leaky_relu(0.0)"),
    "gelu": (F.gelu, None),
    "silu": (F.silu, None),
    "mish": (F.mish, None),
    "leaky_relu that turns signs": (lambda y: F.leaky_relu(y, -0.5), None),
    "elu that turns signs": (lambda y: F.elu(y, -0.5), None),
    "trained scale": (lambda y: F.relu(y * nn.functional.softplus(TRAINED_SCALE)), None),
}
OF_FLOAT32 = ("normalized", "shifted", "trained scale")  # for the sake of their tensors
FROZEN = normalization().requires_grad_(False)
TRAINED_SCALE = nn.Parameter(V.clone())


def gradients(function, inputs, cotangent):
    answer = function(*inputs)
    return answer, torch.autograd.grad(answer, inputs, cotangent)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_training(dtype):
    """Each with inputs of its own. What the forward pass keeps of what is fused is the result alone."""
    sixteen_bits = dtype is torch.bfloat16
    cases = [case for name, case in TRAINED.items() if not (sixteen_bits and name in OF_FLOAT32)]
    # In 16 bits too few digits of ELU's derivative are left in the result.
    expected_lists = [text for _, text in cases if text is not None and not (sixteen_bits and text.startswith("elu"))]
    next_layer = nn.Conv2d(C, 3, 3, dtype=dtype).requires_grad_(False)
    inputs = []
    for _ in cases:
        inputs.append(images(dtype).requires_grad_())
        inputs.append(torch.randn(4, C, 3, 3, dtype=dtype, requires_grad=True))

    def function(*inputs):
        of_case = zip(cases, inputs[::2], inputs[1::2], strict=True)
        return [next_layer(after(tt.conv_transpose2d(x, w, stride=2))) for (after, _), x, w in of_case]

    def step(function):
        answers = function(*inputs)
        torch.manual_seed(1)
        return answers, torch.autograd.grad(answers, inputs, [torch.randn_like(answer) for answer in answers])

    expected, of_expected = step(function)
    programs, unfused = Programs(), Unfused()
    answers, of_answers = step(compiled(function, programs))
    torch._dynamo.reset()
    step(compiled(function, unfused))
    assert programs.lists() == expected_lists
    assert programs.saved[0] <= unfused.saved[0]
    for ours, theirs in zip((*answers, *of_answers), (*expected, *of_expected), strict=True):
        scale = theirs.abs().max()
        same(ours / scale, theirs / scale, dtype)


@pytest.mark.parametrize("name", ["leaky_relu", "hardtanh", "tanh", "elu", "shifted", "normalized"])
def test_what_training_keeps(name):
    """The result in place of what it is computed of, never both."""
    after, _ = TRAINED[name]
    next_layer, programs = nn.Conv2d(C, 3, 3), Programs()
    weight = torch.randn(4, C, 3, 3, requires_grad=True)
    x = images().requires_grad_()
    compiled(lambda x, w: next_layer(after(tt.conv_transpose2d(x, w, stride=2))), programs)(x, weight)
    others = [x, weight, next_layer.weight, *FROZEN.parameters(), *FROZEN.buffers(), V]
    result = 2 * C * 11 * 13 * 4
    assert result <= programs.saved[0] <= result + sum(each.numel() * each.element_size() for each in others)


def test_training_of_a_bound_that_sixteen_bits_do_not_have():
    """What is clamped to .3 is rounded to another number, which is above .3 or below."""
    module, programs = layer(torch.bfloat16), Programs()
    compiled(lambda x: module(x).clamp(-0.3, 0.3), programs)(images(torch.bfloat16))
    assert programs.lists() == []


def test_gradients_at_the_bounds():
    """Where values are at a bound, and where they are NaN or infinite, gradients are eager's."""
    weight = torch.ones(1, 1, 1, 1)
    values = torch.tensor([-math.inf, -2, -1, -0.0, 0.0, 0.5, 1, 2, math.inf, math.nan]).reshape(1, 1, 1, -1)
    for name, after in {
        "relu": F.relu,
        "leaky_relu": lambda y: F.leaky_relu(y, 0.25),
        "hardtanh": lambda y: F.hardtanh(y, -1, 1),
        "clamp": lambda y: y.clamp(-1, 1),
        "elu": F.elu,
    }.items():
        torch._dynamo.reset()

        def function(x, after=after):
            return after(tt.conv_transpose2d(x, weight))

        programs = Programs()
        x = values.clone().requires_grad_()
        expected = gradients(function, [x], torch.ones_like(values))
        answer = gradients(compiled(function, programs), [x], torch.ones_like(values))
        assert len(programs.lists()) == (name != "clamp" or ENDS_BEFORE_BOUNDS)
        torch.testing.assert_close(answer, expected, equal_nan=True)


# ------------------------------------------------------------------------------------------------- PyTorch's own layers


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_replaced(spatial, groups):
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[spatial - 1]
    module = kind(4, C, 3, stride=2, padding=1, groups=groups)
    answer, expected, lists = of_inference(lambda x: torch.tanh(module(x)), images(spatial=spatial), replace=True)
    assert lists == ["tanh"]
    same(answer, expected)


@pytest.mark.parametrize("channels_last", [False, True])
def test_replaced_in_training(channels_last):
    lying = torch.channels_last if channels_last else torch.contiguous_format
    module = nn.ConvTranspose2d(4, C, 3, stride=2, padding=1).to(memory_format=lying)
    x = images().to(memory_format=lying).requires_grad_()
    inputs, programs = [x, *module.parameters()], Programs(replace=True)

    def step(function):
        answer = function(x)
        return answer, *torch.autograd.grad(answer.square().sum(), inputs)

    expected, answers = step(lambda x: torch.tanh(module(x))), step(compiled(lambda x: torch.tanh(module(x)), programs))
    assert programs.lists() == ["tanh"] and not programs.nodes("aten.convolution")
    assert len(programs.nodes("backward_data")) == len(programs.nodes("backward_weights")) == 1
    for ours, theirs in zip(answers, expected, strict=True):
        same(ours, theirs)


def test_what_is_not_replaced():
    module = nn.Conv3d(4, 3, 2)
    answer, expected, lists = of_inference(lambda x: F.relu(module(x)), torch.randn(1, 4, 2, 2, 2), replace=True)
    assert lists == [] and torch.equal(answer, expected)
