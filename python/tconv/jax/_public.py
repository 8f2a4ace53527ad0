from __future__ import annotations

from collections.abc import Sequence
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
