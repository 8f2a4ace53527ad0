"""Random layers on arrays of every library, however they lie, against the formula of tconv.h in float64."""

import copy
import ctypes
import importlib
import importlib.util
import itertools
import pickle
import sys
import threading
import types
import weakref

import numpy as np
import pytest
from conftest import cuda_missing

import tconv
from tconv import _host, _library, _plan

LAYERS, IN_ONE_TEST = 1000, 50
HAS_TORCH, HAS_JAX = (importlib.util.find_spec(name) is not None for name in ("torch", "jax"))
try:
    DTYPES = [
        np.dtype(name) for name in (np.float32, np.float64, np.float16, importlib.import_module("ml_dtypes").bfloat16)
    ]
except ImportError:
    DTYPES = [np.dtype(name) for name in (np.float32, np.float64, np.float16)]
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


def check_one(random):
    pick, integers = random.pick, random.integers
    dtype = pick("dtype", DTYPES)
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
    for seed in range(first, first + IN_ONE_TEST):
        random = Random([19, seed])
        try:
            check_one(random)
        except BaseException as error:
            error.add_note(f"seed {seed}: {random.choices}") if hasattr(error, "add_note") else print(random.choices)
            raise


# ------------------------------------------------------------------------------------------------------------- refusals

X, W = np.ones((2, 4, 5, 6), np.float32), np.ones((4, 3, 3, 2), np.float32)
Y = np.zeros((2, 3, 7, 7), np.float32)


def read_only(array):
    view = array.view()
    view.flags.writeable = False
    return view


