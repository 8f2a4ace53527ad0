"""The graph pass below PyTorch's code generator: how it is asked for, caches, other passes, layouts of programs."""

import pathlib
import re

import pytest

torch = pytest.importorskip("torch")

import torch._inductor.config as config  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.utils import counters as of_dynamo  # noqa: E402
from torch._inductor.custom_graph_pass import CustomGraphPass  # noqa: E402
from torch._inductor.utils import fresh_inductor_cache, run_and_get_code  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv.torch import _fusion_layout, _fusion_record  # noqa: E402
from tconv.torch._fusion import compile_with_fusion  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_anew")

HOOK = "joint_custom_post_pass"


class Counted(CustomGraphPass):
    """A pass of somebody else's."""

    def __init__(self, uuid=None):
        self.calls, self._uuid = 0, uuid

    def __call__(self, graph):
        self.calls += 1

    def uuid(self):
        return self._uuid


def model():
    return nn.Sequential(tt.ConvTranspose2d(4, 4, 2, 2), nn.ReLU(), tt.ConvTranspose2d(4, 3, 2, 2), nn.Tanh()).eval()


def fused(program, *inputs):
    """The answer, and how many layers computed what follows them."""
    before = tt.counters().fused
    with torch.no_grad():
        answer = program(*inputs)
    return answer, tt.counters().fused - before


def test_options_and_cache():
    """The second program is PyTorch's from its cache, and the pass with other options is another."""
    made, x = model(), torch.randn(1, 4, 3, 3)
    _fusion_record.clear()  # of the tests before, whose layers may have the same names
    with torch.no_grad():
        expected = made(x)
    with fresh_inductor_cache(), config.patch(fx_graph_cache=True):
        hits = []
        for options in ({}, {}, {"replace": True}):
            torch._dynamo.reset()
            before, looked_at = of_dynamo["inductor"]["fxgraph_cache_hit"], tt.counters().graph.get("fused", 0)
            answer, count = fused(torch.compile(made, options=tt.fusion_options(**options)), x)
            hits.append(of_dynamo["inductor"]["fxgraph_cache_hit"] - before)
            assert count == 2
            torch.testing.assert_close(answer, expected)
            assert tt.counters().graph["fused"] - looked_at == (0 if hits[-1] else 2)
        assert hits == [0, 1, 0]
    assert {"0": "leaky_relu(0.0)", "2": "tanh"}.items() <= tt.fusion_report().fused.items()
    assert "0: fused with leaky_relu(0.0)" in str(tt.fusion_report())


def test_backend_and_modes():
    made, x = model(), torch.randn(1, 4, 3, 3)
    foreign = Counted("foreign")
    program = torch.compile(made, backend=compile_with_fusion, options={HOOK: foreign, "epilogue_fusion": False})
    with fresh_inductor_cache():
        assert fused(program, x)[1] == 2 and foreign.calls == 1
    metadata = (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'tconv = "tconv.torch._fusion:compile_with_fusion"' in metadata


def test_for_the_process():
    assert getattr(config, HOOK) is None  # importing changes nothing
    foreign = Counted()
    with config.patch({HOOK: foreign}):
        tt.fuse_compiled()
        tt.fuse_compiled()  # once more is no second pass
        assert fused(torch.compile(model()), torch.randn(1, 4, 3, 3))[1] == 2
        assert foreign.calls == 1
        tt.fuse_compiled(False)
        assert getattr(config, HOOK) is foreign
        tt.fuse_compiled(False)
        assert getattr(config, HOOK) is foreign
    tt.fuse_compiled()
    tt.fuse_compiled(False)
    assert getattr(config, HOOK) is None


def test_a_pass_without_an_identity_has_no_cache():
    def uuid(before):
        with config.patch({HOOK: before}):
            return tt.fusion_options()[HOOK].uuid()

    assert uuid(None) == uuid(None) is not None
    assert uuid(Counted()) is None and uuid(lambda graph: None) is None
    assert uuid(Counted("a")) != uuid(Counted("b")) != uuid(None)
    assert uuid([Counted("a"), Counted("b")]) == (*uuid(None), "a", "b")


def test_replace():
    made, x = nn.Sequential(nn.ConvTranspose2d(4, 3, 2, 2), nn.Sigmoid()).eval(), torch.randn(1, 4, 3, 3)
    with torch.no_grad():
        expected = made(x)
    answer, count = fused(torch.compile(made, options=tt.fusion_options(replace=True)), x)
    assert count == 1 and type(made[0]) is nn.ConvTranspose2d
    torch.testing.assert_close(answer, expected)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, padding=1)
        self.up, self.joined = tt.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 8, 3, padding=1)
        self.last = tt.ConvTranspose2d(8, 4, 2, 2)

    def forward(self, x):
        a = F.relu(self.first(x))
        up = F.relu(self.up(F.relu(self.down(a))))
        return torch.tanh(self.last(F.relu(self.joined(torch.cat([up, a], 1)))))


