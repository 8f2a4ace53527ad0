"""Models of few nodes, sessions of them, and the answer in float64 by ONNX's definition."""

import itertools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_tconv

FLOAT = TensorProto.FLOAT
# What an element may err by for each product of its sum, in units of the product (include/tconv/tconv.h, NUMBERS).
BOUND = 16 * 2.0**-24


def value(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, constants=None, outputs=("y",), dtype=FLOAT, opset=17):
    """A model's bytes. inputs: shapes by name; constants: arrays by name."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [value(name, shape, dtype) for name, shape in inputs.items()],
        [value(name, None, dtype) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return made.SerializeToString()


def node(*inputs, output="y", **attributes):
    return helper.make_node("ConvTranspose", list(inputs), [output], name=f"up_{output}", **attributes)


def settings(**entries):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, entry in entries.items():
        setattr(options, key, entry)
    return options


def tconv_session(data, options=None, **arguments):
    return onnxruntime_ep_tconv.session(data, options or settings(), **{"take_all": True, **arguments})


def cpu_session(data):
    return onnxruntime.InferenceSession(data, settings(), providers=["CPUExecutionProvider"])


def taken(session):
    """How many nodes of a session are tconv's."""
    graphs = session.get_provider_graph_assignment_info()
    return sum(len(graph.get_nodes()) for graph in graphs if graph.ep_name == onnxruntime_ep_tconv.get_ep_name())


def pads_of(attributes, spatial, kernel):
    """Where the output begins and ends in all that the inputs reach, by ONNX's text."""
    axes = len(spatial)
    strides = attributes.get("strides", [1] * axes)
    dilations = attributes.get("dilations", [1] * axes)
    extra = attributes.get("output_padding", [0] * axes)
    full = [(i - 1) * s + d * (k - 1) + 1 for i, s, d, k in zip(spatial, strides, dilations, kernel, strict=True)]
    pads = attributes.get("pads", [0] * 2 * axes)
    begins, ends = list(pads[:axes]), list(pads[axes:])
    auto_pad = attributes.get("auto_pad", "NOTSET")
    wanted = attributes.get("output_shape")
    if wanted is None and auto_pad.startswith("SAME"):
        wanted = [i * s for i, s in zip(spatial, strides, strict=True)]
    if wanted is not None:
        for axis in range(axes):
            total = max(0, full[axis] + extra[axis] - wanted[axis])
            begins[axis] = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        return full, begins, wanted
    return full, begins, [f + e - b - p for f, e, b, p in zip(full, extra, begins, ends, strict=True)]


def reference(x, w, b=None, **attributes):
    """The output in float64, and the sum of the products' sizes."""
    groups, spatial, kernel = attributes.get("group", 1), x.shape[2:], w.shape[2:]
    axes = len(spatial)
    strides = attributes.get("strides", [1] * axes)
    dilations = attributes.get("dilations", [1] * axes)
    full, begins, out = pads_of(attributes, spatial, kernel)
    answers = []
    for of in (np.asarray, np.abs):
        xs = of(x.astype(np.float64)).reshape(x.shape[0], groups, -1, *spatial)
        ws = of(w.astype(np.float64)).reshape(groups, -1, *w.shape[1:])
        room = [max(f, begin + o) for f, begin, o in zip(full, begins, out, strict=True)]
        whole = np.zeros((x.shape[0], groups, w.shape[1], *room))
        for tap in itertools.product(*map(range, kernel)):
            place = tuple(
                slice(d * t, d * t + (i - 1) * s + 1, s)
                for d, t, i, s in zip(dilations, tap, spatial, strides, strict=True)
            )
            whole[(..., *place)] += np.einsum("ngi...,gio->ngo...", xs, ws[(..., *tap)])
        cut = whole[(..., *(slice(begin, begin + o) for begin, o in zip(begins, out, strict=True)))]
        cut = cut.reshape(x.shape[0], groups * w.shape[1], *out)
        if b is not None:
            cut = cut + of(b.astype(np.float64)).reshape(1, -1, *[1] * axes)
        answers.append(cut)
    return answers


def assert_right(y, x, w, b=None, bound=BOUND, **attributes):
    """That an output is within the bound; exact where all are integers that are small enough."""
    answer, sizes = reference(x, w, b, **attributes)
    assert y.shape == answer.shape
    if all(np.array_equal(a, np.round(a)) for a in (x, w)) and sizes.max(initial=0) < 2**11:
        np.testing.assert_array_equal(y.astype(np.float64), answer)
    assert np.all(np.abs(y.astype(np.float64) - answer) <= bound * sizes + 2.0**-126)
