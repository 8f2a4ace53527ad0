"""Modules of tconv.torch: the layer itself, replace and restore, fusion and quantization."""

import copy
import io
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch_values import Scaled, difference, outcome, pair_of_modules, same  # noqa: E402

import tconv.torch as tt  # noqa: E402

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


class NamedLazy(nn.LazyConvTranspose2d):
    cls_to_become = Named


class OfOurs(tt.ConvTranspose2d):
    pass


# ----------------------------------------------------------------------------------------------------------- the module


def test_module_is_pytorchs_but_for_forward():
    torch.manual_seed(1)
    ours = tt.ConvTranspose2d(4, 6, (3, 2), 2, 1, 1, 2, False, 2, "zeros")
    torch.manual_seed(1)
    theirs = nn.ConvTranspose2d(4, 6, (3, 2), 2, 1, 1, 2, False, 2, "zeros")
    assert repr(ours) == repr(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours.weight, theirs.weight)
    assert [n for n in vars(tt.ConvTranspose2d) if not n.startswith("_")] == ["forward"]


@pytest.mark.parametrize("wrong", [(4, 3, 3, 1, 0, 0, 3), (4, 3, 3, 1, 0, 0, 1, True, 1, "reflect"), (4, 3)])
def test_constructor_mistakes(wrong):
    assert outcome(lambda: tt.ConvTranspose2d(*wrong), {}) == outcome(lambda: nn.ConvTranspose2d(*wrong), {})


def test_output_size(device):
    ours, theirs = pair_of_modules(device, 4, 3, 3, stride=(2, 3), padding=1)
    for x in (torch.randn(2, 4, 5, 6, device=device), torch.randn(4, 5, 6, device=device)):
        for size in ([9, 16], [10, 18], torch.Size([9, 17]), [*([2] if x.dim() == 4 else []), 3, 10, 16]):
            same(ours(x, size), theirs(x, output_size=size))
        for size in ([8, 16], [11, 16], [9], [1, 2, 3, 4, 5]):
            assert outcome(ours, dict(input=x, output_size=size)) == outcome(theirs, dict(input=x, output_size=size))


def test_padding_mode_changed_later():
    ours, theirs = pair_of_modules("cpu")
    ours.padding_mode = theirs.padding_mode = "circular"
    assert outcome(ours, dict(input=X)) == outcome(theirs, dict(input=X))


def test_copies_pickles_and_saves():
    ours, _ = pair_of_modules("cpu")
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False)]
    for other in copies:
        assert type(other) is tt.ConvTranspose2d and torch.equal(other(X), ours(X))
    weights = io.BytesIO()
    torch.save(ours.state_dict(), weights)
    weights.seek(0)
    loaded = nn.ConvTranspose2d(4, 3, 3)
    loaded.load_state_dict(torch.load(weights, weights_only=True))
    assert torch.equal(loaded.weight, ours.weight)


def test_lazy(calls):
    lazy = tt.LazyConvTranspose2d(3, 3)
    theirs = nn.LazyConvTranspose2d(3, 3)
    assert repr(lazy) == repr(theirs)
    lazy(X)
    assert type(lazy) is tt.ConvTranspose2d and lazy.in_channels == 4 and len(calls) == 1


# ------------------------------------------------------------------------------------------------------------- replace


