"""Plans of gradients write nothing behind the workspace that they ask for, and are right in one of just that size."""

import pytest

torch = pytest.importorskip("torch")

from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _gradients, _reasons  # noqa: E402

# Elements behind the workspace that must stay as they are: more than the sums of a layer below take.
BEHIND = 2**23
# Images, input channels, rows and columns of pixels, output channels, kernel, stride, padding. On Hopper 16 bits that
# lie by planes are copied to the workspace in the first two; blocks write the weights of the first, else slices.
LAYERS = [
    (12, 512, 4, 512, 2, 2, 0),
    (12, 512, 8, 512, 2, 2, 0),
    (2, 64, 32, 64, 3, 1, 1),
    (4, 48, 7, 20, 3, 2, 1),
]


def execute(found, src, weights, bias, dst):
    """Executes the plan in a workspace with something behind it, and says whether that stayed as it was."""
    workspace = torch.full((found.workspace_elements + BEHIND,), 3.0, dtype=dst.dtype, device=dst.device)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in (src, weights, bias, dst, workspace)]
    stream = torch.cuda.current_stream().cuda_stream if dst.is_cuda else 0
    assert found.plan.execute(*addresses, stream) == 0
    return bool((workspace[found.workspace_elements :] == 3.0).all())


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("lying", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_nothing_is_written_behind_the_workspace(device, monkeypatch, dtype, lying, layer):
    monkeypatch.setattr(_reasons, "of_speed", lambda *_: None)
    forget_plans()
    images, ci, size, co, k, s, p = layer
    x = torch.randn(images, ci, size, size, dtype=dtype, device=device).contiguous(memory_format=lying)
    weight = torch.randn(ci, co, k, k, dtype=dtype, device=device).contiguous(memory_format=lying)
    out = (size - 1) * s - 2 * p + k
    cotangent = torch.randn(images, co, out, out, dtype=dtype, device=device).contiguous(memory_format=lying)
    rest = [(s, s), (p, p), 1, (1, 1)]
    expected = torch.ops.aten.convolution_backward(
        cotangent.double(), x.double(), weight.double(), [co], *rest[:2], (1, 1), True, (0, 0), 1, (True, True, True)
    )
    diff_x, diff_weight, diff_bias = torch.empty_like(x), torch.empty_like(weight), cotangent.new_empty(co)
    data = _gradients.find_data(cotangent, weight, x.shape[2:], *rest, lying is torch.channels_last)
    assert execute(data, diff_x, weight, None, cotangent)
    weights = _gradients.find_weights(x, cotangent, weight.shape[2:], *rest, weight.stride())
    assert execute(weights, x, diff_weight, diff_bias, cotangent)
    for found, right in zip((diff_x, diff_weight, diff_bias), expected, strict=True):
        off = (found.double() - right).norm() / right.norm()
        assert off < (1e-2 if dtype is torch.bfloat16 else 1e-5)
    forget_plans()
