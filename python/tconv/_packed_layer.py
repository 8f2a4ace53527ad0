"""What a plan says of its layer before it knows where the arrays live."""

from __future__ import annotations

from typing import NamedTuple

from . import _arrays, _errors, _layer
from . import _library as lib


class PackedLayer(NamedTuple):
    spatial: int
    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    arguments: _layer.Arguments
    layout: int
    math: int

    @property
    def missing_axes(self) -> tuple[int, ...]:
        return _layer.missing_axes(self.spatial, len(self.x_shape) == self.spatial + 2)

    @property
    def missing_weight_axes(self) -> tuple[int, ...]:
        return _layer.missing_axes(self.spatial, True)

    def make_desc(self, dtype: int) -> lib.Desc:
        x_shape = _layer.with_axes(self.missing_axes, self.x_shape, 1)
        weight_shape = _layer.with_axes(self.missing_weight_axes, self.weight_shape, 1)
        desc = _layer.make_desc(x_shape, weight_shape, self.arguments, dtype, self.math)
        desc.layout = self.layout
        return desc

    def check_x(self, shape: tuple[int, ...], dtype: int, expected: int) -> None:
        _arrays.check_shape("x", shape, self.x_shape, "that of the plan, ")
        if dtype != expected:
            name, wanted = _arrays.DTYPE_NAMES[dtype], _arrays.DTYPE_NAMES[expected]
            raise _errors.wrong_dtype("x", f"x is {name}: must be of the plan's dtype, {wanted}")