def test_replace(calls):
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 3, 3),
        nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.Conv2d(4, 4, 1)),
        nn.utils.weight_norm(nn.ConvTranspose2d(4, 4, 3)),
        parametrizations.weight_norm(nn.ConvTranspose2d(4, 4, 3)),
        parametrizations.spectral_norm(nn.ConvTranspose2d(4, 4, 3)),
        Scaled(4, 4, 3),
        nn.LazyConvTranspose2d(4, 3),
        nn.ConvTranspose2d(4, 4, 3),
        tt.ConvTranspose2d(4, 4, 1),
        torch.jit.script(nn.ConvTranspose2d(4, 4, 1)),
    )
    model[7].forward = model[7].forward
    seen = []
    model[0].register_forward_hook(lambda *arguments: seen.append(0))
    model.eval()
    expected = model(X)
    parameters, modules = dict(model.named_parameters()), list(model.modules())
    names = [str(i) for i in (0, "1.0", 2, 3, 4, 6)]
    model[6] = nn.LazyConvTranspose2d(4, 3)
    replaced = tt.replace(model)
    assert replaced.swapped == names
    assert set(replaced.left) == {"5", "7", "9"} and "Scaled" in replaced.left["5"] and "forward" in replaced.left["7"]
    assert "1.0: tconv" in str(replaced) and "9: left, it is scripted" in str(replaced)
    assert [*map(id, modules[:9])] == [*map(id, [*model.modules()][:9])]
    for name, parameter in model.named_parameters():
        if not name.startswith("6."):
            assert parameters[name] is parameter
    assert not any(module.training for name, module in model.named_modules() if name != "6")
    model[6](torch.randn(1, 4, 2, 2))
    assert type(model[6]) is tt.ConvTranspose2d
    model[6].load_state_dict({name[2:]: p for name, p in parameters.items() if name.startswith("6.")})
    calls.clear()
    torch.testing.assert_close(model(X), expected, rtol=1e-4, atol=1e-5)
    assert len(calls) == 7 and seen == [0, 0]
    assert tt.replace(model).swapped == []


def test_replaced_parametrizations_come_off():
    layer = parametrizations.weight_norm(nn.ConvTranspose2d(4, 3, 3))
    expected = layer(X)
    assert tt.replace(layer).swapped == [""]
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is tt.ConvTranspose2d
    torch.testing.assert_close(layer(X), expected)


@pytest.mark.parametrize("function", [tt.replace, tt.restore, tt.freeze, tt.thaw, tt.explain])
def test_what_is_no_model(function):
    takes = f"tconv.torch.{function.__name__} takes a "
    with pytest.raises(TypeError, match=f"{takes}.*: an object of NoneType is none"):
        function(None)
    with pytest.raises(TypeError, match=f"{takes}.*: the class ConvTranspose2d is none"):
        function(nn.ConvTranspose2d)
    with pytest.raises(TypeError, match=f"{takes}.*: an object of list is none"):
        function([nn.ConvTranspose2d(4, 3, 3)])


def test_replace_names_what_goes_by_classes():
    """What does not know tconv's classes, and leaves such layers as they are or fails."""
    model = nn.Sequential(nn.ConvTranspose2d(4, 4, 1), nn.BatchNorm2d(4)).eval()
    text = str(tt.replace(model))
    for name in ("torch.ao.quantization", "fuse_modules", "torch.fx.experimental.optimization", "fuse", "restore"):
        assert name in text


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
    assert replaced.swapped == ["one", "two", "three", "lazy_three", "lazy", "named", "mixed", "named_lazy"]
    assert replaced.already == ["ours", "of_ours"]
    reasons = dict(scaled="Scaled", quantized="quantized", reference="forward", prepared="qconfig", scripted="scripted")
    assert replaced.left.keys() == reasons.keys()
    for name, word in reasons.items():
        assert word in replaced.left[name]
        assert f"{name}: left, " in str(replaced)
    assert "two: tconv\n" in str(replaced) and "ours: tconv's before" in str(replaced) and "restore" in str(replaced)

    restored = tt.restore(model)
    assert restored.restored == [*replaced.swapped, "ours"] and "of_ours" in restored.left
    assert "of_ours: left" in str(restored)
    classes["ours"] = nn.ConvTranspose1d
    assert {name: type(module) for name, module in model.named_modules()} == classes


def test_a_model_without_any_says_what_was_looked_for():
    text = str(tt.replace(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU())))
    assert "3 modules" in text and "ConvTranspose1d, 2d and 3d" in text and "functions" in text
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
