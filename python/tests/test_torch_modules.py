"""Whether it runs: replace, restore, explain, the counters, the warning."""

import copy
import io
import os
import pickle
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _reasons  # noqa: E402

X = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0))


class Named(nn.ConvTranspose2d):
    """A subclass that computes what PyTorch's does."""

    tag = "named"

    def twice(self):
        return 2 * self.weight


class Mixin:
    def __repr__(self):
        return "mixed"


class Mixed(Mixin, nn.ConvTranspose1d):
    pass


class Scaled(nn.ConvTranspose2d):
    def forward(self, input, output_size=None):
        return 2 * super().forward(input, output_size)


class NamedLazy(nn.LazyConvTranspose2d):
    cls_to_become = Named


class OfOurs(tt.ConvTranspose2d):
    pass


def difference(before):
    """What the counters have counted since before."""
    now = tt.counters()
    causes = {cause: n - before.passed_on.get(cause, 0) for cause, n in now.passed_on.items()}
    return now.taken - before.taken, {cause: n for cause, n in causes.items() if n}


# ------------------------------------------------------------------------------------------------- replace and restore


def test_every_transposed_convolution_is_named():
    quantized = pytest.importorskip("torch.ao.nn.quantized")
    reference = pytest.importorskip("torch.ao.nn.quantized.reference")
    prepared = nn.ConvTranspose2d(4, 4, 1)
    prepared.qconfig = object()
    model = nn.ModuleDict(
        dict(
            conv=nn.Conv2d(4, 4, 1),
            linear=nn.Linear(2, 2),
            one=nn.ConvTranspose1d(4, 4, 1),
            two=nn.ConvTranspose2d(4, 4, 1),
            three=nn.ConvTranspose3d(4, 4, 1),
            lazy_three=nn.LazyConvTranspose3d(4, 1),
            lazy=nn.LazyConvTranspose1d(4, 1),
            named=Named(4, 4, 1),
            mixed=Mixed(4, 4, 1),
            named_lazy=NamedLazy(4, 1),
            scaled=Scaled(4, 4, 1),
            ours=tt.ConvTranspose1d(4, 4, 1),
            of_ours=OfOurs(4, 4, 1),
            quantized=quantized.ConvTranspose2d(4, 4, 1),
            reference=reference.ConvTranspose2d(4, 4, 1),
            prepared=prepared,
            scripted=torch.jit.script(nn.ConvTranspose1d(4, 4, 1)),
        )
    )
    classes = {name: type(module) for name, module in model.named_modules()}
    replaced = tt.replace(model)
    assert replaced.swapped == ["one", "two", "lazy", "named", "mixed", "named_lazy"]
    assert replaced.already == ["ours", "of_ours"]
    reasons = dict(
        three="3-D", lazy_three="3-D", scaled="Scaled", quantized="quantized", reference="forward", prepared="qconfig",
        scripted="scripted",
    )  # fmt: skip
    assert replaced.left.keys() == reasons.keys()
    for name, word in reasons.items():
        assert word in replaced.left[name]
        assert f"{name}: left, " in str(replaced)
    assert "two: tconv\n" in str(replaced) and "ours: tconv's before" in str(replaced) and "restore" in str(replaced)

    restored = tt.restore(model)
    assert restored.restored == [*replaced.swapped[:5], "named_lazy", "ours"] and "of_ours" in restored.left
    assert "of_ours: left" in str(restored)
    classes["ours"] = nn.ConvTranspose1d
    assert {name: type(module) for name, module in model.named_modules()} == classes


def test_a_model_without_any_says_what_was_looked_for():
    text = str(tt.replace(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU())))
    assert "3 modules" in text and "ConvTranspose1d, ConvTranspose2d" in text and "functions" in text
    assert str(tt.restore(nn.ReLU())) == "no layer of tconv's"
    assert "replace" in str(tt.freeze(nn.ReLU()))


