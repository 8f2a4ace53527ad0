"""The shim libtconv_torch.so (native/torch_shim.c), by which a call of a layer that is known runs no Python below
PyTorch's function. Where it is missing, or PyTorch has not what it needs, all that it does is done in Python."""

from __future__ import annotations

import ctypes as c
import pathlib
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import _library as lib
from .. import _plan
from ._compute import Layer
from ._gradients import Gradient, Wanted
from ._reasons import Reason
from ._settings import Settings, all_flags

_NAME = "libtconv_torch.so"
_AXES = 5  # of the tensors of a 3-D layer
_package = __name__.partition(".")[0]


if TYPE_CHECKING:
    from ._stream_operator import Step


class _Description(c.Structure):
    """tconv_torch_layer of native/torch_shim.h."""

    _fields_ = (
        ("plan", c.c_void_p),
        ("execute", c.c_void_p),
        ("execute_with", c.c_void_p),
        ("step", c.c_void_p),
        ("destroy", c.c_void_p),
        ("workspace_size", c.c_size_t),
        ("workspace_elements", c.c_int64),
        ("rank", c.c_int64),
        ("sizes", c.c_int64 * _AXES),
        ("strides", c.c_int64 * _AXES),
        ("copies", c.c_int64 * _AXES * 2),
        ("dtype", c.c_int32),
        ("location", c.c_int32),
        ("op", c.c_int32),
        ("carry_dtype", c.c_int32),
        ("post_count", c.c_int32),
        ("post_operands", c.c_int32 * lib.MAX_POST_OPS),
        ("post_dtypes", c.c_int32 * lib.MAX_POST_OPS),
    )


# The bit of flags that says that a call is the package's. The others are PyTorch's settings (_settings.py).
OURS = 1

_Settings = c.CFUNCTYPE(c.c_int64)


@_Settings
def _settings() -> int:
    """Those that gradients on CUDA depend on, as flags. ctypes returns 0 where an exception comes in between."""
    return OURS | all_flags()


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
            ("install", c.c_int, (_Settings,)),
            ("uninstall", None, ()),
            ("flags", c.c_void_p, ()),
            ("read_settings", c.c_int64, (c.c_bool,)),
            ("install_gradients", c.c_int, ()),
            ("uninstall_gradients", None, ()),
            ("install_operators", c.c_int, ()),
            ("uninstall_operators", None, ()),
            ("say", None, (c.c_char_p,)),
            ("own", c.c_void_p, (c.c_void_p,)),
            ("release", None, (c.c_void_p,)),
            ("remember", None, (c.c_void_p, c.c_void_p, c.POINTER(c.c_int64 * _AXES), c.c_int64, c.c_int64)),
            ("forget", None, ()),
            ("taken", c.c_int64, ()),
            ("fused", c.c_int64, ()),
            ("gradients", c.c_int64, ()),
            ("left", c.c_int64, ()),
        ):
            function = getattr(shim, f"tconv_torch_{name}")
            function.restype, function.argtypes = result, arguments
    except (OSError, ImportError, AttributeError):
        return None
    return shim if shim.tconv_torch_install(_settings) == 0 else None


_shim = _install()


def is_installed() -> bool:
    return _shim is not None


def uninstall() -> None:
    """Has the kernel do nothing for the rest of the process."""
    global _shim
    if _shim is not None:
        _shim.tconv_torch_uninstall()
    _shim = None


def install_gradients() -> bool:
    """Whether the kernels of gradients are in place now."""
    return _shim is not None and _shim.tconv_torch_install_gradients() == 0


def uninstall_gradients() -> None:
    if _shim is not None:
        _shim.tconv_torch_uninstall_gradients()


def install_operators() -> bool:
    """Whether the kernels of tconv's operators are in place now."""
    return _shim is not None and _shim.tconv_torch_install_operators() == 0


def uninstall_operators() -> None:
    if _shim is not None:
        _shim.tconv_torch_uninstall_operators()


def read_settings() -> int:
    """PyTorch's settings as the shim reads them, as flags."""
    return all_flags() if _shim is None else _shim.tconv_torch_read_settings(True) & ~OURS


def say(error: str) -> None:
    """What the text of an error is that a call of an operator on this thread is to raise."""
    if _shim is not None:
        _shim.tconv_torch_say(error.encode(errors="replace"))


def taken() -> int:
    """Calls that the shim has computed."""
    return 0 if _shim is None else _shim.tconv_torch_taken()


def fused() -> int:
    """Of these calls, those with post-ops."""
    return 0 if _shim is None else _shim.tconv_torch_fused()


def gradients() -> int:
    """Gradients that the shim has computed: those of an input, or those of a weight and a bias."""
    return 0 if _shim is None else _shim.tconv_torch_gradients()


def left() -> int:
    """Those that the shim has left to PyTorch, which is faster."""
    return 0 if _shim is None else _shim.tconv_torch_left()


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

    def put(self, layer: Layer, operands: Sequence[int | None] = ()) -> None:
        """For the call that the kernel has passed on. Layers whose tensors have to be copied stay Python's. operands
        say of each post-op which of the call's it takes."""
        if not (layer.copy_input or layer.copy_weight or layer.copy_bias or layer.copy_addend):
            self._put(layer.settings, layer, operands=operands)

    def put_step(self, step: Step) -> None:
        """Likewise, of the next chunk of a stream."""
        self._put(step.settings, step)

    def put_gradients(self, found: Wanted) -> None:
        """Likewise. What is PyTorch's for another cause than its speed is counted in Python."""
        parts = found.data, found.weights
        if any(isinstance(part, Reason) and part.cause != "speed" for part in parts):
            return
        self._put(found.settings, *(None if isinstance(part, Reason) else part for part in parts), copy=found.copy)

    def put_gradient(self, data: Gradient | Reason | None, weights: Gradient | Reason | None) -> None:
        """Likewise, of the operator of one of them."""
        found = data or weights
        if isinstance(found, Gradient):
            self._put(found.settings, *(part if isinstance(part, Gradient) else None for part in (data, weights)))

    def _put(
        self,
        settings: Settings,
        *parts: Layer | Gradient | Step | None,
        copy: Sequence[int] = (),
        operands: Sequence[int | None] = (),
    ) -> None:
        if _shim is None:
            return
        owners = [None if part is None else self._owner(part, operands) for part in parts]
        if all((owner is None) == (part is None) for owner, part in zip(owners, parts, strict=True)):
            strides = (c.c_int64 * _AXES)(*copy) if copy else None
            _shim.tconv_torch_remember(*owners, *[None] * (2 - len(owners)), strides, *settings)

    def _owner(self, part: Layer | Gradient | Step, operands: Sequence[int | None]) -> int | None:
        """The shim's owner of the plan; None where calls of this plan do not belong in the table."""
        assert _shim is not None
        with self._lock:
            if part.plan.owner is None:
                description = _Description()
                part.plan.describe(description)
                description.workspace_elements = part.workspace_elements
                description.rank = len(part.shape)
                description.sizes[: len(part.shape)] = part.shape
                description.strides[: len(part.shape)] = part.strides
                description.post_operands[: len(operands)] = [-1 if at is None else at for at in operands]
                if isinstance(part, Gradient):
                    for copy, strides in zip(description.copies, (part.copy_diff_dst, part.copy_other), strict=True):
                        copy[: len(strides)] = strides
                owner = _shim.tconv_torch_own(c.byref(description))
                if owner is not None:
                    part.plan.hand_over(owner, _shim.tconv_torch_release)
            return part.plan.owner

    def clear(self) -> None:
        if _shim is not None:
            _shim.tconv_torch_forget()


table = _Table()
