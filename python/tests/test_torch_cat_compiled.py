"""Layers that store into concatenations in programs of torch.compile."""

import re
from functools import partial

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch._inductor.utils import fresh_inductor_cache, run_and_get_code  # noqa: E402
from torch_fused import Programs  # noqa: E402
from torch_values import TOLERANCE  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv.torch import _fusion_pass  # noqa: E402
from tconv.torch import _fusion_record as record  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_anew")


class Stage(nn.Module):
    """Of a U-Net: down, up, and both beside one another."""

    def __init__(self, spatial=2, behind=None, whole=torch.cat):
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[spatial - 1]
        up = (tt.ConvTranspose1d, tt.ConvTranspose2d, tt.ConvTranspose3d)[spatial - 1]
        self.first, self.down, self.last = conv(3, 4, 3, padding=1), conv(4, 6, 2, stride=2), conv(8, 2, 3, padding=1)
        self.up, self.behind, self.whole = up(6, 4, 2, stride=2), behind, whole

    def forward(self, x):
        skip = F.relu(self.first(x))
        below = F.relu(self.down(skip))
        if self.whole is not torch.cat:
            return self.last(self.whole([partial(self.up, below), skip], 1))
        up = self.up(below)
        if self.behind is not None:
            up = self.behind(up)
        return self.last(torch.cat([up, skip], 1))


