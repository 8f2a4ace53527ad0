"""The self-check: random small layers of all operations on every implementation, against the formula in NumPy."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import _errors, _host, _layer
from . import _library as lib

_INTEGERS = 2  # of small size: all sums are integers that float32 has, and the answer is exact, but for one rounding
_ELEMENTS = {lib.F32: np.float32, lib.F64: np.float64, lib.F16: np.float16, lib.BF16: np.uint16}
_NAMES = {lib.F32: "f32", lib.F64: "f64", lib.F16: "f16", lib.BF16: "bf16"}
_LAYOUTS = {lib.NCHW: "NCHW", lib.NHWC: "NHWC"}


_OPERATIONS = {
    lib.OP_FORWARD: "forward",
    lib.OP_BACKWARD_DATA: "backward_data",
    lib.OP_BACKWARD_WEIGHTS: "backward_weights",
}
# What an implementation says that has other operations alone.
_OTHER_OPERATIONS = "does not take op"
_LEFT_OUT = (
    "not tried: lower instruction sets, TF32, slices, packed weights, larger layers; the program `tconv verify` does"
)

_Tensors = tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None, np.ndarray | None]


@dataclasses.dataclass(frozen=True)
class _Case:
    desc: lib.Desc
    before: _Tensors  # src, weights, bias, dst; what is written holds what it may be added to
    after: _Tensors  # those that are written
    text: str


def verify(layers: int, seed: int) -> int:
    """Prints a line for each implementation and operation; the exit status, 1 where one is wrong."""
    rng = np.random.default_rng(seed)
    cases = {op: [_random_case(rng, op) for _ in range(layers)] for op in _OPERATIONS}
    names = lib.implementations()
    width = max(map(len, names))
    failed = False
    for backend, prefix in ((lib.BACKEND_CPU, "cpu_"), (lib.BACKEND_CUDA, "cuda_")):
        why = lib.why_unavailable(backend)
        if why:
            print(f"{prefix + '*':<{width}} not tried: {why}")
            continue
        for op, operation in _OPERATIONS.items():
            for name in names:
                answer = _verify_one(name, backend, cases[op]) if name.startswith(prefix) else None
                if answer is not None:
                    failed |= answer[0]
                    print(f"{name:<{width}} {operation:<16} {answer[1]}", flush=True)
    print(_LEFT_OUT)
    print("wrong" if failed else "right")
    return int(failed)


def _verify_one(name: str, backend: int, cases: list[_Case]) -> tuple[bool, str] | None:
    """Whether it is wrong, and what to say; None where it does not have the operation."""
    right = not_taken = 0
    for case in cases:
        try:
            results = _run(name, backend, case)
        except _errors.UnsupportedError as error:
            if _OTHER_OPERATIONS in str(error):
                return None
            not_taken += 1
            continue
        except _errors.UnavailableError as error:
            return False, f"not tried: {error}"
        except _errors.TconvError as error:
            return True, f"FAILED: {error}, on {case.text}"
        for result, expected in zip(results, case.after, strict=True):
            if result is not None and expected is not None and not np.array_equal(result, expected):
                return True, f"WRONG on {case.text}"
        right += 1
    if not right:
        return False, f"not tried: none of {not_taken} layers is its own"
    return False, f"right: {right} layers" + (f"; {not_taken} are not its own" if not_taken else "")


def _run(name: str, backend: int, case: _Case) -> list[np.ndarray | None]:
    options = _host.new_options(backend, 0)
    options.implementation = name.encode()
    tensors = [None if array is None else array.copy() for array in case.before]
    src, weights, bias, dst = (0 if array is None else array.ctypes.data for array in tensors)
    _host.one_shot(case.desc, options, (src, weights, bias, dst), lib.LOCATION_HOST)
    return tensors


def _random_case(rng: np.random.Generator, op: int) -> _Case:
    def some(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    dtype, layout, accumulate = some(0, 3), some(0, 1), some(0, 2) == 0
    spatial = 3 if some(0, 6) == 0 else 2
    groups, n = some(1, 2), some(1, 2)
    ci, co = (groups * some(1, 8) if some(0, 1) else groups * 8 * some(1, 4) for _ in range(2))
    kernel, stride, dilation = (tuple(some(1, most) for _ in range(spatial)) for most in (4, 3, 2))
    output_padding = tuple(some(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
    side = 3 if some(0, 3) == 0 else 12  # layers with more weights than pixels have an implementation of their own
    extents = (*(some(1, 4) for _ in range(spatial - 2)), some(2, side), some(2, side))
    # the smallest output has two rows before padding, and one plane
    padding = (*((0, 0) for _ in range(spatial - 2)), (some(0, 1), 0), (0, some(0, 1)))
    arguments: _layer.Arguments = (stride, padding, output_padding, groups, dilation)
    x_shape, weight_shape = (n, ci, *extents), (ci, co // groups, *kernel)
    desc = _layer.make_desc(x_shape, weight_shape, arguments, dtype, lib.MATH_STRICT)
    desc.layout, desc.op, desc.accumulate = layout, op, accumulate
    x, weight, bias, dst = (
        rng.integers(-_INTEGERS, _INTEGERS + 1, shape).astype(float)
        for shape in (x_shape, weight_shape, (co,), _layer.output_shape(desc, spatial + 2))
    )
    held = 1.0 if accumulate else 0.0
    order = range(spatial + 2) if layout == lib.NCHW else _layer.channels_last(spatial + 2)

    def stored(x: Any, weight: Any, bias: Any, dst: Any) -> _Tensors:
        src, to = (None if array is None else _as_stored(array.transpose(order), dtype) for array in (x, dst))
        weights, of_bias = (None if array is None else _as_stored(array, dtype) for array in (weight, bias))
        return src, weights, of_bias, to

    after: tuple[Any, Any, Any, Any]
    if op == lib.OP_FORWARD:
        after = (None, None, None, _formula(x, weight, arguments) + bias.reshape(-1, *[1] * spatial) + held * dst)
    elif op == lib.OP_BACKWARD_DATA:
        after = (_gradients(x, weight, dst, arguments)[0] + held * x, None, None, None)
    else:
        of_bias = dst.sum((0, *range(2, dst.ndim)))
        after = (None, _gradients(x, weight, dst, arguments)[1] + held * weight, of_bias + held * bias, None)
    text = (
        f"{_OPERATIONS[op]} {_NAMES[dtype]} {_LAYOUTS[layout]} x {x.shape} weight {weight.shape} stride {stride} "
        f"padding {padding} output_padding {output_padding} dilation {dilation} groups {groups} "
        f"accumulate {int(accumulate)}"
    )
    return _Case(desc, stored(x, weight, bias, dst), stored(*after), text)


def _taps(
    x_shape: _layer.Shape, weight_shape: _layer.Shape, arguments: _layer.Arguments
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Each tap of the kernel, with the part of the uncropped output that it reaches."""
    stride, _, _, _, dilation = arguments
    for tap in itertools.product(*map(range, weight_shape[2:])):
        sizes = zip(tap, dilation, x_shape[2:], stride, strict=True)
        yield tap, tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in sizes)


