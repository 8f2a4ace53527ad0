"""tconv.jax on a GPU: what it computes against lax on the CPU, bit for bit on small integers; precision, derivatives,
vmap, streams, command buffers and several GPUs. JAX_PLATFORMS=cuda,cpu has these tests run."""

import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("tconv.jax", exc_type=ImportError)

import jax
import jax.numpy as jnp
from conftest import jax_cuda_missing
from jax.test_util import check_grads
from jax_layers import LAYERS, NHWC, Layer, mapped, random_layer, stacked, with_gradients, x64

import tconv
import tconv.jax
from tconv.jax import _shim

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def gpu():
    """JAX's arrays are the first GPU's, and what is computed there is counted."""
    if why := jax_cuda_missing():
        pytest.skip(f"this needs a GPU: {why}")
    with jax.default_device(jax.devices("cuda")[0]):
        yield


def on_the_cpu(function, *arrays):
    """What lax computes there, on arrays that are put there."""
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        return jax.block_until_ready(function(*jax.device_put(arrays, cpu)))


def assert_same(ours, theirs, of=""):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype and a.devices() == {jax.devices("cuda")[0]}, of
        np.testing.assert_array_equal(np.asarray(a, float), np.asarray(b, float), str(of))


@pytest.mark.parametrize("seed", range(40))
def test_random_layers_and_gradients_are_exact(seed):
    layer = random_layer(seed)
    before = _shim.calls()
    ours = with_gradients(layer, layer.by_tconv)
    assert _shim.calls() > before, layer
    assert_same(ours, on_the_cpu(lambda: with_gradients(layer, layer.by_lax)), layer)


def test_programs_have_tconv_s_calls_alone():
    program = jax.jit(jax.grad(lambda *arrays: (NHWC.by_tconv(*arrays) ** 2).sum(), (0, 1, 2)))
    text = program.lower(*NHWC.arrays()).compile().as_text()
    assert [text.count(f'custom_call_target="{name}"') for name in _shim.TARGETS.values()] == [1, 1, 1]
    assert "cudnn" not in text and "convolution(" not in text


def test_float64():
    with x64():
        layer = Layer((2, 5, 6, 3), (3, 4, 3, 4), 4, (2, 1), "SAME", None, None, False, False, 1, "float64", True)
        before = _shim.calls()
        ours = with_gradients(layer, layer.by_tconv)
        assert all(a.dtype == "float64" for a in ours) and _shim.calls() > before
        assert_same(ours, on_the_cpu(lambda: with_gradients(layer, layer.by_lax)))


# ----------------------------------------------------------------------------------------------------------- precision


def reals(*shapes):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(shape), np.float32) for shape in shapes]


def errors(precision):
    """Of the layer and both gradients, the relative error in the L2 norm against float64 on the CPU."""
    x, kernel, of_y = reals((4, 16, 16, 64), (4, 4, 64, 32), (4, 32, 32, 32))

    def run(x, kernel, of_y):
        y, pull = jax.vjp(lambda x, w: tconv.jax.conv_transpose(x, w, (2, 2), "SAME", precision=precision), x, kernel)
        return y, *pull(of_y)

    ours = jax.jit(run)(x, kernel, of_y)
    with x64():
        exact = on_the_cpu(jax.jit(run), *(np.asarray(array, float) for array in (x, kernel, of_y)))
    return [
        np.linalg.norm(np.asarray(a, float) - np.asarray(b)) / np.linalg.norm(np.asarray(b))
        for a, b in zip(ours, exact, strict=True)
    ]


@pytest.mark.parametrize("precision", [None, "default", "high"])
def test_float32_is_tf32_unless_more_is_asked_for(precision):
    """The lower bound says that it is TF32 that is tested."""
    for error in errors(precision):
        assert 2e-5 < error < 5e-4


def test_the_highest_precision_is_strict():
    assert max(errors("highest")) < 2e-5
    with jax.default_matmul_precision("float32"):
        assert max(errors(None)) < 2e-5


