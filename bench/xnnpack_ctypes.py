"""XNNPACK's transposed convolution (f32, NHWC) by ctypes, as far as the comparisons in this directory need it.

The shared objects are those of ExecuTorch's wheel (`pip install --no-deps executorch`), which export XNNPACK's operators
and pthreadpool. The declarations are those of xnnpack.h as of ExecuTorch 1.5.
"""

import ctypes as c
import importlib.metadata
import importlib.util
import os
import pathlib

# Worker threads sleep after a call instead of spinning into the next contender's time.
FLAG_DONT_SPIN_WORKERS = 0x10
# XNNPACK may read so much past the end of a tensor.
EXTRA_BYTES = 16
SUCCESS = 0
PACKAGE = "executorch"


class Missing(Exception):
    """There is no XNNPACK here; the text says why."""


class Library:
    def __init__(self, threads):
        found = importlib.util.find_spec(PACKAGE)
        if found is None:
            raise Missing(f"no package {PACKAGE} (pip install --no-deps {PACKAGE})")
        directory = pathlib.Path(found.submodule_search_locations[0]) / "lib"
        try:
            # PyTorch has a pthreadpool too: each must find its own.
            mode = os.RTLD_LOCAL | os.RTLD_NOW | os.RTLD_DEEPBIND
            self.pools = c.CDLL(str(directory / "libexecutorch_threadpool.so"), mode=mode)
            self.xnnpack = c.CDLL(str(directory / "libexecutorch_backend_xnnpack.so"), mode=mode)
            self.pools.pthreadpool_create.restype = c.c_void_p
            create = self.xnnpack.xnn_create_deconvolution2d_nhwc_f32
        except (OSError, AttributeError) as error:
            raise Missing(f"the {PACKAGE} here does not export XNNPACK: {error}") from error
        float_pointer = c.c_void_p
        create.argtypes = (
            [c.c_uint32] * 11
            + [c.c_size_t] * 4
            + [float_pointer] * 2
            + [c.c_float] * 2
            + [c.c_uint32, c.c_void_p, c.POINTER(c.c_void_p)]
        )
        self.xnnpack.xnn_reshape_deconvolution2d_nhwc_f32.argtypes = (
            [c.c_void_p] + [c.c_size_t] * 3 + [c.c_uint32] * 2 + [c.POINTER(c.c_size_t)] * 2 + [c.c_void_p]
        )
        self.xnnpack.xnn_setup_deconvolution2d_nhwc_f32.argtypes = [c.c_void_p] * 3
        self.xnnpack.xnn_run_operator.argtypes = [c.c_void_p] * 2
        self.xnnpack.xnn_delete_operator.argtypes = [c.c_void_p]
        self.check(self.xnnpack.xnn_initialize(None))
        self.pool = self.pools.pthreadpool_create(c.c_size_t(threads))
        self.version = f"of {PACKAGE} {importlib.metadata.version(PACKAGE)}"

    @staticmethod
    def check(status):
        if status != SUCCESS:
            raise RuntimeError(f"XNNPACK status {status}")


class Deconvolution:
    """One layer with packed weights. weights: address of [group][output channel][kernel row][column][input channel]."""

    def __init__(self, library, row, weights, bias, src, dst):
        self.library, self.handle = library, c.c_void_p()
        xnnpack, groups = library.xnnpack, row["g"]
        infinity = float("inf")
        library.check(
            xnnpack.xnn_create_deconvolution2d_nhwc_f32(
                row["ph"],
                row["pw"],
                row["ph"],
                row["pw"],
                row["kh"],
                row["kw"],
                row["sh"],
                row["sw"],
                row["dh"],
                row["dw"],
                groups,
                row["Cin"] // groups,
                row["Cout"] // groups,
                row["Cin"],
                row["Cout"],
                weights,
                bias,
                -infinity,
                infinity,
                FLAG_DONT_SPIN_WORKERS,
                None,
                c.byref(self.handle),
            )
        )
        out_h, out_w = c.c_size_t(), c.c_size_t()
        library.check(
            xnnpack.xnn_reshape_deconvolution2d_nhwc_f32(
                self.handle,
                row["N"],
                row["H"],
                row["W"],
                row["oph"],
                row["opw"],
                c.byref(out_h),
                c.byref(out_w),
                library.pool,
            )
        )
        library.check(xnnpack.xnn_setup_deconvolution2d_nhwc_f32(self.handle, src, dst))

    def __del__(self):
        if self.handle:
            self.library.xnnpack.xnn_delete_operator(self.handle)

    def run(self):
        self.library.check(self.library.xnnpack.xnn_run_operator(self.handle, self.library.pool))
