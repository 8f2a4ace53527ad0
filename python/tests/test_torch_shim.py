"""The shim: calls of known layers without Python, and everything that it passes on."""

import itertools
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch_layers import FUNCTIONS, in_threads_that_forget, tensors  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv import _library  # noqa: E402
from tconv._plan import CAPACITY, forget_plans  # noqa: E402
from tconv.torch import _compute, _eager, _native  # noqa: E402
from tconv.torch._settings import CUDNN, DETERMINISTIC, TF32, all_flags  # noqa: E402

pytestmark = pytest.mark.skipif(not _native.is_installed(), reason="libtconv_torch.so is not beside the library")


@pytest.fixture
def no_python(monkeypatch):
    """A function after which nothing is planned or computed by Python."""

    def wanted(*arguments):
        raise AssertionError("Python was asked for a layer that is known")

    return lambda: monkeypatch.setattr(_eager, "find_layer", wanted)


@pytest.mark.parametrize("spatial", FUNCTIONS)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_known_layers_need_no_python(device, spatial, requires_grad, bias, batched, no_python):
    ours, theirs = FUNCTIONS[spatial]
    x, weight, b = tensors(device, spatial, requires_grad)
    x, b = x if batched else x[0], b if bias else None
    first = ours(x, weight, b, 2, 1, 1, 1, 2)
    no_python()
    before = _native.taken()
    again, expected = ours(x, weight, b, 2, 1, 1, 1, 2), theirs(x, weight, b, 2, 1, 1, 1, 2)
    assert _native.taken() == before + 1
    assert torch.equal(first, again) and again.stride() == expected.stride()
    torch.testing.assert_close(again, expected)
    if requires_grad:
        nodes = [y.grad_fn if batched else y.grad_fn.next_functions[0][0] for y in (again, expected)]
        assert [node.name() for node in nodes] == ["ConvolutionOverrideableBackward0", "ConvolutionBackward0"]


def test_autocast_and_layouts(device, no_python):
    x, weight, bias = tensors(device, requires_grad=True)
    x = x.detach().contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, torch.bfloat16):
        first = tt.conv_transpose2d(x, weight, bias)
        no_python()
        again, expected = tt.conv_transpose2d(x, weight, bias), F.conv_transpose2d(x, weight, bias)
    assert again.dtype is torch.bfloat16 and torch.equal(first, again) and again.stride() == expected.stride()


def test_every_part_of_a_layer_tells_it_from_others():
    """Each differs from the first in one thing, some in nothing that a call's text shows."""
    x, weight, bias = torch.randn(2, 4, 4, 4), torch.randn(4, 4, 2, 2), torch.randn(4)
    layers = [
        (x, weight, bias, 1, 0, 0, 1, 1),
        (x, weight, None, 1, 0, 0, 1, 1),
        (x, weight, bias, 2, 0, 0, 1, 1),
        (x, weight, bias, (1, 2), 0, 0, 1, 1),
        (x, weight, bias, (2, 1), 0, 0, 1, 1),
        (x, weight, bias, 1, 1, 0, 1, 1),
        (x, weight, bias, 1, (0, 1), 0, 1, 1),
        (x, weight, bias, 1, 0, 0, 1, 2),
        (x, weight, bias, 1, 0, 0, 1, (1, 2)),
        (x, weight, bias, 2, 0, 1, 1, 1),
        (x, weight, bias, 2, 0, (0, 1), 1, 1),
        (x, weight[:, :2], None, 1, 0, 0, 2, 1),
        (x, weight[:, :2], None, 1, 0, 0, 1, 1),
        (x.transpose(2, 3), weight, bias, 1, 0, 0, 1, 1),
        (x.contiguous(memory_format=torch.channels_last), weight, bias, 1, 0, 0, 1, 1),
        (x, weight.contiguous(memory_format=torch.channels_last), bias, 1, 0, 0, 1, 1),
        (x[:1], weight, bias, 1, 0, 0, 1, 1),
        (x[:, :, :3], weight, bias, 1, 0, 0, 1, 1),
        (x.double(), weight.double(), bias.double(), 1, 0, 0, 1, 1),
        (x, weight, bias.repeat_interleave(2)[::2], 1, 0, 0, 1, 1),
    ]
    forget_plans()
    for _ in range(2):
        for layer in layers:
            torch.testing.assert_close(tt.conv_transpose2d(*layer), F.conv_transpose2d(*layer), rtol=1e-4, atol=1e-4)


def test_number_of_threads_is_a_part(no_python):
    x, weight, bias = tensors()
    before = torch.get_num_threads()
    forget_plans()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            tt.conv_transpose2d(x, weight, bias)
        assert len(_compute.layers) == 2
        no_python()
        tt.conv_transpose2d(x, weight, bias)
    finally:
        torch.set_num_threads(before)


