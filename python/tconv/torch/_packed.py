"""Weights that are packed once and not in every call, which is what freeze gives a module.

Packed weights belong to a plan, and so to the shape of an input: a module keeps those of the few that it met last. Each
remembers the state of the weight that it was made of, and is made anew where that has changed.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook

from .._errors import OutOfMemoryError
from .._plan import Cache
from ._compute import Layer
from ._reasons import count_packing

# Shapes of inputs for which a module has packed weights at once.
SHAPES = 8


_steps = 0  # of optimizers


def _count_step(*arguments: Any) -> None:
    global _steps
    _steps += 1


@functools.lru_cache(maxsize=1)
def _count_steps() -> None:
    """From now on. Fused optimizers change parameters in place without PyTorch's counting it in their _version."""
    register_optimizer_step_post_hook(_count_step)


def optimizer_steps() -> int:
    """Those of all optimizers since this was first asked."""
    _count_steps()
    return _steps


def _state(weight: Tensor) -> tuple[int, ...]:
    """What tells whether a weight of the same layer, and so of the same shape, strides and dtype, is as it was: its
    memory and where in it, PyTorch's count of changes in place, and the steps of optimizers."""
    return weight.untyped_storage()._cdata, weight.data_ptr(), weight._version, _steps


class _Entry(NamedTuple):
    layer: Layer  # kept, so that no other gets its identity
    state: tuple[int, ...]
    storage: StorageWeakRef  # keeps another storage from getting this one's identity, but not its memory
    packed: Layer


class PackedWeights:
    """The packed weights of a module. A copy of it, or one that was pickled, starts with none."""

    def __init__(self) -> None:
        _count_steps()
        self._entries: Cache[_Entry] = Cache(SHAPES)

    def __reduce__(self) -> Any:
        return PackedWeights, ()

    def __deepcopy__(self, memo: Any) -> PackedWeights:
        return PackedWeights()

    def layer(self, layer: Layer, weight: Tensor) -> Layer:
        """The layer with packed weights. What a CUDA graph captures is the layer as it is: the graph would neither see
        changed weights nor keep packed ones."""
        if weight.is_inference() or (layer.device is not None and torch.cuda.is_current_stream_capturing()):
            return layer
        state = _state(weight)
        entry = self._entries.get(id(layer))
        if entry is not None and entry.state == state:
            return entry.packed
        if entry is not None:
            self._entries.clear()
        made = _Entry(layer, state, StorageWeakRef(weight.untyped_storage()), _pack(layer, weight))
        return self._entries.make(id(layer), lambda: made).packed


def _pack(layer: Layer, weight: Tensor) -> Layer:
    weights = weight.contiguous() if layer.copy_weight else weight
    stream = 0 if layer.device is None else torch._C._cuda_getCurrentRawStream(layer.device)
    try:
        plan = layer.plan.pack(weights.data_ptr(), stream)
    except OutOfMemoryError:
        if layer.device is None:
            raise
        torch.cuda.empty_cache()  # this memory is the driver's, of which PyTorch's allocator may keep all
        plan = layer.plan.pack(weights.data_ptr(), stream)
    if layer.device is not None:
        torch.cuda.current_stream(layer.device).synchronize()  # other streams may use it from now on
    count_packing()
    elements = -(-plan.workspace_size // weight.element_size())
    return layer._replace(plan=plan, workspace_elements=elements, copy_weight=False)
