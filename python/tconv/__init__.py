"""tconv: transposed convolution (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d) on the CPU and on CUDA.

conv_transpose1d, conv_transpose2d, conv_transpose3d, Plan and Stream take NumPy arrays and everything that speaks
DLPack, and so do the gradients, on the host. tconv.post has what outputs may go through before they are stored.
tconv.torch, which needs PyTorch and has to be imported by name, has the drop-ins for torch.nn.ConvTranspose1d to
ConvTranspose3d, tconv.jax, likewise, the one for jax.lax.conv_transpose. What the library refuses is a TconvError.

Examples::

    >>> import numpy as np
    >>> import tconv
    >>> x, weight = np.ones((1, 3, 8, 8), np.float32), np.ones((3, 2, 4, 4), np.float32)
    >>> y = tconv.conv_transpose2d(x, weight, np.zeros(2, np.float32), stride=2, padding=1)
    >>> y.shape
    (1, 2, 16, 16)
"""

from __future__ import annotations

import json
from typing import Any

from . import _library, _plan, post
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
from ._functional import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ._gradients import (
    conv_transpose1d_backward_data,
    conv_transpose1d_backward_weights,
    conv_transpose2d_backward_data,
    conv_transpose2d_backward_weights,
    conv_transpose3d_backward_data,
    conv_transpose3d_backward_weights,
)
from ._packed import Plan
from ._stream import Stream
from ._version import VERSION as __version__

__all__ = [
    "CudaError",
    "DtypeError",
    "EnvironmentVariableError",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "Plan",
    "SizeOverflowError",
    "Stream",
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
    "conv_transpose3d",
    "conv_transpose3d_backward_data",
    "conv_transpose3d_backward_weights",
    "info",
    "post",
    "reload_environment",
]


def __dir__() -> list[str]:
    """What is public."""
    return sorted([*__all__, *(name for name in ("jax", "torch") if name in globals())])


def info() -> dict[str, Any]:
    """The build and the machine, as `tconv info --json` has them.

    Returns:
        version, backends and why one is missing, GPUs, instruction sets, cores, caches and the environment variables in
        effect.

    Examples::

        >>> import tconv
        >>> tconv.info()["version"] == tconv.__version__
        True
    """
    return json.loads(_library.system_info(_library.TEXT_JSON))


def reload_environment() -> None:
    """Reads the TCONV_* environment variables again, which the library otherwise reads once, when it is first used.
    Layers of tconv.conv_transpose2d and of tconv.torch that are called from now on heed them. Nobody may change the
    environment meanwhile.

    Raises:
        tconv.EnvironmentVariableError: a variable has a value that it does not accept. The others are read then, too.

    Examples::

        >>> import os, tconv
        >>> os.environ["TCONV_NUM_THREADS"] = "1"
        >>> tconv.reload_environment()
        >>> del os.environ["TCONV_NUM_THREADS"]
        >>> tconv.reload_environment()
    """
    try:
        _library.reload_environment()
    finally:
        _plan.forget_plans()


_library.check()
