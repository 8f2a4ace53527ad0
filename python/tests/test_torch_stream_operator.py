"""The operators of a step: without Python where the step is known, in programs of torch.compile and torch.export, as
PyTorch's operators, with gradients."""

import itertools
import pathlib
import resource

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _native, _stream_operator  # noqa: E402

STEP, PURE = torch.ops.tconv.conv_transpose1d_step.default, torch.ops.tconv.conv_transpose1d_step_pure.default
of_the_shim = pytest.mark.skipif(not _native.is_installed(), reason="libtconv_torch.so is not beside the library")


def tensors(device="cpu", dtype=torch.float64, batch=2, length=3, slots=4):
    """x, weight, bias and state of a layer of stride 4 whose tail is 3."""
    shapes = (batch, 8, length), (8, 3, 7), (3,), (slots, 3, 3)
    x, weight, bias, state = (torch.randn(shape, device=device, dtype=torch.float64) for shape in shapes)
    state = state if dtype is torch.float64 else state.float()
    return x.to(dtype), weight.to(dtype), bias.to(dtype), state


def rows_of(device="cpu"):
    """slots, reset and active of two images."""
    slots = torch.tensor([3, 1], dtype=torch.int32, device=device)
    return slots, torch.tensor([True, False], device=device), torch.tensor([True, True], device=device)


def expected(x, weight, bias, state, slots=None, reset=None, active=None):
    """y and the next state, by the one call for a chunk and what came before it."""
    whole = F.conv_transpose1d(x.double(), weight.double(), None, 4)
    rows = list(range(len(x))) if slots is None else slots.tolist()
    held, after = state.double()[rows], state.clone()
    if reset is not None:
        held[reset.bool()] = 0
    whole[..., :3] += held
    took_part = torch.ones(len(x), dtype=torch.bool) if active is None else active.bool().cpu()
    for image, slot in enumerate(rows):
        if took_part[image]:
            after[slot] = whole[image, :, -3:]
    return (whole[..., :-3] + (0 if bias is None else bias.double()[:, None])).to(x.dtype), after


@pytest.fixture
def no_python(monkeypatch):
    """A function after which Python neither finds nor computes a step below autograd."""

    def wanted(*arguments):
        raise AssertionError("Python was asked for a step that is known")

    def forbid():
        monkeypatch.setattr(torch._ops.OpOverload, "redispatch", wanted)
        monkeypatch.setattr(_stream_operator, "find", wanted)

    return forbid


MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "enable_grad": torch.enable_grad}


@of_the_shim
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("masked", [False, True])
def test_known_steps_of_any_length_need_no_python(mode, masked, dtype, device, no_python):
    """Lengths up to a power of two, and images likewise, are one step to the shim."""
    with MODES[mode]():
        x, weight, bias, state = tensors(device, dtype, length=8)
        rows = rows_of(device) if masked else (None, None, None)
        named = dict(zip(("slots", "reset", "active"), rows, strict=True))
        forget_plans()
        tt.conv_transpose1d_step(x, weight, bias, state.clone(), stride=4, **named)
        no_python()
        for length in (5, 6, 7, 8):
            chunk, mine, taken = x[..., :length].contiguous(), state.clone(), _native.taken()
            y = tt.conv_transpose1d_step(chunk, weight, bias, mine, stride=4, **named)
            assert _native.taken() == taken + 1
            wanted = expected(chunk, weight, bias, state, *rows)
            tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.02}[dtype]
            torch.testing.assert_close((y, mine), wanted, rtol=tolerance, atol=10 * tolerance)


@of_the_shim
def test_what_the_shim_does_not_know_is_not_its(device):
    """Another tail, dtype or place than those of the step that it has seen is Python's to refuse."""
    x, weight, bias, state = tensors(device)
    tt.conv_transpose1d_step(x, weight, bias, state, stride=4)
    before, taken = state.clone(), _native.taken()
    reset = torch.ones(2, dtype=torch.bool, device=device)
    wrong = {
        "x": dict(x=x[0]),
        "weight": dict(weight=weight.float()),
        "bias": dict(bias=bias[:2]),
        "state": dict(state=state[..., :2]),
        "reset": dict(reset=reset[:1]),
        "active": dict(active=reset.int()),
        "slots": dict(slots=torch.tensor([1, 3], device=device)),
    }
    for field, bad in wrong.items():
        good = dict(x=x, weight=weight, bias=bias, state=state, stride=4)
        with pytest.raises(tconv.TconvError) as error:
            tt.conv_transpose1d_step(**{**good, **bad})
        assert error.value.field == field
    assert torch.equal(state, before) and _native.taken() == taken


