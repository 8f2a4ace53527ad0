"""The operators' rule for torch.vmap: one call for the whole map, or one for each of its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Rule = Callable[..., tuple[Tensor, int]]


def batched(operator: Callable[..., Tensor], spatial: int) -> Rule:
    """The rule for torch.library.register_vmap. Mapped inputs become more images; mapped weights become more output
    channels where all read the same input, and more groups where each reads its own."""
    ones, zeros = (1,) * spatial, (0,) * spatial

    def rule(
        info: Any,
        dims: tuple[Any, ...],
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sequence[int] = ones,
        padding: Sequence[int] = zeros,
        output_padding: Sequence[int] = zeros,
        groups: int = 1,
        dilation: Sequence[int] = ones,
    ) -> tuple[Tensor, int]:
        where = (*dims[:3], None)[:3]  # the bias need not be among the arguments
        mapped = [dim is not None for dim in where]
        tensors: list[Any] = [
            tensor if tensor is None else _memory(tensor if dim is None else tensor.movedim(dim, 0))
            for tensor, dim in zip((input, weight, bias), where, strict=True)
        ]

        def call(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int = groups) -> Tensor:
            return operator(input, weight, bias, stride, padding, output_padding, groups, dilation)

        def part(i: int) -> list[Any]:
            return [tensor[i] if moved else tensor for tensor, moved in zip(tensors, mapped, strict=True)]

        if not _valid(tensors, mapped, groups, spatial):
            return torch.stack([call(*part(i)) for i in range(info.batch_size)]), 0
        input, weight, bias = tensors
        if not mapped[1]:
            return _shared_weights(call, input, weight, bias, mapped)
        without_images = input.dim() - mapped[0] == spatial + 1
        if without_images:
            input = input.unsqueeze(1 if mapped[0] else 0)
        fold = _own_inputs if mapped[0] else _shared_input
        result = fold(call, input, weight, bias, mapped[2], groups)
        return (result.squeeze(0), 0) if without_images else (result, 1)

    return rule


def _memory(tensor: Tensor) -> Tensor:
    """Zeros that have no memory, the tangents of what has none, with it: fake ones cannot be copied without."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor


def _valid(tensors: Sequence[Any], mapped: Sequence[bool], groups: int, spatial: int) -> bool:
    """Whether shapes and types are such that every part is a valid call. Otherwise each part is called, and the
    operator says what is wrong."""
    input, weight, bias = tensors
    image, filters = input.shape[mapped[0] :], weight.shape[mapped[1] :]
    if len(filters) != spatial + 2 or len(image) not in (spatial + 1, spatial + 2) or groups < 1:
        return False
    if image[-spatial - 1] != filters[0] or filters[0] % groups or input.dtype != weight.dtype:
        return False
    return bias is None or (bias.shape[mapped[2] :] == (filters[1] * groups,) and bias.dtype == input.dtype)


def _shared_weights(
    call: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, mapped: Sequence[bool]
) -> tuple[Tensor, int]:
    """The inputs as images. A mapped bias is added afterwards, as PyTorch does."""
    folded = mapped[0] and input.dim() == weight.dim() + 1
    images = input.flatten(0, 1) if folded else input
    result = call(images, weight, None if mapped[2] else bias)
    if folded:
        result = result.unflatten(0, input.shape[:2])
    if bias is not None and mapped[2]:
        channels = weight.dim() - 2
        result = result if mapped[0] else result.unsqueeze(0)
        ones = (1,) * (result.dim() - 2 - channels)
        result = result + bias.to(result.dtype).reshape(bias.shape[0], *ones, bias.shape[1], *(1,) * channels)
    return result, 0


def _shared_input(
    call: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, mapped_bias: bool, groups: int
) -> Tensor:
    """The weights as further output channels of each group, of one input; the map becomes the second axis."""
    parts, channels = weight.shape[0], weight.shape[2]
    if bias is not None:
        bias = bias if mapped_bias else bias.expand(parts, -1)
        bias = bias.unflatten(1, (groups, channels)).movedim(0, 1).flatten()
    result = call(input, weight.movedim(0, 1).flatten(1, 2), bias)
    return result.unflatten(1, (groups, parts, channels)).movedim(2, 1).flatten(2, 3)


def _own_inputs(
    call: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, mapped_bias: bool, groups: int
) -> Tensor:
    """Each part of the map as groups of its own; the map becomes the second axis."""
    parts = weight.shape[0]
    if bias is not None:
        bias = bias.flatten() if mapped_bias else bias.repeat(parts)
    result = call(input.movedim(0, 1).flatten(1, 2), weight.flatten(0, 1), bias, parts * groups)
    return result.unflatten(1, (parts, -1))
