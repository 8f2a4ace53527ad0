"""conv_transpose2d for NumPy arrays and everything that speaks DLPack."""

from __future__ import annotations

import ctypes as c
import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _dlpack, _errors, _layer
from . import _library as lib
from ._plan import Cache, Plan

_BACKENDS = {"auto": lib.BACKEND_AUTO, "cpu": lib.BACKEND_CPU, "cuda": lib.BACKEND_CUDA}
_MATHS = {"default": lib.MATH_DEFAULT, "strict": lib.MATH_STRICT, "tf32": lib.MATH_TF32}
_DTYPES = {"float32": lib.F32, "float64": lib.F64, "float16": lib.F16, "bfloat16": lib.BF16}
_DTYPE_NAMES = {code: name for name, code in _DTYPES.items()}


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """What is found out once for a layer, its options and the way in which its arrays lie."""

    desc: lib.Desc
    options: lib.Options
    plan: Plan | None  # None where the one-shot call is to copy between host and device
    shape: tuple[int, ...]
    layout: int
    copy_x: bool
    copy_weight: bool


_prepared: Cache[_Prepared] = Cache()


def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    out: Any = None,
    backend: str = "auto",
    math: str = "default",
) -> Any:
    """2-D transposed convolution, as torch.nn.functional.conv_transpose2d defines it.

    x: (N, C, H, W) or (C, H, W); weight: (C, out_channels / groups, kh, kw); bias: (out_channels,) or None. NumPy
    arrays, or arrays of any library that speaks DLPack, all on one device and of one dtype: float32, float64, float16,
    or bfloat16 where the library has it. Axes are always in this order, whatever the memory: an x that lies as (N, H,
    W, C) is computed so, and so lies the result.

    out: where to write; returned. It must have the result's shape and dtype, and may be a slice of a larger array.
    Without it the result is a new array of x's library.
    backend: "auto" (where x lives), "cpu" or "cuda"; NumPy arrays are copied to the GPU and back where it is forced.
    math: how float32 is multiplied: "strict", "tf32" (CUDA may round the factors to 11 bits), or "default" (what the
    environment variable TCONV_MATH says, "strict" if it is not set).

    On the host, arrays are read and written as they lie where images and channels, or images and pixels, are at any
    distance and rows are dense; any other is copied once. CUDA arrays have to lie so. CUDA work is ordered on the
    current stream of CuPy or PyTorch for their arrays, on the legacy default stream for those of others.

    Raises a tconv.TconvError, which names the field at fault and the rule.
    """
    arguments = (
        _pair("stride", stride),
        _pair("padding", padding),
        _pair("output_padding", output_padding),
        _integer("groups", groups),
        _pair("dilation", dilation),
    )
    choices = _choice("backend", backend, _BACKENDS), _choice("math", math, _MATHS)
    device = _common_device({"x": x, "weight": weight, "bias": bias, "out": out})
    if device is None:
        return _on_host(x, weight, bias, out, arguments, *choices)
    return _on_cuda(device, x, weight, bias, out, arguments, *choices)


# ------------------------------------------------------------------------------------------------------------ arguments