NO_INTEGERS = [True, np.True_, np.array(True), 1.0, np.float32(1), np.array(1.0), "1", b"1", None, {1}, 1j, "same"]
NO_PAIRS = [
    (),
    (1,),
    (1, 1, 1),
    np.array([1]),
    np.ones((2, 2, 2), int),
    [True, 1],
    (1, 1.0),
    np.array([1.0, 1.0]),
    "ab",
]
NO_ARRAYS = [
    X.tolist(),
    1.0,
    np.float32(1),
    "x",
    X.astype(object),
    X.astype(str),
    X.astype("S"),
    X.astype(">f4"),
    X.astype(int),
    X.astype(bool),
    X.astype(complex),
    X.astype("m8"),
    X.astype(np.longdouble),
    np.zeros(X.shape, [("a", "f4")]),
    np.ma.masked_array(X, X > 0),
    np.ma.masked_array(X),
    memoryview(X),
    np.ones((4, 5), np.float32),
    np.ones((1, 2, 4, 5, 6), np.float32),
    np.ones((2, 0, 5, 6), np.float32),
    np.ones((2, 4, 0, 6), np.float32),
    np.ones((2, 4, 5, 0), np.float32),
]
MISTAKES = {
    "stride": [*NO_INTEGERS, *NO_PAIRS, 0, -1, (1, 0), 2**64, [2**63, 1]],
    "padding": [*NO_INTEGERS, *NO_PAIRS, -1, (0, -1), ((0, -1), (0, 0)), ((0, 0, 0), (0, 0)), ((), (1, 1)), 2**64, 9],
    "output_padding": [*NO_INTEGERS, *NO_PAIRS, -1, 1, ((0, 0), (0, 0))],
    "dilation": [*NO_INTEGERS, *NO_PAIRS, 0, -1, 2**62],
    "groups": [*NO_INTEGERS, *NO_PAIRS, 0, -1, 3, 2**62, (1, 1)],
    "threads": [*(v for v in NO_INTEGERS if v is not None), 0, -1, 65537, 2**32 + 1, (1, 1)],
    "backend": ["gpu", None, 1, ["cpu"], b"cpu", True],
    "math": ["fast", None, 1, {}],
    "x": [*NO_ARRAYS, None],
    "weight": [*NO_ARRAYS, None, W[:3], W[0], W[:, :0], W[:, :, :0], W[:, :, :, :0]],
    "bias": [*NO_ARRAYS, W[0, :, 0, 0].tolist(), np.ones(4, np.float32), np.ones((3, 1), np.float32), np.ones(3)],
    "out": [
        *NO_ARRAYS,
        Y[0],
        Y[..., :-1],
        Y.astype(float),
        read_only(Y),
        np.broadcast_to(Y[:1], Y.shape),
        Other(read_only(Y)),
    ],
}
# by what other names the library and this package speak of an argument
FIELDS = {
    "stride": ["stride_h", "stride_w"],
    "padding": ["pad_top", "pad_left", "pad_bottom", "pad_right", "out_h", "out_w"],
    "output_padding": ["output_padding_h", "output_padding_w"],
    "dilation": ["dilation_h", "dilation_w", "out_h"],
    "x": ["weight", "in_channels", "in_h", "in_w"],
    "weight": ["out_channels", "kernel_h", "kernel_w", "bias", "x_shape"],
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("by", ["function", "plan"])
def test_mistakes_name_the_argument(name, by):
    for wrong in MISTAKES[name]:
        given = {"x": X, "weight": W, "bias": np.ones(3, np.float32), "out": Y.copy(), name: wrong}
        if name == "dilation":
            given["out"] = None
        with pytest.raises(tconv.TconvError) as raised:
            if by == "function":
                tconv.conv_transpose2d(**given)
            else:
                x, out = given.pop("x"), given.pop("out")
                tconv.Plan(X.shape, **given)(x, out=out)
            pytest.fail(f"{name} = {wrong!r} was taken")
        error = raised.value
        assert error.field in [name, *FIELDS.get(name, [])], (wrong, error.field, error)
        assert error.field in error.message and error.message != error.field


@pytest.mark.parametrize("name", ["stride", "padding", "output_padding", "dilation", "groups", "threads"])
def test_what_is_no_integer_is_a_type_error(name):
    for wrong in [value for value in NO_INTEGERS if value is not None or name != "threads"]:
        with pytest.raises(TypeError, match=f"{name} = .*: must be an integer"):
            tconv.conv_transpose2d(X, W, **{name: wrong})
    torch = pytest.importorskip("torch")
    for wrong in (torch.tensor(True), torch.tensor(1.0)):
        with pytest.raises(TypeError, match=f"{name} = .*: must be an integer"):
            tconv.conv_transpose2d(X, W, **{name: wrong})


@pytest.mark.parametrize(
    "padding", [(1, 1), (1, 2), ((1, 2), (3, 4)), (), (1, 1, 1), [[1]], [[1, 2, 3]], True, 1.0, None, "same"]
)
def test_padding_of_one_dimension_is_never_guessed(padding):
    with pytest.raises(tconv.TconvError, match="padding"):
        tconv.conv_transpose1d(X[0], W[..., 0], padding=padding)


def test_ranks_of_one_dimension():
    with pytest.raises(tconv.InvalidArgumentError, match="x has 4 axes"):
        tconv.conv_transpose1d(X, W[..., 0])
    with pytest.raises(tconv.InvalidArgumentError, match=r"weight.ndim = 4"):
        tconv.conv_transpose1d(X[0], W)
    with pytest.raises(tconv.InvalidArgumentError, match=r"out.shape = \(3, 1, 7\): must be \(3, 7\)"):
        tconv.conv_transpose1d(X[0, :, 0], W[:, :, 0], stride=1, padding=0, out=np.zeros((3, 1, 7), np.float32))


def test_two_elements_of_out_in_one_place():
    for strides in [(0, 196, 28, 4), (588, 4, 28, 4), (588, 196, 24, 4)]:
        out = np.lib.stride_tricks.as_strided(np.zeros(2 * 3 * 7 * 7, np.float32), Y.shape, strides)
        with pytest.raises(tconv.InvalidArgumentError, match=r"out\.strides"):
            tconv.conv_transpose2d(X, W, out=out)


def test_masks_say_what_to_do():
    with pytest.raises(tconv.DtypeError, match=r"give x.filled\(value\)"):
        tconv.conv_transpose2d(np.ma.masked_array(X, X > 0), W)


def test_no_memory_is_an_error_of_ours():
    """2**46 elements, more than there are addresses."""
    x, weight = np.ones((1, 1, 2, 2), np.float16), np.ones((1, 1, 1, 1), np.float16)
    torch = pytest.importorskip("torch")
    for library in (np.asarray, torch.from_numpy):
        with pytest.raises(tconv.OutOfMemoryError) as raised:
            tconv.conv_transpose2d(library(x), library(weight), stride=2**23 - 1)
        assert raised.value.field == "out"
        with pytest.raises(tconv.OutOfMemoryError):
            tconv.Plan(x.shape, library(weight), stride=2**23 - 1)(library(x))


# ------------------------------------------------------------------------------------------------------ other libraries


def test_what_dlpack_would_change_without_a_word():
    torch = pytest.importorskip("torch")
    negated = torch.complex(torch.ones(2, 4, 5, 6), torch.ones(2, 4, 5, 6)).conj().imag
    weight = torch.from_numpy(W)
    with pytest.raises(tconv.InvalidArgumentError, match="resolve_neg"):
        tconv.conv_transpose2d(negated, weight)
    assert (tconv.conv_transpose2d(negated.resolve_neg(), weight) < 0).all()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.from_numpy(X), torch.ones(X.shape))
        with pytest.raises(tconv.InvalidArgumentError, match="tangent"):
            tconv.conv_transpose2d(dual, weight)
        assert tconv.conv_transpose2d(torch.from_numpy(X), weight).shape == Y.shape