@pytest.mark.parametrize("given", [torch.channels_last, torch.contiguous_format], ids=str)
def test_layouts_flow_through_layers(given):
    """In channels_last nothing is copied, forward and backward; where PyTorch has chosen channels_last for the
    convolutions around them, layers take that."""
    made = UNet().to(memory_format=given)
    x = torch.randn(2, 3, 16, 16).to(memory_format=given)
    expected = made(x)
    of_expected = torch.autograd.grad(expected.square().sum(), list(made.parameters()))
    by_choice = given is not torch.channels_last
    options = {"layout_optimization": by_choice, "force_layout_optimization": by_choice, "fx_graph_cache": False}
    # The layout is the operators' own, with the pass and without it.
    program = torch.compile(made, options=options if by_choice else {**tt.fusion_options(), **options})

    def step():
        if by_choice:
            with torch.no_grad():
                return program(x), None
        answer = program(x)
        return answer, torch.autograd.grad(answer.square().sum(), list(made.parameters()))

    (answer, gradients), codes = run_and_get_code(step)
    assert answer.stride() == expected.stride()
    torch.testing.assert_close(answer, expected)
    text = "\n".join(codes)
    # Channels lie inside: what the program checks of each layer's result, but for the one that stores into torch.cat's.
    checked = r"assert_\w+\(\w+, \(2, \d+, \d+, \d+\), \(\d+, 1, .*tconv\.conv_transpose2d(_post)?\.default"
    parts = re.findall(r"(\w+) = reinterpret_tensor\(\w+, \(2, \d+, \d+, \d+\), \(\d+, 1, ", text)
    stored = [out for out in re.findall(r"conv_transpose_out.*out=(\w+)\)", text) if out in parts]
    assert (len(re.findall(checked, text)), len(stored)) == ((2, 0) if by_choice else (1, 1))
    if not by_choice:
        torch.testing.assert_close(gradients, of_expected, rtol=1e-4, atol=1e-4)
        assert "clone" not in text and "copy_(" not in text


def test_inputs_that_are_not_dense():
    """What the code generator expects of a layer is what the layer answers: it checks each."""
    made = tt.ConvTranspose2d(4, 3, 2, 2)

    def function(x):
        a = F.relu(x + 1)[:, :4]  # a part of the channels
        b = (x * 2)[..., ::2][:, 4:]
        return torch.tanh(made(a)), torch.tanh(made(b)), made(x.permute(2, 1, 0, 3)[:, :4])

    program = torch.compile(function, options=tt.fusion_options())
    for lying in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 8, 3, 6).to(memory_format=lying)
        with torch.no_grad():
            for ours, theirs in zip(program(x), function(x), strict=True):
                assert ours.stride() == theirs.stride()
                torch.testing.assert_close(ours, theirs)


CHANNELS = {
    "softmax": (lambda y: F.softmax(y * 2, 1), True),
    "normalized": (lambda y: (y - y.mean(1, keepdim=True)) * torch.rsqrt(y.var(1, keepdim=True) + 1e-5), True),
    "least": (lambda y: F.relu(y).amin(1), True),
    "all pixels": (lambda y: y.mean((2, 3)), False),
    "all": (lambda y: y.sum((1, 2, 3)), False),
    "rows": (lambda y: F.softmax(y, 2), False),
}


@pytest.mark.parametrize("spatial, name", [*((2, name) for name in CHANNELS), (3, "softmax")])
def test_channels_that_are_reduced_lie_side_by_side(spatial, name, monkeypatch):
    """On CUDA alone; here as if the CPU were one. What the program returns has the strides that it had."""
    after, wanted = CHANNELS[name]
    monkeypatch.setattr(_fusion_layout, "DEVICES", ("cpu",))
    kind = tt.ConvTranspose2d if spatial == 2 else tt.ConvTranspose3d
    layer, x = kind(4, 16, 2, 2), torch.randn(2, 4, *(2, 3, 5)[-spatial:])

    def program(x):
        return after(layer(x))

    with torch.no_grad():
        expected = program(x)
        answer, codes = run_and_get_code(torch.compile(program, options=tt.fusion_options()), x)
    torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-5)
    assert answer.stride() == expected.stride()
    inside = "(2, 4, 3, 5), (60, 1, 20, 4)" if spatial == 2 else "(2, 4, 2, 3, 5), (120, 1, 60, 20, 4)"
    assert (inside in codes[0]) == wanted


def test_layers_that_are_trained_stay_as_they_lie(monkeypatch):
    monkeypatch.setattr(_fusion_layout, "DEVICES", ("cpu",))
    layer, x = tt.ConvTranspose2d(4, 16, 2, 2), torch.randn(2, 4, 3, 5)
    program = torch.compile(lambda x: F.softmax(layer(x), 1), options=tt.fusion_options())
    answer, codes = run_and_get_code(program, x)
    answer.square().sum().backward()
    assert "(60, 1, 20, 4)" not in codes[0]
    expected = torch.autograd.grad(F.softmax(layer(x), 1).square().sum(), layer.weight)[0]
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-4, atol=1e-5)
