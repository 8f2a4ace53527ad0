"""tconv's C API (tconv/tconv.h) by ctypes: structs, functions and the errors that they raise.

The library is the one beside this file, or the one that the environment variable TCONV_LIBRARY names. It is loaded
when it is first needed, so that a program may import PyTorch before or after: whichever comes second shares the OpenMP
run-time of the first. Whether it is there, and is one for this package, is looked up in the file when the package is
imported.
"""

from __future__ import annotations

import ctypes as c
import functools
import os
import pathlib
import sys
from typing import Any

from . import _errors, _library_file

F32, F64, F16, BF16 = range(4)
NCHW, NHWC = range(2)
WEIGHT_IOHW, WEIGHT_IHWO, WEIGHT_HWOI = range(3)
OP_FORWARD, OP_BACKWARD_DATA, OP_BACKWARD_WEIGHTS = range(3)
MATH_DEFAULT, MATH_STRICT, MATH_TF32 = range(3)
BACKEND_AUTO, BACKEND_CPU, BACKEND_CUDA = range(3)
LOCATION_AUTO, LOCATION_HOST, LOCATION_CUDA = range(3)
CPU_ISA_DEFAULT, CPU_ISA_GENERIC, CPU_ISA_AVX2, CPU_ISA_AVX512, CPU_ISA_NEON = range(5)
CPU_ISA_AVX512_BF16, CPU_ISA_AMX = range(5, 7)
TEXT_PLAIN, TEXT_JSON = range(2)
POST_ADD_CHANNEL, POST_MUL_CHANNEL, POST_ADD_TENSOR, POST_LINEAR, POST_CLAMP, POST_LEAKY_RELU = range(1, 7)
POST_SIGMOID, POST_TANH, POST_SILU, POST_GELU, POST_GELU_TANH, POST_MISH = range(7, 13)
POST_ELU, POST_SOFTPLUS, POST_HARDSWISH, POST_SNAKE = range(13, 17)
MAX_POST_OPS = 8

# These are the values of tconv_desc.stream_axis.
STREAM_ROWS, STREAM_COLUMNS = 1, 2

# Of tconv_status; _errors.py has the others as exceptions.
INVALID_ARGUMENT = 1


class PostOp(c.Structure):
    _fields_ = (("kind", c.c_int), ("reserved", c.c_int32), ("alpha", c.c_double), ("beta", c.c_double))


class Desc(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("batch", c.c_int64),
        ("in_channels", c.c_int64),
        ("in_h", c.c_int64),
        ("in_w", c.c_int64),
        ("out_channels", c.c_int64),
        ("kernel_h", c.c_int64),
        ("kernel_w", c.c_int64),
        ("stride_h", c.c_int64),
        ("stride_w", c.c_int64),
        ("pad_top", c.c_int64),
        ("pad_left", c.c_int64),
        ("pad_bottom", c.c_int64),
        ("pad_right", c.c_int64),
        ("output_padding_h", c.c_int64),
        ("output_padding_w", c.c_int64),
        ("dilation_h", c.c_int64),
        ("dilation_w", c.c_int64),
        ("groups", c.c_int64),
        ("dtype", c.c_int),
        ("layout", c.c_int),
        ("weight_layout", c.c_int),
        ("math", c.c_int),
        ("src_strides", c.c_int64 * 4),
        ("dst_strides", c.c_int64 * 4),
        ("op", c.c_int),
        ("accumulate", c.c_int32),
        ("post_count", c.c_int32),
        ("post", PostOp * MAX_POST_OPS),
        ("addend_strides", c.c_int64 * 4),
        ("stream_axis", c.c_int32),
        ("carry_dtype", c.c_int),
        ("in_d", c.c_int64),
        ("kernel_d", c.c_int64),
        ("stride_d", c.c_int64),
        ("dilation_d", c.c_int64),
        ("pad_front", c.c_int64),
        ("pad_back", c.c_int64),
        ("output_padding_d", c.c_int64),
        ("src_stride_d", c.c_int64),
        ("dst_stride_d", c.c_int64),
        ("addend_stride_d", c.c_int64),
    )


