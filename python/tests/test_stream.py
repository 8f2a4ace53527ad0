"""Streams of arrays, against one call for the whole input."""

import copy
import pickle

import numpy as np
import pytest

import tconv
from tconv import post

LAYERS = {  # width, stride, dilation, groups
    "causal codec": (8, 4, 1, 1),
    "no tail": (4, 4, 1, 2),
    "shorter than the stride": (2, 5, 1, 1),
    "longer than four strides": (9, 2, 1, 4),
    "dilated": (3, 2, 3, 2),
}


def chunks(rng, length):
    """Random cuts of a length, now and then empty."""
    cuts = np.sort(rng.integers(0, length + 1, rng.integers(0, length)))
    return list(zip([0, *cuts], [*cuts, length], strict=True))


def whole_result(x, weight, bias, stride, dilation, groups, tail):
    """The one call that a stream with its flush equals: columns without a tap are bias."""
    least = dilation * (weight.shape[-1] - 1) + 1
    more = max(0, stride - least)
    y = tconv.conv_transpose1d(
        *(None if a is None else a.astype(np.float64) for a in (x, weight, bias)),
        stride=stride,
        output_padding=more,
        dilation=dilation,
        groups=groups,
    )
    assert y.shape[-1] == stride * x.shape[-1] + tail
    return y


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-13), (np.float16, 4e-3)])
def test_random_chunks_give_what_one_call_gives(name, dtype, tolerance):
    width, stride, dilation, groups = LAYERS[name]
    rng = np.random.default_rng(width)
    weight = rng.standard_normal((8, 3, width)).astype(dtype)
    bias = rng.standard_normal(3 * groups).astype(dtype)
    for length, longest in ((1, 64), (23, 5), (40, 64)):
        x = rng.standard_normal((2, 8, length)).astype(dtype)
        stream = tconv.Stream(weight, bias, stride, 0, 0, groups, dilation, batch=2, longest=longest)
        parts = [stream(x[..., a:b]) for a, b in chunks(rng, length)]
        assert [part.shape[-1] % stride for part in parts] == [0] * len(parts)
        y = np.concatenate([*parts, stream.flush()], -1)
        expected = whole_result(x, weight, bias, stride, dilation, groups, stream.tail)
        assert y.dtype == dtype
        np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance * 10)
        assert not stream.carry.any()


@pytest.mark.parametrize("axis", [-1, -2])
def test_both_axes_of_two(axis):
    rng = np.random.default_rng(3)
    x, weight = rng.integers(-4, 5, (2, 3, 9, 11)), rng.integers(-4, 5, (3, 2, 5, 4))
    x, weight = x.astype(np.float32), weight.astype(np.float32)
    sizes = dict(stride=2, padding=(1, 0) if axis == -1 else (0, 1))
    stream = tconv.Stream(weight, **sizes, axis=axis, batch=2, longest=3, extent=x.shape[-3 - axis])
    parts = [stream(np.take(x, range(a, b), axis)) for a, b in chunks(rng, x.shape[axis])]
    y = np.concatenate([*parts, stream.flush()], axis)
    np.testing.assert_array_equal(y, tconv.conv_transpose2d(x, weight, **sizes))


def test_bits_do_not_depend_on_chunks():
    rng = np.random.default_rng(4)
    weight, x = rng.standard_normal((16, 8, 12)).astype(np.float32), rng.standard_normal((16, 70)).astype(np.float32)
    stream = tconv.Stream(weight, stride=5)
    expected = stream(x)
    for _ in range(5):
        stream.reset()
        y = np.concatenate([stream(x[:, a:b]) for a, b in chunks(rng, 70)], -1)
        np.testing.assert_array_equal(y, expected)


def made(batch=3):
    """A stream of small integers, and whole inputs for it with their results."""
    rng = np.random.default_rng(batch)
    weight = rng.integers(-4, 5, (4, 2, 7)).astype(np.float32)
    x = rng.integers(-4, 5, (batch, 4, 12)).astype(np.float32)
    return (
        tconv.Stream(weight, np.ones(2, np.float32), 3, batch=batch),
        x,
        tconv.conv_transpose1d(x, weight, np.ones(2, np.float32), 3),
    )


