"""tconv for PyTorch: a drop-in for torch.nn.ConvTranspose2d and torch.nn.ConvTranspose1d.

The functions and modules take what PyTorch's take and answer as they do; replace(model) changes the layers of a model
in place. The forward pass on the CPU and on CUDA is tconv's. What tconv does not take (other devices and dtypes, every
mistake) goes to PyTorch's own operator, so that its error or its answer is what the caller sees.
"""

from __future__ import annotations

import torch

from ._export import decompositions, portable
from ._functional import conv_transpose1d, conv_transpose2d
from ._modules import ConvTranspose2d, LazyConvTranspose2d
from ._replace import Replaced, replace

__all__ = [
    "ConvTranspose2d",
    "LazyConvTranspose2d",
    "Replaced",
    "conv_transpose1d",
    "conv_transpose2d",
    "decompositions",
    "portable",
    "replace",
]

# Leaves for torch.fx's symbolic tracing, which otherwise would find PyTorch's operators in them. It knows a function by
# the module in whose namespace the caller finds it.
torch.fx.wrap("conv_transpose1d")
torch.fx.wrap("conv_transpose2d")
