"""The shim's kernels of the operators with post-ops: a list that is known with its operands runs no Python."""

import pathlib
import resource

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_layers import FUNCTIONS, tensors  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _native, _post_operator  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("compiled_anew"),
    pytest.mark.skipif(not _native.is_installed(), reason="libtconv_torch.so is not beside the library"),
]

OPERATORS = _post_operator.POST_OPERATORS
MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
TEXT = "mul_channel add_channel snake linear(0.5, 0.25) add(-0.5) leaky_relu(0.125)"
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def known():
    return _native.taken(), _native.fused()


def one_by_one(spatial, *arguments):
    """By PyTorch's functions."""
    *of_layer, text, operands = arguments
    return _post_operator.one_after_the_other(spatial, FUNCTIONS[spatial][1], of_layer, text, operands)


def sizes(spatial, stride=2):
    return [stride] * spatial, [1] * spatial, [0] * spatial, 1, [1] * spatial


def operands_for(result, spatial):
    """Those of TEXT for a layer with this result."""
    dtype = torch.float64 if result.dtype is torch.float64 else torch.float32
    v = torch.rand(result.shape[-spatial - 1], device=result.device, dtype=dtype) + 0.5
    return [v, 2 * v, torch.cat([v, 1 / v]), torch.randn_like(result)]


@pytest.fixture
def no_python(monkeypatch):
    """A function after which Python finds no layer and hands none on."""

    def wanted(*arguments):
        raise AssertionError("Python was asked for a call that is known")

    def forbid():
        monkeypatch.setattr(torch._ops.OpOverload, "redispatch", wanted)
        for name in ("find", "compute", "one_after_the_other"):
            monkeypatch.setattr(_post_operator, name, wanted)

    return forbid


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spatial", OPERATORS)
@pytest.mark.parametrize("batched", [False, True])
def test_known_calls_need_no_python(device, spatial, batched, mode, dtype, no_python):
    with MODES[mode]():
        x, weight, bias = (t.to(dtype) for t in tensors(device, spatial))
        x = x if batched else x[0]
        for given in (bias, None):
            layer = x, weight.requires_grad_(mode == "no_grad"), given, *sizes(spatial)
            arguments = *layer, TEXT, operands_for(FUNCTIONS[spatial][1](*layer), spatial)
            first = OPERATORS[spatial](*arguments)
            before, counted = known(), tt.counters()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_post_operator, "find", None)
                again = OPERATORS[spatial](*arguments)
            assert known() == (before[0] + 1, before[1] + 1)
            assert (tt.counters().taken, tt.counters().fused) == (counted.taken + 1, counted.fused + 1)
            assert torch.equal(first, again) and not again.requires_grad
            expected = one_by_one(
                spatial,
                *(t.double() if isinstance(t, torch.Tensor) else t for t in arguments[:8]),
                TEXT,
                [t.double() for t in arguments[9]],
            )
            tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else CLOSE
            torch.testing.assert_close(again.double(), expected, **tolerance)
            assert again.stride() == one_by_one(spatial, *arguments).stride()
        no_python()
        OPERATORS[spatial](*arguments)


