"""The shim libtconv_torch.so (native/torch_shim.c), by which a call of a layer that is known runs no Python below
PyTorch's function. Where it is missing, or PyTorch has not what it needs, all that it does is done in Python."""

from __future__ import annotations

import ctypes as c
import pathlib
import sys
import threading

from .. import _library as lib
from .. import _plan
from ._compute import Layer

_NAME = "libtconv_torch.so"
_package = __name__.partition(".")[0]


class _Description(c.Structure):
    """tconv_torch_layer of native/torch_shim.h."""

    _fields_ = (
        ("plan", c.c_void_p),
        ("execute", c.c_void_p),
        ("destroy", c.c_void_p),
        ("workspace_size", c.c_size_t),
        ("workspace_elements", c.c_int64),
        ("rank", c.c_int64),
        ("sizes", c.c_int64 * 4),
        ("strides", c.c_int64 * 4),
        ("dtype", c.c_int32),
        ("location", c.c_int32),
    )


def _load() -> c.CDLL:
    """From beside the library or, where that is another one than the package's, from the package."""
    directories = [pathlib.Path(lib.path()).parent, *map(pathlib.Path, sys.modules[_package].__path__)]
    found = [directory / _NAME for directory in directories if (directory / _NAME).exists()]
    return c.CDLL(str(found[0] if found else _NAME))


def _install() -> c.CDLL | None:
    """The shim, its kernel in place; None where there is none."""
    try:
        shim = _load()
        for name, result, arguments in (
            ("install", c.c_int, ()),
            ("uninstall", None, ()),
            ("flags", c.c_void_p, ()),
            ("remember", c.c_void_p, (c.c_void_p,)),
            ("remember_again", None, (c.c_void_p,)),
            ("release", None, (c.c_void_p,)),
            ("forget", None, ()),
            ("taken", c.c_int64, ()),
        ):
            function = getattr(shim, f"tconv_torch_{name}")
            function.restype, function.argtypes = result, arguments
    except (OSError, ImportError, AttributeError):
        return None
    return shim if shim.tconv_torch_install() == 0 else None


_shim = _install()


def is_installed() -> bool:
    return _shim is not None


def uninstall() -> None:
    """Has the kernel do nothing for the rest of the process."""
    global _shim
    if _shim is not None:
        _shim.tconv_torch_uninstall()
    _shim = None


def taken() -> int:
    """Calls that the shim has computed."""
    return 0 if _shim is None else _shim.tconv_torch_taken()


class _Thread(threading.local):
    """What a call tells the kernel, and what the kernel's Python leaves for the call."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        address = None if _shim is None else _shim.tconv_torch_flags()
        if address is None:
            self.flags = memoryview(bytearray(8)).cast("q")
        else:
            self.flags = memoryview((c.c_int64 * 1).from_address(address)).cast("B").cast("q")


thread = _Thread()


class _Table:
    """The shim's layers, which are forgotten with the plans of the package's caches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _plan.caches.add(self)

    def put(self, layer: Layer) -> None:
        """For the call that the kernel has passed on. Layers whose tensors have to be copied stay Python's."""
        if _shim is None or layer.copy_input or layer.copy_weight or layer.copy_bias:
            return
        with self._lock:
            if layer.plan.owner is not None:
                _shim.tconv_torch_remember_again(layer.plan.owner)
                return
            description = _Description()
            layer.plan.describe(description)
            description.workspace_elements = layer.workspace_elements
            description.rank = len(layer.shape)
            description.sizes[: len(layer.shape)] = layer.shape
            description.strides[: len(layer.shape)] = layer.strides
            owner = _shim.tconv_torch_remember(c.byref(description))
            if owner is not None:
                layer.plan.hand_over(owner, _shim.tconv_torch_release)

    def clear(self) -> None:
        if _shim is not None:
            _shim.tconv_torch_forget()


table = _Table()