@pytest.mark.parametrize("precision, math", [("highest", "strict"), ("default", "tf32")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_bits_are_those_of_the_library(precision, math, dtype):
    torch = pytest.importorskip("torch")
    x, kernel = (array.astype(dtype) for array in reals((4, 32, 16, 16), (32, 48, 4, 4)))
    y = tconv.jax.conv_transpose(
        x,
        kernel,
        (2, 2),
        ((1, 1), (1, 1)),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
        transpose_kernel=True,
        precision=precision,
        use_consistent_padding=True,
    )
    x, kernel = (torch.from_dlpack(jax.block_until_ready(array)) for array in (x, kernel))
    expected = tconv.conv_transpose2d(x, kernel, stride=2, padding=1, math=math)
    np.testing.assert_array_equal(np.asarray(y, float), expected.double().cpu().numpy())


# ---------------------------------------------------------------------------------------------------- transformations


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_derivatives_of_second_order(layer):
    arrays = [array + 0.25 for array in layer.arrays()]
    with jax.default_matmul_precision("float32"):
        check_grads(layer.by_tconv, arrays, order=2, modes=("fwd", "rev"), atol=0.05, rtol=0.05)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("axes", [(0, None, None), (1, 0, None), (None, 1, 0), (0, 0, 1), (None, None, 0)], ids=str)
def test_vmap(layer, axes):
    arrays = stacked(layer, axes)
    assert_same(mapped(layer.by_tconv, axes)(*arrays), on_the_cpu(mapped(layer.by_lax, axes), *arrays))


def test_scan_remat_and_jvp():
    layer = Layer((2, 5, 5, 3), (3, 3, 3, 3), 3, (1, 1), "SAME", None, None, False, False, 1, "float32", False)
    x, w = layer.arrays()

    def network(function):
        def step(carry, weights):
            return jnp.clip(jax.checkpoint(function)(carry, weights), -1, 1), carry.sum()

        def loss(x, weights):
            last, sums = jax.lax.scan(step, x, weights)
            return last.sum() + (sums**2).sum()

        def run(x, weights):
            return jax.value_and_grad(loss, (0, 1))(x, weights), jax.jvp(loss, (x, weights), (x, weights))

        return jax.jit(run)

    weights = jnp.stack([w, -w, w])
    assert_same(network(layer.by_tconv)(x, weights), on_the_cpu(network(layer.by_lax), x, weights))


def test_donated_operands_are_read_before_they_are_written():
    layer = Layer((2, 6, 6, 4), (3, 3, 4, 4), 4, (1, 1), "SAME", None, None, False, False, 1, "float32", False)
    x, w = layer.arrays()
    expected = on_the_cpu(layer.by_lax, x, w)
    assert_same(jax.jit(layer.by_tconv, donate_argnums=0)(x, w), expected)


@pytest.mark.parametrize("shape, kernel", [((1, 4, 4, 4, 2), (2, 2, 2, 2, 3)), ((0, 4, 4, 2), (2, 2, 2, 3))])
def test_what_tconv_has_not_is_lax(shape, kernel):
    before = _shim.calls()
    y = tconv.jax.conv_transpose(jnp.ones(shape), jnp.ones(kernel), (2,) * (len(shape) - 2), "SAME")
    assert _shim.calls() == before and y.devices() == {jax.devices("cuda")[0]}


# ------------------------------------------------------------------------------------------------ streams and buffers


def test_calls_wait_for_what_precedes_them():
    """A program whose operands are the result of long work on XLA's stream, and differ from one run to the next. Two
    threads call it at once."""
    layer = Layer((4, 32, 32, 16), (4, 4, 16, 16), 16, (2, 2), "SAME", None, None, False, False, 1, "float32", False)
    x, w = layer.arrays()
    turns = jnp.eye(2048)[jnp.arange(2048)[::-1]]

    @jax.jit
    def run(factor, x, w, turns):
        long = jax.lax.fori_loop(0, 20, lambda i, a: a @ turns, turns)
        return layer.by_tconv(factor * x * long[0, 2047], w)  # which is 1

    expected = np.asarray(on_the_cpu(layer.by_lax, x, w))
    wrong = []

    def repeat():
        with jax.default_device(jax.devices("cuda")[0]):
            for i in range(12):
                if not (np.asarray(run(jnp.float32(i % 5), x, w, turns)) == i % 5 * expected).all():
                    wrong.append(i)

    threads = [threading.Thread(target=repeat, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads) and not wrong


def test_too_little_workspace_is_refused():
    """As in a program that was compiled for another GPU."""
    x, w = jnp.ones((2, 5, 6, 64)), jnp.ones((64, 4, 4, 32))
    words = np.array((0, 0, 1, 1, 2, 64, 5, 6, 32, 4, 4, 2, 2, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1), np.int64)
    results = jax.ShapeDtypeStruct((2, 10, 12, 32), np.float32), jax.ShapeDtypeStruct((0,), np.uint8)
    with pytest.raises(Exception, match="compiled for another GPU"):
        jax.block_until_ready(jax.jit(lambda x, w: jax.ffi.ffi_call("tconv_forward", results)(x, w, layer=words))(x, w))


COMMAND_BUFFER = """
import sys
sys.path.insert(0, {tests!r})
import jax, jax.numpy as jnp, numpy as np
import tconv
from jax_layers import Layer
from tconv.jax import _shim
layer = Layer((4, 16, 16, 32), (4, 4, 32, 16), 16, (2, 2), "SAME", None, None, False, False, 1, {dtype!r}, True)
x, w, bias = layer.arrays()

def step(function):
    def run(x, w, bias):
        y, pull = jax.vjp(function, x, w, bias)
        return y, *pull(jnp.clip(jnp.round(y / 16), -1, 1))
    return run

program = jax.jit(step(layer.by_tconv)).lower(x, w, bias).compile()
with jax.default_device(jax.devices("cpu")[0]):
    theirs = jax.jit(step(layer.by_lax))
    cpu = jax.devices("cpu")[0]
    inputs = [jax.device_put([array * sign for array in (x, w, bias)], cpu) for sign in (1, -1)]
    expected = [theirs(*arrays) for arrays in inputs]
if {forgets}:
    tconv.reload_environment()  # plans are made while XLA records
before = _shim.calls()
kept = []
for i in range(12):  # with results that are kept, and so at other addresses, and with results that are not
    arrays = [jnp.array(array) if i % 3 else array for array in ((x, w, bias) if i % 2 == 0 else (-x, -w, -bias))]
    results = program(*arrays)
    kept.append(results)
    for a, b in zip(results, expected[i % 2], strict=True):
        np.testing.assert_array_equal(np.asarray(a, float), np.asarray(b, float), f"execution {{i}}")
for results, i in zip(kept, range(12)):
    for a, b in zip(results, expected[i % 2], strict=True):
        np.testing.assert_array_equal(np.asarray(a, float), np.asarray(b, float))
del kept, results
jax.block_until_ready(program(x, w, bias))
between = _shim.calls()
for _ in range(20):
    jax.block_until_ready(program(x, w, bias))
print("calls:", between - before, "in 13 executions,", _shim.calls() - between, "in 20 at the same addresses")
"""


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_command_buffers_are_launched_again(dtype, forgets):
    """XLA records a program of three calls, and launches the recording: handlers are then called less often than the
    program runs. Operands and results change their places, which XLA has to record anew or to update."""
    ran = in_a_process(
        COMMAND_BUFFER.format(tests=str(pathlib.Path(__file__).parent), dtype=dtype, forgets=forgets),
        XLA_FLAGS="--xla_gpu_graph_min_graph_size=1",
    )
    last = ran.splitlines()[-1]
    print(last)
    assert last.startswith("calls:") and int(last.split(",")[1].split()[0]) < 3 * 20, ran


def in_a_process(program, **more):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(pathlib.Path(tconv.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        **more,
    }
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


# ------------------------------------------------------------------------------------------------------- several GPUs


SHARDED = """
import sys
sys.path.insert(0, {tests!r})
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_layers import Layer
from tconv.jax import _shim
layer = Layer((16, 6, 6, 4), (3, 3, 4, 6), 6, (2, 1), "SAME", None, None, False, False, 1, "float32", True)
arrays = layer.arrays()
devices = jax.devices("cuda")
mesh = Mesh(np.array(devices), ("a",))

def step(function):
    def run(x, w, bias):
        y, pull = jax.vjp(function, x, w, bias)
        return y, *pull(jnp.round(y / 4))
    return run

cpu = jax.devices("cpu")[0]
with jax.default_device(cpu):
    expected = jax.jit(step(layer.by_lax))(*jax.device_put(arrays, cpu))

def check(run, *arrays):
    before = _shim.calls()
    for a, b in zip(jax.jit(run)(*arrays), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert _shim.calls() > before

for of_x in (P("a"), P(None, "a"), P()):
    x, w, bias = (jax.device_put(of, NamedSharding(mesh, spec)) for of, spec in zip(arrays, (of_x, P(), P())))
    check(step(layer.by_tconv), x, w, bias)
x, w, bias = (jax.device_put(of, NamedSharding(mesh, spec)) for of, spec in zip(arrays, (P("a"), P(), P())))
compiled = jax.jit(step(layer.by_tconv)).lower(x, w, bias).compile()
text = compiled.as_text()
assert f"f32[{{16 // len(devices)}},12,6,6]" in text and "all-gather" not in text and "all-reduce" in text, text
y, dx, dw, _ = compiled(x, w, bias)
assert y.sharding.spec[0] == dx.sharding.spec[0] == "a" and dw.sharding.is_fully_replicated
by_images = jax.shard_map(layer.by_tconv, mesh=mesh, in_specs=(P("a"), P(), P()), out_specs=P("a"))
check(step(by_images), *arrays)
for device in devices:  # each by itself, which is current while its call runs
    check(step(layer.by_tconv), *jax.device_put(arrays, device))
print("right")
"""


def test_images_are_split_over_gpus():
    if len(jax.devices("cuda")) < 2:
        pytest.skip("this needs two GPUs")
    assert in_a_process(SHARDED.format(tests=str(pathlib.Path(__file__).parent))).endswith("right\n")
