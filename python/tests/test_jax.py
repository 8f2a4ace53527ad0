"""tconv.jax.conv_transpose computes what lax does, bit for bit on small integers, by tconv where it has the layer."""

import contextlib
import threading

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("tconv.jax", exc_type=ImportError)

import jax
import jax.numpy as jnp
from jax import lax
from jax_layers import Layer, every_padding, random_layer, with_gradients, x64

import tconv.jax
from tconv.jax import _padding, _shim

X, KERNEL = np.ones((2, 5, 6, 3), np.float32), np.ones((3, 3, 3, 4), np.float32)
WORDS = (0, 0, 1, 2, 2, 3, 5, 6, 4, 3, 3, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1)  # of X and KERNEL in IHWO


def calls_of(function, *arrays):
    """How many calls of the handler a function makes."""
    before = _shim.calls()
    jax.block_until_ready(function(*arrays))
    return _shim.calls() - before


@pytest.mark.parametrize("seed", range(60))
def test_random_layers_and_gradients_are_exact(seed):
    layer = random_layer(seed)
    before = _shim.calls()
    ours = with_gradients(layer, layer.by_tconv)
    assert _shim.calls() - before == 3, layer  # forward and two gradients
    theirs = with_gradients(layer, layer.by_lax)
    for name, a, b in zip(("result", "lhs", "rhs", "bias"), ours, theirs, strict=False):
        assert a.shape == b.shape and a.dtype == b.dtype, layer
        np.testing.assert_array_equal(np.asarray(a, float), np.asarray(b, float), f"{name} of {layer}")


def test_padding_of_every_kind():
    """The sizes and margins of an axis against lax's shapes; what is computed of them is the other test's."""
    for kernel, stride, dilation, padding in every_padding():
        given = padding if isinstance(padding, str) else (padding,)
        (resolved,) = _padding.resolve(given, (kernel,), (stride,), (dilation,), False)
        shapes = jax.ShapeDtypeStruct((1, 7, 1), np.float32), jax.ShapeDtypeStruct((kernel, 1, 1), np.float32)
        expected = jax.eval_shape(
            lambda x, w, s=stride, p=given, d=dilation: lax.conv_transpose(x, w, (s,), p, (d,)), *shapes
        ).shape[1]
        assert 6 * stride + 1 + sum(resolved) - dilation * (kernel - 1) == expected
        cut, more = _padding.cut(resolved, kernel, stride, dilation)
        assert 6 * stride + 1 + dilation * (kernel - 1) - sum(cut) + more == expected
        assert min(cut) >= 0 and 0 <= more < max(stride, dilation)


