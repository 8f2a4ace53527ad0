"""fuse and unfuse: the same answers, modules and state, who decides in each call, and what is said of what is left."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_values import DTYPES, TOLERANCE  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv import _library as lib  # noqa: E402
from tconv.torch._reasons import gains_with_layer  # noqa: E402
from tconv.torch._sequential import Sequential  # noqa: E402

ACTIVATIONS = [
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.ReLU6(),
    nn.LeakyReLU(0.2),
    nn.Hardtanh(-0.5, 0.25),
    nn.ELU(0.5),
    nn.GELU(),
    nn.GELU(approximate="tanh"),
    nn.SiLU(),
    nn.Mish(),
    nn.Tanh(),
    nn.Sigmoid(),
    nn.Softplus(),
    nn.Hardswish(),
]


def norm(kind=nn.BatchNorm2d, channels=6, **arguments):
    """With statistics and parameters of its own."""
    made = kind(channels, **arguments)
    with torch.no_grad():
        for tensor in [*made.parameters(), *made.buffers()]:
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return made


def layer(spatial=2, **arguments):
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[spatial - 1]
    return kind(4, 6, 4, stride=2, padding=1, **arguments)


def images(device="cpu", dtype=torch.float32, spatial=2):
    return torch.randn(2, 4, *[5 if spatial < 3 else 3] * spatial, device=device, dtype=dtype)


def called(model, *inputs):
    """The answer without gradients, and how many layers computed what follows them."""
    before = tt.counters().fused
    with torch.no_grad():
        answer = model(*inputs)
    return answer, tt.counters().fused - before


def same(ours, theirs, dtype=torch.float32):
    assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_each_activation(device, activation, dtype):
    if isinstance(activation, nn.Hardswish) and dtype is torch.float64 and device != "cpu":
        pytest.skip("on CUDA PyTorch's Hardswish multiplies by a sixth of f32, in float64 too")
    model = nn.Sequential(layer(), norm(), activation).eval().to(device, dtype)
    x = images(device, dtype)
    expected, _ = called(model, x)
    assert str(tt.fuse(model)) == "0: fused with 1, 2"
    answer, count = called(model, x)
    # PyTorch's threshold is not exact in float64
    exact = not (isinstance(activation, nn.Softplus) and dtype is torch.float64)
    affine = isinstance(activation, (nn.ReLU, nn.LeakyReLU, nn.Hardtanh))
    assert count == (exact and gains_with_layer([0] * (not affine), device, dtype, compiled=False))
    same(answer, expected, dtype)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("arguments", [{}, {"affine": False}], ids=str)
def test_normalizations(device, spatial, arguments):
    kind = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[spatial - 1]
    for modules in (
        [norm(kind, **arguments)],
        [nn.Tanh(), norm(kind, **arguments), nn.ReLU(), norm(kind, **arguments)],
    ):
        model = nn.Sequential(layer(spatial), *modules).eval().to(device)
        x = images(device, spatial=spatial)
        expected, _ = called(model, x)
        tt.fuse(model)
        answer, count = called(model, x)
        assert count == 1
        same(answer, expected)


def nested():
    return nn.Sequential(
        nn.Conv2d(4, 4, 1),
        layer(),
        norm(),
        nn.Dropout(0.5),
        nn.ReLU(),
        nn.ModuleDict({"head": nn.Sequential(nn.ConvTranspose2d(6, 3, 3), nn.Identity(), nn.Tanh())})["head"],
        nn.ConvTranspose2d(3, 3, 2),
    ).eval()


def test_round_trip(device):
    """Outputs, modules, names and state are the same before, meanwhile and after."""
    model = nested().to(device)
    x = images(device)
    expected, _ = called(model, x)
    modules, state = list(model.modules()), copy.deepcopy(model.state_dict())
    text = str(model)
    answer = tt.fuse(model)
    assert answer.fused == {"1": ["2", "3", "4"], "5.0": ["5.1", "5.2"]}
    assert answer.left == {"6": "nothing follows it"}
    assert str(tt.fuse(model)) == str(answer)  # once more changes nothing
    fused, count = called(model, x)
    assert count == 2
    same(fused, expected)

    def unchanged():
        assert all(a is b for a, b in zip(model.modules(), modules, strict=True)) and str(model) == text
        now = model.state_dict()
        assert list(now) == list(state) and all(torch.equal(now[key], state[key]) for key in state)

    unchanged()
    assert tt.unfuse(model) == ["", "5"]
    unchanged()
    assert type(model) is nn.Sequential and type(model[1]) is tt.ConvTranspose2d
    after, count = called(model, x)
    assert count == 0
    same(after, expected)
    tt.fuse(model)
    tt.restore(model)
    assert type(model) is nn.Sequential and type(model[1]) is nn.ConvTranspose2d


def test_works_with_replace_and_freeze(device):
    model = nested().to(device)
    x = images(device)
    expected, _ = called(model, x)
    tt.replace(model)
    tt.fuse(model)
    tt.freeze(model)
    before = tt.counters().packings
    for _ in range(3):
        answer, count = called(model, x)
        assert count == 2
        same(answer, expected)
    assert tt.counters().packings == before + 3  # one for each layer
    with torch.no_grad():
        model[1].weight.mul_(2)
    changed, _ = called(model, x)
    tt.unfuse(model)
    same(changed, called(model, x)[0])


def test_training_is_as_without_fuse(device):
    """Statistics of the batch, dropout, gradients; and back in evaluation the new statistics count."""
    ours = nn.Sequential(layer(), norm(), nn.LeakyReLU(0.2)).to(device)
    theirs = copy.deepcopy(ours)
    x = images(device)
    tt.fuse(ours.eval())
    assert called(ours, x)[1] == 1  # so that there is something to forget
    for _ in range(2):
        answers = []
        for model in (ours.train(), theirs.train()):
            model.zero_grad()
            answer = model(x)
            answer.square().sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 1e-3 * parameter.grad
            answers.append(answer)
        same(*answers)
        before = tt.counters().fused
        same(ours.eval()(x), theirs.eval()(x))  # gradients are wanted
        assert tt.counters().fused == before
        answer, count = called(ours, x)
        assert count == 1
        same(answer, called(theirs.eval(), x)[0])


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_module_in_training_mode_is_enough(which):
    model = nn.Sequential(layer(), norm(), nn.ReLU()).eval()
    tt.fuse(model)
    model[which].train()
    assert called(model, images())[1] == 0


def test_changes_are_seen():
    """Parameters, statistics, numbers of activations, modules that are exchanged; a loaded state and another dtype."""
    model = nn.Sequential(layer(), norm(), nn.LeakyReLU(0.2)).eval()
    plain = copy.deepcopy(model)
    other = nn.Sequential(layer(), norm(), nn.LeakyReLU(0.2)).state_dict()
    tt.fuse(model)
    x = images()

    def change(how, of=x):
        for each in (model, plain):
            how(each)
        answer, count = called(model, of)
        assert count == 1
        same(answer, called(plain, of)[0], of.dtype)

    def set_eps(model):
        model[1].eps = 1.0

    def set_slope(model):
        model[2].negative_slope = 0.5

    with torch.no_grad():
        change(lambda model: model[1].weight.mul_(2))
        change(lambda model: model[1].running_mean.add_(2))
        change(lambda model: model[1].running_var.mul_(3))
    change(set_eps)
    change(set_slope)
    change(lambda model: model.load_state_dict(other))
    torch.manual_seed(3)
    replacement = norm().eval()
    change(lambda model: model.__setitem__(1, copy.deepcopy(replacement)))
    change(lambda model: model.double(), x.double())
    change(lambda model: model.append(nn.Tanh().eval()), x.double())


def test_a_fused_optimizer_is_seen(device):
    model = nn.Sequential(layer(), norm(), nn.ReLU()).eval().to(device)
    tt.fuse(model)
    x = images(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, fused=True)
    called(model, x)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    answer, count = called(model, x)
    tt.unfuse(model)
    assert count == 1
    same(answer, called(model, x)[0])


def test_who_looks_on_sees_every_module():
    model = nn.Sequential(layer(), norm(), nn.ReLU()).eval()
    x = images()
    tt.fuse(model)
    expected, count = called(model, x)
    assert count == 1
    seen = []
    for module in model:
        handle = module.register_forward_hook(lambda module, arguments, answer: seen.append(module))
        # what is before a last module that is watched still is one call
        assert called(model, x)[1] == (module is model[2]) and seen == [module]
        seen.clear()
        handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda module, arguments, answer: seen.append(module))
    assert called(model, x)[1] == 0 and seen == [*model, model]
    handle.remove()
    with torch.no_grad():
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
        exported = torch.export.export(model, (x,)).module()(x)
        traced = torch.jit.trace(model, x)(x)
        scripted = torch.jit.script(model)(x)
        mapped = torch.vmap(model)(x[:, None])[:, 0]
        symbolic = torch.fx.symbolic_trace(model)(x)
    for answer in (compiled, exported, traced, scripted, mapped, symbolic):
        same(answer, expected)
    assert called(model, x)[1] == 1


def test_copies_and_pickles_are_fused():
    model = nested()
    tt.fuse(model)
    x = images()
    expected, _ = called(model, x)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        answer, count = called(copied, x)
        assert count == 2 and torch.equal(answer, expected)
        assert tt.unfuse(copied) == ["", "5"]
    assert isinstance(model[1:], Sequential) and called(model[:5], x)[1] == 1


class Named(nn.Sequential):
    """A subclass that inherits forward, as torchvision's."""