def test_subclasses_of_pytorch_are_its_tensors():
    torch = pytest.importorskip("torch")

    class Mine(torch.Tensor):
        pass

    x, weight = torch.from_numpy(X).as_subclass(Mine), torch.from_numpy(W)
    result = tconv.conv_transpose2d(x, weight)
    np.testing.assert_array_equal(result.numpy(), tconv.conv_transpose2d(X, W))
    with pytest.raises(tconv.InvalidArgumentError, match="resolve_neg"):
        tconv.conv_transpose2d(torch._neg_view(x), weight)


def test_what_pytorch_does_not_hand_over():
    torch = pytest.importorskip("torch")
    x, weight = torch.from_numpy(X), torch.from_numpy(W)
    fake = torch._subclasses.FakeTensorMode().from_tensor(x)
    for wrong in (x.clone().requires_grad_(), x.to("meta"), x.to_sparse(), x.to(torch.cfloat).conj(), fake):
        with pytest.raises(tconv.TconvError, match=r"^x"):
            tconv.conv_transpose2d(wrong, weight)
    for transform in (torch.func.vmap, lambda f: torch.func.grad(lambda a: f(a).sum())):
        with pytest.raises(tconv.TconvError, match=r"^x"):
            transform(lambda a: tconv.conv_transpose2d(a, weight))(x)


def test_jax_arrays_are_never_written_to():
    jnp = pytest.importorskip("jax.numpy")
    out = jnp.zeros(Y.shape)
    with pytest.raises(tconv.InvalidArgumentError, match="read-only") as raised:
        tconv.conv_transpose2d(X, W, out=out)
    assert raised.value.field == "out" and not out.any()
    with pytest.raises(tconv.InvalidArgumentError, match="read-only"):
        tconv.Plan(X.shape, W)(X, out=out)
    result = tconv.conv_transpose2d(jnp.asarray(X), jnp.asarray(W))
    assert type(result) is type(out)
    np.testing.assert_array_equal(result, tconv.conv_transpose2d(X, W))


def test_jax_arrays_of_float64_stay_so():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        x, weight = jax.numpy.asarray(X.astype(float)), jax.numpy.asarray(W.astype(float))
        assert tconv.conv_transpose2d(x, weight).dtype == np.float64
    with pytest.raises(tconv.DtypeError, match="jax_enable_x64"):
        tconv.conv_transpose2d(x, weight)
    assert tconv.conv_transpose2d(x, weight, out=Y.astype(float)).any()


def test_under_jax_transforms():
    jax = pytest.importorskip("jax")
    x, weight = jax.numpy.asarray(X), jax.numpy.asarray(W)
    for transform in (jax.jit, lambda f: jax.grad(lambda a: f(a).sum()), jax.vmap, jax.make_jaxpr):
        for call in (lambda a: tconv.conv_transpose2d(a, weight), lambda a: tconv.Plan(X.shape, weight)(a)):
            with pytest.raises(tconv.InvalidArgumentError, match="pure_callback") as raised:
                transform(call)(x)
            assert raised.value.field == "x"
    with pytest.raises(tconv.TconvError, match="stride"):
        jax.jit(lambda s: tconv.conv_transpose2d(X, W, stride=s))(2)

    def call_back(a):
        like = jax.ShapeDtypeStruct(Y.shape, a.dtype)
        return jax.pure_callback(lambda b: tconv.conv_transpose2d(np.asarray(b), W), like, a)

    np.testing.assert_array_equal(jax.jit(call_back)(x), tconv.conv_transpose2d(X, W))


