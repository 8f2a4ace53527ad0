"""Tensors of channels on their way from a graph into a list of post-ops: made one number for each channel in the type
of sums, with those of a normalization folded into a scale and a shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from .. import _library as lib

_AFFINE = frozenset({lib.POST_ADD_CHANNEL, lib.POST_MUL_CHANNEL})
# Two steps are no more than what they would be folded into.
_FOLDED = 3


class Vector(NamedTuple):
    """A tensor of channels in a graph, times a number; or the scale or the shift that steps by channel come to."""

    node: fx.Node | None
    factor: float = 1.0
    of_steps: tuple[tuple[bool, fx.Node, float], ...] = ()  # whether it multiplies, what, times what
    is_shift: bool = False


def folded(steps: Sequence[Any], make: Callable[..., Any]) -> tuple[Any, ...]:
    """The list with every run of three steps by channel or more, as a normalization is, as a scale and a shift. make
    makes a step."""
    found: list[Any] = []
    run: list[Any] = []
    for step in (*steps, None):
        if step is not None and step.kind in _AFFINE:
            run.append(step)
            continue
        found += _fold(run, make) if len(run) >= _FOLDED else run
        run = []
        if step is not None:
            found.append(step)
    return tuple(found)


def _fold(run: Sequence[Any], make: Callable[..., Any]) -> list[Any]:
    parts = tuple((s.kind == lib.POST_MUL_CHANNEL, s.vectors[0].node, s.vectors[0].factor) for s in run)
    scale, shift = Vector(None, 1.0, parts), Vector(None, 1.0, parts, True)
    if not any(multiplies for multiplies, _, _ in parts):
        return [make(lib.POST_ADD_CHANNEL, vectors=(shift,))]
    return [make(lib.POST_MUL_CHANNEL, vectors=(scale,)), make(lib.POST_ADD_CHANNEL, vectors=(shift,))]


class Emitter:
    """Puts what vectors are computed by into a graph, before a node of it."""

    def __init__(self, call: Callable[..., fx.Node], channels: Any, dtype: torch.dtype) -> None:
        self._call = call
        self._channels = channels
        self._dtype = torch.float64 if dtype is torch.float64 else torch.float32
        self._folds: dict[Any, tuple[fx.Node | None, fx.Node | None]] = {}

    def operand(self, vectors: Sequence[Vector]) -> fx.Node:
        """One tensor of what a step has."""
        made = [self._vector(vector) for vector in vectors]
        return made[0] if len(made) == 1 else self._call(torch.ops.aten.cat.default, made)

    def _vector(self, vector: Vector) -> fx.Node:
        if vector.of_steps:
            scale, shift = self._fold(vector.of_steps)
            node = shift if vector.is_shift else scale
            assert node is not None
            return self._convert(node, self._dtype)
        assert vector.node is not None
        return self._scaled(self._flat(vector.node, self._dtype), vector.factor)

    def _fold(self, parts: Sequence[tuple[bool, fx.Node, float]]) -> tuple[fx.Node | None, fx.Node | None]:
        """In float64, so that what a mean and a scale have of digits stays."""
        aten = torch.ops.aten
        found = self._folds.get(tuple(parts))
        if found is not None:
            return found
        scale: fx.Node | None = None
        shift: fx.Node | None = None
        for multiplies, node, factor in parts:
            vector = self._scaled(self._flat(node, torch.float64), factor)
            if not multiplies:
                shift = vector if shift is None else self._call(aten.add.Tensor, shift, vector)
                continue
            scale = vector if scale is None else self._call(aten.mul.Tensor, scale, vector)
            shift = None if shift is None else self._call(aten.mul.Tensor, shift, vector)
        if shift is None:
            assert scale is not None
            shift = self._call(aten.mul.Tensor, scale, 0.0)
        self._folds[tuple(parts)] = scale, shift
        return scale, shift

    def _flat(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        """One number for each channel."""
        aten = torch.ops.aten
        tensor = node.meta["val"]
        if tensor.dim() != 1:
            node = self._call(aten.reshape.default, node, [-1])
        if node.meta["val"].shape[0] == 1 and self._channels != 1:
            if type(self._channels) is not int:
                raise ValueError("one number for all of a number of channels that is not known")
            node = self._call(aten.expand.default, node, [self._channels])
        return self._convert(node, dtype)

    def _convert(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        if node.meta["val"].dtype is dtype:
            return node
        return self._call(torch.ops.prims.convert_element_type.default, node, dtype)

    def _scaled(self, node: fx.Node, factor: float) -> fx.Node:
        if factor == 1:
            return node
        if factor == -1:
            return self._call(torch.ops.aten.neg.default, node)
        return self._call(torch.ops.aten.mul.Tensor, node, float(factor))
