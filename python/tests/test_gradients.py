"""conv_transpose2d_backward_data, conv_transpose2d_backward_weights and those of 3-D layers on NumPy arrays, against
the formulas of tconv.h in float64."""

import itertools

import numpy as np
import pytest
from random_arrays import channels_last

import tconv
from tconv import _plan

INTEGERS = 4  # of small size: every sum is exact in every dtype, but for one rounding


def numbers(shape, dtype=np.float64, seed=0):
    return np.random.default_rng([seed, *shape]).integers(-INTEGERS, INTEGERS + 1, shape).astype(dtype)


def formulas(x, weight, diff_dst, stride, padding, groups, dilation):
    """The three gradients, tap by tap: of each, the outputs that it reaches, in a frame that padding has not cut."""
    n, ci, *extents = x.shape
    _, o, *kernel = weight.shape
    axes = list(zip(extents, kernel, stride, dilation, strict=True))
    sides = zip(padding, axes, strict=True)
    frame = np.pad(diff_dst, ((0, 0), (0, 0), *((a, b + k * d + i * s) for (a, b), (i, k, s, d) in sides)))
    frame = frame.reshape(n, groups, o, *frame.shape[2:])
    images, weights = x.reshape(n, groups, ci // groups, -1), weight.reshape(groups, ci // groups, o, *kernel)
    of_x, of_weight = np.zeros_like(images), np.zeros_like(weights)
    for tap in itertools.product(*map(range, kernel)):
        sizes = zip(tap, axes, strict=True)
        reached = frame[(..., *(slice(t * d, t * d + i * s, s) for t, (i, _, s, d) in sizes))].reshape(n, groups, o, -1)
        of_x += np.einsum("ngop,gio->ngip", reached, weights[(..., *tap)])
        of_weight[(..., *tap)] = np.einsum("ngop,ngip->gio", reached, images)
    return of_x.reshape(x.shape), of_weight.reshape(weight.shape), diff_dst.sum((0, *range(2, x.ndim)))


LAYERS = [
    dict(),
    dict(stride=(2, 2), padding=((1, 1), (1, 1))),
    dict(stride=(2, 3), padding=((1, 0), (0, 2)), output_padding=(1, 2), dilation=(2, 1)),
    dict(stride=(3, 1), groups=2, dilation=(2, 3), output_padding=(2, 2)),
    dict(stride=(2, 1), groups=4, padding=((0, 3), (2, 0))),
]
LAYERS_3D = [
    dict(),
    dict(stride=(2, 2, 2)),
    dict(stride=(2, 1, 3), padding=((1, 0), (0, 2), (1, 1)), output_padding=(1, 1, 2), dilation=(1, 2, 1)),
    dict(stride=(1, 3, 2), groups=2, dilation=(3, 2, 1), output_padding=(2, 0, 1)),
]
DATA = {2: tconv.conv_transpose2d_backward_data, 3: tconv.conv_transpose3d_backward_data}
WEIGHTS = {2: tconv.conv_transpose2d_backward_weights, 3: tconv.conv_transpose3d_backward_weights}


def example(layer, dtype=np.float64, spatial=2):
    ones, zeros = (1,) * spatial, (0,) * spatial
    arguments = dict(stride=ones, padding=((0, 0),) * spatial, groups=1, dilation=ones) | layer
    output_padding = arguments.pop("output_padding", zeros)
    x, weight = numbers((2, 4, 5, 6)), numbers((4, 3, 3, 2))
    if spatial == 3:
        x, weight = numbers((2, 4, 3, 2, 4)), numbers((4, 3, 2, 3, 2))
    forward = tconv.conv_transpose3d if spatial == 3 else tconv.conv_transpose2d
    shape = forward(x, weight, output_padding=output_padding, **arguments).shape
    diff_dst = numbers(shape, seed=1)
    expected = [array.astype(dtype) for array in formulas(x, weight, diff_dst, **arguments)]
    return [array.astype(dtype) for array in (x, weight, diff_dst)], arguments, expected


LYING = {
    "NCHW": np.ascontiguousarray,
    "NHWC": channels_last,
    "slice of channels": lambda a: np.concatenate([a, a], 1)[:, : a.shape[1]],
    "every other column": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "backwards": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("spatial, layer", [(2, each) for each in LAYERS] + [(3, each) for each in LAYERS_3D], ids=str)
def test_are_the_formulas(spatial, layer, dtype):
    (x, weight, diff_dst), arguments, expected = example(layer, dtype, spatial)
    of_x = DATA[spatial](diff_dst, weight, x.shape[2:], **arguments)
    of_weight, of_bias = WEIGHTS[spatial](x, diff_dst, weight.shape[2:], **arguments)
    for result, right in zip((of_x, of_weight, of_bias), expected, strict=True):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, right)


@pytest.mark.parametrize("of_x", LYING)
@pytest.mark.parametrize("of_dst", LYING)
@pytest.mark.parametrize("spatial", [2, 3])
def test_however_they_lie(of_x, of_dst, spatial):
    (x, weight, diff_dst), arguments, expected = example((LAYERS if spatial == 2 else LAYERS_3D)[2], spatial=spatial)
    x, diff_dst = LYING[of_x](x), LYING[of_dst](diff_dst)
    hwoi = np.moveaxis(np.ascontiguousarray(np.moveaxis(weight, (0, 1), (-1, -2))), (-1, -2), (0, 1))
    fortran = np.asfortranarray(weight)
    for weights in (weight, channels_last(weight), hwoi, fortran):
        result = DATA[spatial](diff_dst, weights, x.shape[2:], **arguments)
        np.testing.assert_array_equal(result, expected[0])
    assert (result.strides[1] == result.itemsize) == (of_dst == "NHWC")
    results = WEIGHTS[spatial](x, diff_dst, weight.shape[2:], **arguments)
    for result, right in zip(results, expected[1:], strict=True):
        np.testing.assert_array_equal(result, right)
        assert result.flags.c_contiguous


@pytest.mark.parametrize("wanted", list(itertools.product((False, True), repeat=2)), ids=str)
def test_what_is_not_wanted_is_not_computed(wanted, monkeypatch):
    (x, weight, diff_dst), arguments, expected = example(LAYERS[3])
    written, real = [], _plan.Plan.execute
    monkeypatch.setattr(_plan.Plan, "execute", lambda plan, *given: written.append(given[1:3]) or real(plan, *given))
    results = tconv.conv_transpose2d_backward_weights(
        x if wanted[0] else None, diff_dst, weight.shape[2:], wanted=wanted, **arguments
    )
    for result, right, want in zip(results, expected[1:], wanted, strict=True):
        assert (result is not None) == want
        if want:
            np.testing.assert_array_equal(result, right)
    assert [[address != 0 for address in given] for given in written] == ([list(wanted)] if any(wanted) else [])


@pytest.mark.parametrize("batched", [False, True])
def test_other_dimensions_and_single_images(batched):
    x, weight, diff_dst = numbers((2, 4, 1, 6)), numbers((4, 3, 1, 3)), numbers((2, 6, 1, 13), seed=1)
    of_plane = dict(stride=(1, 2), padding=((0, 0), (1, 0)), groups=2, dilation=(1, 1))
    expected = formulas(x[: 1 + batched], weight, diff_dst[: 1 + batched], **of_plane)
    if not batched:
        x, diff_dst = x[0], diff_dst[0]
    of_volume = dict(stride=(3, 1, 2), padding=((0, 0), (0, 0), (1, 0)), groups=2, dilation=(2, 1, 1))
    for spatial, sizes in ((1, dict(stride=2, padding=((1, 0),), groups=2)), (2, of_plane), (3, of_volume)):
        of_x, of_weights = (
            getattr(tconv, f"conv_transpose{spatial}d_backward_{which}") for which in ("data", "weights")
        )
        given = [x, weight, diff_dst]
        if spatial != 2:
            given = [a.squeeze(-2) if spatial == 1 else np.expand_dims(a, -3) for a in given]
        result = of_x(given[2], given[1], given[0].shape[-spatial:], **sizes)
        weights, bias = of_weights(given[0], given[2], given[1].shape[-spatial:], **sizes)
        assert result.shape == given[0].shape and weights.shape == given[1].shape
        for got, right in zip((result, weights, bias), expected, strict=True):
            np.testing.assert_array_equal(got.reshape(right.shape), right)


def test_out():
    (x, weight, diff_dst), arguments, expected = example(LAYERS[1])
    for out in (
        np.full(x.shape, np.nan),
        np.full((2, 9, 5, 6), np.nan)[:, 2:6],
        np.full((2, 4, 5, 12), np.nan)[..., ::2],
    ):
        result = tconv.conv_transpose2d_backward_data(diff_dst, weight, (5, 6), out=out, **arguments)
        assert result is out
        np.testing.assert_array_equal(out, expected[0])
    with pytest.raises(tconv.InvalidArgumentError, match=r"out.shape = \(2, 4, 5, 5\)"):
        tconv.conv_transpose2d_backward_data(diff_dst, weight, (5, 6), out=np.empty((2, 4, 5, 5)), **arguments)


def test_no_images():
    x, weight, diff_dst = np.empty((0, 4, 5, 6)), numbers((4, 3, 3, 2)), np.empty((0, 3, 7, 7))
    assert tconv.conv_transpose2d_backward_data(diff_dst, weight, (5, 6)).shape == x.shape
    weights, bias = tconv.conv_transpose2d_backward_weights(x, diff_dst, (3, 2))
    assert not weights.any() and not bias.any() and weights.shape == weight.shape


def test_other_libraries_arrays():
    torch = pytest.importorskip("torch")
    (x, weight, diff_dst), arguments, expected = example(LAYERS[2], np.float32)
    x, weight, diff_dst = (torch.from_numpy(array) for array in (x, weight, diff_dst))
    result = tconv.conv_transpose2d_backward_data(diff_dst, weight, x.shape[2:], **arguments)
    results = tconv.conv_transpose2d_backward_weights(x, diff_dst, weight.shape[2:], **arguments)
    for got, right in zip((result, *results), expected, strict=True):
        assert isinstance(got, torch.Tensor)
        np.testing.assert_array_equal(got.numpy(), right)
    halves = (t.bfloat16() for t in (diff_dst, weight))
    got = tconv.conv_transpose2d_backward_data(*halves, x.shape[2:], **arguments)
    assert torch.equal(got, torch.from_numpy(expected[0]).bfloat16())


MISTAKES = {
    "in_size": dict(in_size=0),
    "kernel_size": dict(kernel_size=(3, 2, 1)),
    "diff_dst": dict(in_size=(4, 6), kernel_size=(5, 2)),
    "weight": dict(weight=numbers((4, 3, 3))),
    "x": dict(x=None),
    "groups": dict(groups=3),
    "stride": dict(stride="2"),
}


@pytest.mark.parametrize("field", MISTAKES)
def test_mistakes_name_their_field(field):
    (x, weight, diff_dst), arguments, _ = example(LAYERS[1])
    given = dict(x=x, weight=weight, in_size=(5, 6), kernel_size=(3, 2), **arguments) | MISTAKES[field]
    x, weight, in_size, kernel_size = (given.pop(name) for name in ("x", "weight", "in_size", "kernel_size"))
    judged = 0
    if field not in ("kernel_size", "x"):
        with pytest.raises(tconv.InvalidArgumentError) as error:
            tconv.conv_transpose2d_backward_data(diff_dst, weight, in_size, **given)
        assert error.value.field == field
        judged += 1
    if field not in ("in_size", "weight"):
        with pytest.raises(tconv.InvalidArgumentError) as error:
            tconv.conv_transpose2d_backward_weights(x, diff_dst, kernel_size, **given)
        assert error.value.field == field
        judged += 1
    assert judged
