"""What the tests of gradients share."""

import torch
import torch.nn.functional as F

import tconv.torch as tt

SPATIAL = (1, 2, 3)
OURS = {1: tt.conv_transpose1d, 2: tt.conv_transpose2d, 3: tt.conv_transpose3d}
THEIRS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
DATA = {spatial: getattr(torch.ops.tconv, f"conv_transpose{spatial}d_backward_data") for spatial in SPATIAL}
WEIGHTS = {spatial: getattr(torch.ops.tconv, f"conv_transpose{spatial}d_backward_weights") for spatial in SPATIAL}
CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
# The extents of inputs and kernels.
EXTENTS = {1: (5,), 2: (4, 5), 3: (3, 2, 3)}
KERNELS = {1: (2,), 2: (3, 2), 3: (2, 3, 2)}

# Of 2-D layers; of_axes makes others of them.
LAYERS = [
    dict(),
    dict(stride=(2, 3), padding=(1, 0), output_padding=(1, 2)),
    dict(stride=(2, 1), dilation=(3, 2), output_padding=(2, 1), padding=(0, 2)),  # output_padding >= stride
    dict(stride=(3, 2), groups=2),  # outputs without a tap
    dict(groups=4, dilation=(1, 2), stride=(2, 2)),
]


OF_PLANES = dict(stride=2, padding=1, output_padding=1, dilation=1)


def of_axes(layer, spatial):
    """The arguments of a 1-D layer, or of one that has planes as well."""
    return {
        name: (OF_PLANES[name], *value)[-spatial:] if isinstance(value, tuple) else value
        for name, value in layer.items()
    }


def integers(*shape, dtype=torch.float64, device="cpu"):
    return torch.randint(-4, 5, shape, device=device).to(dtype)


def example(spatial, layer, dtype=torch.float64, device="cpu", make=integers):
    groups = layer.get("groups", 1)
    shapes = ((2, 4, *EXTENTS[spatial]), (4, 2, *KERNELS[spatial]), (2 * groups,))
    return [make(*shape, dtype=dtype, device=device).requires_grad_() for shape in shapes]


def gradients_by(function, tensors, layer, cotangent=None, **more):
    result = function(*tensors, **layer)
    cotangent = integers(*result.shape, dtype=result.dtype, device=result.device) if cotangent is None else cotangent
    return torch.autograd.grad(result, tensors, cotangent, **more), cotangent


def counted(function):
    """The answer, how many calls of the layer there were for it, and how many of gradients."""
    before = tt.counters()
    answer = function()
    after = tt.counters()
    return answer, after.taken - before.taken, after.gradients - before.gradients


def second_order(call, tensors):
    first = torch.autograd.grad(call(*tensors).pow(3).sum(), tensors, create_graph=True)
    return torch.autograd.grad(sum(t.square().sum() for t in first), tensors)


def operands(spatial, layer, device="cpu"):
    """Of both operators: tensors, and what follows them."""
    layer = of_axes(layer, spatial)
    x, weight, bias = (t.detach() for t in example(spatial, layer, device=device, make=torch.randn))
    diff_dst = torch.randn_like(THEIRS[spatial](x, weight, bias, **layer))
    ones, zeros = (1,) * spatial, (0,) * spatial
    rest = [layer.get("stride", ones), layer.get("padding", zeros), layer.get("groups", 1), layer.get("dilation", ones)]
    return x, weight, diff_dst, rest


def of_data(spatial, layer, device="cpu"):
    x, weight, diff_dst, rest = operands(spatial, layer, device)
    return lambda *t: DATA[spatial](*t, x.shape[2:], *rest, False), [diff_dst, weight]


def of_weights(spatial, layer, device="cpu"):
    x, weight, diff_dst, rest = operands(spatial, layer, device)
    return lambda *t: WEIGHTS[spatial](*t, weight.shape[2:], *rest, [True, True], False), [x, diff_dst]