def test_every_part_of_a_list_tells_it_from_others(device):
    """Each call differs from another in one thing. Operands lie one behind the other where the next call expects its
    own, so that a wrong answer would be seen."""
    x, weight, bias = tensors(device)
    result = torch.conv_transpose2d(x, weight, bias, *sizes(2))
    v, residual = torch.rand(len(bias), device=device) + 0.5, torch.randn_like(result)
    lists = [
        ("tanh", []),
        ("sigmoid", []),
        ("tanh sigmoid", []),
        ("sigmoid tanh", []),
        ("clamp(-1.0, 0.5)", []),
        ("clamp(-1.0, 0.25)", []),
        ("clamp(-0.5, 0.25)", []),
        ("mul_channel", [v]),
        ("add_channel", [v]),
        ("mul_channel add_channel", [v, -v]),
        ("add_channel mul_channel", [v, -v]),
        ("snake", [torch.cat([v, 1 / v])]),
        ("add(1.0)", [residual]),
        ("add(0.5)", [residual]),
        ("add(1.0)", [residual.contiguous(memory_format=torch.channels_last)]),
        ("add(1.0)", [residual.repeat(2, 2, 1, 1)[::2, : len(bias)]]),
        ("add(1.0)", [residual.repeat(1, 1, 2, 2)[:, :, ::2, : residual.shape[3]]]),
        ("mul_channel", [v.double()]),
        ("mul_channel", [v.bfloat16()]),
        ("mul_channel", [v.repeat_interleave(2)[::2]]),
        ("mul_channel add(2.0)", [v, residual]),
        ("add(2.0) mul_channel", [residual, v]),
    ]
    forget_plans()
    with torch.no_grad():
        for _ in range(2):
            for text, operands in lists:
                if operands and operands[0].dtype is torch.float64:
                    with pytest.raises(TypeError, match="float64"):
                        OPERATORS[2](x, weight, bias, *sizes(2), text, operands)
                    continue
                found = OPERATORS[2](x, weight, bias, *sizes(2), text, operands)
                torch.testing.assert_close(found, one_by_one(2, x, weight, bias, *sizes(2), text, operands), **CLOSE)
            plain = torch.ops.tconv.conv_transpose2d.default(x, weight, bias, *sizes(2))
            torch.testing.assert_close(plain, result, **CLOSE)


def test_what_has_to_be_converted_is_pythons(device):
    """And lists that are too long for a key, mistakes, and what tconv does not compute."""
    x, weight, bias = tensors(device)
    result = torch.conv_transpose2d(x, weight, bias, *sizes(2))
    v, residual = torch.rand(len(bias), device=device) + 0.5, torch.randn_like(result)
    calls = [
        (x, "mul_channel", [v.bfloat16()]),
        (x, "mul_channel", [v.repeat_interleave(2)[::2]]),
        (x, "add(1.0)", [residual.bfloat16()]),
        (x, "add(1.0)", [residual.repeat_interleave(2, 3)[..., ::2]]),
        (x.repeat_interleave(2, 3)[..., ::2], "tanh", []),
        (x, " ".join(["linear(1.0001220703125, 0.0001220703125)"] * 8) + " " * 500, []),
    ]
    with torch.no_grad():
        for input, text, operands in calls * 2:
            before = known()
            found = OPERATORS[2](input, weight, bias, *sizes(2), text, operands)
            assert known() == before
            torch.testing.assert_close(found, one_by_one(2, input, weight, bias, *sizes(2), text, operands), **CLOSE)
        for _ in range(2):
            with pytest.raises(ValueError, match="operands has 9"):
                OPERATORS[2](x, weight, bias, *sizes(2), "add_channel", [v] * 9)
            with pytest.raises(ValueError, match="post has"):
                OPERATORS[2](x, weight, bias, *sizes(2), "relu6", [])
            with pytest.raises(tconv.InvalidArgumentError, match=r"post\[0\]"):
                OPERATORS[2](x, weight, bias, *sizes(2), "add_channel", [v[:2]])
            assert torch.equal(
                OPERATORS[2](x, weight, bias, *sizes(2), "", []),
                torch.ops.tconv.conv_transpose2d.default(x, weight, bias, *sizes(2)),
            )


def test_compiled_programs_need_no_python(device, no_python):
    x, weight, bias = tensors(device)
    residual = torch.randn_like(torch.conv_transpose2d(x, weight, bias, 2))

    def followed(y, residual):  # on CUDA by an affine list
        return (y + residual if device == "cpu" else y * 2 + 1).relu()

    def layer(x, residual):
        return followed(tt.conv_transpose2d(x, weight, bias, 2), residual)

    compiled = torch.compile(layer, fullgraph=True, options=tt.fusion_options())
    for i in range(2):
        if i == 1:
            no_python()
        before = known()
        torch.testing.assert_close(
            compiled(x, residual), followed(torch.conv_transpose2d(x, weight, bias, 2), residual), **CLOSE
        )
    assert known() == (before[0] + 1, before[1] + 1)


