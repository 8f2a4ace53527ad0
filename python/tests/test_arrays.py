"""Random layers on arrays of every library, however they lie, against the formula of tconv.h in float64."""

import numpy as np
import pytest
from conftest import cuda_missing
from random_arrays import (
    DTYPES,
    INTEGERS,
    SENTINEL,
    Other,
    Random,
    W,
    X,
    Y,
    as_float64,
    as_given,
    formula,
    libraries_for,
)

import tconv

LAYERS, IN_ONE_TEST = 1000, 50
FUNCTIONS = {1: tconv.conv_transpose1d, 2: tconv.conv_transpose2d, 3: tconv.conv_transpose3d}


def check_one(random):
    pick, integers = random.pick, random.integers
    dtype = pick("dtype", DTYPES)
    spatial, batched = pick("spatial", [1, 2, 2, 3]), pick("batched", [True, True, False])
    groups = pick("groups", [1, 1, 2, 3])
    n, ci, co = pick("n", [1, 2, 0, 3]) if batched else 1, groups * pick("ci", [1, 2, 3]), pick("co", [1, 2, 4])
    extent, kernel = integers(1, 7 - spatial if spatial == 3 else 6, spatial), integers(1, 4 - (spatial == 3), spatial)
    stride, dilation = integers(1, 3, spatial), integers(1, 3, spatial)
    output_padding = tuple(integers(0, max(s, d) - 1, 1)[0] for s, d in zip(stride, dilation, strict=True))
    full = [
        (i - 1) * s + d * (k - 1) + 1 + o
        for i, k, s, d, o in zip(extent, kernel, stride, dilation, output_padding, strict=True)
    ]
    padding = []
    for size in full:
        before = integers(0, min(3, size - 1), 1)[0]
        padding.append((before, integers(0, min(3, size - 1 - before), 1)[0]))
    if all(2 * before < size for (before, _), size in zip(padding, full, strict=True)) and pick("alike", [True, False]):
        padding = [(before, before) for before, _ in padding]
    random.choices += [("sizes", (n, ci, co, extent, kernel, stride, padding, output_padding, dilation))]

    x = random.numbers("x", (*[n] * batched, ci, *extent), dtype)
    weight = random.numbers("weight", (ci, co, *kernel), dtype)
    bias = random.numbers("bias", (co * groups,), dtype) if pick("bias", [True, False]) else None

    expected = formula(
        (x if batched else x[None]).astype(float),
        weight.astype(float),
        np.zeros(co * groups) if bias is None else bias.astype(float),
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )
    expected = (expected if batched else expected[0]).astype(dtype).astype(float)

    symmetric = all(before == after for before, after in padding)
    sizes = dict(
        stride=random.written("stride", stride),
        padding=random.written("padding", [b for b, _ in padding] if symmetric and pick("pads", [0, 1]) else padding),
        output_padding=random.written("output_padding", output_padding),
        groups=pick("groups as", [groups, np.int64(groups), np.array(groups)]),
        dilation=random.written("dilation", dilation),
        threads=pick("threads", [None, 1, 2, np.int16(2)]),
    )
    given = {}
    for name, array in (("x", x), ("weight", weight), ("bias", bias)):
        given[name] = None if array is None else as_given(pick(f"{name} of", libraries_for(array)), array)
    whole = out = None
    if pick("out", [True, False]) or type(given["x"]) is Other:
        whole, view = random.memory("out", expected.shape, dtype)
        known = [library for library in libraries_for(view) if library not in ("JAX", "read-only")]
        out = as_given(pick("out of", known), view)
    if pick("by", ["function", "plan"]) == "plan":
        plan = tconv.Plan(x.shape, given["weight"], given["bias"], channels_last=pick("last", [True, False]), **sizes)
        assert plan.output_shape == expected.shape and plan.dtype == dtype.name
        result = plan(given["x"], out=out)
    else:
        function = FUNCTIONS[spatial]
        result = function(*given.values(), out=out, **sizes)
    if out is None:
        kind = np.ndarray if isinstance(given["x"], np.ndarray) else type(given["x"])
        assert type(result) is kind and str(result.dtype).endswith(dtype.name)
    else:
        assert result is out
    np.testing.assert_array_equal(as_float64(result), expected)
    if whole is not None:
        view[...] = SENTINEL
        assert (whole.astype(float) == SENTINEL).all(), "written beside out"


@pytest.mark.parametrize("first", range(0, LAYERS, IN_ONE_TEST))
def test_random_layers(first):
    for seed in range(first, first + IN_ONE_TEST):
        random = Random([19, seed])
        try:
            check_one(random)
        except BaseException as error:
            error.add_note(f"seed {seed}: {random.choices}") if hasattr(error, "add_note") else print(random.choices)
            raise


# ------------------------------------------------------------------------------------------------------ on the device

