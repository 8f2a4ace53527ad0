"""tconv.torch on CUDA alone: PyTorch's flags, streams, graphs, devices."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch_values import B, W, X, outcome, pair_of_modules, same, tensors  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402


@pytest.mark.cuda
def test_tf32_follows_pytorchs_flag(cuda, calls):
    x, weight, _ = tensors(cuda, x=(2, 64, 32, 32), weight=(64, 64, 3, 3), bias=False)
    exact = F.conv_transpose2d(x.double(), weight.double())

    def error():
        return ((tt.conv_transpose2d(x, weight) - exact).norm() / exact.norm()).item()

    assert error() < 1e-6
    torch._C._set_cudnn_allow_tf32(True)
    assert 1e-6 < error() < 5e-4
    if hasattr(torch._C, "_set_fp32_precision_setter"):  # torch.backends.cudnn.conv.fp32_precision
        torch._C._set_fp32_precision_setter("cuda", "conv", "ieee")
        assert error() < 1e-6
    assert all(layer.plan.implementation.startswith("cuda_") for layer in calls)


@pytest.mark.cuda
def test_strides_without_cudnn(cuda):
    x, weight, _ = tensors(cuda, bias=False)
    x = x.contiguous(memory_format=torch.channels_last)
    strides = set()
    for enabled in (True, False):
        before = torch._C._get_cudnn_enabled()
        torch._C._set_cudnn_enabled(enabled)
        try:
            same(tt.conv_transpose2d(x, weight), F.conv_transpose2d(x, weight))
            strides.add(F.conv_transpose2d(x, weight).stride())
        finally:
            torch._C._set_cudnn_enabled(before)
    assert len(strides) == 2


@pytest.mark.cuda
def test_current_stream_is_used(cuda):
    x, weight, bias = tensors(cuda, x=(8, 64, 64, 64), weight=(64, 64, 3, 3))
    expected = F.conv_transpose2d(2 * x, weight, bias)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(10_000_000)
            later = x * 2
            result = tt.conv_transpose2d(later, weight, bias)
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.cuda
def test_graph_capture_and_replay(cuda):
    module, theirs = pair_of_modules(cuda, 64, 32, 4, stride=2, padding=1)
    x = torch.randn(4, 64, 16, 16, device=cuda)
    with torch.no_grad():
        module(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = module(x)
        for _ in range(3):
            x.normal_()
            module.weight.mul_(1.5)
            theirs.weight.mul_(1.5)
            graph.replay()
            torch.testing.assert_close(result, theirs(x), rtol=1e-3, atol=1e-3)


@pytest.mark.cuda
def test_second_device(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("this needs two GPUs")
    module, theirs = pair_of_modules("cuda:1")
    x = torch.randn(2, 4, 5, 6, device="cuda:1")
    same(module(x), theirs(x))
    assert torch.cuda.current_device() == 0
    assert outcome(module, dict(input=x.to("cuda:0"))) == outcome(theirs, dict(input=x.to("cuda:0")))


@pytest.mark.cuda
def test_devices_that_differ(cuda):
    arguments = dict(input=X.to(cuda), weight=W)
    assert outcome(tt.conv_transpose2d, arguments) == outcome(F.conv_transpose2d, arguments)
    arguments = dict(input=X.to(cuda), weight=W.to(cuda), bias=B)
    assert outcome(tt.conv_transpose2d, arguments) == outcome(F.conv_transpose2d, arguments)


@pytest.mark.cuda
def test_dlpack_on_cuda(cuda):
    x, weight, bias = tensors(cuda)
    expected = F.conv_transpose2d(x, weight, bias)
    same(tconv.conv_transpose2d(x, weight, bias), expected)
    out = torch.empty_like(expected)
    assert tconv.conv_transpose2d(x, weight, bias, out=out) is out
    same(out, expected)
    staged = tconv.conv_transpose2d(*(t.cpu().numpy() for t in (x, weight, bias)), backend="cuda")
    torch.testing.assert_close(torch.from_numpy(staged), expected.cpu(), rtol=1e-5, atol=1e-5)
