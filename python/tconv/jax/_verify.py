"""The self-check: random small layers and their gradients on each platform, against lax on the CPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import _shim
from ._layer import PLATFORMS
from ._public import conv_transpose

_INTEGERS = 1  # of small size: all sums are integers that every dtype has, and the answer is exact
_DTYPES = (np.float32, np.float16, jnp.bfloat16)


def verify(layers: int, seed: int) -> int:
    """Prints a line for each platform and operation; the exit status, 1 where one is wrong."""
    print(f"jax {jax.__version__}, {_shim.description()}")
    if not _device("cpu"):
        print("needs JAX on the CPU, with which it compares: JAX_PLATFORMS has no cpu")
        return 1
    wrong = [platform for platform in PLATFORMS if not _is_right(platform, layers, seed)]
    print("wrong" if wrong else "right")
    return int(bool(wrong))


def _device(platform: str) -> Any:
    """JAX's first device of a platform, None for none."""
    try:
        return jax.local_devices(backend=platform)[0]
    except RuntimeError:
        return None


def _is_right(platform: str, layers: int, seed: int) -> bool:
    """Whether the operations are right on a platform, each of which gets a line. Where tconv or JAX does not have the
    platform, the line says so."""
    device, rng, wrong = _device(platform), np.random.default_rng(seed), dict[str, str]()
    why = _shim.missing(platform) if device else "JAX has no such device"
    if why:
        print(f"{platform} is left to lax: {why}")
        return True
    for _ in range(layers):
        text, ours, theirs = _random_case(rng, device)
        for name, a, b in zip(_shim.TARGETS.values(), ours, theirs, strict=True):
            if a.shape != b.shape or not np.array_equal(np.asarray(a, float), np.asarray(b, float)):
                wrong.setdefault(name, text)
    width = max(map(len, _shim.TARGETS.values()))
    for name in _shim.TARGETS.values():
        answer = f"WRONG on {wrong[name]}" if name in wrong else f"right: {layers} layers"
        print(f"{platform:<4} {name:<{width}} {answer}")
    return not wrong


def _random_case(rng: np.random.Generator, device: Any) -> tuple[str, Any, Any]:
    """What the layer is, its result and gradients by tconv on a device, and those by lax on the CPU."""

    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    dtype = _DTYPES[some(0, len(_DTYPES) - 1)]
    spatial = 3 if some(0, 6) == 0 else 2
    kernel, strides, dilation = (tuple(some(1, most) for _ in range(spatial)) for most in (4, 3, 2))
    padding = ("SAME", "VALID")[some(0, 1)]
    x_shape = some(1, 2), *(some(2, 6) for _ in range(spatial)), some(1, 8)
    w_shape = *kernel, x_shape[-1], some(1, 8)
    arrays = [rng.integers(-_INTEGERS, _INTEGERS + 1, shape).astype(dtype) for shape in (x_shape, w_shape)]

    def run(function: Any, device: Any) -> Any:
        @jax.jit
        def step(x: jax.Array, w: jax.Array) -> Any:
            y, pull = jax.vjp(lambda x, w: function(x, w, strides, padding, dilation), x, w)
            of_y = (jnp.arange(y.size, dtype=jnp.int32) % 3 - 1).reshape(y.shape).astype(dtype)
            return y, *pull(of_y)

        with jax.default_device(device):
            return step(*jax.device_put(arrays, device))

    text = f"x {x_shape}, kernel {w_shape}, strides {strides}, {padding}, dilation {dilation}, {np.dtype(dtype).name}"
    return text, run(conv_transpose, device), run(lax.conv_transpose, _device("cpu"))