class Cupys(Other):
    """What a cupy.ndarray has, which has no __array_namespace__; in the host's memory."""

    __module__ = "cupy"
    entered = 0

    @property
    def dtype(self):
        return self.array.dtype

    @property
    def device(self):
        return self

    def __enter__(self):
        Cupys.entered += 1

    def __exit__(self, *error):
        return None

    def __getitem__(self, index):
        return Cupys(self.array[index])

    def transpose(self, axes):
        return Cupys(self.array.transpose(axes))


@pytest.mark.parametrize("channels_last", [False, True])
def test_arrays_are_made_as_cupy_makes_them(monkeypatch, channels_last):
    """On the device of x. This has never seen a GPU: CuPy itself is not among what the tests are run with."""
    cupy = types.ModuleType("cupy")
    cupy.empty = lambda shape, dtype: Cupys(np.empty(shape, dtype))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    x, weight = np.asfortranarray(X[0, :, 0]) if channels_last else X[0, :, 0], W[:, :, 0]
    entered = Cupys.entered
    result = tconv.conv_transpose1d(Cupys(x), Cupys(weight))
    assert type(result) is Cupys and Cupys.entered == entered + 1
    assert result.array.flags.f_contiguous == channels_last
    np.testing.assert_array_equal(result.array, tconv.conv_transpose1d(x, weight))


def test_memory_made_for_the_call_lives_as_long_as_it_is_read(monkeypatch):
    class Fresh(Other):
        def __dlpack__(self, **options):
            memory = self.array.copy()
            capsule = memory.__dlpack__(**options)
            alive.append(weakref.ref(memory))
            return capsule

    def execute(*arguments):
        assert alive and all(memory() is not None for memory in alive)
        real(*arguments)

    alive, real = [], _host.execute
    monkeypatch.setattr(_host, "execute", execute)
    tconv.conv_transpose2d(Fresh(X), Fresh(W), Fresh(np.ones(3, np.float32)), out=Y.copy())
    assert len(alive) == 3 and all(memory() is None for memory in alive)


def test_subclasses_of_numpy_come_back_as_plain_arrays():
    class Named(np.ndarray):
        @property
        def __array_interface__(self):
            raise AssertionError("the subclass was asked")

    assert type(tconv.conv_transpose1d(X[0, :, 0].view(Named), W[:, :, 0].view(Named))) is np.ndarray


# ---------------------------------------------------------------------------------------------------- threads and plans


def described(plan):
    text = ctypes.create_string_buffer(1024)
    assert _library.library().tconv_plan_describe(plan._handle, text, len(text), None) == 0
    return text.value.decode()


def test_threads():
    expected = tconv.conv_transpose2d(X, W)
    _host.prepared_layers.clear()
    np.testing.assert_array_equal(tconv.conv_transpose2d(X, W), expected)
    np.testing.assert_array_equal(tconv.conv_transpose2d(X, W, threads=1), expected)
    assert len(_host.prepared_layers) == 2
    *_, last = _host.prepared_layers._values.values()
    assert "threads=1 " in described(last.plan)
    assert "threads=1 " in described(tconv.Plan(X.shape, W, threads=1)._packed.plan)


def test_a_plan_keeps_what_it_was_made_of():
    weight, bias = W.copy(), np.ones(3, np.float32)
    plan = tconv.Plan(X.shape, weight, bias)
    expected = tconv.conv_transpose2d(X, weight, bias)
    weight[...] = bias[...] = 9
    np.testing.assert_array_equal(plan(X), expected)


def test_a_plan_says_what_it_is():
    plan = tconv.Plan((np.int64(4), 9), W[..., 0], stride=2, padding=((1, 0),), channels_last=True)
    assert plan.input_shape == (4, 9) and plan.output_shape == (3, 18) and plan.dtype == "float32"
    assert plan.implementation.startswith("cpu_") and isinstance(plan.workspace_size, int)
    for part in (
        "(4, 9) -> (3, 18)",
        "stride=(2,)",
        "padding=((1, 0),)",
        "float32",
        "channels last",
        plan.implementation,
    ):
        assert part in repr(plan)
    for name in ("input_shape", "implementation", "workspace_size", "anything"):
        with pytest.raises(AttributeError):
            setattr(plan, name, 1)


