"""tconv for JAX."""

from __future__ import annotations

from ._public import conv_transpose

__all__ = ["conv_transpose"]
