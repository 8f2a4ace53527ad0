"""equinox's transposed convolutions by tconv, in whose place they are put.

Examples::

    >>> import equinox, jax
    >>> import tconv.jax.equinox
    >>> layer = equinox.nn.ConvTranspose2d(3, 2, 4, stride=2, padding=1, key=jax.random.key(0))
    >>> tconv.jax.equinox.ConvTranspose2d.from_layer(layer)(jax.numpy.ones((3, 8, 8))).shape
    (2, 16, 16)
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax

try:
    import equinox
except ImportError as error:
    raise ImportError("tconv.jax.equinox needs equinox: pip install equinox") from error

from ._public import conv_transpose

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

Module = TypeVar("Module", bound="_FromLayer")


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)


class _FromLayer(equinox.nn.ConvTranspose):
    """What all have."""

    @classmethod
    def from_layer(cls: type[Module], layer: Any) -> Module:
        """The same layer by tconv, with the arrays of the one that is given.

        Args:
            layer: equinox's layer of as many axes.

        Returns:
            A module of this class.

        Raises:
            TypeError: the layer is another one.
        """
        kind: Any = cls.__mro__[2]
        if not isinstance(layer, kind):
            raise TypeError(
                f"{cls.__name__}.from_layer takes an equinox.nn.{kind.__name__}, not {type(layer).__name__}."
            )
        made = object.__new__(cls)
        for field in dataclasses.fields(kind):
            object.__setattr__(made, field.name, getattr(layer, field.name))
        return made

    def __call__(self, x: Any, *, key: Any = None) -> jax.Array:
        """The layer's output. Circular padding is left to equinox.

        Args:
            x: the input, (in_channels, ...), a tracer of vmap as well.
            key: is ignored, as in equinox.

        Returns:
            (out_channels, ...).

        Raises:
            ValueError: an input of another rank.
        """
        if self.padding_mode == "CIRCULAR" or x.ndim != self.num_spatial_dims + 1:
            return super().__call__(x, key=key)
        axes = "DHW"[-self.num_spatial_dims :]
        y = conv_transpose(
            x[None],
            self.weight,
            self.stride,
            self._padding_transpose(),
            self.dilation,
            (f"NC{axes}", f"OI{axes}", f"NC{axes}"),
            bias=None if self.bias is None else self.bias.reshape(-1),
            feature_group_count=self.groups,
        )
        return y[0]


class ConvTranspose1d(_FromLayer, equinox.nn.ConvTranspose1d):
    """equinox.nn.ConvTranspose1d by tconv.

    Args, shapes and errors are those of equinox.nn.ConvTranspose1d.
    """


class ConvTranspose2d(_FromLayer, equinox.nn.ConvTranspose2d):
    """equinox.nn.ConvTranspose2d by tconv."""


class ConvTranspose3d(_FromLayer, equinox.nn.ConvTranspose3d):
    """equinox.nn.ConvTranspose3d by tconv."""