def test_a_plan_lies_as_it_was_asked_to():
    own = tconv.Plan(X.shape, W)(X)
    assert own.flags.c_contiguous and own.flags.owndata
    result = tconv.Plan(X.shape, W, channels_last=True)(X)
    assert result.transpose(0, 2, 3, 1).flags.c_contiguous
    np.testing.assert_array_equal(result, tconv.conv_transpose2d(X, W))


def test_a_plan_refuses_what_it_was_not_made_for():
    plan = tconv.Plan(X.shape, W)
    for x, why in ((X[:1], "x.shape = "), (X[0], "x.shape = "), (X.astype(float), "x is float64")):
        with pytest.raises(tconv.InvalidArgumentError, match=why) as raised:
            plan(x)
        assert raised.value.field == "x"
    for shape, field in ((3, "x_shape"), ((4, 5), "x_shape"), ((2, 4, 5.0, 6), "x_shape"), ((2, 4, -5, 6), "in_h")):
        with pytest.raises(tconv.TconvError) as raised:
            tconv.Plan(shape, W)
        assert raised.value.field == field and field in raised.value.message
    with pytest.raises(tconv.DtypeError, match="channels_last = 1"):
        tconv.Plan(X.shape, W, channels_last=1)


def test_a_plan_is_its_own_copy_and_no_pickle():
    plan = tconv.Plan(X.shape, W)
    assert copy.copy(plan) is plan and copy.deepcopy([plan])[0] is plan
    with pytest.raises(TypeError, match="make it anew"):
        pickle.dumps(plan)


def test_a_dropped_plan_frees_both_of_the_library(monkeypatch):
    destroyed = []
    real = _plan.Plan.__del__
    monkeypatch.setattr(_plan.Plan, "__del__", lambda plan: (destroyed.append(plan._handle), real(plan)))
    plan = tconv.Plan(X.shape, W)
    assert len(destroyed) == 1  # that from which it was packed
    del plan
    assert len(set(destroyed)) == 2


def test_threads_share_a_plan():
    plan = tconv.Plan(X.shape, W, channels_last=True)
    inputs = [np.full(X.shape, i, np.float32) for i in range(8)]
    expected = [tconv.conv_transpose2d(x, W) for x in inputs]
    wrong = []

    def work(seed):
        for i in np.random.default_rng(seed).integers(0, len(inputs), 200):
            if not np.array_equal(plan(inputs[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_plans_of_plain_calls_are_not_forgotten_references():
    """Results hold nothing of the plan, and the plan nothing of its arrays."""
    x = X.copy()
    before = sys.getrefcount(x)
    plan = tconv.Plan(X.shape, W)
    for _ in range(3):
        plan(x, out=Y.copy())
    assert sys.getrefcount(x) == before


# ------------------------------------------------------------------------------------------------------ on the device

DEVICE_LAYERS = [
    (1, (2, 4, 9), (4, 3, 3), dict(stride=2, padding=((1, 0),), output_padding=1, dilation=2)),
    (1, (4, 9), (4, 2, 4), dict(stride=3, groups=2)),
    (2, (2, 4, 5, 6), (4, 3, 3, 2), dict(stride=(2, 1), padding=((0, 2), (1, 0)))),
    (2, (4, 5, 6), (4, 3, 4, 4), dict(stride=2, padding=1, groups=2)),
    (2, (3, 32, 8, 8), (32, 64, 4, 4), dict(stride=2, padding=1)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("layer", range(len(DEVICE_LAYERS)))
@pytest.mark.parametrize("channels_last", [False, True])
def test_layers_on_the_device(device, dtype, layer, channels_last):
    torch = pytest.importorskip("torch")
    spatial, x_shape, weight_shape, sizes = DEVICE_LAYERS[layer]
    rng = np.random.default_rng(layer)
    function = tconv.conv_transpose1d if spatial == 1 else tconv.conv_transpose2d
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
    spatial, groups = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    n, ci, co = (int(i) for i in rng.integers(1, 9, 3))
    extent, kernel = rng.integers(4, 12, spatial), rng.integers(1, 5, spatial)
    sizes = dict(stride=rng.integers(1, 4, spatial), dilation=rng.integers(1, 3, spatial), groups=groups)
    sizes["padding"] = rng.integers(0, 2, (spatial, 2))
    function = tconv.conv_transpose1d if spatial == 1 else tconv.conv_transpose2d
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
