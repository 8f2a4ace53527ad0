"""The types of what the functions take, for who checks types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar


class SupportsDLPack(Protocol):
    """An array of NumPy, PyTorch, CuPy, JAX or any other library that speaks DLPack."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


Array = TypeVar("Array", bound=SupportsDLPack)
"""The type of x, and so of the result."""

Sizes = int | Sequence[int]
"""One integer for all axes, or one for each."""

Padding = int | Sequence[int] | Sequence[Sequence[int]]
"""One integer for all axes, one for each, or one for each side of each."""
