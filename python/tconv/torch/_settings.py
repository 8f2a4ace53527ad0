"""PyTorch's settings that plans depend on. Other threads may change them at any time: they are read once for a plan,
which is kept under what was read then, in Python's cache as in the shim's table."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# The bits of flags (native/torch_shim.h). TF32 is float32's alone.
TF32 = 2
CUDNN = 4
DETERMINISTIC = 8

# PyTorch 2.9 made torch.backends.cudnn.allow_tf32 a part of torch.backends.cudnn.conv.fp32_precision.
_fp32_precision = getattr(torch._C, "_get_fp32_precision_getter", None)
_cudnn_enabled = torch._C._get_cudnn_enabled  # the strides of PyTorch's outputs depend on it
_deterministic = torch._C._get_deterministic_algorithms


def tf32() -> bool:
    """Whether PyTorch's convolutions on CUDA may use TF32 now."""
    if _fp32_precision is not None:
        return _fp32_precision("cuda", "conv") == "tf32"
    return torch.backends.cudnn.allow_tf32


class Settings(NamedTuple):
    """As they were when they were read. Those that do not matter are 0."""

    flags: int
    threads: int  # of the CPU


def settings(like: Tensor) -> Settings:
    """For a layer of such an input, now."""
    if not like.is_cuda:
        return Settings(0, torch.get_num_threads())
    return Settings((TF32 if like.dtype is torch.float32 and tf32() else 0) | (CUDNN if _cudnn_enabled() else 0), 0)


def settings_of_gradients(like: Tensor) -> Settings:
    """For gradients, given that of the output."""
    flags, threads = settings(like)
    return Settings(flags | (DETERMINISTIC if like.is_cuda and _deterministic() else 0), threads)


def all_flags() -> int:
    """Whatever the tensors are, now."""
    return (TF32 if tf32() else 0) | (CUDNN if _cudnn_enabled() else 0) | (DETERMINISTIC if _deterministic() else 0)
