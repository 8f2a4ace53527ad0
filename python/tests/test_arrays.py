"""Random layers on arrays of every library, however they lie, against the formula of tconv.h in float64."""

import itertools

import numpy as np
import pytest

import tconv

LAYERS, IN_ONE_TEST = 1000, 50
INTEGERS = 2  # of small size: every sum is exact in float16
SENTINEL = 77


def formula(x, weight, bias, stride, padding, output_padding, groups, dilation):
    """Each pixel times the weights, scattered, then cropped by the padding; N, C, H, W, all arguments in pairs."""
    (sh, sw), ((top, bottom), (left, right)), (oh, ow), (dh, dw) = stride, padding, output_padding, dilation
    n, ci, h, w = x.shape
    _, co, kh, kw = weight.shape
    full = np.zeros((n, co * groups, (h - 1) * sh + dh * (kh - 1) + 1 + oh, (w - 1) * sw + dw * (kw - 1) + 1 + ow))
    for g, a, b in itertools.product(range(groups), range(kh), range(kw)):
        inputs = slice(g * ci // groups, (g + 1) * ci // groups)
        part = np.einsum("nihw,io->nohw", x[:, inputs], weight[inputs, :, a, b])
        rows, columns = slice(a * dh, a * dh + h * sh, sh), slice(b * dw, b * dw + w * sw, sw)
        full[:, g * co : (g + 1) * co, rows, columns][:, :, :h, :w] += part
    return full[:, :, top : full.shape[2] - bottom, left : full.shape[3] - right] + bias[:, None, None]


class Other:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Random:
    """Choices that make one layer and its arrays; choices is what was chosen, for the message of a failure."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.choices = []

    def pick(self, name, values):
        value = values[self.rng.integers(len(values))]
        self.choices.append((name, value))
        return value

    def integers(self, low, high, count):
        return tuple(int(i) for i in self.rng.integers(low, high + 1, count))

    def memory(self, name, shape, dtype):
        """An array of this shape and a larger one that it is a view of, which is full of the sentinel."""
        lying = self.pick(
            f"{name} lies", ["dense", "dense", "channels last", "any order", "slice", "every way", "unaligned"]
        )
        order = np.arange(len(shape))
        if lying == "channels last":
            order = np.roll(order, -1) if len(shape) < 4 and self.pick("first axis", [0, 1]) else order
            order[1:] = np.roll(order[1:], -1)
        elif lying in ("any order", "every way"):
            order = self.rng.permutation(order)
        steps, margins = np.ones(len(shape), int), np.zeros(len(shape), int)
        if lying == "slice":
            margins[self.rng.integers(min(2, len(shape)))] = 3
        elif lying == "every way":
            steps = self.rng.choice([1, 1, 2, -1, -2], len(shape))
            margins = self.rng.choice([0, 0, 2], len(shape))
        extents = [extent * abs(step) + margin for extent, step, margin in zip(shape, steps, margins, strict=True)]
        size = int(np.prod(extents))
        memory = np.empty(size * dtype.itemsize + 1, np.uint8)[lying == "unaligned" :][: size * dtype.itemsize]
        whole = memory.view(dtype).reshape([extents[axis] for axis in order]).transpose(np.argsort(order))
        whole[...] = SENTINEL
        view = whole
        for axis, (extent, step) in enumerate(zip(shape, steps, strict=True)):
            index = [slice(None)] * len(shape)
            index[axis] = slice(None, extent * step, step) if step > 0 else slice(None, -extents[axis] - 1, step)
            view = view[tuple(index)]
            index[axis] = slice(0, extent)
            view = view[tuple(index)]
        assert view.shape == tuple(shape)
        return whole, view

    def numbers(self, name, shape, dtype):
        _, view = self.memory(name, shape, dtype)
        view[...] = self.rng.integers(-INTEGERS, INTEGERS + 1, shape)
        return view

    def written(self, name, numbers):
        """A number or a pair of numbers in one of the ways in which a caller may write them."""
        numbers = np.asarray(numbers)
        as_one = numbers.size and (numbers == numbers.flat[0]).all()
        ways = ["tuple", "list", "array", "NumPy integers"] + ["int", "int", "0-d array"] * bool(as_one)
        way = self.pick(name, ways)
        if way == "int":
            return int(numbers.flat[0])
        if way == "0-d array":
            return np.array(numbers.flat[0], self.rng.choice(["i1", "u2", "i8"]))
        if way == "array":
            return numbers
        if way == "NumPy integers":
            return tuple(np.int32(i) if numbers.ndim == 1 else tuple(np.uint8(j) for j in i) for i in numbers)
        return tuple(map(tuple, numbers)) if numbers.ndim == 2 and way == "tuple" else numbers.tolist()


def bfloat16():
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)


def as_given(library, array):
    """The array as one of another library; that memory where the library allows it."""
    if library == "NumPy":
        return array
    if library == "read-only":
        view = array.view()
        view.flags.writeable = False
        return view
    if library == "DLPack":
        return Other(array)
    if library == "JAX":
        return pytest.importorskip("jax.numpy").asarray(array)
    torch = pytest.importorskip("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def libraries_for(array):
    known = ["NumPy", "NumPy", "read-only"]
    if array.flags.aligned:
        known += ["DLPack"] * (array.dtype.name != "bfloat16")
        known += ["PyTorch"] * all(stride >= 0 for stride in array.strides)
    known += ["JAX"] * (array.dtype.name != "float64")
    return known


def as_float64(array):
    if type(array).__module__.startswith("torch"):
        return array.double().numpy()
    return np.asarray(getattr(array, "array", array)).astype(float)


def check_one(random):
    pick, integers = random.pick, random.integers
    dtype = pick("dtype", [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), bfloat16()])
    spatial, batched = pick("spatial", [1, 2]), pick("batched", [True, True, False])
    groups = pick("groups", [1, 1, 2, 3])
    n, ci, co = pick("n", [1, 2, 0, 3]) if batched else 1, groups * pick("ci", [1, 2, 3]), pick("co", [1, 2, 4])
    extent, kernel = integers(1, 6, spatial), integers(1, 4, spatial)
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

    def four(array, axes):
        array = array.astype(float)
        array = array[None] if not batched and axes == "x" else array
        return array if spatial == 2 else array[:, :, None]

    def two(pair, neutral):
        return pair if spatial == 2 else (neutral, pair[0])

    expected = formula(
        four(x, "x"),
        four(weight, "weight"),
        np.zeros(co * groups) if bias is None else bias.astype(float),
        two(stride, 1),
        tuple(padding) if spatial == 2 else ((0, 0), padding[0]),
        two(output_padding, 0),
        groups,
        two(dilation, 1),
    )
    expected = expected[:, :, 0] if spatial == 1 else expected
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
        function = tconv.conv_transpose1d if spatial == 1 else tconv.conv_transpose2d
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
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    for seed in range(first, first + IN_ONE_TEST):
        random = Random([19, seed])
        try:
            check_one(random)
        except BaseException as error:
            error.add_note(f"seed {seed}: {random.choices}") if hasattr(error, "add_note") else print(random.choices)
            raise
