"""What is checked of the arrays of a call, wherever they live."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _dlpack, _errors
from . import _library as lib

DTYPES = {"float32": lib.F32, "float64": lib.F64, "float16": lib.F16, "bfloat16": lib.BF16}
DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
_OPTIONAL = ("bias", "out", "addend")
_AXES = {
    1: "(N, C, L), or (C, L) for one image",
    2: "(N, C, H, W), or (C, H, W) for one image",
    3: "(N, C, D, H, W), or (C, D, H, W) for one image",
}
_WEIGHT_AXES = {
    1: "(channels of x, output channels / groups, width)",
    2: "(channels of x, output channels / groups, height, width)",
    3: "(channels of x, output channels / groups, depth, height, width)",
}


def common_device(arrays: dict[str, Any]) -> int | None:
    """The CUDA device where all of them live, None for the host; an optional one may be None."""
    devices = {
        name: _device(name, array) for name, array in arrays.items() if array is not None or name not in _OPTIONAL
    }
    first, expected = next(iter(devices.items()))
    for name, device in devices.items():
        if device != expected:
            raise _errors.invalid(
                name, f"{name} is on {device_name(device)}: must be where {first} is, on {device_name(expected)}"
            )
    return expected


def _device(name: str, array: Any) -> int | None:
    if isinstance(array, np.ma.MaskedArray):
        raise _errors.wrong_dtype(
            name, f"{name} is a MaskedArray: must be without a mask; give {name}.filled(value) or {name}.data"
        )
    if isinstance(array, np.ndarray):
        return None
    if hasattr(array, "__dlpack__") or _dlpack.is_tracer(array):
        return _dlpack.device_of(array, name)
    raise _errors.wrong_dtype(
        name,
        f"{name} is a {type(array).__name__}: must be a NumPy array or one that speaks DLPack, as numpy.asarray makes "
        "them",
    )


def device_name(device: int | None) -> str:
    return "the host" if device is None else f"CUDA device {device}"


def check_ranks(spatial: int, x: int, weight: int, name: str = "x") -> None:
    check_x_rank(name, spatial, x)
    if weight != spatial + 2:
        raise _errors.invalid("weight", f"weight.ndim = {weight}: must be {spatial + 2}, {_WEIGHT_AXES[spatial]}")


def spatial_of(weight: int) -> int:
    """The number of spatial axes of a layer whose weight has so many axes."""
    if weight - 2 not in _AXES:
        raise _errors.invalid("weight", f"weight.ndim = {weight}: must be 3, 4 or 5, for 1, 2 or 3 dimensions")
    return weight - 2


def check_x_rank(name: str, spatial: int, axes: int) -> None:
    if axes not in (spatial + 1, spatial + 2):
        raise _errors.invalid(
            name, f"{name} has {axes} axes: must have {spatial + 2} or {spatial + 1}, {_AXES[spatial]}"
        )


def check_dtypes(dtypes: dict[str, int]) -> int:
    """The one that all have."""
    first, expected = next(iter(dtypes.items()))
    for name, dtype in dtypes.items():
        if dtype != expected:
            raise _errors.wrong_dtype(
                name, f"{name} is {DTYPE_NAMES[dtype]}: must be of {first}'s dtype, {DTYPE_NAMES[expected]}"
            )
    return expected


def check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...], why: str = "") -> None:
    if shape != expected:
        raise _errors.invalid(name, f"{name}.shape = {shape}: must be {why}{expected}")


def check_bias(shape: tuple[int, ...], out_channels: int) -> None:
    check_shape("bias", shape, (out_channels,), "the output channels, ")
