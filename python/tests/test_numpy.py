"""conv_transpose2d and conv_transpose3d on NumPy arrays, against the formula of tconv.h in float64."""

import ctypes
import itertools
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from random_arrays import Other, channels_last
from random_arrays import formula as of_numbers

import tconv
from tconv import _cuda, _dlpack, _host, _layer, _library, _plan

INTEGERS = 4  # of small size: every sum is exact in every dtype


def formula(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """That of random_arrays.py, with one number for all axes or one for each."""
    spatial = x.ndim - 2

    def each(value):
        return (value,) * spatial if np.isscalar(value) else tuple(value)

    bias = np.zeros(weight.shape[1] * groups) if bias is None else bias.astype(float)
    sides, numbers = [(p, p) for p in each(padding)], x.astype(float)
    return of_numbers(
        numbers, weight.astype(float), bias, each(stride), sides, each(output_padding), groups, each(dilation)
    )


def numbers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-INTEGERS, INTEGERS + 1, shape).astype(dtype)


LAYERS = [
    dict(),
    dict(stride=2, padding=1),
    dict(stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(2, 1)),
    dict(stride=3, groups=2, dilation=2),
    dict(stride=[2, 1], groups=4),
]
LAYERS_3D = [
    *LAYERS[:2],
    LAYERS[3],
    dict(stride=(2, 1, 3), padding=(1, 0, 2), output_padding=(1, 1, 2), dilation=(1, 2, 1)),
    dict(stride=[1, 3, 2], groups=4, dilation=(3, 1, 1)),
]
FUNCTIONS = {2: tconv.conv_transpose2d, 3: tconv.conv_transpose3d}
SHAPES = {2: ((2, 4, 5, 6), (4, 3, 3, 2)), 3: ((2, 4, 3, 2, 4), (4, 3, 2, 3, 2))}  # of x and weight


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("spatial, layer", [(2, each) for each in LAYERS] + [(3, each) for each in LAYERS_3D], ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
def test_is_the_formula(spatial, layer, dtype, with_bias):
    x, weight = (numbers(shape, dtype) for shape in SHAPES[spatial])
    bias = numbers((3 * layer.get("groups", 1),), dtype) if with_bias else None
    result = FUNCTIONS[spatial](x, weight, bias, **layer)
    expected = formula(x, weight, bias, **layer)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected.astype(dtype))


def test_bfloat16_where_numpy_has_it():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x, weight = numbers((1, 4, 5, 6), bfloat16), numbers((4, 3, 3, 2), bfloat16)
    result = tconv.conv_transpose2d(x, weight)
    assert result.dtype == bfloat16
    np.testing.assert_array_equal(result.astype(float), formula(x, weight).astype(bfloat16).astype(float))


LYING = {
    "dense": lambda a: a,
    "nhwc": channels_last,
    "fortran": np.asfortranarray,
    "reversed": lambda a: np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1],
    "every other column": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "some channels": lambda a: np.concatenate([a, a], axis=1)[:, : a.shape[1]],
    "images that overlap": lambda a: np.lib.stride_tricks.as_strided(a, strides=(a.strides[1], *a.strides[1:])),
    "repeated": lambda a: np.broadcast_to(a[:1, :1], a.shape),
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("spatial", [2, 3])
@pytest.mark.parametrize("lying", LYING)
def test_any_strides(lying, spatial):
    x, weight = (LYING[lying](numbers(shape)) for shape in SHAPES[spatial])
    result = FUNCTIONS[spatial](x, weight, stride=2)
    np.testing.assert_array_equal(result, formula(x, weight, stride=2))


@pytest.mark.parametrize("spatial", [2, 3])
def test_result_lies_as_x_does(spatial):
    x, weight = map(numbers, SHAPES[spatial])
    assert FUNCTIONS[spatial](x, weight).flags.c_contiguous
    assert np.moveaxis(FUNCTIONS[spatial](LYING["nhwc"](x), weight), 1, -1).flags.c_contiguous


