"""Arguments of functions on arrays that are refused, and what the error says."""

import numpy as np
import pytest
from random_arrays import Other, W, X, Y

import tconv


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