def run(model, *inputs, wanted=False, options=None, **more):
    """What a compiled program answers, and its gradients, as the model does; how many layers stored in place, and the
    code."""
    record.clear()
    tolerance = dict(rtol=TOLERANCE[inputs[0].dtype], atol=TOLERANCE[inputs[0].dtype])
    program = torch.compile(model, options={**tt.fusion_options(), **(options or {})}, **more)
    expected = model(*inputs)
    before = tt.counters().joined
    with fresh_inductor_cache(), torch.set_grad_enabled(wanted):
        answer, code = run_and_get_code(program, *inputs)
        if wanted:
            loss = sum(each.float().square().sum() for each in (answer if isinstance(answer, tuple) else (answer,)))
            parameters = [*model.parameters()]
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    count = tt.counters().joined - before
    torch.testing.assert_close(answer, expected, **tolerance)
    for ours, theirs in zip(
        *(each if isinstance(each, tuple) else (each,) for each in (answer, expected)), strict=True
    ):
        assert ours.stride() == theirs.stride()
    if wanted:
        loss = sum(each.float().square().sum() for each in (expected if isinstance(expected, tuple) else (expected,)))
        more = dict(rtol=10 * tolerance["rtol"], atol=10 * tolerance["atol"])
        torch.testing.assert_close(gradients, torch.autograd.grad(loss, parameters, allow_unused=True), **more)
    for out in re.findall(r"conv_transpose_out.*out=(\w+)\)", "\n".join(code)):
        assert re.search(rf"{out} = reinterpret_tensor\(", "\n".join(code))  # a part of the whole
    return count, "\n".join(code)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("wanted", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("behind", [None, F.relu, torch.tanh], ids=["layer", "relu", "tanh"])
def test_stages(device, spatial, wanted, behind):
    """The layer stores in place, with what is fused with it, unless its result is kept for the backward pass: so is
    that of tanh."""
    if spatial == 3 and behind is not F.relu:
        pytest.skip("what follows does not depend on the axes, and compiling takes seconds")
    model = Stage(spatial, behind).to(device)
    count, code = run(model, torch.randn(2, 3, *(8, 6, 4)[:spatial], device=device), wanted=wanted)
    if device == "cuda" and behind is torch.tanh:  # which is computed after the layer there, and is a part itself
        report = tt.fusion_report()
        assert count == 0 and not report.joined and not report.copied and "conv_transpose_out" not in code
        return
    kept = wanted and behind is torch.tanh
    assert count == (0 if kept else 1)
    assert ("conv_transpose_out" in code) == (not kept)
    report = tt.fusion_report()
    assert (report.copied if kept else report.joined).keys() == {"up"}
    if kept:
        assert report.copied == {"up": "it is needed by the backward pass or elsewhere, too"}
        assert "up: copied, it is needed" in str(report)
    else:
        assert "up: stores into cat" in str(report)


@pytest.mark.parametrize("wanted", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_channels_last(device, wanted, dtype):
    """Nothing is copied where the whole program is channels_last: what is read and written lies so."""
    model = Stage().to(device, dtype, memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 6, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)
    count, code = run(model, x, wanted=wanted)
    assert count == 1
    assert "(2, 8, 8, 6), (384, 1, 48, 8)" in code  # the whole


def test_the_function(device):
    """tconv.torch.cat is torch.cat there."""
    model = Stage(whole=tt.cat).to(device)
    assert run(model, torch.randn(2, 3, 8, 6, device=device), fullgraph=True)[0] == 1
    assert run(model, torch.randn(2, 3, 8, 6, device=device), wanted=True)[0] == 1


def test_dynamic_shapes(device):
    model = Stage().to(device)
    program = torch.compile(model, dynamic=True, options=tt.fusion_options())
    before = tt.counters().joined
    for size in ((2, 3, 8, 6), (3, 3, 10, 4), (1, 3, 16, 16)):
        x = torch.randn(size, device=device)
        torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)
    assert tt.counters().joined - before == 3


def test_without_the_pass():
    """Programs that are compiled without it are as ever."""
    model, x = Stage(), torch.randn(2, 3, 8, 6)
    before = tt.counters().joined
    with fresh_inductor_cache(), torch.no_grad():
        answer, (code,) = run_and_get_code(torch.compile(model), x)
    torch.testing.assert_close(answer, model(x))
    assert tt.counters().joined == before and "conv_transpose_out" not in code


@pytest.mark.parametrize("behind", [None, F.relu, torch.tanh, F.gelu], ids=["layer", "relu", "tanh", "gelu"])
def test_what_is_kept_for_the_backward_pass(monkeypatch, behind):
    """No more than without."""
    saved = []
    for joining in (True, False):
        torch._dynamo.reset()
        if not joining:
            monkeypatch.setattr(_fusion_pass, "join_concatenations", lambda graph: False)
        programs = Programs()
        torch.compile(Stage(behind=behind), backend=programs)(torch.randn(2, 3, 8, 6)).sum().backward()
        (bytes_saved,) = programs.saved
        saved.append(bytes_saved)
    assert saved[0] <= saved[1]


class Several(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.up, self.other, self.function = tt.ConvTranspose2d(3, 4, 2, 2), tt.ConvTranspose2d(3, 2, 2, 2), function

    def forward(self, x, beside):
        return self.function(self.up(x), self.other(x), beside)


def softmax_of(*parts, dim=1):
    """A concatenation that is a tensor on a GPU, too, as one is that element-wise operators read is not."""
    return torch.cat(parts, dim).softmax(dim)


PROGRAMS = {
    "two layers": (lambda y, z, beside: softmax_of(y, z, beside), 2, ""),
    "two concatenations": (lambda y, z, beside: softmax_of(y, beside) + softmax_of(beside, y), 1, ""),
    "twice in one": (lambda y, z, beside: softmax_of(y, beside, y, z), 2, ""),
    "element-wise beside it": (lambda y, z, beside: (softmax_of(y, beside), y.relu() * 2), 1, ""),
    "over images": (lambda y, z, beside: softmax_of(y, y * 2, dim=0), 1, ""),
    "over rows": (lambda y, z, beside: softmax_of(y, y * 2, dim=2), 1, ""),
    "over columns": (lambda y, z, beside: softmax_of(y, y * 2, dim=3), 0, "cat has parts of rows"),
    "returned": (lambda y, z, beside: (softmax_of(y, beside), y), 0, "it is needed by the program, which returns it"),
    "viewed": (lambda y, z, beside: (softmax_of(y, beside), y.flatten(1).softmax(1)), 0, "it is needed by"),
    "reduced": (lambda y, z, beside: (softmax_of(y, beside), y.sum((2, 3))), 0, "it is needed by sum"),
    "another dtype": (lambda y, z, beside: softmax_of(y, beside.double()), 0, "a part of cat is of another dtype"),
    "changed in place": (lambda y, z, beside: (softmax_of(y, beside), y.mul_(2).sigmoid()), 1, ""),
    "whole changed": (lambda y, z, beside: torch.cat([y, beside], 1).mul_(2).softmax(1), 1, ""),
}
# The multiplication alone reads that concatenation.
ON_CUDA = {"whole changed": (PROGRAMS["whole changed"][0], 0, "only element-wise operators read cat")}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("wanted", [False, True], ids=["inference", "training"])
def test_programs(device, name, wanted):
    function, times, why = ON_CUDA.get(name, PROGRAMS[name]) if device == "cuda" else PROGRAMS[name]
    model = Several(function).to(device)
    x, beside = torch.randn(2, 3, 4, 5, device=device), torch.randn(2, 4, 8, 10, device=device)
    count, _ = run(model, x, beside, wanted=wanted)
    report = tt.fusion_report()
    assert count == len(report.joined) == times
    assert [text.startswith(why) for text in report.copied.values()] == [True] * bool(why)


def test_element_wise_readers_on_cuda(cuda):
    """The compiler makes no concatenation of what element-wise operators alone read."""
    model = Several(lambda y, z, beside: torch.cat([y, z, beside], 1).sigmoid()).to(cuda)
    x, beside = torch.randn(2, 3, 4, 5, device=cuda), torch.randn(2, 4, 8, 10, device=cuda)
    assert run(model, x, beside)[0] == 0
    assert set(tt.fusion_report().copied.values()) == {"only element-wise operators read cat"}
