"""The shim's kernels of tconv's operators: what compiled programs call runs no Python where the layer is known."""

import itertools
import pathlib
import resource

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_differentiated import CHANNELS_LAST  # noqa: E402
from torch_layers import FUNCTIONS, tensors  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _gradient_operators, _gradients, _native, _operator  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("compiled_anew"),
    pytest.mark.skipif(not _native.is_installed(), reason="libtconv_torch.so is not beside the library"),
]

PYTORCHS = {spatial: pytorchs for spatial, (_, pytorchs) in FUNCTIONS.items()}
FORWARD = _operator.OPERATORS
DATA, WEIGHTS = _gradient_operators.DATA_OPERATORS, _gradient_operators.WEIGHTS_OPERATORS
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def computed():
    return _native.taken(), _native.gradients()


@pytest.fixture
def no_python(monkeypatch):
    """A function after which nothing is planned, computed or handed on below autograd by Python."""

    def wanted(*arguments):
        raise AssertionError("Python was asked for a layer that is known")

    def forbid():
        monkeypatch.setattr(torch._ops.OpOverload, "redispatch", wanted)
        monkeypatch.setattr(_operator, "find_layer", wanted)
        for name in ("find_data", "find_weights", "find_bias"):
            monkeypatch.setattr(_gradients, name, wanted)

    return forbid


MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spatial", FORWARD)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_known_layers_need_no_python(device, spatial, bias, batched, mode, no_python):
    with MODES[mode]():
        x, weight, b = tensors(device, spatial)
        sizes = [2] * spatial, [1] * spatial, [1] * spatial, 1, [2] * spatial
        arguments = x if batched else x[0], weight.requires_grad_(mode == "no_grad"), b if bias else None, *sizes
        first = FORWARD[spatial](*arguments)
        no_python()
        before = computed()
        again = FORWARD[spatial](*arguments)
        assert computed() == (before[0] + 1, before[1])
        assert torch.equal(first, again) and not again.requires_grad
        torch.testing.assert_close(again, PYTORCHS[spatial](*arguments), **CLOSE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("spatial", FORWARD)
def test_known_gradients_need_no_python(device, spatial, channels_last, mode, no_python, deterministic):
    if channels_last and spatial == 1:
        pytest.skip("channels_last is for four axes and five")
    x, weight, bias = (t.requires_grad_() for t in tensors(device, spatial))
    result = PYTORCHS[spatial](x, weight, bias, 2)
    expected = torch.autograd.grad(result, (x, weight, bias), torch.ones_like(result))
    x, weight, cotangent = x.detach(), weight.detach(), torch.ones_like(result)
    sizes = [2] * spatial, [0] * spatial, 1, [1] * spatial
    kernel, none = weight.shape[2:], torch.zeros(0, device=device)
    with MODES[mode]():
        for i in range(2):
            if i == 1:
                no_python()
                before = computed()
            found = DATA[spatial](cotangent, weight, x.shape[2:], *sizes, channels_last)
            torch.testing.assert_close(found, expected[0], **CLOSE)
            assert not channels_last or found.is_contiguous(memory_format=CHANNELS_LAST[spatial])
            for wanted in ([True, True], [True, False], [False, True]):
                given = x if wanted[0] else None
                pair = WEIGHTS[spatial](given, cotangent, kernel, *sizes, wanted, channels_last)
                both = [e if want else none for e, want in zip(expected[1:], wanted, strict=True)]
                torch.testing.assert_close(pair, tuple(both), **CLOSE)
                assert not (channels_last and wanted[0]) or pair[0].is_contiguous(memory_format=CHANNELS_LAST[spatial])
        assert computed() == (before[0], before[1] + 4)


@pytest.mark.parametrize("wanted", [False, True])
def test_compiled_programs_need_no_python(device, wanted, no_python, deterministic):
    x, weight, bias = (t.requires_grad_(wanted) for t in tensors(device))
    ours = torch.compile(lambda *t: tt.conv_transpose2d(*t, 2, 1).relu(), fullgraph=True)
    expected = F.conv_transpose2d(x, weight, bias, 2, 1).relu()
    for i in range(2):
        if i == 1:
            no_python()
        before = computed()
        found = ours(x, weight, bias)
        torch.testing.assert_close(found, expected, **CLOSE)
        if wanted:
            of = x, weight, bias
            both = [torch.autograd.grad(y.square().sum(), of, retain_graph=True) for y in (found, expected)]
            torch.testing.assert_close(*both, rtol=1e-3, atol=1e-3)
        if i == 1:
            assert computed() == (before[0] + 1, before[1] + 2 * wanted)


def test_layers_are_those_of_eager_calls(device, no_python):
    x, weight, bias = tensors(device)
    expected = tt.conv_transpose2d(x, weight, bias, 2)
    no_python()
    with torch.no_grad():
        assert torch.equal(FORWARD[2](x, weight, bias, [2, 2]), expected)


def test_every_part_of_a_gradient_tells_it_from_others():
    """Each differs from the first in one thing."""
    weight, x = torch.randn(4, 4, 2, 2), torch.randn(2, 4, 3, 3)
    same = ([1, 1], [0, 0], 1, [1, 1])
    like = torch.channels_last
    data = [
        (torch.randn(2, 4, 4, 4), weight, [3, 3], *same, False),
        (torch.randn(2, 4, 4, 4), weight, [3, 3], *same, True),
        (torch.randn(2, 4, 4, 4), weight.contiguous(memory_format=like), [3, 3], *same, False),
        (torch.randn(2, 4, 4, 4).contiguous(memory_format=like), weight, [3, 3], *same, False),
        (torch.randn(2, 4, 4, 4), weight, [2, 3], [2, 1], *same[1:], False),
        (torch.randn(2, 4, 4, 4), weight, [2, 2], [2, 2], *same[1:], False),
        (torch.randn(2, 4, 5, 5), weight, [2, 2], [3, 3], *same[1:], False),
        (torch.randn(2, 4, 5, 5), weight, [4, 4], *same, False),
        (torch.randn(2, 4, 4, 4), weight, [5, 5], [1, 1], [1, 1], 1, [1, 1], False),
        (torch.randn(2, 4, 4, 4), weight, [2, 2], *same[:3], [2, 2], False),
        (torch.randn(2, 8, 4, 4), weight, [3, 3], [1, 1], [0, 0], 2, [1, 1], False),
    ]
    weights = [
        (x, torch.randn(2, 4, 4, 4), [2, 2], *same, wanted, lying)
        for wanted, lying in itertools.product(itertools.product((False, True), repeat=2), (False, True))
    ] + [
        (x, torch.randn(2, 4, 5, 5), [3, 3], *same, [True, True], False),
        (x, torch.randn(2, 4, 5, 5), [1, 1], [2, 2], *same[1:], [True, True], False),
        (x, torch.randn(2, 4, 5, 5), [2, 2], *same[:3], [2, 2], [True, True], False),
        (x, torch.randn(2, 4, 2, 2), [2, 2], [1, 1], [1, 1], 1, [1, 1], [True, True], False),
        (x, torch.randn(2, 4, 4, 4), [2, 2], [1, 1], [0, 0], 2, [1, 1], [True, True], False),
    ]
    forget_plans()
    with torch.no_grad():
        for _ in range(2):
            for call in data:
                found, expected = DATA[2](*call), _gradient_operators.data_by_pytorch(*call)
                torch.testing.assert_close(found, expected, **CLOSE)
                assert found.stride() == expected.stride()
            for call in weights:
                found, expected = WEIGHTS[2](*call), _gradient_operators.weights_by_pytorch(*call)
                torch.testing.assert_close(found, expected, **CLOSE)
                assert found[0].stride() == expected[0].stride()


def test_what_is_not_in_the_table_is_pythons(device):
    """Tensors that have to be copied, dtypes that tconv has not, addresses, mistakes."""
    x, weight, bias = tensors(device)
    calls = [
        (x.expand(2, 2, *x.shape[1:])[0], weight, bias),
        (x, weight.transpose(2, 3).contiguous().transpose(2, 3)[:, :, ::1], bias),
        (x.repeat_interleave(2, 3)[..., ::2], weight, bias.repeat_interleave(2)[::2]),
        (torch.complex(x, x), torch.complex(weight, weight), None),
        (torch.complex(x, x).imag, weight, bias),
        (torch.complex(x, x).conj().imag, weight, bias),
    ]
    with torch.no_grad():
        for call in calls * 2:
            torch.testing.assert_close(FORWARD[2](*call), F.conv_transpose2d(*call), **CLOSE)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="expected bias to be 1-dimensional with 3 elements"):
                FORWARD[2](x, weight, torch.ones(5, device=device))
            with pytest.raises(RuntimeError, match="diff_dst has 3 axes: must have 4"):
                DATA[2](x[0], weight, [2, 2], [1, 1], [0, 0], 1, [1, 1], False)


