"""The operators' rules for torch.vmap: one call for the whole map, or one for each of its parts."""

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


# ---------------------------------------------------------------------------------------------------------- gradients

Sizes = Sequence[int]


def _mapped_first(tensor: Any, dim: int | None) -> Any:
    """With the map as the first axis, where there is one."""
    return tensor if dim is None else _memory(tensor.movedim(dim, 0))


def batched_data(operator: Callable[..., Tensor]) -> Rule:
    """That of the input's gradient. Mapped gradients of the output become more images; mapped weights become more input
    channels where all have the same of these gradients, and more groups where each has its own."""

    def rule(
        info: Any,
        dims: tuple[Any, ...],
        diff_dst: Tensor,
        weight: Tensor,
        in_size: Sizes,
        stride: Sizes,
        padding: Sizes,
        groups: int,
        dilation: Sizes,
        channels_last: bool,
    ) -> tuple[Tensor, int]:
        diff_dst, weight = _mapped_first(diff_dst, dims[0]), _mapped_first(weight, dims[1])

        def call(diff_dst: Tensor, weight: Tensor, groups: int = groups) -> Tensor:
            return operator(diff_dst, weight, in_size, stride, padding, groups, dilation, channels_last)

        if dims[1] is None:
            return call(diff_dst.flatten(0, 1), weight).unflatten(0, diff_dst.shape[:2]), 0
        parts = weight.shape[0]
        if dims[0] is not None:
            result = call(diff_dst.movedim(0, 1).flatten(1, 2), weight.flatten(0, 1), parts * groups)
            return result.unflatten(1, (parts, -1)), 1
        of_groups = weight.unflatten(1, (groups, -1)).movedim(0, 1).flatten(0, 2)
        return call(diff_dst, of_groups).unflatten(1, (groups, parts, -1)).movedim(2, 1).flatten(2, 3), 1

    return rule


def batched_weights(operator: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Any]:
    """That of the weight's and the bias's gradients. Where both operands are mapped, the parts are groups; where one
    is, they are more channels of it."""

    def rule(
        info: Any,
        dims: tuple[Any, ...],
        input: Tensor | None,
        diff_dst: Tensor,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes,
        groups: int,
        dilation: Sizes,
        wanted: Sequence[bool],
        channels_last: bool,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int | None, int | None]]:
        parts, input, diff_dst = info.batch_size, _mapped_first(input, dims[0]), _mapped_first(diff_dst, dims[1])

        def call(input: Tensor | None, diff_dst: Tensor, groups: int = groups) -> tuple[Tensor, Tensor]:
            return operator(input, diff_dst, kernel_size, stride, padding, groups, dilation, wanted, channels_last)

        def into_groups(mapped: Tensor) -> Tensor:
            """The map as further channels of each group, of images that lie as before."""
            return mapped.unflatten(2, (groups, -1)).permute(1, 2, 0, *range(3, mapped.dim() + 1)).flatten(1, 3)

        if dims[1] is None:
            assert input is not None
            weights, bias = call(into_groups(input), diff_dst)
            if wanted[0]:
                weights = weights.unflatten(0, (groups, parts, -1)).movedim(1, 0).flatten(1, 2)
            return (weights, bias), (0 if wanted[0] else None, None)
        if dims[0] is not None:
            assert input is not None
            input, diff_dst = (mapped.movedim(0, 1).flatten(1, 2) for mapped in (input, diff_dst))
            weights, bias = call(input, diff_dst, parts * groups)
            if wanted[0]:
                weights = weights.unflatten(0, (parts, -1))
            bias = bias.unflatten(0, (parts, -1)) if wanted[1] else bias
            return (weights, bias), (0 if wanted[0] else None, 0 if wanted[1] else None)
        weights, bias = call(input, into_groups(diff_dst))
        if wanted[0]:
            weights = weights.unflatten(1, (parts, -1))
        if wanted[1]:
            bias = bias.unflatten(0, (groups, parts, -1)).movedim(1, 0).flatten(1, 2)
        return (weights, bias), (1 if wanted[0] else None, 0 if wanted[1] else None)

    return rule
