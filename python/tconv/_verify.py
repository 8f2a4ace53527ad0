"""The self-check: random small layers on every implementation of the library, against the formula in NumPy."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from . import _errors, _host, _layer
from . import _library as lib

_INTEGERS = 2  # of small size: all sums are integers that float32 has, and the answer is exact, but for one rounding
_ELEMENTS = {lib.F32: np.float32, lib.F64: np.float64, lib.F16: np.float16, lib.BF16: np.uint16}
_NAMES = {lib.F32: "f32", lib.F64: "f64", lib.F16: "f16", lib.BF16: "bf16"}
_LAYOUTS = {lib.NCHW: "NCHW", lib.NHWC: "NHWC"}


@dataclasses.dataclass(frozen=True)
class _Case:
    desc: lib.Desc
    src: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    expected: np.ndarray
    text: str


# What an implementation says that has the gradients alone.
_OTHER_OPERATIONS = "does not take op"


def verify(layers: int, seed: int) -> int:
    """Prints a line for each implementation; the exit status, 1 where one is wrong."""
    rng = np.random.default_rng(seed)
    cases = [_random_case(rng) for _ in range(layers)]
    names = lib.implementations()
    failed = False
    for backend, prefix in ((lib.BACKEND_CPU, "cpu_"), (lib.BACKEND_CUDA, "cuda_")):
        why = lib.why_unavailable(backend)
        if why:
            print(f"{prefix + '*':<{_width(names)}} not here: {why}")
            continue
        for name in names:
            if name.startswith(prefix):
                wrong, line = _verify_one(name, backend, cases)
                failed |= wrong
                print(f"{name:<{_width(names)}} {line}", flush=True)
    print("wrong" if failed else "right")
    return int(failed)


def _width(names: list[str]) -> int:
    return max(map(len, names))


def _verify_one(name: str, backend: int, cases: list[_Case]) -> tuple[bool, str]:
    right = not_taken = 0
    for case in cases:
        try:
            result = _run(name, backend, case)
        except _errors.UnsupportedError as error:
            if _OTHER_OPERATIONS in str(error):
                return False, "not tried: it has other operations alone"
            not_taken += 1
            continue
        except _errors.UnavailableError as error:
            return False, f"not here: {error}"
        except _errors.TconvError as error:
            return True, f"FAILED: {error}, on {case.text}"
        if not np.array_equal(result, case.expected):
            return True, f"WRONG on {case.text}"
        right += 1
    if not right:
        return False, f"not tried: none of {not_taken} layers is its own"
    return False, f"right: {right} layers" + (f"; {not_taken} are not its own" if not_taken else "")


def _run(name: str, backend: int, case: _Case) -> np.ndarray:
    options = _host.new_options(backend, 0)
    options.implementation = name.encode()
    result = np.empty(case.expected.shape, case.expected.dtype)
    addresses = [array.ctypes.data for array in (case.src, case.weights, case.bias, result)]
    _host.one_shot(case.desc, options, (addresses[0], addresses[1], addresses[2], addresses[3]), lib.LOCATION_HOST)
    return result


def _random_case(rng: np.random.Generator) -> _Case:
    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    dtype, layout = some(0, 3), some(0, 1)
    groups, n = some(1, 2), some(1, 2)
    ci, co = (groups * some(1, 8) if some(0, 1) else groups * 8 * some(1, 4) for _ in range(2))
    kernel, stride, dilation = ((some(1, most), some(1, most)) for most in (4, 3, 2))
    output_padding = (some(0, max(stride[0], dilation[0]) - 1), some(0, max(stride[1], dilation[1]) - 1))
    side = 3 if some(0, 3) == 0 else 12  # layers with more weights than pixels have an implementation of their own
    h, w = some(2, side), some(2, side)
    # the smallest output has two rows before padding
    padding = ((some(0, 1), 0), (0, some(0, 1)))
    arguments: _layer.Arguments = (stride, padding, output_padding, groups, dilation)
    x, weight, bias = (
        rng.integers(-_INTEGERS, _INTEGERS + 1, shape).astype(float)
        for shape in ((n, ci, h, w), (ci, co // groups, *kernel), (co,))
    )
    desc = _layer.make_desc(x.shape, weight.shape, arguments, dtype, lib.MATH_STRICT)
    desc.layout = layout
    expected = _formula(x, weight, arguments) + bias[:, None, None]
    text = (
        f"{_NAMES[dtype]} {_LAYOUTS[layout]} x {x.shape} weight {weight.shape} stride {stride} padding {padding} "
        f"output_padding {output_padding} dilation {dilation} groups {groups}"
    )
    order = (0, 1, 2, 3) if layout == lib.NCHW else (0, 2, 3, 1)
    src, result = (_as_stored(array.transpose(order), dtype) for array in (x, expected))
    return _Case(desc, src, _as_stored(weight, dtype), _as_stored(bias, dtype), result, text)


def _formula(x: np.ndarray, weight: np.ndarray, arguments: _layer.Arguments) -> np.ndarray:
    """The definition in tconv.h, scattered: each pixel times the weights, cropped by the padding."""
    (sh, sw), ((top, bottom), (left, right)), (more_rows, more_columns), groups, (dh, dw) = arguments
    n, ci, h, w = x.shape
    _, co, kh, kw = weight.shape
    rows, columns = (h - 1) * sh + dh * (kh - 1) + 1 + more_rows, (w - 1) * sw + dw * (kw - 1) + 1 + more_columns
    full = np.zeros((n, groups, co, rows, columns))
    x, weight = x.reshape(n, groups, ci // groups, h, w), weight.reshape(groups, ci // groups, co, kh, kw)
    for a, b in itertools.product(range(kh), range(kw)):
        part = np.einsum("ngihw,gio->ngohw", x, weight[..., a, b])
        full[..., a * dh : a * dh + (h - 1) * sh + 1 : sh, b * dw : b * dw + (w - 1) * sw + 1 : sw] += part
    return full.reshape(n, groups * co, rows, columns)[:, :, top : rows - bottom, left : columns - right]


def _as_stored(array: np.ndarray, dtype: int) -> np.ndarray:
    """The numbers as the library has them in memory, rounded to nearest; bf16 as the 16-bit integers that hold it."""
    if dtype != lib.BF16:
        return np.ascontiguousarray(array, _ELEMENTS[dtype])
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
