"""The operators of compiled programs in which layers store into concatenations (_fusion_cat.py): tconv::cat, which is
torch.cat, and tconv::conv_transpose_out, a layer of one or two dimensions with memory for its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._compute import PYTORCHS
from ._post_list import of_text
from ._post_operator import in_one_call, one_after_the_other

# Kept as long as the module is: the registrations go when it does.
_library = torch.library.Library("tconv", "FRAGMENT")
_library.define(
    "cat(Tensor[] tensors, int dim=0) -> Tensor", tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
)
_library.impl("cat", torch.cat, "CompositeImplicitAutograd")
_library.define(
    "conv_transpose_out(Tensor[] tensors, bool has_bias, int[] stride, int[] padding, int[] output_padding, "
    "int groups, int[] dilation, str post, *, Tensor(a!) out) -> ()",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
)


def _store(
    tensors: Sequence[Tensor],
    has_bias: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    post: str,
    *,
    out: Tensor,
) -> None:
    """The tensors are input, weight, bias if there is one, and the operands of the list of post-ops, "" for none."""
    bias = tensors[2] if has_bias else None
    operands = tensors[3 if has_bias else 2 :]
    arguments: tuple[Any, ...] = (*tensors[:2], bias, stride, padding, output_padding, groups, dilation)
    spatial = tensors[1].dim() - 2
    if in_one_call(spatial, arguments, of_text(post) if post else None, operands, out) is None:
        answer = PYTORCHS[spatial](*arguments)
        out.copy_(one_after_the_other(spatial, PYTORCHS[spatial], arguments, post, operands) if post else answer)


_library.impl("conv_transpose_out", _store, "CompositeExplicitAutograd")
CAT = torch.ops.tconv.cat.default
OUT = torch.ops.tconv.conv_transpose_out.default