class Twice(nn.Sequential):
    def forward(self, input):
        return 2 * super().forward(input)


def test_subclasses():
    model = Named(layer(), nn.ReLU()).eval()
    x = images()
    expected, _ = called(model, x)
    tt.fuse(model)
    assert isinstance(model, Named) and type(model).__name__ == "Named"
    answer, count = called(pickle.loads(pickle.dumps(model)), x)
    assert count == 1
    same(answer, expected)
    assert tt.unfuse(model) == [""] and type(model) is Named


def test_under_autocast_and_inference_mode(device):
    model = nn.Sequential(layer(), norm(), nn.ReLU()).to(device).eval()
    x = images(device)
    with torch.autocast(device, torch.bfloat16):
        expected, _ = called(model, x)
        tt.fuse(model)
        answer, count = called(model, x)
    assert count == 1 and answer.dtype == expected.dtype == torch.bfloat16
    same(answer, expected, torch.bfloat16)
    with torch.inference_mode():
        before = tt.counters().fused
        first, second = model(x), model(x)
        assert torch.equal(first, second) and tt.counters().fused == before + 2


def test_mistakes_are_pytorchs():
    """Wrong channels, an image without a batch before BatchNorm2d, another dtype."""
    for x in (torch.randn(2, 3, 5, 5), torch.randn(4, 5, 5), torch.randn(2, 4, 5, 5).double()):
        said = []
        model = nn.Sequential(layer(), norm(), nn.ReLU()).eval()
        for fuse in (False, True):
            if fuse:
                tt.fuse(model)
            with pytest.raises((RuntimeError, ValueError)) as caught:
                called(model, x)
            said.append((type(caught.value), str(caught.value)))
        assert said[0] == said[1]


