"""Transformations of tconv.jax.conv_transpose: derivatives of both modes and every order, vmap, scan, remat, and parts
on several devices."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("tconv.jax", exc_type=ImportError)

import jax
import jax.numpy as jnp
from jax.test_util import check_grads
from jax_layers import LAYERS, NHWC, Layer, mapped, stacked

import tconv
import tconv.jax
from tconv.jax import _shim


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_derivatives_of_second_order(layer):
    arrays = [array + 0.25 for array in layer.arrays()]
    check_grads(layer.by_tconv, arrays, order=2, modes=("fwd", "rev"), atol=0.05, rtol=0.05)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_derivatives_of_gradients_are_lax_s(layer):
    """Derivatives of both gradients, of either mode, for which check_grads has bounds and this has none."""

    def norms(function):
        def sum_of_squares(*arrays):
            return (function(*arrays) ** 2).sum()

        gradients = jax.grad(sum_of_squares, (0, 1, 2))
        reverse = jax.grad(lambda *arrays: sum((g**2).sum() for g in gradients(*arrays)), (0, 1, 2))
        return jax.jit(lambda *arrays: (reverse(*arrays), jax.jvp(gradients, arrays, arrays)))

    arrays = layer.arrays()
    ours, theirs = (jax.tree.leaves(norms(f)(*arrays)) for f in (layer.by_tconv, layer.by_lax))
    for a, b in zip(ours, theirs, strict=True):
        assert np.abs(a).max() < 2**24  # so that float32 is exact
        np.testing.assert_array_equal(a, b)


def test_gradients_need_no_more_than_operands():
    """In the program there are three calls, and no convolution of XLA's."""
    layer = NHWC
    program = jax.jit(jax.grad(lambda *arrays: (layer.by_tconv(*arrays) ** 2).sum(), (0, 1, 2)))
    text = program.lower(*layer.arrays()).as_text()
    assert [text.count(f"@tconv_{name}(") for name in ("forward", "backward_data", "backward_weights")] == [1, 1, 1]
    assert "stablehlo.convolution" not in text


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("axes", [(0, None, None), (1, 0, None), (None, 1, 0), (0, 0, 1), (None, None, 0)], ids=str)
def test_vmap(layer, axes):
    """The layer and its gradients, for each element of a new axis of some operands."""
    arrays = stacked(layer, axes)
    for a, b in zip(mapped(layer.by_tconv, axes)(*arrays), mapped(layer.by_lax, axes)(*arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_vmap_over_images_is_one_call():
    layer = NHWC
    x, w, bias = layer.arrays()
    before = _shim.calls()
    jax.block_until_ready(jax.vmap(layer.by_tconv, (0, None, None))(jnp.stack([x] * 5), w, bias))
    assert _shim.calls() == before + 1


def test_scan_and_remat():
    layer = Layer((2, 5, 5, 3), (3, 3, 3, 3), 3, (1, 1), "SAME", None, None, False, False, 1, "float32", False)
    x, w = layer.arrays()

    def network(function):
        def step(carry, weights):
            return jnp.clip(jax.checkpoint(function)(carry, weights), -1, 1), carry.sum()

        def loss(x, weights):
            last, sums = jax.lax.scan(step, x, weights)
            return last.sum() + (sums**2).sum()

        return jax.jit(jax.value_and_grad(loss, (0, 1)))

    weights = jnp.stack([w, -w, w])
    ours, theirs = (jax.tree.leaves(network(f)(x, weights)) for f in (layer.by_tconv, layer.by_lax))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_donated_operands_are_read_before_they_are_written():
    layer = Layer((2, 6, 6, 4), (3, 3, 4, 4), 4, (1, 1), "SAME", None, None, False, False, 1, "float32", False)
    x, w = layer.arrays()
    expected = np.asarray(layer.by_lax(x, w))
    np.testing.assert_array_equal(jax.jit(layer.by_tconv, donate_argnums=0)(x, w), expected)


SHARDED = """
import sys
sys.path.insert(0, {tests!r})
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_layers import Layer
layer = Layer((16, 6, 6, 4), (3, 3, 4, 6), 6, (2, 1), "SAME", None, None, False, False, 1, "float32", True)
arrays = layer.arrays()
devices = jax.devices()
assert len(devices) == 8
mesh = Mesh(np.array(devices).reshape(4, 2), ("a", "b"))

def step(function):
    def run(x, w, bias):
        y, pull = jax.vjp(function, x, w, bias)
        return y, *pull(jnp.round(y / 4))
    return run

expected = jax.jit(step(layer.by_lax))(*arrays)

def check(run, *arrays):
    for a, b in zip(jax.jit(run)(*arrays), expected, strict=True):
        np.testing.assert_array_equal(a, b)

for of_x in (P("a"), P(("a", "b")), P(None, "b"), P("a", None, None, "b"), P()):
    for of_w in (P(), P(None, None, "a", "b")):
        x, w = (jax.device_put(of, NamedSharding(mesh, spec)) for of, spec in zip(arrays, (of_x, of_w)))
        check(step(layer.by_tconv), x, w, arrays[2])
x = jax.device_put(arrays[0], NamedSharding(mesh, P(("a", "b"))))
compiled = jax.jit(step(layer.by_tconv)).lower(x, *arrays[1:]).compile()
text = compiled.as_text()
assert "f32[2,12,6,6]" in text and "all-gather" not in text and "all-reduce" in text, text
y, dx, dw, _ = compiled(x, *arrays[1:])
assert y.sharding.spec[0] == dx.sharding.spec[0] == ("a", "b") and dw.sharding.is_fully_replicated
for checked in ({{}}, {{"check_vma": False}}):
    by_images = jax.shard_map(layer.by_tconv, mesh=mesh, in_specs=(P("a"), P(), P()), out_specs=P("a"), **checked)
    check(step(by_images), *arrays)
if hasattr(jax, "set_mesh"):
    explicit = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(explicit):
        whole = NamedSharding(explicit, P())
        x = jax.device_put(arrays[0], NamedSharding(explicit, P("a")))
        check(step(layer.by_tconv), x, *(jax.device_put(of, whole) for of in arrays[1:]))
y = jax.pmap(lambda x: layer.by_tconv(x, *arrays[1:]))(arrays[0].reshape(8, 2, 6, 6, 4))
np.testing.assert_array_equal(y.reshape(expected[0].shape), expected[0])
print("right")
"""


def test_images_are_split_over_devices():
    """Eight of the host, in a process of its own: the layer, both gradients, and who has which part."""
    tests = pathlib.Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONPATH": str(pathlib.Path(tconv.__file__).parents[1]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    }
    program = SHARDED.format(tests=str(tests))
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "right\n"
