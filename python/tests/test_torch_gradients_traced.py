"""The operators of gradients under vmap and torch.compile."""

import functools

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.func import grad, vmap  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_differentiated import (  # noqa: E402
    DATA,
    LAYERS,
    OURS,
    THEIRS,
    WEIGHTS,
    counted,
    example,
    gradients_by,
    of_axes,
    of_data,
    of_weights,
    operands,
)

import tconv.torch as tt  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_anew", "deterministic")


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("operator", [of_data, of_weights])
def test_a_map_is_one_call(device, operator, layer, spatial):
    call, tensors = operator(spatial, layer, device)
    for dims in ((0, None), (None, 1), (0, 2), (-1, 0)):
        given = [t if d is None else torch.stack([t, -2 * t, 3 * t], d) for t, d in zip(tensors, dims, strict=True)]
        results, _, calls = counted(lambda: vmap(call, dims)(*given))  # noqa: B023
        parts = [
            call(*(t if d is None else t.select(d, i) for t, d in zip(given, dims, strict=True))) for i in range(3)
        ]
        expected = torch.stack(parts) if operator is of_data else tuple(map(torch.stack, zip(*parts, strict=True)))
        torch.testing.assert_close(results, expected)
        assert calls == 1


@pytest.mark.parametrize("wanted", [(False, True), (True, False), (True, True)], ids=str)
def test_maps_of_what_is_wanted(wanted):
    x, weight, diff_dst, rest = operands(2, LAYERS[3])

    def call(x, diff_dst):
        return WEIGHTS[2](x, diff_dst, weight.shape[2:], *rest, wanted, False)

    for dims in ((0, None), (None, 0), (0, 0)):
        if not wanted[0] and dims[1] is None:
            continue
        given = [t if d is None else torch.stack([t, 2 * t]) for t, d in zip((x, diff_dst), dims, strict=True)]
        results = vmap(call, dims)(*given)
        last = call(*(t if d is None else t[1] for t, d in zip(given, dims, strict=True)))
        for result, part, want in zip(results, last, wanted, strict=True):
            torch.testing.assert_close(result[1], part)
            assert (part.numel() > 0) == want


def test_gradients_of_each_sample(device):
    """One call of each operation for the whole batch, the samples as groups."""
    x, weight, bias = (t.detach() for t in example(2, LAYERS[3], device=device, make=torch.randn))
    images = torch.stack([x, -x, 2 * x])

    def loss(f, weight, bias, x):
        return f(x, weight, bias, **LAYERS[3]).pow(2).sum()

    results = []
    for f in (tt.conv_transpose2d, F.conv_transpose2d):
        each = vmap(grad(functools.partial(loss, f), (0, 1)), (None, None, 0))
        answer, forward, backward = counted(lambda: each(weight, bias, images))  # noqa: B023
        results.append(answer)
        if f is tt.conv_transpose2d:
            assert (forward, backward) == (1, 1)
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_graphs_have_the_operators(device, dynamic, spatial):
    graphs = []

    def keep(module, inputs):
        graphs.append([node.target for node in module.graph.nodes if node.op == "call_function"])
        return module.forward

    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    layer = of_axes(LAYERS[1], spatial)
    tensors = example(spatial, layer, device=device)
    compiled = torch.compile(
        functools.partial(OURS[spatial], **layer), backend=backend, fullgraph=True, dynamic=dynamic
    )
    ours, cotangent = gradients_by(compiled, tensors, {})
    expected, _ = gradients_by(THEIRS[spatial], tensors, layer, cotangent)
    for a, b in zip(ours, expected, strict=True):
        assert torch.equal(a, b)
    backward = [target for target in graphs[-1] if "conv" in str(target)]
    assert backward == [DATA[spatial].default, WEIGHTS[spatial].default]


def test_compiled_by_inductor(device):
    layer = torch.nn.Sequential(tt.ConvTranspose2d(4, 3, 3, stride=2), torch.nn.ReLU()).to(device)
    x = torch.randn(2, 4, 5, 6, device=device).contiguous(memory_format=torch.channels_last).requires_grad_()
    tensors = [x, *layer.parameters()]
    results = [torch.autograd.grad(f(x).square().sum(), tensors) for f in (torch.compile(layer, fullgraph=True), layer)]
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("operator", [of_data, of_weights])
def test_opcheck(device, operator, spatial):
    _, tensors = operator(spatial, LAYERS[3], device)
    x, weight, _, rest = operands(spatial, LAYERS[3], device)
    for channels_last in (False, True) if spatial > 1 else (False,):
        if operator is of_data:
            checked, sizes = DATA[spatial].default, [list(x.shape[2:]), *rest, channels_last]
        else:
            checked, sizes = WEIGHTS[spatial].default, [list(weight.shape[2:]), *rest, [True, True], channels_last]
        torch.library.opcheck(checked, (*(t.detach().requires_grad_() for t in tensors), *sizes))


@pytest.mark.parametrize("operator", [of_data, of_weights])
def test_decompositions(operator):
    call, tensors = operator(2, LAYERS[2])
    graph = make_fx(call, decomposition_table=tt.decompositions())(*tensors)
    assert "tconv" not in str(graph.graph) and "convolution_backward" in str(graph.graph)
    torch.testing.assert_close(graph(*tensors), call(*tensors))
