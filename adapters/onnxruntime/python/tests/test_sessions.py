"""Sessions: shapes and weights that are not known before a model runs, subgraphs, threads, errors, registration."""

import concurrent.futures
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime", minversion="1.24")

import onnxruntime
from onnx import helper, numpy_helper
from onnx_models import assert_right, cpu_session, model, node, settings, taken, tconv_session, value

import onnxruntime_ep_tconv

RNG = np.random.default_rng(7)
W = RNG.standard_normal((6, 4, 8), np.float32)
B = RNG.standard_normal(4, np.float32)
VOCODER = {"strides": [4], "pads": [2, 2]}


def signal(length, batch=1):
    return RNG.standard_normal((batch, 6, length), np.float32)


# ------------------------------------------------------------------------------------------------------------- shapes


def test_many_lengths():
    """More lengths than plans are kept, each twice and again: right, and with the bits that it had."""
    session = tconv_session(model([node("x", "w", "b", **VOCODER)], {"x": ["n", 6, "t"]}, {"w": W, "b": B}))
    inputs = [signal(length, 1 + length % 2) for length in [*range(1, 20), 400]]
    first = [session.run(None, {"x": x})[0] for x in inputs]
    for x, y in zip(inputs, first, strict=True):
        assert_right(y, x, W, B, **VOCODER)
    for _ in range(2):
        for x, y in zip(inputs, first, strict=True):
            assert np.array_equal(session.run(None, {"x": x})[0], y)
            assert np.array_equal(session.run(None, {"x": x})[0], y)


def test_a_shape_keeps_its_bits():
    """In the first run, which does not pack, and in those after, for few pixels and for many; weights of 1 MiB."""
    w = RNG.standard_normal((64, 256, 16), np.float32)
    session = tconv_session(model([node("x", "w", strides=[8], pads=[4, 4])], {"x": ["n", 64, "t"]}, {"w": w}))
    for length in (1, 8, 40, 300):
        x = RNG.standard_normal((1, 64, length), np.float32)
        outputs = [session.run(None, {"x": x})[0] for _ in range(4)]
        assert_right(outputs[0], x, w, strides=[8], pads=[4, 4])
        assert all(np.array_equal(outputs[0], y) for y in outputs[1:])


def test_nothing_comes_in():
    """No image: no output. No columns: the bias, as ONNX Runtime 1.32 has it (1.24 ends the process)."""
    session = tconv_session(model([node("x", "w", "b", strides=[4])], {"x": ["n", 6, "t"]}, {"w": W, "b": B}))
    assert session.run(None, {"x": signal(5, batch=0)})[0].shape == (0, 4, 24)
    np.testing.assert_array_equal(session.run(None, {"x": signal(0)})[0], np.tile(B[:, None], (1, 1, 4)))
    known = tconv_session(model([node("x", "w", strides=[4])], {"x": [2, 6, 0]}, {"w": W}))
    np.testing.assert_array_equal(known.run(None, {"x": signal(0, 2)})[0], np.zeros((2, 4, 4), np.float32))


def test_unknown_rank():
    x = signal(9)
    session = tconv_session(model([node("x", "w", **VOCODER)], {"x": None}, {"w": W}))
    assert_right(session.run(None, {"x": x})[0], x, W, **VOCODER)


# ------------------------------------------------------------------------------------------------------------ weights


def test_weights_that_come_in():
    """Another kernel in each run, also of another size."""
    session = tconv_session(model([node("x", "w", strides=[3])], {"x": ["n", 6, "t"], "w": [6, "o", "k"]}))
    assert taken(session) == 1
    for outputs, kernel in [(4, 8), (4, 8), (2, 3), (5, 1), (4, 8)]:
        x, w = signal(11), RNG.standard_normal((6, outputs, kernel), np.float32)
        assert_right(session.run(None, {"x": x, "w": w})[0], x, w, strides=[3])


def test_weights_that_are_computed():
    nodes = [helper.make_node("Mul", ["w", "scale"], ["scaled"]), node("x", "scaled", "b", **VOCODER)]
    session = tconv_session(model(nodes, {"x": ["n", 6, "t"], "scale": [1]}, {"w": W, "b": B}))
    for scale in (1, 2):
        x, by = signal(8), np.array([scale], np.float32)
        assert_right(session.run(None, {"x": x, "scale": by})[0], x, W * by, B, **VOCODER)


def test_shared_weights():
    """One constant in two nodes, of which one has a known shape, and read by a node of ONNX Runtime too."""
    nodes = [
        node("x", "w", output="y", **VOCODER),
        node("z", "w", output="v", strides=[2]),
        helper.make_node("ReduceSum", ["w"], ["sum"], keepdims=0),
    ]
    data = model(nodes, {"x": [1, 6, 7], "z": ["n", 6, "t"]}, {"w": W}, outputs=("y", "v", "sum"))
    x, z = signal(7), signal(9)
    session = tconv_session(data)
    assert taken(session) == 2
    y, v, total = session.run(None, {"x": x, "z": z})
    assert_right(y, x, W, **VOCODER)
    assert_right(v, z, W, strides=[2])
    np.testing.assert_allclose(total, W.sum(), rtol=1e-4)