DEVICE_LAYERS = [
    (1, (2, 4, 9), (4, 3, 3), dict(stride=2, padding=((1, 0),), output_padding=1, dilation=2)),
    (1, (4, 9), (4, 2, 4), dict(stride=3, groups=2)),
    (2, (2, 4, 5, 6), (4, 3, 3, 2), dict(stride=(2, 1), padding=((0, 2), (1, 0)))),
    (2, (4, 5, 6), (4, 3, 4, 4), dict(stride=2, padding=1, groups=2)),
    (2, (3, 32, 8, 8), (32, 64, 4, 4), dict(stride=2, padding=1)),
    (3, (2, 4, 3, 4, 5), (4, 3, 2, 3, 2), dict(stride=(2, 1, 2), padding=((1, 0), (0, 2), (1, 0)), dilation=(1, 2, 1))),
    (3, (4, 3, 4, 2), (4, 3, 2, 2, 2), dict(stride=2, groups=2)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("layer", range(len(DEVICE_LAYERS)))
@pytest.mark.parametrize("channels_last", [False, True])
def test_layers_on_the_device(device, dtype, layer, channels_last):
    torch = pytest.importorskip("torch")
    spatial, x_shape, weight_shape, sizes = DEVICE_LAYERS[layer]
    rng = np.random.default_rng(layer)
    function = FUNCTIONS[spatial]
    x, weight, bias = (
        rng.integers(-INTEGERS, INTEGERS + 1, shape).astype(float)
        for shape in (x_shape, weight_shape, (weight_shape[1] * sizes.get("groups", 1),))
    )
    expected = torch.from_numpy(function(x, weight, bias, **sizes)).to(getattr(torch, dtype)).double()
    x, weight, bias = (torch.from_numpy(a).to(device, getattr(torch, dtype)) for a in (x, weight, bias))
    channel = x.dim() - spatial - 1
    if channels_last:
        x = x.movedim(channel, -1).contiguous().movedim(-1, channel)
    plan = tconv.Plan(x_shape, weight, bias, channels_last=channels_last, math="strict", **sizes)
    out = torch.full(expected.shape, float(SENTINEL), dtype=x.dtype, device=device)
    if channels_last:
        out = out.movedim(channel, -1).contiguous().movedim(-1, channel)
    results = [plan(x), plan(x, out=out), function(x, weight, bias, math="strict", **sizes)]
    assert results[1] is out and plan.implementation.startswith("cuda_" if device == "cuda" else "cpu_")
    weight.zero_(), bias.zero_()
    results += [plan(x)]
    for result in results:
        assert result.device == x.device and result.dtype == x.dtype
        assert torch.equal(result.double().cpu(), expected)
        if channels_last:
            assert result.movedim(channel, -1).is_contiguous()


@pytest.mark.parametrize("seed", range(20))
def test_random_layers_on_the_device(device, seed):
    """Of the plan, and of the function, into slices."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng([5, seed])
    spatial, groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    n, ci, co = (int(i) for i in rng.integers(1, 9, 3))
    extent, kernel = rng.integers(4, 12 if spatial < 3 else 6, spatial), rng.integers(1, 5, spatial)
    sizes = dict(stride=rng.integers(1, 4, spatial), dilation=rng.integers(1, 3, spatial), groups=groups)
    sizes["padding"] = rng.integers(0, 2, (spatial, 2))
    function = FUNCTIONS[spatial]
    x = rng.integers(-INTEGERS, INTEGERS + 1, (n, ci * groups, *extent)).astype(np.float32)
    weight = rng.integers(-INTEGERS, INTEGERS + 1, (ci * groups, co, *kernel)).astype(np.float32)
    expected = function(x, weight, **sizes)
    x, weight = torch.from_numpy(x).to(device), torch.from_numpy(weight).to(device)
    wide = torch.full((n, co * groups + 2, *expected.shape[2:]), float(SENTINEL), device=device)
    assert function(x, weight, out=wide[:, 1:-1], math="strict", **sizes).data_ptr() == wide[:, 1:-1].data_ptr()
    np.testing.assert_array_equal(wide[:, 1:-1].cpu(), expected)
    assert (wide[:, 0] == SENTINEL).all() and (wide[:, -1] == SENTINEL).all()
    np.testing.assert_array_equal(tconv.Plan(x.shape, weight, math="strict", **sizes)(x).cpu(), expected)


@pytest.mark.cuda
def test_plans_on_cuda():
    why = cuda_missing()
    if why:
        pytest.skip(f"this needs a GPU: {why}")
    import torch

    x, weight = torch.from_numpy(X).cuda(), torch.from_numpy(W).cuda()
    expected = torch.from_numpy(tconv.conv_transpose2d(X, W))
    plan = tconv.Plan(x.shape, weight)
    assert "CUDA device 0" in repr(plan)
    with pytest.raises(tconv.InvalidArgumentError, match="x is on the host: must be where the plan is"):
        plan(X)
    with pytest.raises(tconv.InvalidArgumentError, match="out is on the host"):
        plan(x, out=Y.copy())
    with pytest.raises(tconv.InvalidArgumentError, match=r"x\.strides"):
        plan(x.contiguous(memory_format=torch.channels_last))
    with pytest.raises(tconv.InvalidArgumentError, match=r"out\.strides"):
        plan(x, out=torch.empty(2, 5, 7, 7, device="cuda")[:, :3])
    with pytest.raises(tconv.InvalidArgumentError, match="weight must be an array on the CUDA device"):
        tconv.Plan(X.shape, W, backend="cuda")
    with pytest.raises(tconv.InvalidArgumentError, match="weight must be an array on the host"):
        tconv.Plan(X.shape, weight, backend="cpu")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        results = [plan(x) for _ in range(20)]
    stream.synchronize()
    assert all(torch.equal(result.cpu(), expected) for result in results)
    graph = torch.cuda.CUDAGraph()
    into = torch.zeros_like(results[0])
    with torch.cuda.graph(graph):
        plan(x, out=into)
    into.zero_()
    graph.replay()
    assert torch.equal(into.cpu(), expected)