@of_the_shim
def test_layers_that_differ_in_one_number_are_two_to_the_shim(device):
    """Without a tail the state of both has the same shape."""
    x, weight, state = (torch.randn(shape, device=device) for shape in ((1, 4, 3), (4, 2, 2), (1, 4, 0)))
    layers = [(5, 1, 2), (5, 3, 2), (6, 1, 2), (5, 1, 2), (5, 3, 2), (6, 1, 2)]
    forget_plans()
    taken = _native.taken()
    for stride, dilation, groups in layers:
        y = tt.conv_transpose1d_step(x, weight, None, state, stride=stride, dilation=dilation, groups=groups)
        more = stride - dilation - 1
        wanted = F.conv_transpose1d(x, weight, None, stride, 0, more, groups, dilation)
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
    assert _native.taken() == taken + 3


@of_the_shim
def test_masks_of_another_device_are_refused(cuda):
    x, weight, bias, state = tensors(cuda)
    tt.conv_transpose1d_step(x, weight, bias, state, stride=4)
    for name, row in zip(("slots", "reset", "active"), rows_of("cpu"), strict=True):
        with pytest.raises(tconv.TconvError) as error:
            tt.conv_transpose1d_step(x, weight, bias, state, stride=4, **{name: row})
        assert error.value.field == name


@of_the_shim
def test_nothing_is_left_of_a_step():
    x, weight, bias, state = tensors()
    rows = rows_of()

    def steps(count):
        with torch.no_grad():
            for _ in range(count):
                tt.conv_transpose1d_step(x, weight, bias, state, stride=4, slots=rows[0], reset=rows[1], active=rows[2])

    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    steps(2000)
    before = resident()
    steps(20000)
    assert resident() - before < 1 << 20  # a handle of each call would be more


def test_errors_come_through_the_shim_as_they_are():
    x, weight, bias, state = tensors()
    one = torch.zeros(2, dtype=torch.int32)
    for _ in range(2):
        with pytest.raises(tconv.InvalidArgumentError, match=r"slots\[1\] = 0"):
            tt.conv_transpose1d_step(x, weight, bias, state, stride=4, slots=one)
        with pytest.raises(tconv.InvalidArgumentError, match="slots"):
            STEP(x, weight, bias, state, 4, 1, 1, one)
        tt.conv_transpose1d_step(x, weight, bias, state, stride=4)


def test_after_an_error_autograd_sees_what_follows():
    x, weight, bias, state = tensors()
    with pytest.raises(tconv.TconvError) as kept:
        tt.conv_transpose1d_step(x[0], weight, bias, state, stride=4)
    weight.requires_grad_()
    assert (2 * weight).requires_grad
    assert kept.value.field == "x"


