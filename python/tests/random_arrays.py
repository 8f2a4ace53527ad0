"""Random layers on arrays of every library."""

import importlib
import importlib.util
import itertools

import numpy as np

HAS_TORCH, HAS_JAX = (importlib.util.find_spec(name) is not None for name in ("torch", "jax"))
try:
    DTYPES = [
        np.dtype(name) for name in (np.float32, np.float64, np.float16, importlib.import_module("ml_dtypes").bfloat16)
    ]
except ImportError:
    DTYPES = [np.dtype(name) for name in (np.float32, np.float64, np.float16)]
INTEGERS = 2  # of small size: every sum is exact in float16
SENTINEL = 77
X, W = np.ones((2, 4, 5, 6), np.float32), np.ones((4, 3, 3, 2), np.float32)
Y = np.zeros((2, 3, 7, 7), np.float32)


def formula(x, weight, bias, stride, padding, output_padding, groups, dilation):
    """Each pixel times the weights, scattered, then cropped by the padding; all arguments for each axis."""
    n, ci, *extents = x.shape
    _, co, *kernel = weight.shape
    axes = list(zip(extents, kernel, stride, output_padding, dilation, strict=True))
    full = np.zeros((n, co * groups, *((i - 1) * s + d * (k - 1) + 1 + o for i, k, s, o, d in axes)))
    for g, tap in itertools.product(range(groups), itertools.product(*map(range, kernel))):
        inputs = slice(g * ci // groups, (g + 1) * ci // groups)
        reached = (slice(t * d, t * d + (i - 1) * s + 1, s) for t, (i, _, s, _, d) in zip(tap, axes, strict=True))
        part = full[(slice(None), slice(g * co, (g + 1) * co), *reached)]
        part += np.einsum("ni...,io->no...", x[:, inputs], weight[(inputs, slice(None), *tap)])
    sides = zip(full.shape[2:], padding, strict=True)
    full = full[(..., *(slice(before, size - after) for size, (before, after) in sides))]
    return full + bias.reshape(-1, *[1] * len(extents))


def channels_last(array):
    """The same numbers with the channels, the second axis, last in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


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
        return importlib.import_module("jax.numpy").asarray(array)
    torch = importlib.import_module("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def libraries_for(array):
    known = ["NumPy", "NumPy", "read-only"]
    if array.flags.aligned:
        known += ["DLPack"] * (array.dtype.name != "bfloat16")
        known += ["PyTorch"] * (HAS_TORCH and all(stride >= 0 for stride in array.strides))
    known += ["JAX"] * (HAS_JAX and array.dtype.name != "float64")
    return known


def as_float64(array):
    if type(array).__module__.startswith("torch"):
        return array.double().numpy()
    return np.asarray(getattr(array, "array", array)).astype(float)