def test_slots_say_whose_chunk_it_is():
    stream, x, y = made()
    first = stream(x[[2, 0], :, :5], slots=[2, 0])
    np.testing.assert_array_equal(first, y[[2, 0], :, :15])
    np.testing.assert_array_equal(stream(x[[1]], slots=[1]), y[[1], :, :36])
    np.testing.assert_array_equal(stream(x[[0, 2], :, 5:], slots=np.array([0, 2])), y[[0, 2], :, 15:36])
    np.testing.assert_array_equal(stream.flush(slots=[1, 0, 2]), y[[1, 0, 2], :, 36:])


def test_a_chunk_that_is_cut_resets_only_at_its_begin():
    _, x, _ = made()
    stream = tconv.Stream(np.ones((4, 2, 7), np.float32), stride=3, batch=3, longest=2)
    expected = stream(x)
    np.testing.assert_array_equal(stream(x, reset=[True] * 3), expected)
    assert not np.array_equal(stream(x), expected)


def test_streams_begin_and_rest_by_masks():
    stream, x, y = made()
    stream(x[..., :4])
    kept = stream.carry[1].copy()
    stream(x[..., 4:8], active=[True, False, True])
    np.testing.assert_array_equal(stream.carry[1], kept)
    got = stream(x[..., 4:8], active=[False, True, False])
    np.testing.assert_array_equal(got[1], y[1, :, 12:24])
    got = stream(x[..., :4], reset=[True, False, False], active=[True, False, True])
    np.testing.assert_array_equal(got[0], y[0, :, :12])
    np.testing.assert_array_equal(stream.flush(active=[False, True, False])[1], 1 + kept_after(stream, x, 8)[1])
    stream(x[..., :0], reset=[False, False, True], active=[True, True, False])
    assert stream.carry[2].any()
    stream(x[..., :0], reset=[False, False, True])
    assert not stream.carry[2].any() and stream.carry[0].any() and not stream.carry[1].any()
    stream.reset([0])
    assert not stream.carry.any()


def kept_after(stream, x, length):
    fresh, _, _ = made()
    fresh(x[..., :length])
    return fresh.carry


def test_a_carry_is_saved_and_restored():
    stream, x, y = made()
    stream(x[..., :7])
    saved = stream.carry.copy()
    other, _, _ = made()
    other.carry = saved
    np.testing.assert_array_equal(other(x[..., 7:]), y[..., 21:36])
    stream.carry[...] = 0
    np.testing.assert_array_equal(stream(x), y[..., :36])


def test_one_stream_has_no_axis_for_it():
    _, x, _ = made()
    weight = np.ones((4, 2, 7), np.float32)
    single = tconv.Stream(weight, stride=3)
    expected = tconv.conv_transpose1d(x[0], weight, stride=3)
    out = np.empty((2, 36), np.float32)
    assert single(x[0], out=out) is out and single.carry.shape == (2, 4)
    np.testing.assert_array_equal(out, expected[:, :36])
    np.testing.assert_array_equal(single.flush(), expected[:, 36:])
    assert "tail=4" in repr(single) and single.implementation.startswith("cpu_") and single.dtype == "float32"


def test_post_ops_run_when_an_output_leaves():
    rng = np.random.default_rng(5)
    weight, x = rng.standard_normal((4, 2, 7)).astype(np.float32), rng.standard_normal((4, 20)).astype(np.float32)
    steps = [post.mul_channel(np.array([2, -3], np.float32)), post.tanh()]
    stream = tconv.Stream(weight, stride=3, post=steps, longest=6)
    y = np.concatenate([stream(x[:, :9]), stream(x[:, 9:]), stream.flush()], -1)
    np.testing.assert_allclose(y, tconv.conv_transpose1d(x, weight, stride=3, post=steps), atol=1e-6)


