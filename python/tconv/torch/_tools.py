"""What is registered with tools of PyTorch's that take longer to import than all of tconv: when the tool is there."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_FLOP_COUNTER = "torch.utils.flop_counter"
# By operator: how many floating-point operations a call takes, by the shapes of its tensors.
_formulas: dict[Any, Callable[..., int]] = {}


def count_flops(operator: Any, formula: Callable[..., int]) -> None:
    """Has torch.utils.flop_counter count a call of the operator by a formula."""
    _formulas[operator] = formula


def conv_flop_count(*arguments: Any, **more: Any) -> int:
    """PyTorch's own."""
    return sys.modules[_FLOP_COUNTER].conv_flop_count(*arguments, **more)


def _register() -> None:
    for operator, formula in _formulas.items():
        sys.modules[_FLOP_COUNTER].register_flop_formula(operator)(formula)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the tool by the finders after it, once, and registers when the tool's module has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _FLOP_COUNTER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def run_and_register(module: ModuleType) -> None:
                run(module)
                _register()

            loader.exec_module = run_and_register
        return spec


def register_when_there() -> None:
    """With tools that are there at once, with others as they are imported."""
    if _FLOP_COUNTER in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _Finder())
