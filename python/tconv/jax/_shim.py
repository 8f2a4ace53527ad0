"""The shim libtconv_jax.so (native/jax_shim.h): the handler that XLA calls, found, checked and registered."""

from __future__ import annotations

import ctypes as c
import functools
import importlib.metadata
import json
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .. import _library as lib
from .. import _plan
from .._version import VERSION
from ._layer import PLATFORMS

_NAME = "libtconv_jax.so"
_package = __name__.partition(".")[0]
_UNAVAILABLE = 4  # tconv_status: the library has no code for a GPU
# XLA's programs and profiles name a call by the target of its operation.
TARGETS = {
    lib.OP_FORWARD: "tconv_forward",
    lib.OP_BACKWARD_DATA: "tconv_backward_data",
    lib.OP_BACKWARD_WEIGHTS: "tconv_backward_weights",
}
_MISSING = (
    "tconv.jax needs {name}, which this installation of tconv was built without: use a wheel of scripts/wheel, or "
    "build with -C cmake.define.TCONV_JAXLIB_INCLUDE=\"$(python -c 'import jax; print(jax.ffi.include_dir())')\""
)

# The functions of the library that the shim calls, in the order of tconv_jax_library.
_FUNCTIONS = (
    "tconv_desc_init_sized",
    "tconv_options_init_sized",
    "tconv_output_shape3d",
    "tconv_plan_create",
    "tconv_plan_workspace_size",
    "tconv_plan_execute",
    "tconv_plan_destroy",
    "tconv_last_issue",
)


def check_interface(built: tuple[int, int], found: tuple[int, int] | None, jaxlib: str) -> None:
    """Raises ImportError where the interface that the handler was built with is newer than XLA's own: XLA registers
    such a handler without a word, and its first call fails."""
    if found is not None and (built[0] != found[0] or built[1] > found[1]):
        raise ImportError(
            f"tconv.jax was built for version {built[0]}.{built[1]} of XLA's foreign functions, and jaxlib {jaxlib} "
            f"has {found[0]}.{found[1]}: update jaxlib, or build tconv with the header of this jaxlib"
        )


def _interface_of_jaxlib() -> tuple[int, int] | None:
    """The version of XLA's interface, as the header beside jaxlib has it; None where there is no header."""
    try:
        header = pathlib.Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    except OSError:
        return None
    found = [re.search(rf"define XLA_FFI_API_{part} (\d+)", header) for part in ("MAJOR", "MINOR")]
    return (int(found[0][1]), int(found[1][1])) if found[0] and found[1] else None


def _load() -> c.CDLL:
    """From beside the library or, where that is another one than the package's, from the package."""
    directories = [pathlib.Path(lib.path()).parent, *map(pathlib.Path, sys.modules[_package].__path__)]
    found = [directory / _NAME for directory in directories if (directory / _NAME).exists()]
    if not found:
        raise ImportError(_MISSING.format(name=_NAME))
    try:
        shim = c.CDLL(str(found[0]))
        for name, result, arguments in (
            ("bind", None, (c.c_void_p,)),
            ("version", c.c_char_p, ()),
            ("interface", None, (c.c_void_p, c.c_void_p)),
            ("workspace", c.c_int, (c.c_void_p, c.c_int64, c.c_int32, c.c_int32, c.c_void_p, c.c_void_p)),
            ("forget", None, ()),
            ("calls", c.c_int64, ()),
        ):
            function = getattr(shim, f"tconv_jax_{name}")
            function.restype, function.argtypes = result, arguments
        version = shim.tconv_jax_version().decode()
    except (OSError, AttributeError) as error:
        raise ImportError(f"{found[0]} cannot be used: {error}; install the tconv package again") from error
    if version.rpartition(".")[0] != VERSION.rpartition(".")[0]:
        raise ImportError(f"{found[0]} is of tconv {version}, and this package is {VERSION}: install tconv again")
    return shim


def _interface_of(shim: c.CDLL) -> tuple[int, int]:
    """The version of XLA's interface that the shim was built with."""
    major, minor = c.c_int32(), c.c_int32()
    shim.tconv_jax_interface(c.byref(major), c.byref(minor))
    return major.value, minor.value


def _install() -> c.CDLL:
    """The shim, bound to the library, its handlers registered with XLA."""
    shim = _load()
    check_interface(_interface_of(shim), _interface_of_jaxlib(), importlib.metadata.version("jaxlib"))
    library = lib.library()
    addresses = [c.cast(getattr(library, name), c.c_void_p).value for name in _FUNCTIONS]
    shim.tconv_jax_bind((c.c_void_p * len(addresses))(*addresses))
    for target in TARGETS.values():
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(shim.tconv_jax_handle), platform="cpu")
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(shim.tconv_jax_handle_cuda), platform="CUDA")
    return shim


_shim = _install()


class _Plans:
    """The shim's plans, which are forgotten with those of the package."""

    def clear(self) -> None:
        _shim.tconv_jax_forget()


_plans = _Plans()
_plan.caches.add(_plans)


def description() -> str:
    """The versions of XLA's interface on both sides."""
    built, found = _interface_of(_shim), _interface_of_jaxlib()
    theirs = ".".join(map(str, found)) if found else "an unknown version"
    return f"whose foreign functions are {theirs}; tconv.jax was built for {built[0]}.{built[1]}"


def calls() -> int:
    """Calls that the handler has computed in this process."""
    return _shim.tconv_jax_calls()


@functools.cache
def _machine() -> dict[str, Any]:
    """What the library says of CUDA and GPUs here."""
    return json.loads(lib.system_info(lib.TEXT_JSON))["cuda"]


def missing(platform: str) -> str:
    """Why tconv does not serve a platform of JAX's here; "" where it does."""
    return _machine().get("reason", "") if platform == "cuda" else ""


@functools.cache
def _gpus() -> tuple[int, ...]:
    """One GPU of each model, by CUDA's number: of those that JAX has in this process, or, where JAX has none and only
    lowers for them, of the machine's."""
    try:
        found = [(device.device_kind, device.local_hardware_id) for device in jax.local_devices(backend="cuda")]
    except RuntimeError:
        found = [(device.get("name"), device["device"]) for device in _machine()["devices"]]
    return tuple({model: number for model, number in reversed(found)}.values())


def workspace_size(words: Sequence[int], platform: str) -> int:
    """Bytes of workspace that a call of the layer of these words takes here, on any GPU that the library serves; raises
    what is wrong with the layer."""
    layer, size, issue, sizes = np.array(words, np.int64), c.c_size_t(), lib.Issue(), []
    for device in _gpus() if platform == "cuda" else (0,):
        given = layer.ctypes.data, layer.size, PLATFORMS[platform], device
        status = _shim.tconv_jax_workspace(*given, c.byref(size), c.byref(issue))
        if status == 0:
            sizes.append(size.value)
        elif status != _UNAVAILABLE:
            raise lib.error(issue)
    if not sizes:
        raise lib.error(issue)
    return max(sizes)
