"""Post-ops of arrays: each kind and lists of them against NumPy, how operands may lie, and what is refused."""

import itertools
import math

import numpy as np
import pytest
from random_arrays import DTYPES, HAS_TORCH, Other, as_float64, as_given, channels_last, formula

import tconv
from tconv import post

rng = np.random.default_rng(5)
C = 3
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# The library's statement: 4 units in the last place of the type of sums at most. A unit is up to twice the rounding.
UNITS = 8

vectors = {name: rng.uniform(0.5, 2, C) for name in "vab"}


def wide(values):
    return values[:, None, None]


erfc = np.vectorize(math.erfc)


def softplus(y):
    return np.logaddexp(y, 0)


def tanh_gelu(y):
    return y / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))  # (1 + tanh(u)) / 2 loses digits


# Name of the kind: how it is made, given what makes an array of channels, and the formula.
KINDS = {
    "add_channel": (lambda of: post.add_channel(of("v")), lambda y: y + wide(vectors["v"])),
    "mul_channel": (lambda of: post.mul_channel(of("v")), lambda y: y * wide(vectors["v"])),
    "linear": (lambda of: post.linear(0.5, -1), lambda y: 0.5 * y - 1),
    "clamp": (lambda of: post.clamp(-1, 2), lambda y: np.clip(y, -1, 2)),
    "minimum": (lambda of: post.clamp(-math.inf, 0.5), lambda y: np.minimum(y, 0.5)),
    "relu": (lambda of: post.relu(), lambda y: np.maximum(y, 0)),
    "leaky_relu": (lambda of: post.leaky_relu(0.25), lambda y: np.where(y > 0, y, 0.25 * y)),
    "sigmoid": (lambda of: post.sigmoid(), lambda y: 1 / (1 + np.exp(-y))),
    "tanh": (lambda of: post.tanh(), np.tanh),
    "silu": (lambda of: post.silu(), lambda y: y / (1 + np.exp(-y))),
    "gelu": (lambda of: post.gelu(), lambda y: y * erfc(-y / math.sqrt(2)) / 2),
    "gelu tanh": (lambda of: post.gelu("tanh"), tanh_gelu),
    "mish": (lambda of: post.mish(), lambda y: y * np.tanh(softplus(y))),
    "elu": (lambda of: post.elu(0.5), lambda y: np.where(y > 0, y, 0.5 * np.expm1(y))),
    "softplus": (lambda of: post.softplus(), softplus),
    "hardswish": (lambda of: post.hardswish(), lambda y: y * np.clip(y + 3, 0, 6) / 6),
    "snake": (
        lambda of: post.snake(of("a"), of("b")),
        lambda y: y + wide(vectors["b"]) * np.sin(wide(vectors["a"]) * y) ** 2,
    ),
}


def layer(dtype=np.float32, spatial=2):
    """Integers, so that every sum is exact in every dtype, but for the steps after it."""
    x = rng.integers(-2, 3, (2, 4, *(3, 5, 6)[-spatial:])).astype(dtype)
    return x, rng.integers(-1, 2, (4, C, *(2, 3, 2)[-spatial:])).astype(dtype)


def sums(x, weight, stride=2):
    return formula(
        as_float64(x), as_float64(weight), np.zeros(C), (stride, stride), ((0, 0), (0, 0)), (0, 0), 1, (1, 1)
    )


def of_sums(dtype):
    return np.float64 if np.dtype(dtype) == np.float64 else np.float32


def close(y, expected, dtype, scale, units=UNITS):
    """To the roundings of the steps, and that of the dtype, in parts of the scale."""
    assert y.dtype == dtype and y.shape == expected.shape
    rounding = ROUNDING[np.dtype(dtype).name]
    steps = units * ROUNDING[np.dtype(of_sums(dtype)).name]
    assert (np.abs(as_float64(y) - expected) <= scale * (rounding + steps)).all()


