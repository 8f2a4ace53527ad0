"""Nodes of one operator: every attribute, type and version, against the CPU provider and the definition in float64."""

import warnings

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime", minversion="1.24")

from onnx import TensorProto, helper
from onnx.backend.test.case.node import collect_testcases
from onnx_models import assert_right, cpu_session, model, node, pads_of, reference, taken, tconv_session

CASES = 360  # drawn by lot; each makes two sessions


def draw(rng):
    """A layer: shapes of x and w, whether there is a bias, and attributes."""
    axes = int(rng.choice([1, 2, 2, 3]))
    groups = int(rng.choice([1, 1, 2, 3]))
    inputs, outputs = groups * int(rng.integers(1, 5)), int(rng.integers(1, 5))
    spatial = [int(n) for n in rng.integers(1, 8 if axes < 3 else 5, axes)]
    kernel = [int(n) for n in rng.integers(1, 6 if axes < 3 else 4, axes)]
    attributes = {}
    if groups > 1 or rng.random() < 0.3:
        attributes["group"] = groups
    if rng.random() < 0.8:
        attributes["strides"] = [int(n) for n in rng.integers(1, 4, axes)]
    if rng.random() < 0.5:
        attributes["dilations"] = [int(n) for n in rng.integers(1, 3, axes)]
    if rng.random() < 0.5:
        attributes["kernel_shape"] = kernel
    strides, dilations = attributes.get("strides", [1] * axes), attributes.get("dilations", [1] * axes)
    if rng.random() < 0.4:
        attributes["output_padding"] = [
            int(rng.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True)
        ]
    draw_padding(rng, attributes, spatial, kernel)
    return (int(rng.integers(1, 3)), inputs, *spatial), (inputs, outputs, *kernel), bool(rng.integers(2)), attributes


def draw_padding(rng, attributes, spatial, kernel):
    """Pads that leave an output, a word, or a shape that is at most a stride larger than what the inputs reach."""
    axes, out = len(spatial), pads_of(attributes, spatial, kernel)[2]
    kind = rng.choice(["none", "pads", "VALID", "SAME_UPPER", "SAME_LOWER", "shape", "shape SAME_UPPER"])
    if kind == "pads":
        begins = [int(rng.integers(0, o)) for o in out]
        attributes["pads"] = begins + [int(rng.integers(0, o - b)) for o, b in zip(out, begins, strict=True)]
    elif kind.startswith("shape"):
        room = [
            s - 1 - e
            for s, e in zip(
                attributes.get("strides", [1] * axes), attributes.get("output_padding", [0] * axes), strict=True
            )
        ]
        attributes["output_shape"] = [int(rng.integers(1, o + 1 + max(0, r))) for o, r in zip(out, room, strict=True)]
        if kind != "shape":
            attributes["auto_pad"] = kind.split()[1]
    elif kind != "none":
        attributes["auto_pad"] = str(kind)


def is_same_too_large(attributes, spatial, kernel):
    """Whether SAME asks for more than the inputs reach, which tconv leaves to ONNX Runtime."""
    if "output_shape" in attributes or not attributes.get("auto_pad", "").startswith("SAME"):
        return False
    _, _, out = pads_of({**attributes, "auto_pad": "NOTSET"}, spatial, kernel)
    return any(o < i * s for o, i, s in zip(out, spatial, attributes.get("strides", [1] * len(out)), strict=True))


def has_answer_of_onnxruntime(attributes):
    """Whether the CPU provider is right. With an output padding of a stride or more, which the standard allows below
    the dilation, ONNX Runtime 1.24 computes something else, and 1.32 refuses the layer."""
    axes = range(len(attributes.get("output_padding", [])))
    return all(attributes["output_padding"][axis] < attributes.get("strides", [1, 1, 1])[axis] for axis in axes)