def test_subclasses_stay_what_they_are():
    layer, expected_class = Named(4, 3, 3, stride=2), Named
    expected = layer(X)
    tt.replace(layer)
    before = tt.counters()
    torch.testing.assert_close(layer(X), expected)
    assert difference(before) == (1, {})
    assert isinstance(layer, Named) and layer.tag == "named" and torch.equal(layer.twice(), 2 * layer.weight)
    assert type(layer).__qualname__ == "Named" and repr(layer) == repr(Named(4, 3, 3, stride=2))
    other = tt.replace(second := Named(1, 1, 1)) and type(second)
    assert type(layer) is other  # one class for all of them

    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for made in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)):
        assert type(made) is type(layer) and torch.equal(made(X), layer(X))
        assert tt.restore(made).restored == [""] and type(made) is expected_class
    mixed = Mixed(4, 3, 3)
    tt.replace(mixed)
    assert repr(mixed) == "mixed" and tt.explain(mixed, X[:, :, 0]).taken


def test_lazy_subclasses_become_what_they_were_to():
    layer = NamedLazy(3, 3)
    tt.replace(layer)
    layer(X)
    assert isinstance(layer, Named) and not isinstance(layer, nn.LazyConvTranspose2d) and tt.explain(layer, X).taken
    tt.restore(layer)
    assert type(layer) is Named


def test_a_class_that_cannot_be_derived_is_left():
    class Final(nn.ConvTranspose2d):
        def __init_subclass__(cls):
            raise TypeError("no subclasses")

    replaced = tt.replace(layer := Final(4, 3, 3))
    assert "no subclasses" in replaced.left[""] and type(layer) is Final


def test_parametrized_layers_get_their_class_back():
    layer = parametrizations.weight_norm(nn.ConvTranspose2d(4, 3, 3))
    kind, expected = type(layer), layer(X)
    tt.replace(layer)
    assert type(layer) is not kind and tt.explain(layer, X).taken
    tt.restore(layer)
    assert type(layer) is kind
    torch.testing.assert_close(layer(X), expected)

    tt.replace(layer)  # and where it is parametrized further in between, or no longer
    parametrize.register_parametrization(layer, "bias", nn.Identity())
    tt.restore(layer)
    assert type(layer).__bases__ == (nn.ConvTranspose2d,) and "bias" in vars(type(layer))
    tt.replace(layer)
    parametrize.remove_parametrizations(layer, "bias")
    tt.restore(layer)
    assert "bias" not in vars(type(layer))
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.ConvTranspose2d
    torch.testing.assert_close(layer(X), expected)

    named = parametrizations.weight_norm(Named(4, 3, 3))
    expected = named(X)
    assert tt.replace(named).swapped == [""] and tt.explain(named, X).taken
    torch.testing.assert_close(named(X), expected)
    parametrize.remove_parametrizations(named, "weight")
    assert tt.restore(named).restored == [""] and type(named) is Named


# ---------------------------------------------------------------------------------------------- fusion and quantization