def test_a_state_that_was_saved_for_gradients_is_missed():
    """The step counts as a change in place."""
    x, weight, bias, state = tensors()
    factor = torch.ones_like(state, requires_grad=True)
    product = (factor * state).sum()
    tt.conv_transpose1d_step(x, weight, bias, state, stride=4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operators = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.operators.append(function)
        return function(*arguments, **(keywords or {}))


def test_modes_see_a_step(device):
    x, weight, bias, state = tensors(device)
    for _ in range(2):
        with Seen() as seen:
            tt.conv_transpose1d_step(x, weight, bias, state, stride=4)
        assert STEP in seen.operators


@pytest.mark.parametrize("masked", [False, True])
def test_pytorchs_checks_of_operators(masked, device):
    x, weight, bias, state = tensors(device)
    arguments = x, weight, bias, state, 4, 1, 1, *(rows_of(device) if masked else ())
    torch.library.opcheck(STEP, arguments)
    torch.library.opcheck(PURE, arguments)
    torch.library.opcheck(PURE, (x, weight.requires_grad_(), bias, state.requires_grad_(), *arguments[4:]))


def test_meta_and_fake_tensors():
    arguments = [tensor.to("meta") for tensor in tensors()]
    assert tt.conv_transpose1d_step(*arguments, stride=4).shape == (2, 3, 12)
    y, state = tt.conv_transpose1d_step_pure(*arguments, stride=4)
    assert y.shape == (2, 3, 12) and state.shape == (4, 3, 3)


# ----------------------------------------------------------------------------------------------------- torch.compile


def layer_of(device, dtype=torch.float64):
    torch.manual_seed(1)
    layer = tt.StreamingConvTranspose1d(8, 6, 7, 4, device=device, dtype=dtype)
    return layer.requires_grad_(False)


def steps_of(program, x, ends=(0, 1, 2, 4, 6), **more):
    return torch.cat([program(x[..., a:b].contiguous(), **more) for a, b in itertools.pairwise(ends)], -1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_programs_have_steps_without_a_break(backend, device, compiled_anew):
    layer = layer_of(device)
    program = torch.compile(lambda x, **more: layer(2 * x, **more).tanh(), backend=backend, fullgraph=True)
    x = torch.randn(2, 8, 6, dtype=torch.float64, device=device)
    whole = layer(2 * x).tanh()
    with torch.no_grad(), layer.streaming(batch=2):
        torch.testing.assert_close(steps_of(program, x), whole)
        resets = torch.tensor([False, True], device=device)
        y = program(x, reset=resets)
        torch.testing.assert_close(y[1], whole[1])
        assert not torch.allclose(y[0, :, :3], whole[0, :, :3])
    torch.testing.assert_close(program(x), whole)


def test_compiled_programs_flush(compiled_anew):
    layer = tt.StreamingConvTranspose1d(8, 6, 7, 4, trim="both", dtype=torch.float64).requires_grad_(False)
    flush = torch.compile(layer.flush, backend="aot_eager", fullgraph=True)
    x = torch.randn(1, 8, 5, dtype=torch.float64)
    with torch.no_grad(), layer.streaming(batch=1):
        y = torch.cat([layer(x), flush()], -1)
        assert not layer.state.any()
    torch.testing.assert_close(y, layer(x))


@of_the_shim
def test_compiled_steps_need_no_python(device, compiled_anew, no_python):
    layer = layer_of(device, torch.float32)
    program = torch.compile(lambda x: layer(2 * x), fullgraph=True)
    x = torch.randn(2, 8, 2, device=device)
    with torch.no_grad(), layer.streaming(batch=2):
        for _ in range(2):
            program(x)
        no_python()
        taken = _native.taken()
        program(x)
        assert _native.taken() == taken + 1


def test_compiled_programs_become_cuda_graphs(cuda, compiled_anew):
    """The state is where it was when the graph was recorded, and each replay goes on from it."""
    layer = layer_of(cuda, torch.float32)
    program = torch.compile(lambda x: layer(2 * x).tanh(), mode="reduce-overhead", fullgraph=True)
    x = torch.randn(2, 8, 24, device=cuda)
    whole = layer(2 * x).tanh()
    with torch.no_grad(), layer.streaming(batch=2):
        parts = [program(part.contiguous()).clone() for part in x.split(3, 2)]
    torch.testing.assert_close(torch.cat(parts, -1), whole, rtol=1e-4, atol=1e-4)


def test_compiled_steps_that_want_gradients_are_refused(compiled_anew):
    x, weight, bias, state = tensors()
    program = torch.compile(
        lambda w: tt.conv_transpose1d_step(x, w, bias, state, stride=4), backend="eager", fullgraph=True
    )
    with pytest.raises(Exception, match="no gradients"):
        program(weight.requires_grad_())


# ----------------------------------------------------------------------------------------- the pure form, and export


def test_the_pure_form_leaves_the_state(device):
    x, weight, bias, state = tensors(device)
    before, rows = state.clone(), rows_of(device)
    named = dict(zip(("slots", "reset", "active"), rows, strict=True))
    for arguments, more in (((), {}), (rows, named)):
        y, after = tt.conv_transpose1d_step_pure(x, weight, bias, state, stride=4, **more)
        assert torch.equal(state, before)
        torch.testing.assert_close((y, after), expected(x, weight, bias, state, *arguments))
    with pytest.raises(tconv.TconvError, match="state"):
        tt.conv_transpose1d_step_pure(x, weight, bias, state[..., :1], stride=4)


@pytest.mark.parametrize("active", [None, torch.tensor([True, False])])
def test_gradients_of_the_pure_form(active):
    """Those of steps that follow each other are those of the one call."""
    x, weight, bias, state = (tensor.requires_grad_() for tensor in tensors(length=2, slots=2))

    def two_steps(x, weight, bias, state):
        first, state = tt.conv_transpose1d_step_pure(x, weight, bias, state, stride=4)
        second, state = tt.conv_transpose1d_step_pure(x, weight, bias, state, stride=4, active=active)
        return first, second if active is None else second[:1], state

    assert torch.autograd.gradcheck(two_steps, (x, weight, bias, state))
    first, state = tt.conv_transpose1d_step_pure(x, weight, bias, torch.zeros(2, 3, 3, dtype=x.dtype), stride=4)
    second, _ = tt.conv_transpose1d_step_pure(2 * x, weight, bias, state, stride=4)
    whole = F.conv_transpose1d(torch.cat([x, 2 * x], -1), weight, bias, 4)[..., :-3]
    wanted = torch.autograd.grad(whole.square().sum(), (x, weight, bias))
    torch.testing.assert_close(
        torch.autograd.grad(torch.cat([first, second], -1).square().sum(), (x, weight, bias)), wanted
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_by_pytorchs_operators_a_step_is_the_same(dtype, device):
    x, weight, bias, state = tensors(device, dtype)
    for rows in ((None, None, None), rows_of(device), (None, None, torch.tensor([False, True], device=device))):
        y, after = _stream_operator.by_pytorch(x, weight, bias, state, 4, 1, 1, *rows)
        wanted = expected(x, weight, bias, state, *rows)
        assert y.dtype == dtype and after.dtype == state.dtype
        tolerance = dict(rtol=0.02, atol=0.1) if dtype is torch.bfloat16 else {}
        torch.testing.assert_close(after, wanted[1], **tolerance)
        torch.testing.assert_close(y[-1], wanted[0][-1], **tolerance)


class Pure(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = layer_of("cpu", torch.float32)

    def forward(self, x, state):
        weight, bias = self.layer.weight, self.layer.bias
        y, state = tt.conv_transpose1d_step_pure(x.tanh(), weight, bias, state, stride=4)
        return y.relu(), state


class InPlace(Pure):
    def forward(self, x, state):
        y = tt.conv_transpose1d_step(x.tanh(), self.layer.weight, self.layer.bias, state, stride=4)
        return y.relu(), state


def decode(program, x):
    state = torch.zeros(2, 6, 3)
    parts = []
    for a, b in ((0, 3), (3, 4), (4, 9)):
        y, state = program(x[..., a:b], state)
        parts.append(y)
    return torch.cat(parts, -1)


def exported(model, **more):
    length = torch.export.Dim("length", min=1, max=64)
    shapes = ({2: length}, None)
    return torch.export.export(model, (torch.ones(2, 8, 5), torch.zeros(2, 6, 3)), dynamic_shapes=shapes, **more)


@pytest.mark.parametrize("model", [Pure, InPlace])
@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_have_the_operator(model, strict):
    model, x = model(), torch.randn(2, 8, 9)
    program = exported(model, strict=strict)
    targets = {node.target for node in program.graph.nodes}
    assert targets & {STEP, PURE}
    torch.testing.assert_close(decode(program.module(), x), model.layer(x.tanh()).relu())


@pytest.mark.parametrize("model", [Pure, InPlace])
def test_portable_programs_have_pytorchs(model):
    model, x = model(), torch.randn(2, 8, 9)
    with tt.portable():
        program = exported(model)
    programs = [program]
    if type(model) is Pure:
        programs.append(exported(model).run_decompositions(tt.decompositions()))
    for program in programs:
        assert "tconv" not in program.graph_module.code
        torch.testing.assert_close(decode(program.module(), x), model.layer(x.tanh()).relu())


def test_a_step_in_onnx(tmp_path):
    """The state is an input and an output."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x, path = Pure().eval(), torch.randn(2, 8, 9), str(tmp_path / "step.onnx")
    length = torch.export.Dim("length", min=1, max=64)
    torch.onnx.export(
        model,
        (torch.ones(2, 8, 5), torch.zeros(2, 6, 3)),
        path,
        dynamo=True,
        dynamic_shapes=({2: length}, None),
        input_names=["x", "state"],
        output_names=["y", "next"],
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def program(x, state):
        results = session.run(["y", "next"], {"x": x.numpy(), "state": state.numpy()})
        return [torch.from_numpy(result) for result in results]

    torch.testing.assert_close(decode(program, x), model.layer(x.tanh()).relu(), rtol=1e-5, atol=1e-5)