def channels_of(dtype):
    """The vectors, rounded as they are given, which the formulas then see, too."""

    def of(name):
        vectors[name] = vectors[name].astype(of_sums(dtype)).astype(float)
        return vectors[name].astype(of_sums(dtype))

    return of


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(kind, dtype):
    x, weight = layer(dtype)
    make, expected = KINDS[kind]
    step = make(channels_of(dtype))
    z = sums(x, weight)
    scale = np.abs(expected(z)) + 2.0**-14  # below which float16 has no more digits
    if kind == "gelu" and dtype == np.float64:
        scale *= 1 + z**2  # the formula here rounds the argument of erfc in the same type
    if kind == "snake":
        scale = np.abs(z) + wide(vectors["b"])
    close(tconv.conv_transpose2d(x, weight, stride=2, post=[step]), expected(z), dtype, scale)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lists_of_up_to_eight_are_run_in_order(dtype):
    of = channels_of(dtype)
    for count in range(9):
        x, weight = layer(dtype)
        names = list(rng.choice(list(KINDS), count))
        y = tconv.conv_transpose2d(x, weight, stride=2, post=[KINDS[name][0](of) for name in names])
        expected = sums(x, weight)
        with np.errstate(over="ignore"):
            for name in names:
                expected = KINDS[name][1](expected)
        close(y, expected, dtype, np.abs(expected) + 1, UNITS * 4**count)  # a step may enlarge the errors before it


def test_order_counts():
    x, weight = layer()
    z = sums(x, weight)
    first = tconv.conv_transpose2d(x, weight, stride=2, post=[post.relu(), post.linear(1, -3)])
    second = tconv.conv_transpose2d(x, weight, stride=2, post=[post.linear(1, -3), post.relu()])
    assert np.array_equal(first, np.maximum(z, 0) - 3) and np.array_equal(second, np.maximum(z - 3, 0))


def test_rounding_comes_once():
    """2049 is no float16, and 2049 - 2048 is."""
    one = np.ones((1, 1, 1, 1), np.float16)
    y = tconv.conv_transpose2d(
        one, one, post=[post.add_channel(np.array([2048], "f")), post.add_channel(np.array([-2048], "f"))]
    )
    assert y.tolist() == [[[[1]]]]


def test_outputs_without_a_tap_go_through_the_list():
    one = np.ones((1, 1, 2, 2), np.float32)
    y = tconv.conv_transpose2d(one, one[:, :, :1, :1], stride=2, post=[post.linear(2, 3)])
    assert y.tolist() == [[[[5, 3, 5], [3, 3, 3], [5, 3, 5]]]]


def test_nan_and_infinities():
    x = np.array([np.nan, -np.inf, np.inf], np.float32).reshape(1, 1, 1, 3)
    weight = np.ones((1, 1, 1, 1), np.float32)
    vectors_ = {name: np.ones(1, np.float32) for name in "vab"}
    for name, (make, _) in KINDS.items():
        y = tconv.conv_transpose2d(x, weight, post=[make(vectors_.get)]).ravel()
        assert np.isnan(y[0]), name
        if name in ("silu", "gelu", "gelu tanh", "mish", "hardswish"):
            assert y[1] == 0 and np.signbit(y[1]) and y[2] == np.inf, name
        if name == "relu":
            assert y[1] == 0 and y[2] == np.inf


# ------------------------------------------------------------------------------------------------------------- operands


def lying(t):
    """The same numbers in memory of every kind."""
    n, c, h, w = t.shape
    slice_of_rows = np.full((n, c, h, 2 * w), 77, t.dtype)[..., ::2]
    slice_of_channels = np.full((n, c + 2, h, w), 77, t.dtype)[:, 1:-1]
    last = np.full((n, h, w, c), 77, t.dtype).transpose(0, 3, 1, 2)
    last_slice = np.full((n, h, w, c + 3), 77, t.dtype).transpose(0, 3, 1, 2)[:, :c]
    backwards = np.full((n, c, h, w), 77, t.dtype)[:, :, ::-1]
    for view in (slice_of_rows, slice_of_channels, last, last_slice, backwards):
        view[...] = t
        yield view


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_an_addend_may_lie_in_any_way(dtype, channels_last):
    x, weight = layer(dtype)
    if channels_last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    z = sums(x, weight)
    t = rng.integers(-4, 5, z.shape).astype(dtype)
    for addend in lying(t):
        y = tconv.conv_transpose2d(x, weight, stride=2, post=[post.add(addend, 0.5), post.relu()])
        assert np.array_equal(as_float64(y), np.maximum(z + 0.5 * as_float64(t), 0))
        assert y.strides == tconv.conv_transpose2d(x, weight, stride=2).strides