def _uncropped(x_shape: _layer.Shape, weight_shape: _layer.Shape, arguments: _layer.Arguments) -> tuple[int, ...]:
    """(n, groups, output channels of a group, and the extents) before padding crops."""
    stride, _, output_padding, groups, dilation = arguments
    sizes = zip(x_shape[2:], stride, dilation, weight_shape[2:], output_padding, strict=True)
    return x_shape[0], groups, weight_shape[1], *((n - 1) * s + d * (k - 1) + 1 + more for n, s, d, k, more in sizes)


def _at(array: np.ndarray, last: Sequence[Any]) -> np.ndarray:
    """A view of the array, by an index for each of its last axes."""
    return array[(..., *last)]


def _kept(full: np.ndarray, arguments: _layer.Arguments) -> np.ndarray:
    """The view of the uncropped output that padding leaves."""
    sides = zip(full.shape[3:], arguments[1], strict=True)
    return _at(full, [slice(before, extent - after) for extent, (before, after) in sides])


def _by_groups(x: np.ndarray, weight: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """x by images, groups, channels and pixels; the weight by groups."""
    n, ci = x.shape[:2]
    return x.reshape(n, groups, ci // groups, -1), weight.reshape(groups, ci // groups, *weight.shape[1:])


def _formula(x: np.ndarray, weight: np.ndarray, arguments: _layer.Arguments) -> np.ndarray:
    """The definition in tconv.h, scattered: each pixel times the weights, cropped by the padding."""
    full = np.zeros(_uncropped(x.shape, weight.shape, arguments))
    of_x, of_weight = _by_groups(x, weight, arguments[3])
    for tap, reached in _taps(x.shape, weight.shape, arguments):
        part = _at(full, reached)
        part += np.einsum("ngip,gio->ngop", of_x, _at(of_weight, tap)).reshape(part.shape)
    n, groups, co = full.shape[:3]
    cropped = _kept(full, arguments)
    return cropped.reshape(n, groups * co, *cropped.shape[3:])


def _gradients(
    x: np.ndarray, weight: np.ndarray, dst: np.ndarray, arguments: _layer.Arguments
) -> tuple[np.ndarray, np.ndarray]:
    """The same, gathered: the gradients of x and weight from that of the output."""
    full = np.zeros(_uncropped(x.shape, weight.shape, arguments))
    cropped = _kept(full, arguments)
    cropped[...] = dst.reshape(cropped.shape)
    of_x, of_weight = _by_groups(x, weight, arguments[3])
    diff_x, diff_weight = np.zeros_like(of_x), np.zeros_like(of_weight)
    for tap, reached in _taps(x.shape, weight.shape, arguments):
        part = _at(full, reached).reshape(*full.shape[:3], -1)
        diff_x += np.einsum("ngop,gio->ngip", part, _at(of_weight, tap))
        _at(diff_weight, tap)[...] = np.einsum("ngip,ngop->gio", of_x, part)
    return diff_x.reshape(x.shape), diff_weight.reshape(weight.shape)


def _as_stored(array: np.ndarray, dtype: int) -> np.ndarray:
    """The numbers as the library has them in memory, rounded to nearest; bf16 as the 16-bit integers that hold it."""
    if dtype != lib.BF16:
        return np.ascontiguousarray(array, _ELEMENTS[dtype])
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