@pytest.mark.parametrize("seed", range(CASES // 20))
def test_attributes(seed):
    rng = np.random.default_rng(seed)
    for case in range(20):
        x_shape, w_shape, has_bias, attributes = draw(rng)
        integers = case % 2 == 0
        x, w, b = (
            rng.integers(-3, 4, shape).astype(np.float32) if integers else rng.standard_normal(shape, np.float32)
            for shape in (x_shape, w_shape, (w_shape[1] * attributes.get("group", 1),))
        )
        inputs = ["x", "w", "b"] if has_bias else ["x", "w"]
        constants = {"w": w, "b": b} if has_bias else {"w": w}
        dims = x_shape if case % 3 else ["n", x_shape[1], *[None] * (len(x_shape) - 2)]
        if "output_shape" in attributes:
            dims = x_shape
        data = model([node(*inputs, **attributes)], {"x": dims}, constants)
        session = tconv_session(data)
        described = f"{x_shape} {w_shape} {attributes}"
        too_large = is_same_too_large(attributes, x_shape[2:], w_shape[2:])
        assert taken(session) == (0 if too_large else 1), described
        if too_large and not has_answer_of_onnxruntime(attributes):
            continue
        y = session.run(None, {"x": x})[0]
        if has_answer_of_onnxruntime(attributes):
            expected = cpu_session(data).run(None, {"x": x})[0]
            assert y.shape == expected.shape, described
            sizes = np.abs(expected).max(initial=0)
            np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5 * sizes + 1e-5, err_msg=described)
        if not too_large:
            assert_right(y, x, w, b if has_bias else None, **attributes)
            again = session.run(None, {"x": x})[0], session.run(None, {"x": x})[0]
            assert np.array_equal(y, again[0]) and np.array_equal(y, again[1]), described


def node_tests():
    """What ONNX tests the operator with: cases of models, inputs and outputs."""
    with warnings.catch_warnings():  # of other operators' cases
        warnings.simplefilter("ignore")
        return collect_testcases("ConvTranspose")


def test_cases_of_onnx():
    cases = node_tests()
    assert len(cases) >= 10
    for case in cases:
        case.model.ir_version = min(case.model.ir_version, 10)  # which older versions of ONNX Runtime read as well
        session = tconv_session(case.model.SerializeToString())
        for inputs, outputs in case.data_sets:
            feed = dict(zip((entry.name for entry in session.get_inputs()), inputs, strict=True))
            for y, expected in zip(session.run(None, feed), outputs, strict=True):
                np.testing.assert_allclose(y, expected, rtol=case.rtol, atol=case.atol, err_msg=case.name)
            assert taken(session) == 1, case.name


@pytest.mark.parametrize("opset", [1, 8, 10, 11, 17, 21, 22])
def test_versions(opset):
    w = np.arange(24, dtype=np.float32).reshape(2, 3, 4) % 5
    x = np.arange(10, dtype=np.float32).reshape(1, 2, 5) % 3
    session = tconv_session(model([node("x", "w", strides=[2])], {"x": x.shape}, {"w": w}, opset=opset))
    assert taken(session) == 1
    assert_right(session.run(None, {"x": x})[0], x, w, strides=[2])


@pytest.mark.parametrize("dtype,bound", [("DOUBLE", 2.0**-48), ("FLOAT16", 2.0**-10), ("BFLOAT16", 2.0**-7)])
def test_types(dtype, bound):
    """Other types than float, between casts, because NumPy has no bfloat16."""
    rng = np.random.default_rng(3)
    of_onnx = getattr(TensorProto, dtype)
    x, w = rng.standard_normal((1, 4, 6, 5)), rng.standard_normal((4, 3, 4, 4))
    nodes = [
        helper.make_node("Cast", ["x"], ["x_cast"], to=of_onnx),
        helper.make_node("Cast", ["w"], ["w_cast"], to=of_onnx),
        node("x_cast", "w_cast", output="y_cast", strides=[2, 2]),
        helper.make_node("Cast", ["y_cast"], ["y"], to=TensorProto.DOUBLE),
    ]
    data = model(nodes, {"x": x.shape}, {"w": w}, dtype=TensorProto.DOUBLE, opset=22)
    session = tconv_session(data)
    assert taken(session) == 1
    to_type = {"DOUBLE": np.float64, "FLOAT16": np.float16, "BFLOAT16": None}[dtype]
    rounded = [to_bfloat16(a) if to_type is None else a.astype(to_type).astype(np.float64) for a in (x, w)]
    assert_right(session.run(None, {"x": x})[0], *rounded, bound=bound, strides=[2, 2])


def to_bfloat16(array):
    """The nearest bfloat16, ties to even."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize(
    "x_shape,w_shape,stride,is_taken",
    [
        ((1, 512, 4, 8), (512, 512, 2, 2), 1, 0),  # 32 pixels, 4 MiB of weights
        ((1, 512, 4, 9), (512, 512, 2, 2), 1, 1),
        ((1, 512, 4, 8), (512, 256, 2, 2), 1, 1),
        ((1, 512, 4, None), (512, 512, 2, 2), 1, 1),
        ((1, 8, 32, 32), (8, 128, 2, 2), 2, 0),  # one tap for each output, 2 MiB of them
        ((1, 8, 32, 33), (8, 128, 2, 2), 2, 1),
        ((1, 8, 32, 32), (8, 128, 3, 3), 2, 1),
    ],
)
def test_mere_products_are_left(x_shape, w_shape, stride, is_taken):
    """Layers that are hardly more than a matrix product, where that is known; all are taken where that is asked for."""
    data = model([node("x", "w", strides=[stride] * 2)], {"x": x_shape}, {"w": np.ones(w_shape, np.float32)})
    x = np.ones([2 if extent is None else extent for extent in x_shape], np.float32)
    left = tconv_session(data, take_all=False)
    assert taken(left) == is_taken and taken(tconv_session(data)) == 1
    np.testing.assert_array_equal(left.run(None, {"x": x})[0], tconv_session(data).run(None, {"x": x})[0])


@pytest.mark.parametrize("is_known", [False, True])
def test_volumes(is_known):
    """Also of many channels and of extents that are not known before the model runs, and those without a plane."""
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal((2, 3, 3, 3, 2), np.float32), rng.standard_normal(3, np.float32)
    attributes = {"strides": [2, 1, 3], "pads": [0, 1, 0, 0, 1, 2]}
    dims = (1, 2, 3, 4, 5) if is_known else ["n", 2, "d", "h", "w"]
    session = tconv_session(model([node("x", "w", "b", **attributes)], {"x": dims}, {"w": w, "b": b}))
    assert taken(session) == 1
    for shape in ((1, 2, 3, 4, 5), *([] if is_known else [(2, 2, 1, 4, 3), (1, 2, 0, 4, 3)])):
        x = rng.standard_normal(shape, np.float32)
        y = session.run(None, {"x": x})[0]
        if 0 in shape:
            np.testing.assert_array_equal(y, np.broadcast_to(b.reshape(1, -1, 1, 1, 1), y.shape))
        else:
            assert_right(y, x, w, b, **attributes)
    many = np.ones((4096, 1024, 1, 1, 1), np.float32)
    assert taken(tconv_session(model([node("x", "w", strides=[4] * 3)], {"x": ["n", 4096, *"dhw"]}, {"w": many}))) == 1


def test_output_shape_needs_a_known_input():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 5), np.float32), rng.standard_normal((2, 3, 4), np.float32)
    session = tconv_session(model([node("x", "w", output_shape=[7], strides=[2])], {"x": [1, 2, None]}, {"w": w}))
    assert taken(session) == 0
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], reference(x, w, strides=[2], output_shape=[7])[0], atol=1e-5
    )