def test_an_addend_that_out_overlaps():
    x, weight = layer()
    z = sums(x, weight)
    out = rng.integers(-4, 5, z.shape).astype(np.float32)
    expected = z + out
    assert tconv.conv_transpose2d(x, weight, stride=2, out=out, post=[post.add(out)]) is out
    assert np.array_equal(out, expected)


def test_out_in_a_slice_and_without_a_batch():
    x, weight = layer()
    z = sums(x, weight)
    whole = np.full((2, C + 2, *z.shape[2:]), 77, np.float32)
    t = rng.integers(-4, 5, z.shape).astype(np.float32)
    for images in (slice(None), 0):
        out = whole[images, 1:-1] if images != 0 else whole[0, 1:-1]
        y = tconv.conv_transpose2d(x[images], weight, stride=2, out=out, post=[post.add(t[images]), post.relu()])
        assert y is out and np.array_equal(out, np.maximum(z + t, 0)[images])
    assert (whole[:, [0, -1]] == 77).all()


@pytest.mark.parametrize("spatial", [1, 3])
@pytest.mark.parametrize("lying", [np.ascontiguousarray, channels_last])
def test_other_dimensions(spatial, lying):
    x, weight = layer(spatial=spatial)
    function = tconv.conv_transpose1d if spatial == 1 else tconv.conv_transpose3d
    z, x = function(x, weight, stride=2), lying(x)
    t = lying(rng.integers(-4, 5, z.shape).astype(np.float32))
    v = np.array([1, -2, 3], np.float32)
    expected = z * v.reshape(-1, *[1] * spatial) - t
    for index in ((), (0,)):
        y = function(x[index], weight, stride=2, post=[post.mul_channel(v), post.add(t[index], -1)])
        assert np.array_equal(y, expected[index])
    plan = tconv.Plan(x.shape, weight, stride=2, post=[post.mul_channel(v), post.add(alpha=-1)])
    assert np.array_equal(plan(x, addend=t), expected)


@pytest.mark.parametrize("library", ["NumPy", "read-only", "DLPack", "PyTorch"])
def test_operands_of_every_library(library):
    if library == "PyTorch" and not HAS_TORCH:
        pytest.skip("PyTorch is missing")
    x, weight = layer()
    z = sums(x, weight)
    t, v = rng.integers(-4, 5, z.shape).astype(np.float32), np.array([1, -2, 3], np.float32)
    steps = [post.mul_channel(as_given(library, v)), post.add(as_given(library, t))]
    assert np.array_equal(tconv.conv_transpose2d(x, weight, stride=2, post=steps), z * wide(v) + t)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_of_channels_convert_where_nothing_is_lost(dtype):
    x, weight = layer(dtype)
    z = sums(x, weight)
    for given in DTYPES:
        v = np.array([1, -2, 0.5], given)
        steps = [post.mul_channel(v[::-1]), post.snake(np.zeros(3, given), v), post.clamp(-1000, 1000)]
        if given == np.float64 and dtype != np.float64:
            with pytest.raises(tconv.DtypeError) as caught:
                tconv.conv_transpose2d(x, weight, stride=2, post=steps)
            assert caught.value.field == "post[0]"
        else:
            y = tconv.conv_transpose2d(x, weight, stride=2, post=steps)
            assert np.array_equal(as_float64(y), z * wide(np.array([0.5, -2, 1])))


def test_lists_of_the_same_layer_are_told_apart():
    """By numbers, kinds, order and how the addend lies: plans are kept."""
    x, weight = layer()
    z = sums(x, weight)
    t = rng.integers(-4, 5, z.shape).astype(np.float32)
    for _, slope, addend in itertools.product(range(2), (0, 0.5, 2), lying(t)):
        y = tconv.conv_transpose2d(x, weight, stride=2, post=[post.leaky_relu(slope), post.add(addend, slope)])
        assert np.array_equal(y, np.where(z > 0, z, slope * z) + slope * t)


