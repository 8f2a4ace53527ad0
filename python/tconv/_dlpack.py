"""DLPack: other libraries' arrays without a copy, and new ones made by those libraries."""

from __future__ import annotations

import ctypes as c
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _errors
from . import _library as lib

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13
_FLOAT, _BFLOAT = 2, 4
_DTYPES = {(_FLOAT, 32): lib.F32, (_FLOAT, 64): lib.F64, (_FLOAT, 16): lib.F16, (_BFLOAT, 16): lib.BF16}
_READ_ONLY = 1  # of the flags
_LIBRARIES = {"torch": "torch", "cupy": "cupy", "jax": "jax", "jaxlib": "jax"}
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
    """An array of another library. The memory is the capsule's, which lives as long as this object and frees it.
    read_only: it says so, or is of a library whose arrays never change."""

    def __init__(self, array: Any, name: str, stream: int | None) -> None:
        try:
            self._capsule = _export(array, stream)
        except Exception as error:  # of whatever kind its library raises
            raise _errors.invalid(name, f"{name}: {type(array).__name__}.__dlpack__ refuses: {error}") from error
        self.read_only = is_immutable(array)
        if _is_valid(self._capsule, b"dltensor_versioned"):
            versioned = _Versioned.from_address(_pointer(self._capsule, b"dltensor_versioned"))
            self.read_only |= bool(versioned.flags & _READ_ONLY)
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
        if not self.address and 0 not in self.shape:
            raise _errors.invalid(name, f"{name} is a {type(array).__name__} without memory: must have values")
        if tensor.strides:
            self.strides: tuple[int, ...] = tuple(tensor.strides[: tensor.ndim])
        else:
            self.strides = tuple(int(np.prod(self.shape[axis + 1 :])) for axis in range(tensor.ndim))

    def numpy(self) -> np.ndarray:
        """The same memory as a NumPy array, which keeps this object; bf16 as the 16-bit integers that hold it."""
        element = {lib.F32: np.float32, lib.F64: np.float64, lib.F16: np.float16, lib.BF16: np.uint16}[self.dtype]
        size = np.dtype(element).itemsize
        if 0 in self.shape:
            return np.empty(self.shape, element)
        reach = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        before, after = -sum(step for step in reach if step < 0), sum(step for step in reach if step > 0)
        memory = (c.c_byte * ((before + 1 + after) * size)).from_address(self.address - before * size)
        memory.owner = self  # type: ignore[attr-defined]
        strides = [size * stride for stride in self.strides]
        array: np.ndarray = np.ndarray(self.shape, element, memoryview(memory), before * size, strides)
        if self.read_only:
            array.flags.writeable = False
        return array


def _export(array: Any, stream: int | None) -> Any:
    try:
        return array.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # from before DLPack 1.0
        return array.__dlpack__(stream=stream)


def device_of(array: Any, name: str) -> int | None:
    """The CUDA device where an array lives; None for the host. What DLPack would hand over as something else than it
    stands for is refused."""
    if is_tracer(array):
        raise _errors.invalid(
            name,
            f"{name} is traced by JAX (jit, grad, vmap) and has no values: call tconv outside, or by jax.pure_callback "
            "with the shape of the result",
        )
    if _library_of(array) == "torch":
        _refuse_hidden(array, name)
    try:
        kind, index = array.__dlpack_device__()
    except Exception as error:
        raise _errors.invalid(name, f"{name}: {type(array).__name__}.__dlpack_device__ refuses: {error}") from error
    if kind in (_CPU, _CUDA_HOST):
        return None
    if kind not in (_CUDA, _CUDA_MANAGED):
        raise _errors.invalid(name, f"{name} is on DLPack device {int(kind)}: must be on the host or on a CUDA device")
    if _library_of(array) == "jax":
        raise _errors.invalid(
            name, f"{name} is an array of JAX on CUDA, whose streams nobody else knows: must be on the host"
        )
    return int(index)