def hooked(module):
    module.register_forward_hook(lambda *arguments: None)
    return module


def own_forward(module):
    module.forward = lambda input: input
    return module


LEFT = {
    "it is in no torch.nn.Sequential": lambda: nn.ModuleDict({"0": layer()}),
    "its Twice has a forward of its own": lambda: Twice(layer(), nn.ReLU()),
    "nothing follows it": lambda: nn.Sequential(layer()),
    "1 behind it is a PReLU, which is no post-op": lambda: nn.Sequential(layer(), nn.PReLU()),
    "1 behind it has no running statistics": lambda: nn.Sequential(layer(), norm(track_running_stats=False)),
    "1 behind it is of 5 channels": lambda: nn.Sequential(layer(), norm(channels=5)),
    "1 behind it is of 6 channels and 1 axes": lambda: nn.Sequential(layer(), norm(nn.BatchNorm1d)),
    "1 behind it has beta = 2": lambda: nn.Sequential(layer(), nn.Softplus(2)),
    "1 behind it has beta = 1 and threshold = 3": lambda: nn.Sequential(layer(), nn.Softplus(1, 3)),
    "it has hooks": lambda: nn.Sequential(hooked(layer()), nn.ReLU()),
    "1 behind it has hooks": lambda: nn.Sequential(layer(), hooked(nn.ReLU())),
    "1 behind it has a forward of its own": lambda: nn.Sequential(layer(), own_forward(nn.ReLU())),
    "it has a forward of its own": lambda: nn.Sequential(own_forward(layer()), nn.ReLU()),
}