def test_pytorchs_settings_are_a_part(device):
    if device == "cpu":
        pytest.skip("they concern CUDA")
    x, weight, bias = tensors(device)
    forget_plans()
    for allowed in (False, True):
        torch._C._set_cudnn_allow_tf32(allowed)
        tt.conv_transpose2d(x, weight, bias)
    assert len(_compute.layers) == 2


def test_settings_are_read_without_python():
    """As Python reads them, whatever they are: this needs no GPU."""
    cudnn, deterministic = torch.backends.cudnn.enabled, torch.are_deterministic_algorithms_enabled()
    try:
        for tf32, enabled, only in itertools.product((True, False), repeat=3):
            torch._C._set_cudnn_allow_tf32(tf32)
            torch._C._set_cudnn_enabled(enabled)
            torch.use_deterministic_algorithms(only, warn_only=True)
            expected = (TF32 if tf32 else 0) | (CUDNN if enabled else 0) | (DETERMINISTIC if only else 0)
            assert _native.read_settings() == all_flags() == expected
    finally:
        torch._C._set_cudnn_enabled(cudnn)
        torch.use_deterministic_algorithms(deterministic)


def test_more_layers_than_are_kept():
    weight = torch.randn(2, 2, 2, 2)
    inputs = [torch.randn(1, 2, 1 + i // 40, 1 + i % 40) for i in range(CAPACITY + 100)]
    for x in itertools.chain(inputs, inputs[:200], inputs):
        torch.testing.assert_close(tt.conv_transpose2d(x, weight), F.conv_transpose2d(x, weight))
    before = _native.taken()
    for x in inputs[-CAPACITY // 2 :]:
        tt.conv_transpose2d(x, weight)
    assert _native.taken() == before + CAPACITY // 2
    forget_plans()
    tt.conv_transpose2d(inputs[-1], weight)
    assert _native.taken() == before + CAPACITY // 2


def test_threads_while_layers_come_and_go():
    weight = torch.randint(-4, 5, (2, 3, 3, 3)).float()
    inputs = [torch.randint(-4, 5, (1, 2, 3 + i // 16, 3 + i % 16)).float() for i in range(64)]
    expected = [F.conv_transpose2d(x, weight) for x in inputs]
    wrong = []

    def work(start):
        for round_ in range(40):
            for i in range(64):
                at = (start * 7 + i * 5 + round_) % 64
                if not torch.equal(tt.conv_transpose2d(inputs[at], weight), expected[at]):
                    wrong.append(at)

    in_threads_that_forget(work)
    assert not wrong


def test_views_of_complex_tensors_are_pytorchs():
    """Their kernel is the shim's, too, whoever calls."""
    x, weight, bias = tensors()
    negated = torch._neg_view(x)
    for function in (F.conv_transpose2d, tt.conv_transpose2d):
        for _ in range(2):
            torch.testing.assert_close(function(negated, weight, bias), F.conv_transpose2d(-x, weight, bias))
            torch.testing.assert_close(function(x, torch._neg_view(weight), bias), F.conv_transpose2d(x, -weight, bias))
    torch.testing.assert_close(F.conv2d(negated, torch.ones(3, 4, 2, 2)), F.conv2d(-x, torch.ones(3, 4, 2, 2)))
    with pytest.raises(RuntimeError):
        F.conv_transpose2d(negated, weight, torch.ones(5))


def test_errors_keep_their_type(monkeypatch):
    class Mine(Exception):
        pass

    def fail(*arguments):
        raise Mine("a message")

    x, weight, bias = tensors()
    forget_plans()
    with monkeypatch.context() as patch:
        patch.setattr(_eager, "find_layer", fail)
        for _ in range(2):
            with pytest.raises(Mine, match="a message"):
                tt.conv_transpose2d(x, weight, bias)
    torch.testing.assert_close(tt.conv_transpose2d(x, weight, bias), F.conv_transpose2d(x, weight, bias))


def test_a_call_that_fails_leaves_nothing_behind():
    """The mark that a call is the package's goes when the call does not get to the kernel."""
    x, weight, bias = tensors()
    with pytest.raises(TypeError):
        tt.conv_transpose2d(x, weight, bias, "two")
    torch.testing.assert_close(F.conv_transpose2d(torch._neg_view(x), weight), F.conv_transpose2d(-x, weight))


def test_saved_tensors_are_packed_once():
    """Also in the first call, which plans: checkpointing counts them."""
    x, weight, bias = tensors(requires_grad=True)
    forget_plans()
    counts = []
    for _ in range(2):
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, to=packed: to.append(t) or t, lambda t: t):
            tt.conv_transpose2d(x, weight, bias)
        counts.append(len(packed))
    assert counts == [2, 2]


def test_unaligned_memory_is_pytorchs():
    x, weight, bias = tensors()
    tt.conv_transpose2d(x, weight, bias)
    memory = torch.empty(x.numel() * 4 + 4, dtype=torch.uint8)
    apart = memory[1 : 1 + x.numel() * 4]
    try:
        moved = torch.frombuffer(apart.numpy(), dtype=torch.float32).view(x.shape)
    except ValueError:
        pytest.skip("this PyTorch makes no such tensor")
    moved.copy_(x)
    torch.testing.assert_close(tt.conv_transpose2d(moved, weight, bias), F.conv_transpose2d(x, weight, bias))


def test_large_workspaces():
    x, weight = torch.randn(1, 64, 24, 24), torch.randn(64, 64, 4, 4)
    assert _compute.find_layer(x, weight, None, 2, 1, 0, 1, 1).workspace_elements > 0
    for _ in range(2):
        torch.testing.assert_close(
            tt.conv_transpose2d(x, weight, None, 2, 1), F.conv_transpose2d(x, weight, None, 2, 1), rtol=1e-4, atol=1e-3
        )


def test_children_of_fork():
    x, weight, bias = tensors()
    tt.conv_transpose2d(x, weight, bias)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        child = os.fork()
        if child == 0:
            torch.testing.assert_close(tt.conv_transpose2d(x, weight, bias), F.conv_transpose2d(x, weight, bias))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(threads)


def test_nothing_leaks():
    x, weight, bias = tensors(requires_grad=True)

    def calls(count):
        for _ in range(count):
            tt.conv_transpose2d(x, weight, bias)
            tt.conv_transpose2d(x.detach(), weight.detach())
            F.conv_transpose2d(torch._neg_view(x.detach()), weight.detach())
        for i in range(count // 100):
            forget_plans()
            tt.conv_transpose2d(x, weight, bias, 1 + i % 3)

    calls(2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(20000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048  # KiB; one byte a call would be 60


PROGRAM = """
import torch, tconv.torch as tt
from tconv.torch import _compute, _native
assert not _native.is_installed()
x, weight, bias = torch.randn(2, 4, 5, 6), torch.randn(4, 3, 2, 2, requires_grad=True), torch.randn(3)
for _ in range(2):
    for w in (weight, weight.detach()):
        torch.testing.assert_close(tt.conv_transpose2d(x, w, bias, (2,)), torch.conv_transpose2d(x, w, bias, 2))
x.requires_grad_()
for _ in range(2):
    found, expected = (torch.autograd.grad(f(x, weight, bias, (2,)).sum(), (x, weight))
                       for f in (tt.conv_transpose2d, torch.conv_transpose2d))
    torch.testing.assert_close(found, expected)
x = x.detach()
n = torch._neg_view(x)
torch.testing.assert_close(torch.conv_transpose2d(n, weight), torch.conv_transpose2d(-x, weight))
try:
    tt.conv_transpose2d(x, weight, torch.ones(9))
except RuntimeError as error:
    assert "expected bias" in str(error)
operators = torch.ops.tconv
for _ in range(2):
    with torch.no_grad():
        found = operators.conv_transpose2d.default(x, weight, bias, [2, 2])
        torch.testing.assert_close(found, torch.conv_transpose2d(x, weight, bias, 2))
        sizes = [2, 2], [0, 0], 1, [1, 1]
        operators.conv_transpose2d_backward_data.default(found, weight, x.shape[2:], *sizes, False)
        operators.conv_transpose2d_backward_weights.default(x, found, [2, 2], *sizes, [True, True], False)
assert _compute.counts.taken == 8 and tt.counters().gradients == 8, tt.counters()
"""


def test_without_the_shim(tmp_path):
    """The same, in Python."""
    library = tmp_path / "libtconv.so"
    shutil.copy(_library.path(), library)
    environment = {**os.environ, "TCONV_LIBRARY": str(library)}
    environment["PYTHONPATH"] = str(pathlib.Path(tconv.__file__).parents[1])
    result = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_operator_behind_the_node_is_pytorchs_for_others():
    """Nobody calls it on the CPU but the package. Who does gets PyTorch's answer, and its errors."""
    x, weight, bias = tensors()
    sizes = ([2, 2], [1, 1], [1, 1], True, [0, 0], 1)
    answer = torch.ops.aten.convolution_overrideable(x, weight, bias, *sizes)
    torch.testing.assert_close(answer, F.conv_transpose2d(x, weight, bias, 2, 1))
    # The stable interface of PyTorch 2.11 prints what an operator says, and raises an error that says so.
    with pytest.raises(RuntimeError, match=r"expected bias to be 1-dimensional with 3 elements|stderr may tell why"):
        torch.ops.aten.convolution_overrideable(x, weight, torch.ones(5), *sizes)