def test_arrays_of_other_libraries_and_slices():
    torch = pytest.importorskip("torch")
    stream, x, _ = made()
    got = stream(torch.from_numpy(x)[..., ::2])
    assert isinstance(got, torch.Tensor)
    np.testing.assert_array_equal(got.numpy(), made()[0](x[..., ::2].copy()))
    weight = torch.ones(4, 2, 7, dtype=torch.bfloat16)
    of_torch = tconv.Stream(weight, stride=3)
    got = torch.cat([of_torch(torch.ones(4, 5, dtype=torch.bfloat16)), of_torch.flush()], -1)
    expected = torch.conv_transpose1d(torch.ones(1, 4, 5), weight.float(), stride=3)[0]
    assert got.dtype == torch.bfloat16 and torch.equal(got.float(), expected)


def test_a_stream_is_neither_copied_nor_pickled():
    stream, _, _ = made()
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="set its carry"):
            way(stream)


BAD_LAYERS = {
    "padding": (dict(padding=1), "pad_left"),
    "output padding": (dict(output_padding=1), "output_padding_w"),
    "axis": (dict(axis=-2), "axis"),
    "batch": (dict(batch=0), "batch"),
    "longest": (dict(longest=0), "longest"),
    "longest that is no integer": (dict(longest=2.0), "longest"),
    "extent": (dict(extent=3), "extent"),
    "addend": (dict(post=[post.tanh(), post.add()]), "post[1]"),
    "bias": (dict(bias=np.ones(3, np.float32)), "bias"),
    "groups": (dict(groups=3), "groups"),
}


@pytest.mark.parametrize("name", BAD_LAYERS)
def test_bad_layers_are_refused_by_field(name):
    arguments, field = BAD_LAYERS[name]
    with pytest.raises(tconv.TconvError) as error:
        tconv.Stream(np.ones((4, 2, 7), np.float32), **arguments)
    assert error.value.field == field


BAD_STEPS = {
    "channels": (dict(x=np.ones((3, 5, 2), np.float32)), "x"),
    "too many streams": (dict(x=np.ones((4, 4, 2), np.float32)), "x"),
    "axes": (dict(x=np.ones((4, 2), np.float32)), "x"),
    "dtype": (dict(x=np.ones((3, 4, 2))), "x"),
    "slot twice": (dict(slots=[0, 1, 1]), "slots[2]"),
    "slot out of range": (dict(slots=[0, 1, 3]), "slots[2]"),
    "slots of real numbers": (dict(slots=[0.0, 1.0, 2.0]), "slots"),
    "slots of 64 bits": (dict(slots=[0, 1, 2**32]), "slots"),
    "few slots": (dict(slots=[0, 1]), "slots"),
    "reset of integers": (dict(reset=[0, 1, 0]), "reset"),
    "few resets": (dict(reset=[True]), "reset"),
    "few active": (dict(active=[True]), "active"),
    "out": (dict(out=np.ones((3, 2, 5), np.float32)), "out"),
}


@pytest.mark.parametrize("name", BAD_STEPS)
def test_bad_steps_are_refused_by_field_and_change_nothing(name):
    bad, field = BAD_STEPS[name]
    stream, x, _ = made()
    stream(x)
    before = stream.carry.copy()
    with pytest.raises(tconv.TconvError) as error:
        stream(**{"x": x, **bad})
    assert error.value.field == field
    np.testing.assert_array_equal(stream.carry, before)


def test_other_mistakes():
    stream, x, _ = made()
    with pytest.raises(tconv.TconvError, match="rows"):
        stream.reset(3)
    with pytest.raises(tconv.TconvError, match="carry"):
        stream.carry = np.zeros((3, 2, 5), np.float32)
    with pytest.raises(tconv.DtypeError, match="carry"):
        stream.carry = np.zeros((3, 2, 4))
    with pytest.raises(tconv.TconvError) as error:
        tconv.Stream(np.ones((4, 2, 7, 7), np.float32))
    assert error.value.field == "extent"
    with pytest.raises(tconv.TconvError, match="slots"):
        stream(x[..., :0], slots=[0, 1, 3], reset=[True] * 3)