class Allocator(c.Structure):
    _fields_ = (("allocate", c.c_void_p), ("release", c.c_void_p), ("context", c.c_void_p))


class Options(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("backend", c.c_int),
        ("location", c.c_int),
        ("device", c.c_int32),
        ("threads", c.c_int32),
        ("cpu_isa", c.c_int),
        ("implementation", c.c_char_p),
        ("allocator", Allocator),
        ("stream", c.c_void_p),
    )


class Tensor(c.Structure):
    _fields_ = (("data", c.c_void_p), ("dtype", c.c_int), ("location", c.c_int))


class Operands(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("src", c.c_void_p),
        ("weights", c.c_void_p),
        ("bias", c.c_void_p),
        ("dst", c.c_void_p),
        ("post", c.c_void_p * MAX_POST_OPS),
    )


class Step(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("src", c.c_void_p),
        ("weights", c.c_void_p),
        ("bias", c.c_void_p),
        ("dst", c.c_void_p),
        ("carry", c.c_void_p),
        ("post", c.c_void_p * MAX_POST_OPS),
        ("batch", c.c_int64),
        ("length", c.c_int64),
        ("slot_count", c.c_int64),
        ("slots", c.c_void_p),
        ("reset", c.c_void_p),
        ("active", c.c_void_p),
        ("workspace", c.c_void_p),
        ("workspace_size", c.c_size_t),
        ("stream", c.c_void_p),
    )


class Issue(c.Structure):
    _fields_ = (("status", c.c_int), ("field", c.c_char * 44), ("message", c.c_char * 208))


# The functions that return a status, and what they take. Pointers are declared as addresses, so that a call makes no
# ctypes object; byref() passes as one.
_ADDRESS = c.c_void_p
_STATUS_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "tconv_desc_init_sized": (_ADDRESS, c.c_size_t),
    "tconv_options_init_sized": (_ADDRESS, c.c_size_t),
    "tconv_output_shape": (_ADDRESS, _ADDRESS, _ADDRESS),
    "tconv_output_shape3d": (_ADDRESS, _ADDRESS, _ADDRESS),
    "tconv_backend_available": (c.c_int, _ADDRESS),
    "tconv_plan_create": (_ADDRESS, _ADDRESS, _ADDRESS, _ADDRESS),
    "tconv_plan_workspace_size": (_ADDRESS, _ADDRESS),
    "tconv_plan_describe": (_ADDRESS, _ADDRESS, c.c_size_t, _ADDRESS),
    "tconv_plan_pack_weights": (_ADDRESS,) * 5,
    "tconv_plan_execute": (_ADDRESS,) * 6 + (c.c_size_t, _ADDRESS),
    "tconv_plan_execute_with": (_ADDRESS,) * 3 + (c.c_size_t, _ADDRESS),
    "tconv_step_init_sized": (_ADDRESS, c.c_size_t),
    "tconv_carry_shape": (_ADDRESS, _ADDRESS, _ADDRESS),
    "tconv_plan_step": (_ADDRESS, _ADDRESS),
    "tconv_plan_flush": (_ADDRESS, _ADDRESS),
    "tconv_conv_transpose": (_ADDRESS,) * 7,
    "tconv_conv_transpose_with": (_ADDRESS,) * 4,
    "tconv_environment_reload": (_ADDRESS,),
    "tconv_system_info": (c.c_int, _ADDRESS, c.c_size_t, _ADDRESS),
}
_OTHER_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "tconv_status_string": (c.c_char_p, (c.c_int,)),
    "tconv_last_issue": (None, (_ADDRESS,)),
    "tconv_version": (c.c_char_p, ()),
    "tconv_implementation_name": (c.c_char_p, (c.c_size_t,)),
    "tconv_plan_implementation": (c.c_char_p, (_ADDRESS,)),
    "tconv_plan_destroy": (None, (_ADDRESS,)),
}


