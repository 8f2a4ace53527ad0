"""What a plan says of its layer before it knows where the arrays live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _arrays, _errors, _layer, _posts
from . import _library as lib
from .post import PostOp


class PackedLayer(NamedTuple):
    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    arguments: _layer.Arguments
    layout: int
    math: int
    posts: tuple[PostOp, ...] = ()

    @property
    def batched(self) -> bool:
        return len(self.x_shape) == len(self.weight_shape)

    def make_desc(self, dtype: int) -> lib.Desc:
        x_shape = _layer.with_batch(self.batched, self.x_shape, 1)
        desc = _layer.make_desc(x_shape, self.weight_shape, self.arguments, dtype, self.math)
        desc.layout = self.layout
        _posts.fill(desc, self.posts)
        return desc

    def named_operands(self) -> dict[int, dict[str, Any]]:
        """Those that are known when the plan is made, by step and name; an addend comes with each call."""
        steps = enumerate(self.posts)
        return {i: _posts.named_operands_of(i, step) for i, step in steps if step.kind != lib.POST_ADD_TENSOR}

    def addresses(self, of_channels: Mapping[int, int], addend: int) -> list[int]:
        """By step, of operands that are known and of the addend of a call."""
        steps = enumerate(self.posts)
        return [addend if step.kind == lib.POST_ADD_TENSOR else of_channels.get(i, 0) for i, step in steps]

    def check_addend(self, is_given: bool) -> None:
        """That a call has one exactly where the list has a step for it."""
        is_due = any(step.kind == lib.POST_ADD_TENSOR for step in self.posts)
        if is_due != is_given:
            rule = "must be given, the plan's list has an add" if is_due else "must be None, the plan's list has no add"
            raise _errors.invalid("addend", f"addend: {rule}")

    def check_x(self, shape: tuple[int, ...], dtype: int, expected: int) -> None:
        _arrays.check_shape("x", shape, self.x_shape, "that of the plan, ")
        if dtype != expected:
            name, wanted = _arrays.DTYPE_NAMES[dtype], _arrays.DTYPE_NAMES[expected]
            raise _errors.wrong_dtype("x", f"x is {name}: must be of the plan's dtype, {wanted}")
