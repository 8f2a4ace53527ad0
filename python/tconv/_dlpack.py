"""DLPack: other libraries' arrays without a copy, and new ones made by those libraries."""

from __future__ import annotations

import ctypes as c
import sys
from typing import Any

import numpy as np

from . import _errors
from . import _library as lib

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_FLOAT, _BFLOAT = 2, 4
_DTYPES = {(_FLOAT, 32): lib.F32, (_FLOAT, 64): lib.F64, (_FLOAT, 16): lib.F16, (_BFLOAT, 16): lib.BF16}
_READ_ONLY = 1  # of the flags
# What __dlpack__ takes for the legacy default stream; tconv takes 0 for it.
_LEGACY_STREAM = 1


class _Tensor(c.Structure):
    _fields_ = (
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("type_code", c.c_uint8),
        ("type_bits", c.c_uint8),
        ("type_lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    )


class _Versioned(c.Structure):
    _fields_ = (
        ("major", c.c_uint32),
        ("minor", c.c_uint32),
        ("manager_context", c.c_void_p),
        ("deleter", c.c_void_p),
        ("flags", c.c_uint64),
        ("tensor", _Tensor),
    )


_is_valid = c.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = c.c_int, (c.py_object, c.c_char_p)
_pointer = c.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c.c_void_p, (c.py_object, c.c_char_p)


class Borrowed:
    """An array of another library. The memory is the capsule's, which lives as long as this object and frees it."""

    def __init__(self, array: Any, name: str, stream: int | None) -> None:
        try:
            self._capsule = array.__dlpack__(stream=stream, max_version=(1, 0))
        except TypeError:  # from before DLPack 1.0
            self._capsule = array.__dlpack__(stream=stream)
        self.read_only = False
        if _is_valid(self._capsule, b"dltensor_versioned"):
            versioned = _Versioned.from_address(_pointer(self._capsule, b"dltensor_versioned"))
            self.read_only = bool(versioned.flags & _READ_ONLY)
            tensor = versioned.tensor
        else:
            tensor = _Tensor.from_address(_pointer(self._capsule, b"dltensor"))
        dtype = _DTYPES.get((tensor.type_code, tensor.type_bits)) if tensor.type_lanes == 1 else None
        if dtype is None:
            raise _errors.wrong_dtype(
                name,
                f"{name}: DLPack type {tensor.type_code} of {tensor.type_bits} bits: must be f32, f64, f16 or bf16",
            )
        self.dtype: int = dtype
        self.address: int = (tensor.data or 0) + tensor.byte_offset
        self.shape: tuple[int, ...] = tuple(tensor.shape[: tensor.ndim])
        if tensor.strides:
            self.strides: tuple[int, ...] = tuple(tensor.strides[: tensor.ndim])
        else:
            self.strides = tuple(int(np.prod(self.shape[axis + 1 :])) for axis in range(tensor.ndim))

    def numpy(self) -> np.ndarray:
        """The same memory as a NumPy array; bf16 as the 16-bit integers that hold it."""
        element = {lib.F32: np.float32, lib.F64: np.float64, lib.F16: np.float16, lib.BF16: np.uint16}[self.dtype]
        size = np.dtype(element).itemsize
        if 0 in self.shape:
            return np.empty(self.shape, element)
        # DLPack's strides are never negative: the last element is the furthest.
        extent = 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        memory = (c.c_byte * (extent * size)).from_address(self.address)
        strides = [size * stride for stride in self.strides]
        array: np.ndarray = np.ndarray(self.shape, element, memoryview(memory), 0, strides)
        if self.read_only:
            array.flags.writeable = False
        return array


def device_of(array: Any) -> int | None:
    """The CUDA device where an array lives; None for the host."""
    kind, index = array.__dlpack_device__()
    if kind in (_CPU, _CUDA_HOST):
        return None
    if kind in (_CUDA, _CUDA_MANAGED):
        return int(index)
    raise _errors.invalid("x", f"an array on DLPack device {int(kind)}: must be on the host or on a CUDA device")


def current_stream(array: Any, device: int) -> int:
    """The stream on which its library works: CuPy's or PyTorch's current one, else the legacy default stream, 0."""
    library = type(array).__module__.partition(".")[0]
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(device).cuda_stream)
    return 0


def as_dlpack_stream(stream: int) -> int:
    return stream or _LEGACY_STREAM


def new_array(like: Any, shape: tuple[int, ...], nhwc: bool) -> Any:
    """An uninitialised array of shape (n, c, h, w), made by the library of `like`; in memory as (n, h, w, c) where
    nhwc."""
    if nhwc:
        n, ch, h, w = shape
        shape = (n, h, w, ch)
    if hasattr(like, "new_empty"):  # PyTorch's
        made = like.new_empty(shape)
        return made.permute(0, 3, 1, 2) if nhwc else made
    if not hasattr(like, "__array_namespace__"):
        raise _errors.invalid("out", f"{type(like).__name__} says no way to make an array: give out")
    library = like.__array_namespace__()
    made = library.empty(shape, dtype=like.dtype, device=like.device)
    return library.permute_dims(made, (0, 3, 1, 2)) if nhwc else made