@pytest.mark.parametrize(
    "dtype, relative", [("float64", 1e-14), ("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 8e-3)]
)
def test_reals_are_near_the_formula(dtype, relative):
    """In float64, NumPy's sums over taps; the bound is that of one rounding of a sum's terms."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 9, 9, 16)), rng.standard_normal((4, 4, 16, 8))
    with x64() if dtype == "float64" else contextlib.nullcontext():
        x, w = (jnp.asarray(array, dtype) for array in (x, w))
        y = np.asarray(tconv.jax.conv_transpose(x, w, (2, 2), "SAME"), float)
    x, w = np.asarray(x, float), np.asarray(w, float)
    expected, bound = (_formula(f(x), f(w)) for f in (lambda a: a, np.abs))
    assert y.shape == expected.shape and (np.abs(y - expected) <= relative * bound).all()


def _formula(x, w):
    full = np.zeros((2, 20, 20, 8))
    for a in range(4):
        for b in range(4):  # the kernel is flipped
            full[:, a : a + 18 : 2, b : b + 18 : 2] += x @ w[3 - a, 3 - b]
    return full[:, 1:-1, 1:-1]


def test_float64_gradients():
    with x64():
        layer = Layer((2, 5, 6, 3), (3, 4, 3, 4), 4, (2, 1), "SAME", None, None, False, False, 1, "float64", True)
        assert all(a.dtype == "float64" for a in layer.arrays())
        for a, b in zip(with_gradients(layer, layer.by_tconv), with_gradients(layer, layer.by_lax), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "lhs, rhs, strides, padding",
    [
        ((4, 2), (2, 3), (), "SAME"),  # no axes of its own
        ((1, 4, 4, 2), (2, 2, 2, 3), (2, 2), ((2, 1), (1, 1))),  # beyond the kernel at the beginning
        ((1, 4, 4, 2), (2, 2, 2, 3), (2, 2), ((1, 3), (1, 1))),  # more than output padding
        ((0, 4, 4, 2), (2, 2, 2, 3), (2, 2), "SAME"),  # no images
    ],
)
def test_what_tconv_has_not_is_lax(lhs, rhs, strides, padding):
    x, w, bias = np.ones(lhs, np.float32), np.ones(rhs, np.float32), np.arange(3, dtype=np.float32)
    assert calls_of(lambda: tconv.jax.conv_transpose(x, w, strides, padding, bias=bias)) == 0
    y = tconv.jax.conv_transpose(x, w, strides, padding, bias=bias)
    np.testing.assert_array_equal(y, lax.conv_transpose(x, w, strides, padding) + bias)


def test_integers_are_lax():
    x, w = X.astype(np.int32), KERNEL.astype(np.int32)
    y = tconv.jax.conv_transpose(x, w, (2, 2), "SAME")
    assert y.dtype == np.int32 and (y == lax.conv_transpose(x, w, (2, 2), "SAME")).all()


def test_preferred_element_type_is_the_type_of_sums():
    """257 has no bfloat16, so that a sum which was rounded on the way would not be exact."""
    x, w = jnp.full((1, 2, 2, 257), 1, jnp.bfloat16), jnp.ones((1, 1, 257, 1), jnp.bfloat16)
    y = tconv.jax.conv_transpose(x, w, (1, 1), "SAME", preferred_element_type=jnp.float32)
    assert y.dtype == jnp.float32 and (y == 257).all()


def message_of(function, *arguments, **more):
    with pytest.raises((TypeError, ValueError)) as raised:
        function(*arguments, **more)
    return type(raised.value), str(raised.value)


@pytest.mark.parametrize(
    "x, w, strides, padding, more",
    [
        (X, KERNEL[:, :, :2], (2, 2), "SAME", {}),  # channels
        (X, KERNEL.astype(np.float16), (2, 2), "SAME", {}),  # dtypes
        (X, KERNEL, (2, 2), "same!", {}),
        (X, KERNEL, (0, 2), ((1, 1), (1, 1)), {}),
        (X, KERNEL, (2, 2), "SAME", {"dimension_numbers": ("NHWC", "HWIO", "NCHX")}),
    ],
)
def test_wrong_arguments_are_refused_as_lax_refuses_them(x, w, strides, padding, more):
    ours = message_of(tconv.jax.conv_transpose, x, w, strides, padding, **more)
    assert ours == message_of(lax.conv_transpose, x, w, strides, padding, **more)


@pytest.mark.parametrize(
    "strides, padding, dilation, name",
    [
        ((2, 2, 2), "SAME", None, "strides"),
        ((2, 2), ((0, 0),), None, "padding"),
        ((2, 2), "SAME", (1,), "rhs_dilation"),
    ],
)
def test_one_number_for_each_axis(strides, padding, dilation, name):
    """Lax says so in the words of its compiler, where it says anything."""
    kind, text = message_of(tconv.jax.conv_transpose, X, KERNEL, strides, padding, dilation)
    assert kind is ValueError and name in text and "2 spatial axes" in text


def test_ranks_that_differ():
    """Lax's function has an assertion without words."""
    assert "ndim to be equal" in message_of(tconv.jax.conv_transpose, X, KERNEL[0], (2, 2), "SAME")[1]


def test_bias_of_another_shape():
    for bias in (np.ones(3, np.float32), np.ones((4, 1), np.float32)):
        assert "output feature" in message_of(tconv.jax.conv_transpose, X, KERNEL, (2, 2), "SAME", bias=bias)[1]


def test_a_bad_variable_is_the_library_s_error(monkeypatch):
    """tconv's issue is raised where the layer is compiled, and where a compiled one is planned anew."""
    compiled = jax.jit(lambda x: tconv.jax.conv_transpose(x, KERNEL, (1, 2), "SAME"))
    compiled(X)
    monkeypatch.setenv("TCONV_NUM_THREADS", "many")
    try:
        with pytest.raises(tconv.EnvironmentVariableError):
            tconv.reload_environment()
        with pytest.raises(tconv.EnvironmentVariableError, match="TCONV_NUM_THREADS"):
            tconv.jax.conv_transpose(X, KERNEL, (3, 2), "SAME")
        with pytest.raises(Exception, match="tconv: TCONV_NUM_THREADS") as raised:
            jax.block_until_ready(compiled(X))
        assert "RuntimeError" in type(raised.value).__name__ or isinstance(raised.value, ValueError)
    finally:
        monkeypatch.undo()
        tconv.reload_environment()
    assert compiled(X).shape == (2, 5, 12, 4)


def test_a_call_of_other_buffers_is_refused():
    """As a program that was written by hand might have it: nothing is read or written."""
    layer = np.zeros(len(WORDS), np.int64)
    call = jax.ffi.ffi_call(
        "tconv_forward", (jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((0,), np.uint8))
    )
    with pytest.raises(Exception, match="no layer of this version"):
        jax.block_until_ready(call(X, KERNEL, layer=layer[:-1]))
    with pytest.raises(Exception, match="must be"):
        jax.block_until_ready(call(X, KERNEL, layer=layer))
    layer[:] = WORDS
    with pytest.raises(Exception, match="buffers of the call are not those of its layer"):
        jax.block_until_ready(call(X, KERNEL, layer=layer))


def test_a_program_with_too_little_workspace_still_runs():
    """One that was compiled on another machine."""
    words = np.array(WORDS, np.int64)
    assert _shim.workspace_size(words, "cpu") > 0
    results = jax.ShapeDtypeStruct((2, 7, 8, 4), np.float32), jax.ShapeDtypeStruct((0,), np.uint8)
    y, _ = jax.ffi.ffi_call("tconv_forward", results)(X, KERNEL.swapaxes(2, 3), layer=words)
    assert (y == tconv.jax.conv_transpose(X, KERNEL, (1, 1), "VALID")).all()


def test_bits_do_not_depend_on_threads(monkeypatch):
    x, w = (
        np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for shape in ((2, 32, 32, 32), (4, 4, 32, 32))
    )
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("TCONV_NUM_THREADS", threads)
        tconv.reload_environment()
        results.append(np.asarray(tconv.jax.conv_transpose(x, w, (2, 2), "SAME")))
    monkeypatch.undo()
    tconv.reload_environment()
    assert all((y == results[0]).all() for y in results)


def test_many_threads_call_at_once(monkeypatch):
    """More calls than XLA has threads, each with more shares than there are: none waits for another for ever."""
    monkeypatch.setenv("TCONV_NUM_THREADS", "16")
    tconv.reload_environment()
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((4, 24, 24, 16), (4, 4, 16, 16)))
    layer = jax.jit(lambda x: sum(tconv.jax.conv_transpose(x + i, w, (2, 2), "SAME") for i in range(3)))
    expected, wrong = np.asarray(layer(x)), []

    def run():
        for _ in range(20):
            if not (np.asarray(layer(x)) == expected).all():
                wrong.append(1)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    monkeypatch.undo()
    tconv.reload_environment()
    assert not any(thread.is_alive() for thread in threads) and not wrong


def test_compiled_program_names_the_call_and_copies_nothing_it_need_not():
    """With Keras' kernels in NHWC, and PyTorch's in NCHW, everything is read as it lies."""
    for names in (("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")):
        shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((2, 6, 6, 6), (3, 3, 6, 6))]
        if names[0] == "NCHW":
            shapes[1] = jax.ShapeDtypeStruct((6, 6, 3, 3), np.float32)
        layer = jax.jit(
            lambda x, w, names=names: tconv.jax.conv_transpose(
                x, w, (2, 2), "SAME", dimension_numbers=names, transpose_kernel=True
            )
        )
        text = layer.lower(*shapes).compile().as_text()
        assert "tconv_forward" in text and not any(word in text for word in (" transpose(", " copy(", " reverse("))


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_platforms_that_the_library_has_not_get_lax(platform, monkeypatch):
    """What is lowered for such a GPU has XLA's convolutions, for the layer and both gradients."""
    monkeypatch.setattr(_shim, "missing", lambda platform: "no CUDA device" if platform == "cuda" else "")
    layer = jax.jit(jax.grad(lambda x, w: (tconv.jax.conv_transpose(x, w, (2, 2), "SAME") ** 2).sum(), (0, 1)))
    text = layer.trace(X, KERNEL).lower(lowering_platforms=(platform,)).as_text()
    assert text.count("stablehlo.convolution") == 3 and "tconv_" not in text


@pytest.mark.parametrize(
    "built, found, fits",
    [
        ((0, 1), (0, 1), True),
        ((0, 1), (0, 4), True),
        ((0, 99), (0, 3), False),
        ((1, 0), (0, 3), False),
        ((0, 1), None, True),
    ],
)
def test_a_newer_interface_than_jaxlib_s_is_refused(built, found, fits):
    if fits:
        _shim.check_interface(built, found, "0.7.0")
    else:
        with pytest.raises(ImportError) as raised:
            _shim.check_interface(built, found, "0.7.0")
        text = str(raised.value)
        assert f"{built[0]}.{built[1]}" in text and "jaxlib 0.7.0 has 0.3" in text and "\n" not in text


def test_interface_of_jaxlib_is_read():
    assert _shim._interface_of_jaxlib() >= (0, 1)
