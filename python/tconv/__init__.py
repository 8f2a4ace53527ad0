"""tconv: 2-D transposed convolution (ConvTranspose2d) on the CPU and on CUDA.

conv_transpose2d takes NumPy arrays and everything that speaks DLPack. tconv.torch, which needs PyTorch and has to be
imported by name, has the drop-in for torch.nn.ConvTranspose2d.
"""

from __future__ import annotations

import json
from typing import Any

from . import _library
from ._errors import (
    CudaError,
    DtypeError,
    EnvironmentVariableError,
    InvalidArgumentError,
    OutOfMemoryError,
    SizeOverflowError,
    TconvError,
    UnavailableError,
    UnsupportedError,
)
from ._functional import conv_transpose2d

__all__ = [
    "CudaError",
    "DtypeError",
    "EnvironmentVariableError",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "SizeOverflowError",
    "TconvError",
    "UnavailableError",
    "UnsupportedError",
    "conv_transpose2d",
    "info",
]


def info() -> dict[str, Any]:
    """The build and the machine: version, backends and why one is missing, GPUs, instruction sets, cores, caches and
    the environment variables in effect; as `tconv info --json` has them."""
    return json.loads(_library.system_info(_library.TEXT_JSON))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _library.version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