def test_who_looks_on_sees_known_calls(device):
    x, weight, bias = tensors(device)
    call = FORWARD[2]
    with torch.no_grad():
        expected = call(x, weight, bias)
        before = computed()

        class Seen(TorchDispatchMode):
            names: list = []  # noqa: RUF012

            def __torch_dispatch__(self, function, types, arguments=(), more=None):
                self.names.append(function.name())
                return torch.zeros(())

        with Seen():
            assert call(x, weight, bias).dim() == 0
        assert Seen.names == ["tconv::conv_transpose2d"] and computed() == before
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x)
            tangent = torch.autograd.forward_ad.unpack_dual(call(dual, weight, bias)).tangent
        torch.testing.assert_close(tangent, F.conv_transpose2d(x, weight), **CLOSE)
        torch.testing.assert_close(torch.vmap(lambda t: call(t, weight, bias))(torch.stack([x, x]))[1], expected)
    assert call(x, weight.requires_grad_(), bias).grad_fn is not None
    negated = torch._neg_view(x)
    with torch.no_grad():
        torch.testing.assert_close(call(negated, weight, bias), F.conv_transpose2d(-x, weight, bias), **CLOSE)


class Mine(Exception):
    pass


def fail(*arguments):
    raise Mine("a message")


@pytest.mark.parametrize("grad", [False, True])
def test_errors_keep_their_type(monkeypatch, grad):
    x, weight, bias = tensors()
    sizes = [1, 1], [0, 0], 1, [1, 1]
    calls = [
        lambda: FORWARD[2](x, weight.requires_grad_(grad), bias),
        lambda: DATA[2](torch.ones(2, 3, 6, 7), weight, [5, 6], *sizes, False),
        lambda: WEIGHTS[2](x, torch.ones(2, 3, 6, 7), [2, 2], *sizes, [True, True], False),
        lambda: torch.compile(tt.conv_transpose2d)(x, weight, bias),
    ]
    with torch.set_grad_enabled(grad):
        for call in calls:
            forget_plans()
            with monkeypatch.context() as patch:
                patch.setattr(_operator, "find_layer", fail)
                for name in ("find_data", "find_weights"):
                    patch.setattr(_gradients, name, fail)
                for _ in range(2):
                    with pytest.raises(Mine, match="a message"):
                        call()
                    # By another way its text alone. Who fails later does so with an error of its own.
                    with pytest.raises(RuntimeError, match="a message"):
                        torch.ops.tconv.conv_transpose2d(x, weight, bias)
                with pytest.raises(RuntimeError, match="missing value for argument 'weight'"):
                    FORWARD[2](x)
            with pytest.raises(RuntimeError, match="expected bias"):
                FORWARD[2](x, weight, torch.ones(5))
            call()


def test_a_failed_call_leaves_no_key_behind(monkeypatch):
    """Of what the shim cannot read Python may put nothing into the table."""
    x, weight, bias = tensors()
    forget_plans()
    with torch.no_grad():
        with monkeypatch.context() as patch, pytest.raises(Mine):
            patch.setattr(_operator, "find_layer", fail)
            FORWARD[2](x, weight, bias)
        layer = _operator.find_layer(x, weight, bias, [2, 2], [0, 0], [0, 0], 1, [1, 1])
        _native.table.put(layer)
        torch.testing.assert_close(FORWARD[2](x, weight, bias), F.conv_transpose2d(x, weight, bias), **CLOSE)


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="what is resident is not told")
def test_calls_leak_nothing():
    x, weight, bias = tensors()
    cotangent, sizes = torch.ones(2, 3, 6, 7), ([1, 1], [0, 0], 1, [1, 1])

    def calls(count):
        with torch.no_grad():
            for i in range(count):
                if i % (count // 10) == 0:
                    forget_plans()
                FORWARD[2](x, weight, bias)
                DATA[2](cotangent, weight, [5, 6], *sizes, False)
                WEIGHTS[2](x, cotangent, [2, 2], *sizes, [True, False], False)

    def resident():
        """Not the largest that it was: other tests compile, which takes more."""
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    calls(2000)
    before = resident()
    calls(20000)
    assert resident() - before < 2 << 20  # a list of each call would be more