@pytest.fixture
def quantization():
    found = pytest.importorskip("torch.ao.quantization")
    if "x86" not in torch.backends.quantized.supported_engines:
        pytest.skip("PyTorch has no quantized layers here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield found


def model_for_quantization(quantization):
    torch.manual_seed(0)
    layers = [quantization.QuantStub(), nn.ConvTranspose2d(4, 3, 3), nn.BatchNorm2d(3), quantization.DeQuantStub()]
    return nn.Sequential(*layers).eval()


def test_fuse_before_or_after_restore(quantization):
    expected = quantization.fuse_modules(model_for_quantization(quantization), [["1", "2"]])
    before = copy.deepcopy(expected)
    assert tt.replace(before).swapped == ["1"]
    after = model_for_quantization(quantization)
    tt.replace(after)
    with pytest.raises(Exception, match="ConvTranspose2d"):  # loudly, and without harm
        quantization.fuse_modules(after, [["1", "2"]])
    tt.restore(after)
    after = quantization.fuse_modules(after, [["1", "2"]])
    tt.replace(after)
    for model in (before, after):
        taken = tt.counters()
        torch.testing.assert_close(model(X), expected(X))
        assert difference(taken) == (1, {})


def test_static_quantization_before_or_after_restore(quantization):
    def quantize(model, between=lambda model: None):
        model.qconfig = quantization.default_qconfig
        prepared = quantization.prepare(model)
        between(prepared)
        prepared(X)
        return quantization.convert(prepared)

    expected = quantize(model_for_quantization(quantization))
    left = []
    ours = quantize(model_for_quantization(quantization), lambda model: left.append(tt.replace(model).left))
    assert "qconfig" in left[0]["1"]
    assert torch.equal(ours(X), expected(X))
    assert "quantized" in tt.replace(ours).left["1"]

    model = model_for_quantization(quantization)
    tt.replace(model)
    tt.restore(model)
    assert torch.equal(quantize(model)(X), expected(X))


def test_fx_quantization_before_or_after_restore(quantization):
    fx = pytest.importorskip("torch.ao.quantization.quantize_fx")

    def quantize(model):
        prepared = fx.prepare_fx(model, quantization.get_default_qconfig_mapping(), (X,))
        prepared(X)
        return fx.convert_fx(prepared)

    expected = quantize(model_for_quantization(quantization)[1:3])
    model = model_for_quantization(quantization)[1:3]
    tt.replace(model)
    tt.restore(model)
    ours = quantize(model)
    assert torch.equal(ours(X), expected(X))
    assert "quantized" in tt.replace(ours).left["1"]


# ------------------------------------------------------------------------------------------------ explain and counters

W, B = torch.randn(4, 3, 3, 2), torch.randn(3)


def complex_parts(t):
    return torch.complex(torch.zeros_like(t), t).conj().imag


class Subclass(torch.Tensor):
    pass


def misaligned(t):
    memory = bytearray(1 + 4 * t.numel())
    return torch.frombuffer(memory, dtype=torch.float32, offset=1, count=t.numel()).view(t.shape).copy_(t)


PASSED_ON = {
    "dtype": (dict(input=X.to(torch.int32), weight=W.to(torch.int32), bias=None), "torch.int32"),
    "dtypes": (dict(weight=W.double()), "torch.float64"),
    "device": (dict(input=X.to("meta"), weight=W.to("meta"), bias=None), "meta"),
    "layout": (dict(input=X.to_sparse()), "torch.sparse_coo"),
    "shape": (dict(bias=torch.randn(4)), r"\(4,\)"),
    "no elements": (dict(input=X[:, :, :0]), r"\(2, 4, 0, 6\)"),
    "shape and channels": (dict(weight=W[:3]), "3 input channels, input 4"),
    "shape of input": (dict(input=X[0, 0]), "2 axes"),
    "shape of weight": (dict(weight=W[0]), "3 axes"),
    "arguments": (dict(stride=(1, 2, 3)), r"stride = \(1, 2, 3\)"),
    "arguments of one kind": (dict(groups=1.0), "groups = 1.0"),
    "arguments that the library refuses": (dict(stride=0), "stride_h = 0"),
    "negative bit": (dict(input=complex_parts(X)), "negative"),
    "not a tensor": (dict(input=X.numpy()), "ndarray"),
    "tensor subclass": (dict(weight=W.as_subclass(Subclass)), "Subclass"),
    "alignment": (dict(input=misaligned(X)), "address"),
}
CAUSES = {"no elements": "shape", "shape and channels": "shape", "dtypes": "dtype"}


@pytest.mark.parametrize("what", PASSED_ON)
def test_why_pytorch_computes(what):
    """explain names the cause, and the call itself is counted under it, unless PyTorch refuses it before it gets to
    tconv."""
    wrong, text = PASSED_ON[what]
    arguments = dict(input=X, weight=W, bias=B, stride=1, padding=0, output_padding=0, groups=1, dilation=1) | wrong
    answer = tt.explain(tt.conv_transpose2d, *arguments.values())
    assert not answer.taken and answer.implementation == "" and str(answer).startswith("PyTorch: ")
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(answer.why)
    before = tt.counters()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tt.conv_transpose2d(*arguments.values())
            refused = False
        except Exception:
            refused = True
    taken, causes = difference(before)
    cause = CAUSES.get(what) or what.split(" of ")[0].split(" that ")[0]
    assert taken == 0 and ([*causes] == [cause] or (refused and not causes))


def test_transforms_are_counted():
    before = tt.counters()
    answers = []

    def call(x):
        answers.append(tt.explain(tt.conv_transpose2d, x, W))
        return tt.conv_transpose2d(x, W)

    torch.func.vmap(call)(X[None])
    assert difference(before) == (1, {}) and answers[0].taken


def test_explain_what_is_taken(device):
    layer = tt.ConvTranspose2d(4, 3, 3, stride=2, device=device)
    x = X.to(device)
    answer = tt.explain(layer, x)
    assert answer.taken and answer.implementation.startswith(f"{device}_") and answer.why == ""
    assert str(answer).splitlines()[0] == f"tconv, by {answer.implementation}"
    assert tt.explain(layer, x, output_size=[12, 13]).taken
    assert tt.explain(tt.conv_transpose2d, x, layer.weight, layer.bias, stride=2) == answer
    one = tt.ConvTranspose1d(4, 3, 3, device=device)
    assert tt.explain(one, x[0, :, :4]).taken is tt.explain(tt.conv_transpose1d, x[..., 0], one.weight).taken is True
    forget_plans()  # another test may have had this layer
    with torch.autocast(device, torch.bfloat16):
        assert tt.explain(layer, x).taken
        assert len(_compute.layers) == 1
        layer(x)
        assert len(_compute.layers) == 1  # the very layer that was explained


def test_explain_other_layers_and_functions():
    assert "replace" in tt.explain(nn.ConvTranspose2d(4, 3, 3), X).why
    assert "3-D" in tt.explain(nn.ConvTranspose3d(4, 3, 3), X[None]).why
    assert "Scaled" in tt.explain(Scaled(4, 3, 3), X).why
    assert "tconv.torch.conv_transpose2d" in tt.explain(F.conv_transpose2d, X, W).why
    for other in (nn.Conv2d(4, 4, 1), nn.Sequential(tt.ConvTranspose2d(4, 3, 3)), len):
        with pytest.raises(TypeError, match="explain takes a transposed convolution"):
            tt.explain(other, X)
    with pytest.raises(TypeError):
        tt.explain(tt.conv_transpose2d, X)


def test_every_way_of_calling_is_counted():
    layer = tt.ConvTranspose2d(4, 3, 3)
    before = tt.counters()
    layer(X).sum().backward()
    with torch.no_grad():
        layer(X)
        torch.compile(layer, fullgraph=True, backend="aot_eager")(X)
    with torch.autocast("cpu", torch.bfloat16):
        layer(X)
    with torch.profiler.profile():
        layer(X)
    assert difference(before) == (5, {})


# -------------------------------------------------------------------------------------------------- what nobody expects


@pytest.fixture
def unwarned(monkeypatch):
    monkeypatch.setattr(_reasons, "_warned", False)
    _compute.layers.clear()
    yield
    _compute.layers.clear()


def test_the_first_fallback_that_nobody_expects_warns(unwarned, monkeypatch):
    def refuse(*arguments):
        raise tconv.UnavailableError("TCONV_ERROR_UNAVAILABLE", "backend", "backend = cuda: not in this build")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tt.conv_transpose2d(X.to("meta"), W.to("meta"))  # what is documented is no surprise
        monkeypatch.setattr(_compute, "Plan", refuse)
        with pytest.raises(RuntimeWarning, match=r"not in this build.*counters\(\)"):
            tt.conv_transpose2d(X, W, B)
        torch.testing.assert_close(tt.conv_transpose2d(X, W, B), F.conv_transpose2d(X, W, B))
        torch.testing.assert_close(tt.conv_transpose2d(X, W, B, 2), F.conv_transpose2d(X, W, B, 2))
    assert "not in this build" in tt.explain(tt.conv_transpose2d, X, W, B).why


def test_a_bad_environment_variable_is_raised():
    """In every way of calling, until it is mended and reloaded."""
    program = """
import os, torch, tconv, tconv.torch as tt
layer = tt.ConvTranspose2d(4, 3, 3)
x = torch.randn(1, 4, 5, 5)
compiled = torch.compile(layer, backend="aot_eager")
def without_gradients():
    with torch.no_grad():
        layer(x)
for call in (lambda: layer(x), without_gradients, lambda: tt.conv_transpose2d(x, layer.weight.detach()),
             lambda: tt.explain(layer, x), lambda: compiled(x)):
    for _ in range(2):
        try:
            call()
        except tconv.EnvironmentVariableError as error:
            assert error.field == "TCONV_BACKEND" and "gpu" in str(error), error
        else:
            raise SystemExit("no error")
assert tt.counters() == tt.Counters(0, {}, 0), tt.counters()
os.environ["TCONV_BACKEND"] = "auto"
tconv.reload_environment()
layer(x)
assert tt.counters().taken == 1
"""
    environment = {**os.environ, "TCONV_BACKEND": "gpu"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