def _integer(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise _errors.wrong_dtype(name, f"{name} = {value!r}: must be an integer") from None
    if abs(number) >= 2**63:  # ctypes would cut it
        raise _errors.SizeOverflowError("TCONV_ERROR_OVERFLOW", name, f"{name} = {number}: must fit in 64 bits")
    return number


def _pair(name: str, value: Any) -> tuple[int, int]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2:
            raise _errors.invalid(name, f"{name} = {value!r}: must be an integer or two, for rows and columns")
        return _integer(name, value[0]), _integer(name, value[1])
    return (_integer(name, value),) * 2


def _choice(name: str, value: str, known: dict[str, int]) -> int:
    if value not in known:
        raise _errors.invalid(name, f"{name} = {value!r}: must be one of {', '.join(known)}")
    return known[value]


def _common_device(arrays: dict[str, Any]) -> int | None:
    devices: dict[str, int | None] = {}
    for name, array in arrays.items():
        if array is None and name in ("bias", "out"):
            continue
        if isinstance(array, np.ndarray):
            devices[name] = None
        elif hasattr(array, "__dlpack__"):
            devices[name] = _dlpack.device_of(array)
        else:
            raise _errors.wrong_dtype(
                name, f"{name} is a {type(array).__name__}: must be a NumPy array or one that speaks DLPack"
            )
    for name, device in devices.items():
        if device != devices["x"]:
            raise _errors.invalid(
                name, f"{name} is on {_device_name(device)}: must be where x is, on {_device_name(devices['x'])}"
            )
    return devices["x"]


def _device_name(device: int | None) -> str:
    return "the host" if device is None else f"CUDA device {device}"


def _check_bias(shape: tuple[int, ...], out_channels: int) -> None:
    if shape != (out_channels,):
        raise _errors.invalid("bias", f"bias.shape = {shape}: must be the output channels, ({out_channels},)")


def _check_ranks(x_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> None:
    if len(x_shape) not in (3, 4):
        raise _errors.invalid("x", f"x.ndim = {len(x_shape)}: must be 4, or 3 for one image without its axis")
    if len(weight_shape) != 4:
        raise _errors.invalid("weight", f"weight.ndim = {len(weight_shape)}: must be 4")


def _check_dtypes(dtypes: dict[str, int]) -> int:
    for name, dtype in dtypes.items():
        if dtype != dtypes["x"]:
            raise _errors.wrong_dtype(
                name, f"{name} is {_DTYPE_NAMES[dtype]}: must be of x's dtype, {_DTYPE_NAMES[dtypes['x']]}"
            )
    return dtypes["x"]


def _options(backend: int, device: int | None = None, stream: int = 0) -> lib.Options:
    options = lib.new_options()
    options.backend = backend
    if device is not None:
        options.device, options.stream = device, stream
    return options


# ------------------------------------------------------------------------------------------------------------- the host


def _host_array(name: str, array: Any) -> tuple[np.ndarray, int, Any]:
    """The array as NumPy sees it, its dtype, and what keeps its memory."""
    if isinstance(array, np.ndarray):
        dtype = _DTYPES.get(array.dtype.name) if array.dtype.isnative else None
        if dtype is None:
            raise _errors.wrong_dtype(name, f"{name} is {array.dtype}: must be float32, float64, float16 or bfloat16")
        return array, dtype, array
    borrowed = _dlpack.Borrowed(array, name, None)
    return borrowed.numpy(), borrowed.dtype, borrowed


def _on_host(x: Any, weight: Any, bias: Any, out: Any, arguments: _layer.Arguments, backend: int, math: int) -> Any:
    arrays: dict[str, np.ndarray] = {}
    dtypes: dict[str, int] = {}
    keep = []
    for name, given in (("x", x), ("weight", weight), ("bias", bias), ("out", out)):
        if given is not None:
            arrays[name], dtypes[name], memory = _host_array(name, given)
            keep.append(memory)
    src, weights, result = arrays["x"], arrays["weight"], arrays.get("out")
    _check_ranks(src.shape, weights.shape)
    dtype = _check_dtypes(dtypes)
    batched = src.ndim == 4
    if not batched:
        src = src[None]

    target = result if result is None or batched else result[None]

    lying = (src.strides, src.flags.aligned, weights.strides, weights.flags.aligned)
    of_out = None if target is None else (target.shape, target.strides, target.flags.aligned)
    key = (src.shape, weights.shape, lying, of_out, dtype, arguments, backend, math)
    prepared = _prepared.get(key)
    if prepared is None:
        prepared = _prepared.make(key, lambda: _prepare(src, weights, target, dtype, arguments, backend, math))
    layout, shape = prepared.layout, prepared.shape
    if bias is not None:
        _check_bias(arrays["bias"].shape, shape[1])

    if prepared.copy_x:
        src = _dense(src, layout)
    if prepared.copy_weight:
        weights = np.require(weights, requirements=["C", "A"])
    biases = None if bias is None else np.require(arrays["bias"], requirements=["C", "A"])

    answer = out
    written = None  # where tconv writes
    if result is not None and target is not None:
        _check_out(result, shape if batched else shape[1:])
        inputs = (src, weights) if biases is None else (src, weights, biases)
        if _lies(target, layout) and not any(np.may_share_memory(target, array) for array in inputs):
            written = target
    elif not isinstance(x, np.ndarray):
        answer = _dlpack.new_array(x, shape, layout == lib.NHWC)
        memory = _dlpack.Borrowed(answer, "out", None)
        if memory.read_only:
            raise _errors.invalid("out", f"arrays of {type(x).__name__} cannot be written to: give x as a NumPy array")
        keep.append(memory)
        written = memory.numpy()
    if written is None:
        written = _dense_empty(shape, src.dtype, layout)
    _run_on_host(key, prepared, src, weights, biases, written)
    if target is not None:
        if written is not target:
            target[...] = written
        return out
    if answer is None:
        answer = written
    return answer if batched else answer[0]


def _prepare(
    src: np.ndarray,
    weights: np.ndarray,
    out: np.ndarray | None,
    dtype: int,
    arguments: _layer.Arguments,
    backend: int,
    math: int,
) -> _Prepared:
    desc = _layer.make_desc(src.shape, weights.shape, arguments, dtype, math)
    layouts = _layer.lies_as(src.shape, _element_strides(src))
    # an out of another rank is refused later, when the shape of the result is known
    wanted = [] if out is None or out.ndim != 4 else _layer.lies_as(out.shape, _element_strides(out))
    desc.layout = _layer.choose_layout(layouts, wanted)
    if layouts:
        desc.src_strides[:] = _counted_strides(src)
    weight_strides = _element_strides(weights)
    weight_layout = _layer.weight_layout(weights.shape, weight_strides) if weight_strides else None
    desc.weight_layout = lib.WEIGHT_IOHW if weight_layout is None else weight_layout
    shape = lib.output_shape(desc)
    options = _options(backend)
    plan = Plan(desc, options)
    here = plan.implementation.startswith("cpu_")
    return _Prepared(desc, options, plan if here else None, shape, desc.layout, not layouts, weight_layout is None)


def _run_on_host(
    key: tuple[Any, ...],
    prepared: _Prepared,
    src: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None,
    dst: np.ndarray,
) -> None:
    if dst.size and _counted_strides(dst) != _dense_strides(dst.shape, prepared.layout):
        key = (key, _counted_strides(dst))
        slice_of = _prepared.get(key) or _prepared.make(key, lambda: _for_slice(prepared, dst))
        prepared = slice_of
    addresses = (_address(src), _address(weights), _address(bias), _address(dst))
    plan = prepared.plan
    if plan is not None:
        workspace = np.empty(plan.workspace_size, np.uint8) if plan.workspace_size else None
        if plan.execute(*addresses, _address(workspace), 0):
            raise lib.last_error()
    else:
        _one_shot(prepared.desc, prepared.options, addresses, lib.LOCATION_HOST)


def _address(array: np.ndarray | None) -> int:
    return 0 if array is None else int(array.__array_interface__["data"][0])


def _for_slice(prepared: _Prepared, dst: np.ndarray) -> _Prepared:
    """The same layer, its result in a slice of a larger array."""
    desc = lib.Desc.from_buffer_copy(prepared.desc)
    desc.dst_strides[:] = _counted_strides(dst)
    plan = None if prepared.plan is None else Plan(desc, prepared.options)
    return dataclasses.replace(prepared, desc=desc, plan=plan)


def _counted_strides(array: np.ndarray) -> tuple[int, ...]:
    return _layer.strides_that_count(array.shape, _element_strides(array))


def _element_strides(array: np.ndarray) -> tuple[int, ...]:
    """Strides in elements; () where tconv cannot read the array as it lies, whatever its layout."""
    size = array.itemsize
    strides = tuple(stride // size for stride in array.strides)
    whole = all(
        stride % size == 0 and (stride > 0 or n <= 1) for n, stride in zip(array.shape, array.strides, strict=True)
    )
    return strides if whole and array.flags.aligned else ()


def _dense_strides(shape: tuple[int, ...], layout: int) -> tuple[int, ...]:
    _, ch, h, w = shape
    strides = (ch * h * w, h * w, w, 1) if layout == lib.NCHW else (h * w * ch, 1, w * ch, ch)
    return _layer.strides_that_count(shape, strides)


def _dense_empty(shape: tuple[int, ...], dtype: np.dtype, layout: int) -> np.ndarray:
    n, ch, h, w = shape
    return np.empty(shape, dtype) if layout == lib.NCHW else np.empty((n, h, w, ch), dtype).transpose(0, 3, 1, 2)


def _dense(array: np.ndarray, layout: int) -> np.ndarray:
    made = _dense_empty(array.shape, array.dtype, layout)
    made[...] = array
    return made


def _lies(array: np.ndarray, layout: int) -> bool:
    strides = _element_strides(array)
    return bool(strides) and _layer.lies_in(layout, array.shape, strides)


def _check_out(out: np.ndarray, shape: tuple[int, ...]) -> None:
    if out.shape != shape:
        raise _errors.invalid("out", f"out.shape = {out.shape}: must be {shape}")
    if not out.flags.writeable:
        raise _errors.invalid("out", "out is read-only: must be writable")


# ----------------------------------------------------------------------------------------------------------------- CUDA


def _on_cuda(
    device: int, x: Any, weight: Any, bias: Any, out: Any, arguments: _layer.Arguments, backend: int, math: int
) -> Any:
    stream = _dlpack.current_stream(x, device)
    given = (("x", x), ("weight", weight), ("bias", bias), ("out", out))
    arrays = {
        name: _dlpack.Borrowed(array, name, _dlpack.as_dlpack_stream(stream))
        for name, array in given
        if array is not None
    }
    src, weights = arrays["x"], arrays["weight"]
    _check_ranks(src.shape, weights.shape)
    dtype = _check_dtypes({name: array.dtype for name, array in arrays.items()})
    batched = len(src.shape) == 4
    shape4, strides4 = _batched(src.shape, src.strides)
    desc = _layer.make_desc(shape4, weights.shape, arguments, dtype, math)
    wanted: list[int] = []
    if "out" in arrays and len(arrays["out"].shape) == len(src.shape):
        wanted = _layer.lies_as(*_batched(arrays["out"].shape, arrays["out"].strides))
    # where x lies in neither, NCHW is what the library's message is about
    layouts = _layer.lies_as(shape4, strides4)
    desc.layout = _layer.choose_layout(layouts, wanted) if layouts else lib.NCHW
    _refuse_repeated("x", shape4, strides4)
    desc.src_strides[:] = _layer.strides_that_count(shape4, strides4)
    weight_layout = _layer.weight_layout(weights.shape, weights.strides)
    if weight_layout is None:
        raise _errors.invalid("weight", f"weight.strides = {weights.strides}: must be dense")
    desc.weight_layout = weight_layout
    shape = lib.output_shape(desc)
    if bias is not None:
        _check_bias(arrays["bias"].shape, shape[1])
        if shape[1] > 1 and arrays["bias"].strides != (1,):
            raise _errors.invalid("bias", f"bias.strides = {arrays['bias'].strides}: must be dense")
    answer = out
    if out is None:
        answer = _dlpack.new_array(x, shape, desc.layout == lib.NHWC)
        arrays["out"] = _dlpack.Borrowed(answer, "out", _dlpack.as_dlpack_stream(stream))
        answer = answer if batched else answer[0]
        dst_shape, dst_strides = arrays["out"].shape, arrays["out"].strides
    else:
        expected = tuple(shape if batched else shape[1:])
        if arrays["out"].shape != expected:
            raise _errors.invalid("out", f"out.shape = {arrays['out'].shape}: must be {expected}")
        dst_shape, dst_strides = _batched(arrays["out"].shape, arrays["out"].strides)
    if arrays["out"].read_only:
        raise _errors.invalid("out", f"arrays of {type(answer).__name__} cannot be written to: give another out")
    _refuse_repeated("out", dst_shape, dst_strides)
    desc.dst_strides[:] = _layer.strides_that_count(dst_shape, dst_strides)
    addresses = (src.address, weights.address, arrays["bias"].address if "bias" in arrays else 0, arrays["out"].address)
    _one_shot(desc, _options(backend, device, stream), addresses, lib.LOCATION_CUDA)
    return answer


def _batched(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (shape, strides) if len(shape) == 4 else ((1, *shape), (0, *strides))


def _refuse_repeated(name: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        if extent > 1 and stride < 1:
            raise _errors.invalid(name, f"{name}.strides[{axis}] = {stride}: must be at least 1")


def _one_shot(desc: lib.Desc, options: lib.Options, addresses: tuple[int, int, int, int], location: int) -> None:
    tensors = [lib.Tensor(address, desc.dtype, location) for address in addresses]
    src, weights, bias, dst = (c.byref(tensor) if tensor.data else None for tensor in tensors)
    issue = lib.Issue()
    if lib.library().tconv_conv_transpose2d(c.byref(desc), c.byref(options), src, weights, bias, dst, c.byref(issue)):
        raise lib.error(issue)