@pytest.mark.parametrize("why", LEFT)
def test_what_is_left_is_said(why):
    model = LEFT[why]()
    kinds = [type(module) for module in model.modules()]
    answer = tt.fuse(model)
    assert answer.fused == {} and answer.left["0"].startswith(why) and str(answer).startswith(f"0: left, {why}")
    assert [type(module) for module in model.modules()] == kinds


def test_no_more_than_a_list_has_room_for():
    model = nn.Sequential(layer(), norm(), norm(), norm(), nn.ReLU(), norm(), nn.Tanh()).eval()
    x = images()
    expected, _ = called(model, x)
    assert tt.fuse(model).fused == {"0": ["1", "2", "3", "4"]}
    answer, count = called(model, x)
    assert count == 1
    same(answer, expected)


def test_what_is_no_model():
    for function in (tt.fuse, tt.unfuse):
        with pytest.raises(TypeError, match=f"tconv.torch.{function.__name__} takes a model"):
            function(nn.ReLU)
    assert str(tt.fuse(nn.ReLU())) == "no transposed convolution"


def test_calls_see_what_has_changed_since_the_last(device):
    """What a call has found out of its modules is kept only for as long as it holds."""
    model = nn.Sequential(layer(), norm(), nn.LeakyReLU(0.2), nn.Hardtanh(-1, 1)).eval().to(device)
    plain = copy.deepcopy(model)
    tt.fuse(model)
    x = images(device)

    def both(change=lambda m: None):
        for each in (model, plain):
            change(each)
        for _ in range(3):
            answer, count = called(model, x)
            same(answer, called(plain, x)[0])
        return count

    assert both() == 1
    assert both(lambda m: setattr(m[2], "negative_slope", 0.5)) == 1
    assert both(lambda m: setattr(m[3], "max_val", 0.25)) == 1
    assert both(lambda m: m[1].running_mean.add_(1)) == 1
    assert both(lambda m: setattr(m[1], "eps", 0.5)) == 1
    assert both(lambda m: m.__setitem__(2, nn.Tanh().eval())) == 1
    assert both(lambda m: m[3].register_forward_hook(lambda *a: None)) == 1  # of three modules
    assert both(lambda m: m[0].register_forward_pre_hook(lambda *a: None)) == 0
    assert both(lambda m: m[0]._forward_pre_hooks.clear()) == 1
    assert both(lambda m: m.__delitem__(3)) == 1
    assert both(lambda m: m.append(nn.Sigmoid().eval())) == 1
    assert both(lambda m: m.__setitem__(1, nn.Identity().eval())) == 1
    with torch.autocast(device, torch.bfloat16):
        answer, count = called(model, x)
        assert count == (device == "cpu") and answer.dtype is torch.bfloat16  # on CUDA it is faster after it
    assert both(lambda m: m[2].train()) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_which_lists_gain_with_the_layer(dtype):
    affine, others = (lib.POST_MUL_CHANNEL, lib.POST_LEAKY_RELU), (lib.POST_ADD_CHANNEL, lib.POST_GELU)
    for compiled in (False, True):
        assert gains_with_layer(affine, "cuda", dtype, compiled)
        assert gains_with_layer(others, "cpu", dtype, compiled)
        wide = dtype in (torch.float32, torch.float64)
        assert gains_with_layer(others, "cuda", dtype, compiled) == (wide and not compiled)