def test_without_prepacking():
    options = settings()
    options.add_session_config_entry("session.disable_prepacking", "1")
    x = signal(6)
    session = tconv_session(model([node("x", "w", **VOCODER)], {"x": x.shape}, {"w": W}), options)
    assert_right(session.run(None, {"x": x})[0], x, W, **VOCODER)


def test_subgraphs():
    """Nodes in the branches of If and in the body of Loop, with weights of the graph around them."""
    branches = {
        name: helper.make_graph([node("x", "w", output=name, strides=[s])], name, [], [value(name, None)])
        for name, s in (("then", 2), ("else", 3))
    }
    body = helper.make_graph(
        [node("x", "w", output="up", strides=[2]), helper.make_node("Identity", ["go"], ["go_on"])],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, [])],
        [helper.make_tensor_value_info("go_on", 9, []), value("up", None)],
    )
    nodes = [
        helper.make_node("If", ["choice"], ["y"], then_branch=branches["then"], else_branch=branches["else"]),
        helper.make_node("Loop", ["count", "choice"], ["all"], body=body),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [value("x", ["n", 6, "t"]), helper.make_tensor_value_info("choice", 9, [])],
        [value("y", None), value("all", None)],
        [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.int64(3), "count")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    session, x = tconv_session(data), signal(5)
    y, several = session.run(None, {"x": x, "choice": np.array(True)})
    assert_right(y, x, W, strides=[2])
    assert several.shape[0] == 3 and all(np.array_equal(each, y) for each in several)
    assert_right(session.run(["y"], {"x": x, "choice": np.array(False)})[0], x, W, strides=[3])


def test_a_vocoder_and_a_decoder():
    """Chains of layers among nodes of ONNX Runtime, with real kernels: all of them taken, the same as without tconv."""
    for axes, stages in ((1, [(32, 16, 16, 8, 4), (16, 8, 8, 4, 2)]), (2, [(32, 16, 4, 2, 1), (16, 3, 2, 2, 0)])):
        nodes, constants, name = [], {}, "x"
        for i, (inputs, outputs, kernel, stride, pad) in enumerate(stages):
            constants[f"w{i}"] = RNG.standard_normal((inputs, outputs, *[kernel] * axes), np.float32) / inputs
            constants[f"b{i}"] = RNG.standard_normal(outputs, np.float32)
            nodes += [
                helper.make_node("LeakyRelu", [name], [f"a{i}"], alpha=0.1),
                node(f"a{i}", f"w{i}", f"b{i}", output=f"u{i}", strides=[stride] * axes, pads=[pad] * 2 * axes),
            ]
            name = f"u{i}"
        nodes.append(helper.make_node("Tanh", [name], ["y"]))
        data = model(nodes, {"x": ["n", 32, *[None] * axes]}, constants)
        session = tconv_session(data)
        assert taken(session) == len(stages)
        for extent in (9, 14):
            x = RNG.standard_normal((1, 32, *[extent] * axes), np.float32)
            np.testing.assert_allclose(
                session.run(None, {"x": x})[0], cpu_session(data).run(None, {"x": x})[0], atol=1e-5
            )


# ------------------------------------------------------------------------------------------------------------ threads


def test_two_sessions_in_eight_threads():
    """Known and new shapes at once, in two sessions, by more threads than there are processors."""
    datas = [
        model([node("x", "w", "b", **VOCODER)], {"x": ["n", 6, "t"]}, {"w": W, "b": B}),
        model([node("x", "w", strides=[2])], {"x": ["n", 6, "t"]}, {"w": W}),
    ]
    inputs = [signal(length) for length in range(20, 34)]
    sessions = [tconv_session(data) for data in datas]
    expected = [[session.run(None, {"x": x})[0] for x in inputs] for session in sessions]
    fresh = [tconv_session(data) for data in datas]

    def work(thread):
        order = np.random.default_rng(thread).permutation(np.repeat(np.arange(len(inputs)), 12))
        for at in order:
            for which, session in enumerate(fresh):
                assert np.array_equal(session.run(None, {"x": inputs[at]})[0], expected[which][at])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.parametrize("entries", [{"intra_op_num_threads": 1}, {"intra_op_num_threads": 0}])
def test_pools(entries):
    x = RNG.standard_normal((1, 6, 40, 30), np.float32)
    w = RNG.standard_normal((6, 5, 3, 3), np.float32)
    data = model([node("x", "w", strides=[2, 2])], {"x": x.shape}, {"w": w})
    y = tconv_session(data).run(None, {"x": x})[0]
    assert_right(y, x, w, strides=[2, 2])
    assert np.array_equal(tconv_session(data, settings(**entries)).run(None, {"x": x})[0], y)


def test_more_parts_than_threads():
    x = RNG.standard_normal((1, 6, 40, 30), np.float32)
    w = RNG.standard_normal((6, 5, 3, 3), np.float32)
    data = model([node("x", "w", strides=[2, 2])], {"x": x.shape}, {"w": w})
    one = tconv_session(data, threads=1).run(None, {"x": x})[0]
    assert np.array_equal(tconv_session(data, threads=7).run(None, {"x": x})[0], one)


def test_parallel_execution():
    """Nodes beside each other, each by a thread between operators."""
    options = settings(execution_mode=onnxruntime.ExecutionMode.ORT_PARALLEL, inter_op_num_threads=3)
    nodes = [node("x", "w", output=f"y{i}", strides=[i + 1]) for i in range(6)]
    data = model(nodes, {"x": ["n", 6, "t"]}, {"w": W}, outputs=[f"y{i}" for i in range(6)])
    session, x = tconv_session(data, options), signal(70)
    for _ in range(20):
        for i, y in enumerate(session.run(None, {"x": x})):
            if i < 2:
                assert_right(y, x, W, strides=[i + 1])


# ------------------------------------------------------------------------------------------------------------- errors


def test_an_error_names_the_node_and_the_rule():
    session = tconv_session(model([node("x", "w", pads=[9, 9])], {"x": ["n", 6, "t"]}, {"w": W}))
    with pytest.raises(Exception, match=r"up_y.*out_w = 9 - 9 - 9 \(padding\): must be at least 1"):
        session.run(None, {"x": signal(2)})
    x = signal(20)
    assert_right(session.run(None, {"x": x})[0], x, W, pads=[9, 9])
    session = tconv_session(model([node("x", "w")], {"x": ["n", "c", "t"], "w": ["c", "o", "k"]}))
    with pytest.raises(Exception, match=r"W\.shape\[0\] = 6: must be the 5 channels of X"):
        session.run(None, {"x": np.zeros((1, 5, 3), np.float32), "w": W})


def test_a_bad_option():
    """ONNX Runtime 1.24 then makes a session without the provider, and says so."""
    try:
        session = tconv_session(model([node("x", "w")], {"x": [1, 6, 4]}, {"w": W}), threads=5000)
    except Exception as error:
        assert "threads: must be a number from 0 to 1024" in str(error)
    else:
        assert session.get_providers() == ["CPUExecutionProvider"]


def test_an_older_onnxruntime(monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", "1.23.2")
    with pytest.raises(ImportError, match=r"needs ONNX Runtime 1\.24 or newer; this is 1\.23\.2"):
        onnxruntime_ep_tconv.register()


def test_without_onnxruntime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="pip install onnxruntime"):
        onnxruntime_ep_tconv.register()


# -------------------------------------------------------------------------------------------------------- registration


def run_alone(program, **environment):
    """Runs a program in a process of its own and returns both of its outputs."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_verbose():
    said = run_alone(
        "import numpy as np; from onnx_models import *; W = np.ones((6, 4, 8), np.float32)\n"
        "tconv_session(model([node('x', 'w')], {'x': [1, 6, 4]}, {'w': W}))\n"
        "x = [1, 6, 2, 2, 2, 2]; W = np.ones((6, 4, 2, 2, 2, 2), np.float32)\n"
        "tconv_session(model([node('x', 'w', output='z')], {'x': x}, {'w': W}, outputs=['z']))\n",
        TCONV_VERBOSE="1",
    )
    assert "tconv,onnxruntime,node=up_y,taken\n" in said
    assert "tconv,onnxruntime,node=up_z,left to ONNX Runtime: rank = 6: must be 3, 4 or 5" in said


def test_registered_again():
    """Unregistered after its sessions have ended, and registered again, several times in one process."""
    said = run_alone(
        "import gc, threading, numpy as np, onnxruntime, onnxruntime_ep_tconv; from onnx_models import *\n"
        "W, x = np.ones((6, 4, 8), np.float32), np.ones((1, 6, 9), np.float32)\n"
        "data = model([node('x', 'w')], {'x': x.shape}, {'w': W})\n"
        "def work():\n"
        "    session = tconv_session(data)\n"
        "    assert_right(session.run(None, {'x': x})[0], x, W)\n"
        "for _ in range(4):\n"
        "    thread = threading.Thread(target=work); thread.start(); thread.join(); work(); gc.collect()\n"
        "    onnxruntime.unregister_execution_provider_library('tconv')\n"
        "    assert not [d for d in onnxruntime.get_ep_devices() if d.ep_name == 'TconvExecutionProvider']\n"
        "print('all well')\n"
    )
    assert "all well" in said


def test_what_the_library_exports(library):
    """The two functions that ONNX Runtime looks up, and nothing of tconv's."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert {line.split()[-1] for line in symbols.splitlines()} == {"CreateEpFactories", "ReleaseEpFactory"}


def test_names():
    assert onnxruntime_ep_tconv.get_ep_names() == [onnxruntime_ep_tconv.get_ep_name()] == ["TconvExecutionProvider"]
    device = onnxruntime_ep_tconv.register()[0]
    assert (device.ep_name, device.ep_vendor) == ("TconvExecutionProvider", "tconv")
