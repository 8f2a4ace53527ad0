"""What PyTorch calls channels_last, by the number of axes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def memory_format(channels_last: bool, rank: int) -> torch.memory_format:
    """That of tensors with so many axes. PyTorch has channels_last of four and of five alone, and refuses others."""
    return _CHANNELS_LAST.get(rank, torch.channels_last) if channels_last else torch.contiguous_format


def lies_channels_last(tensor: Tensor) -> bool:
    """Whether PyTorch says so of the tensor's strides; never of three axes."""
    return suggest_memory_format(tensor) != torch.contiguous_format
