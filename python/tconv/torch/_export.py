"""Models that leave this process: graphs that have PyTorch's operators in place of tconv's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ._compute import PYTORCHS
from ._operator import OPERATORS

_portable = False


def decompositions() -> dict[Any, Callable[..., Any]]:
    """tconv's operators as PyTorch's: a table for ExportedProgram.run_decompositions, make_fx and whatever else takes
    decompositions. What such a program became loads and runs without tconv."""
    return {operator: PYTORCHS[spatial] for spatial, operator in OPERATORS.items()}


@contextlib.contextmanager
def portable() -> Iterator[None]:
    """Within it everything that captures calls (torch.export, torch.jit.trace, torch.compile, make_fx) sees PyTorch's
    operators in place of tconv's, in every thread. What was captured loads and runs without tconv."""
    global _portable
    before, _portable = _portable, True
    try:
        yield
    finally:
        _portable = before


def is_portable() -> bool:
    """Whether a call that is captured now has to be PyTorch's operator. ONNX's older exporter traces, and knows no
    other; the newer one decomposes."""
    if _portable:
        return True
    return not torch.compiler.is_compiling() and "torch.onnx" in sys.modules and torch.onnx.is_in_onnx_export()


# From here ONNX's newer exporter, among others, takes decompositions of operators that it does not know.
torch._decomp.decomposition_table.update(decompositions())