class Mine(torch.Tensor):
    names: list = []  # noqa: RUF012

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), more=None):
        cls.names.append(function.name())
        return torch.zeros(())


class Seen(TorchDispatchMode):
    def __init__(self):
        self.names = []
        super().__init__()

    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        self.names.append(function.name())
        return torch.zeros(())


def test_who_looks_on_sees_known_calls(device):
    """Also where an operand alone has somebody who looks on."""
    x, weight, bias = tensors(device)
    operands = operands_for(torch.conv_transpose2d(x, weight, bias, *sizes(2)), 2)
    call = lambda operands, x=x: OPERATORS[2](x, weight, bias, *sizes(2), TEXT, operands)  # noqa: E731
    name = "tconv::conv_transpose2d_post"
    with torch.no_grad():
        expected = call(operands)
        before = known()
        with Seen() as seen:
            assert call(operands).dim() == 0
        assert seen.names[-1] == name  # after the views by which tangents are looked for
        for i in range(len(operands)):
            Mine.names.clear()
            mine = torch.Tensor._make_subclass(Mine, operands[i])
            assert call([*operands[:i], mine, *operands[i + 1 :]]).dim() == 0
            assert Mine.names[-1] == name
        several = torch.stack([operands[0], 2 * operands[0]])
        found = torch.vmap(lambda v: call([v, *operands[1:]]))(several)
        torch.testing.assert_close(found[0], expected, **CLOSE)
        torch.testing.assert_close(found[1], call([several[1], *operands[1:]]), **CLOSE)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(operands[3], operands[3])
            assert torch.autograd.forward_ad.unpack_dual(call([*operands[:3], dual])).tangent is not None
        assert known()[1] == before[1] + 1  # the call with which vmap's is compared
        torch.testing.assert_close(call([*operands[:3], torch._neg_view(-operands[3])]), expected)
    for i in range(len(operands)):
        wanted = operands[i].detach().requires_grad_()
        answer = call([*operands[:i], wanted, *operands[i + 1 :]])
        torch.testing.assert_close(answer, expected, **CLOSE)
        assert torch.autograd.grad(answer.sum(), wanted)[0].shape == wanted.shape


def test_errors_keep_their_type(monkeypatch):
    class Failed(Exception):
        pass

    def fail(*arguments):
        raise Failed("a message")

    x, weight, bias = tensors()
    forget_plans()
    for grad in (False, True):
        with torch.set_grad_enabled(grad), monkeypatch.context() as patch:
            patch.setattr(_post_operator, "find", fail)
            with pytest.raises(Failed, match="a message"):
                OPERATORS[2](x, weight, bias, *sizes(2), "tanh", [])
    with torch.no_grad():
        torch.testing.assert_close(
            OPERATORS[2](x, weight, bias, *sizes(2), "tanh", []),
            torch.conv_transpose2d(x, weight, bias, *sizes(2)).tanh(),
            **CLOSE,
        )


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="what is resident is not told")
def test_calls_leak_nothing():
    x, weight, bias = tensors()
    operands = operands_for(torch.conv_transpose2d(x, weight, bias, *sizes(2)), 2)
    converted = [operands[0].bfloat16(), *operands[1:]]

    def calls(count):
        with torch.no_grad():
            for i in range(count):
                if i % (count // 10) == 0:
                    forget_plans()
                OPERATORS[2](x, weight, bias, *sizes(2), TEXT, operands)
                if i % 4 == 0:
                    OPERATORS[2](x, weight, bias, *sizes(2), TEXT, converted)

    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    calls(2000)
    before = resident()
    calls(80000)
    assert resident() - before < 2 << 20  # a list or a string of each call would be more
