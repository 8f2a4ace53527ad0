"""The public functions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from . import _padding
from ._convolution import Arguments, convolve


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
    *,
    bias: Any = None,
    feature_group_count: int = 1,
) -> jax.Array:
    """jax.lax.conv_transpose, with a bias and groups, computed by tconv on the CPU and on CUDA.

    It has derivatives of every order in both modes, and goes through jit, vmap, scan, remat, shard_map and automatic
    sharding, where images are split over devices. Lax computes what tconv does not have: arrays without elements,
    dtypes that are not listed below, padding beyond what tconv has as padding and output padding, and everything on
    other platforms, as on CUDA where the library has no CUDA or no GPU.

    Args:
        lhs: the input.
        rhs: the kernel.
        strides: one for each spatial axis.
        padding: "SAME", "VALID", or a pair for each spatial axis, by which the input, dilated by the stride, is padded.
        rhs_dilation: one for each spatial axis; None is 1.
        dimension_numbers: of lhs, rhs and the result, as jax.lax.conv_general_dilated has them; None is NHWC, HWIO,
            NHWC, in one dimension NHC, HIO, NHC, in three NHWDC, HWDIO, NHWDC.
        transpose_kernel: whether the kernel is that of the convolution whose gradient this is, as in Keras: its spatial
            axes are flipped and its channels change places.
        precision: as lax's convolutions have it. On CUDA float32 is TF32 unless an operand has the highest precision;
            None is what jax_default_matmul_precision says. On the CPU tconv's precision is the highest always.
        preferred_element_type: dtype of the result, None for that of the operands. The layer is computed in this dtype.
        use_consistent_padding: whether pairs, too, are the padding of the convolution whose gradient this is, as in
            PyTorch.
        bias: added to the result, in the same call; one element for each output feature.
        feature_group_count: groups, as jax.lax.conv_general_dilated has them.

    Shape:
        - lhs: N, C, one to three spatial axes, in the order of dimension_numbers; float32, float64, float16, bfloat16
        - rhs: C / groups ("I"), output features ("O"), spatial axes; with transpose_kernel "I" and "O" change places
        - bias: (output features,)
        - result: N, output features and the spatial axes, each (in - 1) * stride + 1 + before + after - dilation *
          (kernel - 1) long, where (before, after) is the padding

    Returns:
        The layer's output.

    Raises:
        TypeError, ValueError: what jax.lax.conv_general_dilated raises for such arguments, or a bias of another shape.
        tconv.TconvError: what the library refuses, such as an environment variable of a value that it does not accept.

    Examples::

        >>> import jax
        >>> import jax.numpy as jnp
        >>> import tconv.jax
        >>> x, kernel = jnp.ones((1, 8, 8, 3)), jnp.ones((4, 4, 3, 2))
        >>> tconv.jax.conv_transpose(x, kernel, (2, 2), "SAME", bias=jnp.zeros(2)).shape
        (1, 16, 16, 2)
        >>> jax.grad(lambda k: tconv.jax.conv_transpose(x, k, (2, 2), "SAME").sum())(kernel).shape
        (4, 4, 3, 2)
    """
    arguments = Arguments(
        strides=_padding.numbers(strides),
        padding=_padding.pairs(padding),
        rhs_dilation=None if rhs_dilation is None else _padding.numbers(rhs_dilation),
        dimension_numbers=tuple(dimension_numbers) if isinstance(dimension_numbers, list) else dimension_numbers,
        transpose_kernel=bool(transpose_kernel),
        precision=tuple(precision) if isinstance(precision, list) else precision,
        preferred_element_type=None if preferred_element_type is None else jnp.dtype(preferred_element_type),
        use_consistent_padding=bool(use_consistent_padding),
        feature_group_count=feature_group_count,
    )
    return convolve(arguments, lhs, rhs, bias)


class _Patch:
    """What jax.lax.conv_transpose was, while contexts of patched() are open in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._original: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._open == 0:
                self._original, jax.lax.conv_transpose = jax.lax.conv_transpose, conv_transpose
            self._open += 1

    def leave(self) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                jax.lax.conv_transpose, self._original = self._original, None


_patch = _Patch()


@contextlib.contextmanager
def patched() -> Iterator[None]:
    """Has jax.lax.conv_transpose be tconv.jax.conv_transpose, for models whose layers call it, such as those of flax
    (linen and nnx). Functions that JAX traces meanwhile, in any thread, get tconv's layers, and keep them
    when they are called later. Functions that JAX has compiled before keep lax's.

    Returns:
        A context, in which the function is replaced; contexts may be open at once and one in another.

    Examples::

        >>> import jax
        >>> import jax.numpy as jnp
        >>> import tconv.jax
        >>> layer = jax.jit(lambda x, kernel: jax.lax.conv_transpose(x, kernel, (2, 2), "SAME"))
        >>> with tconv.jax.patched():
        ...     y = layer(jnp.ones((1, 8, 8, 3)), jnp.ones((4, 4, 3, 2)))
    """
    _patch.enter()
    try:
        yield
    finally:
        _patch.leave()