def is_tracer(array: Any) -> bool:
    return _library_of(array) == "jax" and any(base.__name__ == "Tracer" for base in type(array).__mro__)


def is_immutable(array: Any) -> bool:
    """JAX does not say so by DLPack."""
    return _library_of(array) == "jax"


def _library_of(array: Any) -> str:
    """Which of the libraries that need special care it is of, by its class or one from which that derives; else ""."""
    for base in type(array).__mro__:
        name = base.__module__.partition(".")[0]
        if name in _LIBRARIES:
            return _LIBRARIES[name]
    return ""


def _refuse_hidden(tensor: Any, name: str) -> None:
    """What DLPack leaves out of a PyTorch tensor without a word."""
    torch = sys.modules["torch"]
    if isinstance(tensor, torch._subclasses.FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise _errors.invalid(name, f"{name} has no values, or belongs to a transform of PyTorch's: use tconv.torch")
    if tensor.is_neg():
        raise _errors.invalid(name, f"{name} is a negated view, as imag of conj has it: give {name}.resolve_neg()")
    forward_ad = torch.autograd.forward_ad
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        raise _errors.invalid(name, f"{name} has a tangent, which would be lost: use tconv.torch")


def current_stream(array: Any, device: int) -> int:
    """The stream on which its library works: CuPy's or PyTorch's current one, else the legacy default stream, 0."""
    library = _library_of(array)
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(device).cuda_stream)
    return 0


def as_dlpack_stream(stream: int) -> int:
    return stream or _LEGACY_STREAM


def new_array(like: Any, shape: tuple[int, ...], nhwc: bool) -> Any:
    """An uninitialised array of this shape, made by the library of `like`; in memory with the channels, its second
    axis, last where nhwc."""
    make, permute = _ways_to_make(like)
    try:
        made = make((shape[0], *shape[2:], shape[1]) if nhwc else shape)
    except Exception as error:  # of whatever kind its library raises
        raise _errors.out_of_memory("out", f"out: no memory for {shape} of {like.dtype}: {error}") from error
    last = len(shape) - 1
    return permute(made, (0, last, *range(1, last))) if nhwc else made


def _ways_to_make(like: Any) -> tuple[Callable[[tuple[int, ...]], Any], Callable[[Any, tuple[int, ...]], Any]]:
    """What makes an array of a shape where `like` lives, and of its dtype; and what permutes its axes."""
    library = _library_of(like)
    if library == "torch":
        return like.new_empty, lambda array, axes: array.permute(axes)
    if library == "cupy":
        return functools.partial(_empty_of_cupy, like), lambda array, axes: array.transpose(axes)
    if hasattr(like, "__array_namespace__"):
        standard = like.__array_namespace__()
        return functools.partial(standard.empty, dtype=like.dtype, device=like.device), standard.permute_dims
    raise _errors.invalid("out", f"{type(like).__name__} says no way to make an array: give out")


def _empty_of_cupy(like: Any, shape: tuple[int, ...]) -> Any:
    with like.device:
        return sys.modules["cupy"].empty(shape, dtype=like.dtype)


def from_numpy(array: np.ndarray, like: Any) -> Any:
    """The same numbers as an array of the library of `like`, whose arrays nobody can write to."""
    made = like.__array_namespace__().asarray(array.view(np.dtype(like.dtype)))
    if made.dtype != like.dtype:
        raise _errors.wrong_dtype(
            "x", f"x is {like.dtype}, and its library makes arrays of {made.dtype} now: give out (JAX: jax_enable_x64)"
        )
    return made


def copy_of(array: Any) -> Any:
    """A copy on the same device, made by the array's library."""
    copy = getattr(array, "clone", None) or getattr(array, "copy", None)
    if copy is None:
        raise _errors.invalid("bias", f"bias: {type(array).__name__} says no way to copy it")
    return copy()
