"""Whether it runs: explain, the counters, the warning."""

import os
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch_values import Scaled, difference  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _reasons  # noqa: E402

X = torch.randn(2, 4, 5, 6, generator=torch.Generator().manual_seed(0))


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
    "dtype of complex numbers": (dict(input=X.cfloat(), weight=W.cfloat(), bias=None), "torch.complex64"),
    "dtype of quantized input": (dict(input=torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)), "torch.qint8"),
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
    assert "replace" in tt.explain(nn.ConvTranspose3d(4, 3, 3), X[None]).why
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
