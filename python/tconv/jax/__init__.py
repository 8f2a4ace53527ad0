"""tconv for JAX: a transposed convolution on the CPU and on CUDA, with derivatives of every order.

conv_transpose takes what jax.lax.conv_transpose takes, a bias and groups. Models of flax use it within
patched(), and tconv.jax.equinox has layers for equinox. The module needs JAX 0.6.1 or newer and is imported by name.

Examples::

    >>> import jax.numpy as jnp
    >>> import tconv.jax
    >>> tconv.jax.conv_transpose(jnp.ones((1, 8, 8, 3)), jnp.ones((4, 4, 3, 2)), (2, 2), "SAME").shape
    (1, 16, 16, 2)
"""

from __future__ import annotations

try:
    import jax as _jax
except ImportError as error:
    raise ImportError("tconv.jax needs JAX 0.6.1 or newer: pip install 'jax>=0.6.1'") from error

from ._public import conv_transpose, patched

__all__ = ["conv_transpose", "patched"]


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)


del _jax
