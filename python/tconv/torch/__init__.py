"""tconv for PyTorch: a drop-in for torch.nn.ConvTranspose1d, ConvTranspose2d and ConvTranspose3d.

The functions and modules take what PyTorch's take and answer as they do; replace(model) changes the layers of a model
in place, and fuse(model) has them compute what follows them. The forward pass on the CPU and on CUDA is tconv's. What
tconv does not take (other devices and dtypes, every mistake) goes to PyTorch's own operator, so that its error or its
answer is what the caller sees; counters() counts these, explain() says why.

Examples::

    >>> import torch, tconv.torch
    >>> model = torch.nn.Sequential(torch.nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), torch.nn.ReLU())
    >>> print(tconv.torch.replace(model).swapped)
    ['0']
    >>> model(torch.randn(1, 16, 8, 8)).shape
    torch.Size([1, 8, 16, 16])
"""

from __future__ import annotations

import torch

from ._cat import cat
from ._explain import Explanation, explain
from ._export import decompositions
from ._freeze import Frozen, freeze, thaw
from ._functional import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ._fuse import Fused, fuse, unfuse
from ._fusion import fuse_compiled, fusion_options
from ._fusion_record import FusionReport, fusion_report
from ._modules import (
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
)
from ._portable import portable
from ._reasons import Counters, counters
from ._replace import Replaced, Restored, replace, restore
from ._stream import conv_transpose1d_step, conv_transpose1d_step_pure
from ._streaming import StreamingConvTranspose1d

__all__ = [
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Counters",
    "Explanation",
    "Frozen",
    "Fused",
    "FusionReport",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "Replaced",
    "Restored",
    "StreamingConvTranspose1d",
    "cat",
    "conv_transpose1d",
    "conv_transpose1d_step",
    "conv_transpose1d_step_pure",
    "conv_transpose2d",
    "conv_transpose3d",
    "counters",
    "decompositions",
    "explain",
    "freeze",
    "fuse",
    "fuse_compiled",
    "fusion_options",
    "fusion_report",
    "portable",
    "replace",
    "restore",
    "thaw",
    "unfuse",
]


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)


# Leaves for torch.fx's symbolic tracing, which otherwise would find PyTorch's operators in them. It knows a function by
# the module in whose namespace the caller finds it.
torch.fx.wrap("conv_transpose1d")
torch.fx.wrap("conv_transpose2d")
torch.fx.wrap("conv_transpose3d")