def path() -> str:
    """Of the library; where it lies, or its name where the loader is to find it."""
    named = os.environ.get("TCONV_LIBRARY")
    if named:
        return named
    # An editable install has two directories: that of the sources, and that of what was built.
    for directory in sys.modules[__package__].__path__:
        bundled = pathlib.Path(directory, "libtconv.so")
        if bundled.exists():
            return str(bundled)
    raise ImportError(
        f"{pathlib.Path(__file__).with_name('libtconv.so')} is not there: install the package (pip install . in the "
        "repository), or name a library of your own in TCONV_LIBRARY"
    )


def check() -> None:
    """Raises ImportError where the library is missing or is none for this package; loads nothing."""
    _library_file.check(path(), [*_STATUS_FUNCTIONS, *_OTHER_FUNCTIONS])


@functools.lru_cache(maxsize=1)
def library() -> c.CDLL:
    """The library, loaded once."""
    loaded = _library_file.load(path())
    for name, arguments in _STATUS_FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = c.c_int, arguments
    for name, (result, arguments) in _OTHER_FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def version() -> str:
    return library().tconv_version().decode()


def error(issue: Issue) -> _errors.TconvError:
    """The exception for a failure."""
    kind = _errors.BY_STATUS.get(issue.status, _errors.TconvError)
    status = library().tconv_status_string(issue.status).decode()
    return kind(status, issue.field.decode(), issue.message.decode(errors="replace"))


def last_error() -> _errors.TconvError:
    """The exception for the calling thread's last failure."""
    issue = Issue()
    library().tconv_last_issue(c.byref(issue))
    return error(issue)


def new_desc() -> Desc:
    desc = Desc()
    library().tconv_desc_init_sized(c.byref(desc), c.sizeof(Desc))
    return desc


def new_options() -> Options:
    options = Options()
    library().tconv_options_init_sized(c.byref(options), c.sizeof(Options))
    return options


def output_shape(desc: Desc) -> tuple[int, int, int, int]:
    """The shape of dst, n, c, h, w, of one plane; raises what is wrong with desc."""
    shape, issue = (c.c_int64 * 4)(), Issue()
    if library().tconv_output_shape(c.byref(desc), c.byref(shape), c.byref(issue)):
        raise error(issue)
    return shape[0], shape[1], shape[2], shape[3]


def output_shape3d(desc: Desc) -> tuple[int, int, int, int, int]:
    """The shape of dst, n, c, d, h, w; raises what is wrong with desc."""
    shape, issue = (c.c_int64 * 5)(), Issue()
    if library().tconv_output_shape3d(c.byref(desc), c.byref(shape), c.byref(issue)):
        raise error(issue)
    return shape[0], shape[1], shape[2], shape[3], shape[4]


def carry_shape(desc: Desc) -> tuple[int, int, int, int]:
    """The shape of a stream's carry, n, c, h, w; raises what is wrong with desc."""
    shape, issue = (c.c_int64 * 4)(), Issue()
    if library().tconv_carry_shape(c.byref(desc), c.byref(shape), c.byref(issue)):
        raise error(issue)
    return shape[0], shape[1], shape[2], shape[3]


def implementations() -> list[str]:
    """The names of those of this build, best first."""
    names: list[str] = []
    while (name := library().tconv_implementation_name(len(names))) is not None:
        names.append(name.decode())
    return names


def why_unavailable(backend: int) -> str:
    """The reason why a backend cannot run here; "" where it can."""
    issue = Issue()
    library().tconv_backend_available(backend, c.byref(issue))
    return issue.message.decode(errors="replace")


def reload_environment() -> None:
    """Has the library read its environment variables again; raises what is wrong with one."""
    issue = Issue()
    if library().tconv_environment_reload(c.byref(issue)):
        raise error(issue)


def system_info(text_format: int) -> str:
    """What tconv_system_info writes."""
    length = c.c_size_t()
    library().tconv_system_info(text_format, None, 0, c.byref(length))
    text = c.create_string_buffer(length.value + 1)
    if library().tconv_system_info(text_format, text, len(text), None):
        raise last_error()
    return text.value.decode()
