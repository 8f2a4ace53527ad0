"""tconv: transposed convolution (ConvTranspose2d, ConvTranspose1d) on the CPU and on CUDA.

conv_transpose2d, conv_transpose1d and Plan take NumPy arrays and everything that speaks DLPack. tconv.torch, which
needs PyTorch and has to be imported by name, has the drop-ins for torch.nn.ConvTranspose2d and ConvTranspose1d.
"""

from __future__ import annotations

import json
from typing import Any

from . import _library, _plan
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
from ._functional import conv_transpose1d, conv_transpose2d
from ._gradients import (
    conv_transpose1d_backward_data,
    conv_transpose1d_backward_weights,
    conv_transpose2d_backward_data,
    conv_transpose2d_backward_weights,
)
from ._packed import Plan
from ._version import VERSION as __version__

__all__ = [
    "CudaError",
    "DtypeError",
    "EnvironmentVariableError",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "Plan",
    "SizeOverflowError",
    "TconvError",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "conv_transpose1d",
    "conv_transpose1d_backward_data",
    "conv_transpose1d_backward_weights",
    "conv_transpose2d",
    "conv_transpose2d_backward_data",
    "conv_transpose2d_backward_weights",
    "info",
    "reload_environment",
]


def info() -> dict[str, Any]:
    """The build and the machine: version, backends and why one is missing, GPUs, instruction sets, cores, caches and
    the environment variables in effect; as `tconv info --json` has them."""
    return json.loads(_library.system_info(_library.TEXT_JSON))


def reload_environment() -> None:
    """Reads the TCONV_* environment variables again, which the library otherwise reads once, when it is first used.
    Layers of tconv.conv_transpose2d and of tconv.torch that are called from now on heed them. Nobody may change the
    environment meanwhile."""
    try:
        _library.reload_environment()
    finally:
        _plan.forget_plans()


_library.check()
