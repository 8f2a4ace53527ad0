"""Plans of tconv's C API on addresses, for the comparisons in this directory. The API by ctypes is the Python package's,
which reads its library when it is imported: that of the program's --library, where it has one."""

import argparse
import ctypes as c
import os
import pathlib
import sys

_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_parser.add_argument("--library")
if _library := _parser.parse_known_args()[0].library:
    os.environ["TCONV_LIBRARY"] = str(pathlib.Path(_library).resolve())
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
from tconv import TconvError as Error  # noqa: E402
from tconv import _library as api  # noqa: E402
from tconv._library import (  # noqa: E402, F401
    BACKEND_CPU,
    BACKEND_CUDA,
    BF16,
    CPU_ISA_AVX2,
    CPU_ISA_DEFAULT,
    F16,
    F32,
    F64,
    LOCATION_AUTO,
    LOCATION_CUDA,
    LOCATION_HOST,
    MATH_STRICT,
    MATH_TF32,
    NCHW,
    NHWC,
)


def _check(status):
    if status:
        raise api.last_error()


class Library:
    """The shared library at path, one for the process. Every call raises Error where it fails."""

    def __init__(self, path):
        os.environ["TCONV_LIBRARY"] = path
        self.lib = api.library()

    def desc(self, **fields):
        desc = api.new_desc()
        for name, value in fields.items():
            setattr(desc, name, value)
        return desc

    def output_shape(self, desc):
        return api.output_shape(desc)

    def plan(self, desc, **options):
        return Plan(self.lib, desc, options)


class Plan:
    """A plan, with its weights packed once where pack() was called."""

    def __init__(self, lib, desc, options):
        self.lib, self.dtype, self.handle = lib, desc.dtype, c.c_void_p()
        self.location = options.get("location", LOCATION_AUTO)  # said once, it is not looked up in every call
        settings = api.new_options()
        for name, value in options.items():
            setattr(settings, name, value)
        _check(lib.tconv_plan_create(c.byref(desc), c.byref(settings), c.byref(self.handle), None))

    def __del__(self):
        if self.handle:
            self.lib.tconv_plan_destroy(self.handle)

    @property
    def implementation(self):
        return self.lib.tconv_plan_implementation(self.handle).decode()

    @property
    def workspace_size(self):
        size = c.c_size_t()
        _check(self.lib.tconv_plan_workspace_size(self.handle, c.byref(size)))
        return size.value

    def _tensor(self, address):
        return api.Tensor(address, self.dtype, self.location)

    def pack(self, weights, stream=None):
        """Packs the weights at this address once; execute() then ignores the weights that it is given."""
        packed = c.c_void_p()
        _check(
            self.lib.tconv_plan_pack_weights(self.handle, c.byref(self._tensor(weights)), stream, c.byref(packed), None)
        )
        self.lib.tconv_plan_destroy(self.handle)
        self.handle = packed

    def bind(self, src, weights, bias, dst, workspace, stream=None):
        """A function of no arguments that executes the plan on these addresses (None for no bias or weights)."""
        tensors = [self._tensor(address) for address in (src, weights, bias, dst)]
        pointers = [c.byref(t) if t.data else None for t in tensors]
        arguments = (self.handle, *pointers, workspace, self.workspace_size, stream)
        execute = self.lib.tconv_plan_execute
        return lambda: _check(execute(*arguments))