# ---------------------------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_plan_has_its_numbers_and_is_given_its_addend(dtype, channels_last):
    x, weight = layer(dtype)
    z = sums(x, weight)
    v = np.array([1, -2, 0.5], of_sums(dtype))
    steps = [post.mul_channel(v), post.add(alpha=0.5), post.relu()]
    plan = tconv.Plan(x.shape, weight, stride=2, channels_last=channels_last, post=steps)
    expected = z * wide(np.array([1, -2, 0.5]))
    v[:] = 77  # a plan has copied it
    for addend in lying(rng.integers(-4, 5, z.shape).astype(dtype)):
        y = plan(x, addend=addend)
        assert np.array_equal(as_float64(y), np.maximum(expected + 0.5 * as_float64(addend), 0))
    out = addend.copy()
    assert plan(x, addend=out, out=out) is out and np.array_equal(out, y)


def test_what_a_plan_refuses():
    without, with_ = (tconv.Plan(X.shape, W, post=steps) for steps in ([post.relu()], [post.add()]))
    calls = {
        "addend": [lambda: without(X, addend=FULL), lambda: with_(X), lambda: with_(X, addend=FULL[0])],
        "post[0]": [lambda: tconv.Plan(X.shape, W, post=[post.add(FULL)])],
        "post[1]": [lambda: tconv.Plan(X.shape, W, post=[post.relu(), post.mul_channel(np.ones(2, "f"))])],
        "post[0].beta": [lambda: tconv.Plan(X.shape, W, post=[post.clamp(2, 1)])],
    }
    for field, functions in calls.items():
        for function in functions:
            with pytest.raises(tconv.InvalidArgumentError) as caught:
                function()
            assert caught.value.field == field


# ------------------------------------------------------------------------------------------------------------ refusals


X, W = layer()
FULL = np.zeros_like(tconv.conv_transpose2d(X, W))
REFUSED = [
    ("post", tconv.DtypeError, lambda: post.relu()),
    ("post", tconv.DtypeError, lambda: 3),
    ("post[1]", tconv.DtypeError, lambda: [post.relu(), "relu"]),
    ("post_count", ValueError, lambda: [post.relu()] * 9),
    ("post[0].beta", ValueError, lambda: [post.clamp(2, 1)]),
    ("post[1].alpha", ValueError, lambda: [post.relu(), post.linear(math.inf, 0)]),
    ("post[0].alpha", ValueError, lambda: [post.clamp(math.nan, 1)]),
    ("post[0].kind", ValueError, lambda: [post.PostOp(17)]),
    ("post[1].kind", ValueError, lambda: [post.add(FULL), post.add(FULL)]),
    ("post[0]", ValueError, lambda: [post.add(FULL[:, :, 1:])]),
    ("post[0]", ValueError, lambda: [post.add(FULL[0])]),
    ("post[0]", tconv.DtypeError, lambda: [post.add(FULL.astype(np.float16))]),
    ("post[1]", ValueError, lambda: [post.relu(), post.add_channel(np.zeros(4, "f"))]),
    ("post[0].b", ValueError, lambda: [post.snake(np.zeros(3, "f"), np.zeros(2, "f"))]),
    ("post[0]", tconv.DtypeError, lambda: [post.mul_channel([1, 2, 3])]),
    ("post[0]", tconv.DtypeError, lambda: [post.mul_channel(np.ones(3, int))]),
    ("post[1]", ValueError, lambda: [post.relu(), post.add()]),
    ("post[0]", ValueError, lambda: [post.PostOp(2)]),
    ("v", tconv.DtypeError, lambda: [post.mul_channel(None)]),
    ("slope", tconv.DtypeError, lambda: [post.leaky_relu("0.1")]),
    ("approximate", ValueError, lambda: [post.gelu("erf")]),
]


@pytest.mark.parametrize("field, kind, make", REFUSED, ids=[f"{i} {each[0]}" for i, each in enumerate(REFUSED)])
def test_what_is_refused(field, kind, make):
    with pytest.raises(kind) as caught:
        tconv.conv_transpose2d(X, W, post=make())
    assert isinstance(caught.value, tconv.TconvError) and caught.value.field == field
    assert field.partition(".")[0].partition("[")[0] in str(caught.value)


def test_steps_never_change():
    step = post.leaky_relu(0.1)
    with pytest.raises(AttributeError):
        step.alpha = 0.2
    assert repr(Other(step).array).startswith("PostOp(kind=6, alpha=0.1")