@pytest.mark.parametrize("spatial", [2, 3])
def test_one_image_without_its_axis(spatial):
    x, weight = map(numbers, SHAPES[spatial])
    expected = formula(x[1:], weight)[0]
    out = np.full(expected.shape, 9, np.float32)
    assert FUNCTIONS[spatial](x[1], weight, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(FUNCTIONS[spatial](x[1], weight), out)


def test_no_images():
    assert tconv.conv_transpose2d(numbers((0, 4, 5, 6)), numbers((4, 3, 3, 2))).shape == (0, 3, 7, 7)
    assert tconv.conv_transpose3d(numbers((0, 4, 2, 5, 6)), numbers((4, 3, 2, 3, 2))).shape == (0, 3, 3, 7, 7)


@pytest.mark.parametrize("spatial", [2, 3])
@pytest.mark.parametrize("lying", ["dense", "nhwc", "fortran", "reversed", "every other column", "some channels"])
def test_out_as_it_lies(lying, spatial):
    x, weight = map(numbers, SHAPES[spatial])
    expected = formula(x, weight)
    out = LYING[lying](np.full(expected.shape, 9, np.float32))
    assert FUNCTIONS[spatial](x, weight, out=out) is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("spatial", [2, 3])
def test_out_in_a_slice_leaves_the_rest(spatial):
    x, weight = map(numbers, SHAPES[spatial])
    expected = formula(x, weight)
    whole = np.full((2, 8, *expected.shape[2:]), 9, np.float32)
    FUNCTIONS[spatial](x, weight, out=whole[:, 2:5])
    np.testing.assert_array_equal(whole[:, 2:5], formula(x, weight))
    assert (whole[:, :2] == 9).all() and (whole[:, 5:] == 9).all()


def test_out_that_overlaps_x():
    x, weight = numbers((1, 2, 64, 64)), numbers((2, 2, 3, 3))
    expected = formula(x, weight, padding=1)
    tconv.conv_transpose2d(x, weight, padding=1, out=x)
    np.testing.assert_array_equal(x, expected)


# ------------------------------------------------------------------------------------------------- ambiguous layouts

# Shapes of up to two of everything: with one channel or one pixel a tensor lies in NCHW and in NHWC at once.
SMALL_SHAPES = {
    2: [(*sizes[:3], sizes[3:5], sizes[5:]) for sizes in itertools.product((1, 2), repeat=7)],
    3: [(*sizes[:3], sizes[3:], (1, 1, 1)) for sizes in itertools.product((1, 2), repeat=6)],
}  # n, ci, co, the extents and the kernel


def lie(shape, lying):
    """An uninitialised array that is dense or a slice of a larger one, as NCHW or as NHWC."""
    n, ch, *extents = shape
    wider = ch + lying // 2
    if lying % 2 == 0:
        return np.empty((n, wider, *extents), np.float32)[:, :ch]
    return np.moveaxis(np.empty((n, *extents, wider), np.float32), -1, 1)[:, :ch]


def lying_tensors(spatial):
    """x, weight and out of every small shape, in every pair of ways to lie; and whether one layout has both."""
    for n, ci, co, extents, kernel in SMALL_SHAPES[spatial]:
        for of_x, of_out in itertools.product(range(4), repeat=2):
            sizes = (size + k - 1 for size, k in zip(extents, kernel, strict=True))
            x, out = lie((n, ci, *extents), of_x), lie((n, co, *sizes), of_out)
            x[...], out[...] = numbers(x.shape), 9
            weight = numbers((ci, co, *kernel))
            if (of_x + of_out) % 3:
                weight = channels_last(weight)
            both = [_layer.lies_as(a.shape, [stride // 4 for stride in a.strides]) for a in (x, out)]
            yield x, weight, out, bool(set(both[0]) & set(both[1]))


@pytest.mark.parametrize("spatial", [2, 3])
def test_ambiguous_shapes_are_written_where_out_lies(monkeypatch, spatial):
    def no_copy(*arguments):
        raise AssertionError("out was written by way of a copy")

    count = 0
    for x, weight, out, shares_layout in lying_tensors(spatial):
        with monkeypatch.context() as patch:
            if shares_layout:
                patch.setattr(_host, "_dense_empty", no_copy)
                count += 1
            assert FUNCTIONS[spatial](x, weight, out=out) is out
        np.testing.assert_array_equal(out, formula(x, weight))
        np.testing.assert_array_equal(FUNCTIONS[spatial](x, weight), out)
    assert count > len(SMALL_SHAPES[spatial]) * 8


@pytest.mark.parametrize("spatial", [2, 3])
def test_ambiguous_shapes_on_the_device(monkeypatch, spatial):
    """What CUDA arrays go through, on arrays of the host: the description of the layer is the same."""
    one_shot = _host.one_shot

    def on_host(desc, options, addresses, location, post):
        options.backend, options.device = _library.BACKEND_CPU, -1
        one_shot(desc, options, addresses, _library.LOCATION_HOST, post)

    monkeypatch.setattr(_host, "one_shot", on_host)
    monkeypatch.setattr(_dlpack, "as_dlpack_stream", lambda stream: None)
    ones, zeros = (1,) * spatial, (0,) * spatial
    arguments = ones, ((0, 0),) * spatial, zeros, 1, ones
    refused = 0
    for x, weight, out, shares_layout in lying_tensors(spatial):
        try:
            given = {"x": x, "weight": weight, "bias": None, "out": out}
            assert _cuda.conv_transpose(0, spatial, given, arguments, 0, 0, 0, ()) is out
        except tconv.InvalidArgumentError as error:
            assert not shares_layout and "_stride" in error.field, error
            refused += 1
        else:
            np.testing.assert_array_equal(out, formula(x, weight))
    assert refused > len(SMALL_SHAPES[spatial])


X, W = numbers((2, 4, 5, 6)), numbers((4, 3, 3, 2))
MISTAKES = [
    (tconv.InvalidArgumentError, ValueError, "stride_h", dict(stride=0)),
    (tconv.InvalidArgumentError, ValueError, "pad_left", dict(padding=(0, -1))),
    (tconv.InvalidArgumentError, ValueError, "output_padding_h", dict(output_padding=1)),
    (tconv.InvalidArgumentError, ValueError, "stride", dict(stride=(1, 2, 3))),
    (tconv.DtypeError, TypeError, "stride", dict(stride=1.5)),
    (tconv.DtypeError, TypeError, "groups", dict(groups="1")),
    (tconv.InvalidArgumentError, ValueError, "groups", dict(groups=3)),
    (tconv.InvalidArgumentError, ValueError, "weight", dict(weight=W[:3])),
    (tconv.InvalidArgumentError, ValueError, "weight", dict(weight=W[0])),
    (tconv.InvalidArgumentError, ValueError, "x", dict(x=X[0, 0])),
    (tconv.InvalidArgumentError, ValueError, "bias", dict(bias=np.zeros(4, np.float32))),
    (tconv.DtypeError, TypeError, "weight", dict(weight=W.astype(float))),
    (tconv.DtypeError, TypeError, "x", dict(x=X.astype(int))),
    (tconv.DtypeError, TypeError, "x", dict(x=X.astype(">f4"))),
    (tconv.DtypeError, TypeError, "x", dict(x=X.tolist())),
    (tconv.DtypeError, TypeError, "weight", dict(weight=None)),
    (tconv.InvalidArgumentError, ValueError, "out", dict(out=np.zeros((2, 3, 7, 8), np.float32))),
    (tconv.InvalidArgumentError, ValueError, "backend", dict(backend="tpu")),
    (tconv.InvalidArgumentError, ValueError, "math", dict(math="fast")),
    (tconv.SizeOverflowError, OverflowError, "out_h", dict(stride=2**62)),
    (tconv.SizeOverflowError, OverflowError, "stride", dict(stride=2**64 + 1)),
]


@pytest.mark.parametrize("kind, builtin, field, wrong", MISTAKES, ids=[f"{m[2]}-{i}" for i, m in enumerate(MISTAKES)])
def test_mistakes_name_the_field(kind, builtin, field, wrong):
    with pytest.raises(kind) as raised:
        tconv.conv_transpose2d(**{"x": X, "weight": W, **wrong})
    error = raised.value
    assert isinstance(error, builtin) and isinstance(error, tconv.TconvError)
    assert error.field == field and field in error.message
    assert str(error) == error.message and error.status.startswith("TCONV_ERROR_")


def test_read_only_out_is_refused():
    out = np.zeros((2, 3, 7, 7), np.float32)
    out.flags.writeable = False
    with pytest.raises(tconv.InvalidArgumentError, match="read-only"):
        tconv.conv_transpose2d(X, W, out=out)


def test_a_missing_backend_says_why():
    if tconv.info()["cuda"]["available"]:
        pytest.skip("this machine has a GPU")
    with pytest.raises(tconv.UnavailableError, match="cuda"):
        tconv.conv_transpose2d(X, W, backend="cuda")


def test_environment_mistakes():
    program = "import numpy as np, tconv\ntry: tconv.conv_transpose2d(np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)))\n"
    program += "except tconv.EnvironmentVariableError as error: print(error.field)"
    run = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TCONV_BACKEND": "gpu"}, capture_output=True
    )
    assert run.stdout.decode().strip() == "TCONV_BACKEND", run.stderr.decode()


def test_environment_is_read_once_and_when_asked(monkeypatch):
    def used():
        (prepared,) = _host.prepared_layers._values.values()
        text = ctypes.create_string_buffer(1024)
        assert _library.library().tconv_plan_describe(prepared.plan._handle, text, len(text), None) == 0
        return text.value.decode()

    monkeypatch.setenv("TCONV_CPU_ISA", "generic")
    tconv.reload_environment()
    tconv.conv_transpose2d(X, W)
    assert "isa=generic " in used()
    monkeypatch.setenv("TCONV_CPU_ISA", "none")
    _host.prepared_layers.clear()
    tconv.conv_transpose2d(X, W)
    assert "isa=generic " in used()
    with pytest.raises(tconv.EnvironmentVariableError, match="TCONV_CPU_ISA = none") as raised:
        tconv.reload_environment()
    assert raised.value.field == "TCONV_CPU_ISA"
    with pytest.raises(tconv.EnvironmentVariableError):
        tconv.conv_transpose2d(X, W)
    monkeypatch.delenv("TCONV_CPU_ISA")
    monkeypatch.setenv("TCONV_NUM_THREADS", "1")
    tconv.reload_environment()
    tconv.conv_transpose2d(X, W)
    assert "threads=1 " in used()
    monkeypatch.undo()
    tconv.reload_environment()


def test_import_needs_no_torch():
    program = "import sys, tconv; tconv.info(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_info_and_version():
    assert tconv.info()["version"] == tconv.__version__


def test_dlpack_into_out():
    out = np.zeros((2, 3, 7, 7), np.float32)
    tconv.conv_transpose2d(Other(X), Other(W), Other(numbers((3,))), out=out)
    np.testing.assert_array_equal(out, formula(X, W, numbers((3,))))
    into = np.zeros_like(out)
    tconv.conv_transpose2d(X, W, numbers((3,)), out=Other(into))
    np.testing.assert_array_equal(into, out)
    with pytest.raises(tconv.InvalidArgumentError, match="give out"):
        tconv.conv_transpose2d(Other(X), Other(W))


def test_dlpack_memory_is_released():
    before = sys.getrefcount(X)
    for _ in range(10):
        tconv.conv_transpose2d(Other(X), W, out=np.zeros((2, 3, 7, 7), np.float32))
    assert sys.getrefcount(X) == before


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_pytorch_tensors_by_dlpack(dtype, channels_last):
    torch = pytest.importorskip("torch")
    x, weight = (torch.from_numpy(a).to(getattr(torch, dtype)) for a in (X, W))
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    result = tconv.conv_transpose2d(x, weight)
    assert result.dtype == x.dtype and type(result) is torch.Tensor
    assert result.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert torch.equal(result.double(), torch.from_numpy(formula(X, W)).to(x.dtype).double())


def test_cache_is_bounded_and_drops_the_oldest():
    cache = _plan.Cache(capacity=2)
    for key in "abc":
        cache.make(key, key.upper)
        cache.get("a")
    assert len(cache) == 2 and cache.get("a") == "A" and cache.get("b") is None and cache.get("c") == "C"


def test_dropped_plans_are_destroyed(monkeypatch):
    destroyed = []
    _host.prepared_layers.clear()
    tconv.conv_transpose2d(X, W)
    (prepared,) = _host.prepared_layers._values.values()
    real = prepared.plan._destroy
    prepared.plan._destroy = lambda handle: (destroyed.append(handle), real(handle))
    handle = prepared.plan._handle
    _host.prepared_layers.clear()
    assert not destroyed  # in use here
    del prepared
    assert destroyed == [handle]


def test_threads_share_plans():
    _host.prepared_layers.clear()
    expected = [tconv.conv_transpose2d(numbers((1, 4, 5, 6 + i)), W) for i in range(4)]
    wrong = []

    def work(seed):
        for i in np.random.default_rng(seed).integers(0, 4, 200):
            if not np.array_equal(tconv.conv_transpose2d(numbers((1, 4, 5, 6 + int(i))), W), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(_host.prepared_layers) == 4
