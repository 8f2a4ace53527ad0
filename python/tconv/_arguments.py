"""What callers write for sizes and choices, as numbers that the library takes; every mistake names its argument."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from . import _errors, _layer
from . import _library as lib

BACKENDS = {"auto": lib.BACKEND_AUTO, "cpu": lib.BACKEND_CPU, "cuda": lib.BACKEND_CUDA}
MATHS = {"default": lib.MATH_DEFAULT, "strict": lib.MATH_STRICT, "tf32": lib.MATH_TF32}
_MAX_THREADS = 65536

_RULES = {
    1: "must be an integer, or a sequence of one",
    2: "must be an integer, or two for rows and columns",
    3: "must be an integer, or three for planes, rows and columns",
}
_PADDING_RULES = {
    1: "must be an integer, or ((left, right),)",
    2: "must be an integer, (rows, columns), or ((top, bottom), (left, right))",
    3: "must be an integer, (planes, rows, columns), or ((front, back), (top, bottom), (left, right))",
}


def of_layer(
    spatial: int, stride: Any, padding: Any, output_padding: Any, groups: Any, dilation: Any
) -> _layer.Arguments:
    """Those of a layer of 1, 2 or 3 spatial axes."""
    return (
        _numbers(spatial, "stride", stride),
        _sides(spatial, padding),
        _numbers(spatial, "output_padding", output_padding),
        integer("groups", groups),
        _numbers(spatial, "dilation", dilation),
    )


def extents(spatial: int, name: str, value: Any) -> _layer.Numbers:
    """Those of a tensor along the spatial axes."""
    numbers = _numbers(spatial, name, value)
    if min(numbers) < 1:
        raise _errors.invalid(name, f"{name} = {value!r}: must be at least 1")
    return numbers


def integer(name: str, value: Any) -> int:
    """Python's, NumPy's, or that of any array without axes. Booleans are none, although Python counts them so:
    stride=True is a mistake."""
    dtype = str(getattr(value, "dtype", ""))
    try:
        if isinstance(value, bool) or dtype.endswith("bool") or _has_axes(value):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise _errors.wrong_dtype(_field(name), f"{name} = {value!r}: must be an integer") from None
    if abs(number) >= 2**63:  # ctypes would cut it
        raise _errors.SizeOverflowError("TCONV_ERROR_OVERFLOW", _field(name), f"{name} = {number}: must fit in 64 bits")
    return number


def integers(name: str, value: Any) -> tuple[int, ...]:
    entries = _entries(value)
    if entries is None:
        raise _errors.wrong_dtype(name, f"{name} = {value!r}: must be a sequence of integers")
    return tuple(integer(f"{name}[{i}]", entry) for i, entry in enumerate(entries))


def choice(name: str, value: Any, known: Mapping[str, int]) -> int:
    if not isinstance(value, str) or value not in known:
        raise _errors.invalid(name, f"{name} = {value!r}: must be one of {', '.join(known)}")
    return known[value]


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _errors.wrong_dtype(name, f"{name} = {value!r}: must be True or False")
    return value


def thread_count(value: Any) -> int:
    """0, the library's word for automatic, for None."""
    if value is None:
        return 0
    number = integer("threads", value)
    if not 1 <= number <= _MAX_THREADS:
        raise _errors.invalid("threads", f"threads = {number}: must be from 1 to {_MAX_THREADS}, or None for automatic")
    return number


def choices(backend: Any, math: Any, threads: Any) -> tuple[int, int, int]:
    """The three, as the library has them."""
    return choice("backend", backend, BACKENDS), choice("math", math, MATHS), thread_count(threads)


def _field(name: str) -> str:
    return name.partition("[")[0]


def _has_axes(value: Any) -> bool:
    return bool(getattr(value, "ndim", None))


def _entries(value: Any) -> Sequence[Any] | None:
    """Those of a sequence or of an array with axes; None for what is one number, or none."""
    if _has_axes(value) and hasattr(value, "tolist"):
        return value.tolist()
    is_text = isinstance(value, (str, bytes, bytearray))
    return value if isinstance(value, Sequence) and not is_text else None


def _numbers(spatial: int, name: str, value: Any) -> _layer.Numbers:
    """One for each axis, of a number for all or of a sequence."""
    entries = _entries(value)
    if entries is None:
        return (integer(name, value),) * spatial
    if len(entries) != spatial:
        raise _errors.invalid(name, f"{name} = {value!r}: {_RULES[spatial]}")
    return tuple(integer(f"{name}[{i}]", entry) for i, entry in enumerate(entries))


def _sides(spatial: int, value: Any) -> tuple[_layer.Pair, ...]:
    """What is cut off at both ends of each axis: of each axis one number for both sides, or one for each."""
    entries = _entries(value)
    if entries is None:
        number = integer("padding", value)
        return ((number, number),) * spatial
    if len(entries) != spatial:
        raise _errors.invalid("padding", f"padding = {value!r}: {_PADDING_RULES[spatial]}")
    sides = []
    for i, entry in enumerate(entries):
        two = _entries(entry)
        if two is None:
            two = [entry, entry]
        if len(two) != 2:
            raise _errors.invalid("padding", f"padding = {value!r}: {_PADDING_RULES[spatial]}")
        sides.append((integer(f"padding[{i}]", two[0]), integer(f"padding[{i}]", two[1])))
    return tuple(sides)
