"""Whether what is captured now is to have PyTorch's operators in place of tconv's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch

_portable = False


@contextlib.contextmanager
def portable() -> Iterator[None]:
    """Within it everything that captures calls (torch.export, torch.jit.trace, torch.compile, make_fx) sees PyTorch's
    operators in place of tconv's, in every thread. What was captured loads and runs without tconv.

    Returns:
        a context manager.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.ConvTranspose2d(3, 2, 4).eval()
        >>> with tconv.torch.portable():
        ...     program = torch.export.export(layer, (torch.ones(1, 3, 8, 8),))
        >>> "tconv" in program.graph_module.code
        False
    """
    global _portable
    before, _portable = _portable, True
    try:
        yield
    finally:
        _portable = before


def is_portable() -> bool:
    """Whether a call that is captured now has to be PyTorch's operator. Dynamo traces this function and could not
    follow is_onnx_export; what it captures for ONNX's newer exporter is captured a second time, by is_onnx_export's
    other caller, the operator's autograd kernel."""
    return _portable or (not torch.compiler.is_compiling() and is_onnx_export())


def is_onnx_export() -> bool:
    """Whether one of PyTorch's exporters to ONNX is at work. They know no operators but PyTorch's."""
    return "torch.onnx" in sys.modules and torch.onnx.is_in_onnx_export()
