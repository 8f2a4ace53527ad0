"""Layers on the host: NumPy arrays, and those of other libraries as NumPy sees them."""

from __future__ import annotations

import ctypes as c
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _arrays, _dlpack, _errors, _layer, _posts
from . import _library as lib
from ._packed_layer import PackedLayer
from ._plan import Cache, Plan, dtypes_of_operands
from .post import PostOp


class Prepared(NamedTuple):
    """What is found out once for a layer, its options and the way in which its arrays lie."""

    desc: lib.Desc
    options: lib.Options
    plan: Plan | None  # None where the one-shot call is to copy between host and device
    shape: tuple[int, ...]  # of the result, with images
    copy_x: bool
    copy_weight: bool
    copy_addend: bool


prepared_layers: Cache[Prepared] = Cache()

# The order of the axes in memory, by their number.
_CHANNELS_LAST = {rank: _layer.channels_last(rank) for rank in (3, 4, 5)}


def conv_transpose(
    spatial: int,
    given: dict[str, Any],
    arguments: _layer.Arguments,
    backend: int,
    math: int,
    threads: int,
    posts: Sequence[PostOp],
) -> Any:
    arrays, dtype = views(given)
    x, weight = arrays["x"], arrays["weight"]
    _arrays.check_ranks(spatial, x.ndim, weight.ndim)
    batched = x.ndim == spatial + 2
    src = with_batch(x, batched)
    out = arrays.get("out")
    # an out of another rank is refused when the shape of the result is known
    target = with_batch(out, batched) if out is not None and out.ndim == x.ndim else None
    operands = Operands(posts, dtype, batched) if posts else NO_OPERANDS

    lying = (src.strides, src.flags.aligned, weight.strides, weight.flags.aligned)
    of_out = None if target is None else (target.shape, target.strides, target.flags.aligned)
    key = (src.shape, weight.shape, lying, of_out, dtype, arguments, backend, math, threads, operands.key)
    prepared = prepared_layers.get(key)
    if prepared is None:
        prepared = prepared_layers.make(
            key, lambda: _prepare(src, weight, target, dtype, arguments, new_options(backend, threads), math, operands)
        )
    layout = prepared.desc.layout
    if out is not None:
        check_out(out, _layer.without_batch(batched, prepared.shape))
    if prepared.copy_x:
        src = copy(src, layout)
    if prepared.copy_weight:
        weight = dense_as_it_is(weight)
    bias = arrays.get("bias")
    if bias is not None:
        _arrays.check_bias(bias.shape, prepared.shape[1])
        bias = dense_as_it_is(bias)

    inputs: tuple[np.ndarray, ...] = (src, weight) if bias is None else (src, weight, bias)
    if posts:
        inputs += operands.make(prepared.shape[1], layout, prepared.copy_addend)
    result = Result(given, target, batched, prepared.shape, layout, inputs, lies)
    written = result.written
    if not is_dense(written, layout):
        of_slice, dense = (key, counted_strides(written)), prepared
        prepared = prepared_layers.get(of_slice) or prepared_layers.make(of_slice, lambda: _for_slice(dense, written))
    addresses = (address(src), address(weight), address(bias), address(written))
    if prepared.plan is not None:
        execute(prepared.plan, *addresses, operands.addresses)
    else:
        one_shot(prepared.desc, prepared.options, addresses, lib.LOCATION_HOST, operands.addresses)
    return result.hand_over()


class Packed:
    """A layer whose weights are packed, for arrays on the host. Immutable."""

    def __init__(
        self, given: dict[str, Any], layer_with: Callable[[tuple[int, ...]], PackedLayer], options: lib.Options
    ) -> None:
        arrays, self.dtype = views(given)
        self.layer = layer = layer_with(arrays["weight"].shape)
        weights = arrays["weight"]
        desc = layer.make_desc(self.dtype)
        desc.weight_layout, copy_weight = weight_layout(weights)
        self._shape, self._layout = _layer.output_shape(desc, weights.ndim), desc.layout
        self.output_shape = _layer.without_batch(layer.batched, self._shape)
        self._bias = None
        if "bias" in arrays:
            _arrays.check_bias(arrays["bias"].shape, self._shape[1])
            self._bias = np.array(arrays["bias"], order="C")
        named = ((i, of_step) for i, of_step in layer.named_operands().items() if of_step)
        self._channels = {i: np.array(channel_numbers(each, self._shape[1], self.dtype)) for i, each in named}
        self._of_channels = {i: address(array) for i, array in self._channels.items()}
        plan = Plan(desc, options)
        if not plan.implementation.startswith("cpu_"):
            rule = "weight must be an array on the CUDA device, to which a plan copies nothing"
            raise _errors.invalid("backend", f"backend = cuda: {rule}")
        if copy_weight:
            weights = dense_as_it_is(weights)
        self.plan = plan.pack(address(weights), 0)

    def __call__(self, given: dict[str, Any]) -> Any:
        arrays, dtype = views(given)
        self.layer.check_x(arrays["x"].shape, dtype, self.dtype)
        batched = self.layer.batched
        src = with_batch(arrays["x"], batched)
        if not is_dense(src, self._layout):
            src = copy(src, self._layout)
        target = None
        if "out" in arrays:
            check_out(arrays["out"], self.output_shape)
            target = with_batch(arrays["out"], batched)
        inputs: tuple[np.ndarray, ...] = (src,)
        addend = None
        self.layer.check_addend("addend" in arrays)
        if "addend" in arrays:
            _arrays.check_shape("addend", arrays["addend"].shape, self.output_shape, "that of the result, ")
            addend = with_batch(arrays["addend"], batched)
            addend = addend if is_dense(addend, self._layout) else copy(addend, self._layout)
            inputs = (src, addend)
        # the bias and the numbers of channels are this object's own, and overlap nothing
        result = Result(given, target, batched, self._shape, self._layout, inputs, is_dense)
        post = self.layer.addresses(self._of_channels, address(addend)) if self.layer.posts else ()
        execute(self.plan, address(src), 0, address(self._bias), address(result.written), post)
        return result.hand_over()


# ------------------------------------------------------------------------------------------------------------- results


class Result:
    """Where the library writes, and what the caller gets: out, or a new array of x's library. What cannot be written
    where it belongs is written beside it and copied."""

    def __init__(
        self,
        given: dict[str, Any],
        target: np.ndarray | None,
        batched: bool,
        shape: tuple[int, ...],
        layout: int,
        inputs: tuple[np.ndarray, ...],
        is_direct: Callable[[np.ndarray, int], bool],
    ) -> None:
        self._x, self._answer = given["x"], given.get("out")
        self._batched, self._view = batched, target
        if target is None and not isinstance(self._x, np.ndarray) and not _dlpack.is_immutable(self._x):
            whole = _dlpack.new_array(self._x, shape, layout == lib.NHWC)
            memory = _dlpack.Borrowed(whole, "out", None).numpy()
            self._view = _writable(memory, f"out: a new {type(whole).__name__}")
            self._answer = whole if batched else whole[0]
        view = self._view
        if view is None or not is_direct(view, layout) or any(np.may_share_memory(view, array) for array in inputs):
            view = _dense_empty(shape, inputs[0].dtype, layout)
        self.written = view

    def hand_over(self) -> Any:
        if self._view is None:
            mine = self.written if self._batched else self.written[0]
            if isinstance(self._x, np.ndarray):
                return mine if mine.dtype == self._x.dtype else mine.view(self._x.dtype)
            return _dlpack.from_numpy(mine, self._x)
        if self.written is not self._view:
            self._view[...] = self.written
        return self._answer


def _writable(array: np.ndarray, what: str) -> np.ndarray:
    if not array.flags.writeable:
        raise _errors.invalid("out", f"{what} is read-only: must be writable")
    return array


def check_out(out: np.ndarray, shape: tuple[int, ...]) -> None:
    _arrays.check_shape("out", out.shape, shape)
    _writable(out, "out")
    reach = out.itemsize
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(out.strides, shape, strict=True)):
        if extent > 1 and 0 not in shape:
            if stride < reach:
                raise _errors.invalid(
                    "out", f"out.strides = {out.strides} bytes: must be far enough apart that no element stands for two"
                )
            reach += (extent - 1) * stride


# -------------------------------------------------------------------------------------------------------------- inputs


def views(given: dict[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    """The arrays as NumPy sees them, which keep their memory, and the dtype of all. bf16 is the 16-bit integers that
    hold it, whether NumPy knows the type or not."""
    arrays: dict[str, np.ndarray] = {}
    dtypes: dict[str, int] = {}
    for name, array in given.items():
        if array is not None:
            arrays[name], dtypes[name] = _view(name, array)
    return arrays, _arrays.check_dtypes(dtypes)


def _view(name: str, array: Any) -> tuple[np.ndarray, int]:
    if not isinstance(array, np.ndarray):
        borrowed = _dlpack.Borrowed(array, name, None)
        return borrowed.numpy(), borrowed.dtype
    dtype = _dtype_code(array.dtype)
    if dtype is None:
        rule = "must be float32, float64, float16 or bfloat16, in the byte order of the machine"
        raise _errors.wrong_dtype(name, f"{name} is {array.dtype.name} ({array.dtype.str}): {rule}")
    plain = array if type(array) is np.ndarray else array.view(np.ndarray)
    return plain.view(np.uint16) if dtype == lib.BF16 else plain, dtype


@functools.lru_cache(maxsize=64)
def _dtype_code(dtype: np.dtype) -> int | None:
    return _arrays.DTYPES.get(dtype.name) if dtype.isnative else None


def with_batch(array: np.ndarray, batched: bool) -> np.ndarray:
    return array if batched else array[None]


def _prepare(
    src: np.ndarray,
    weights: np.ndarray,
    out: np.ndarray | None,
    dtype: int,
    arguments: _layer.Arguments,
    options: lib.Options,
    math: int,
    operands: Operands,
) -> Prepared:
    desc = _layer.make_desc(src.shape, weights.shape, arguments, dtype, math)
    of_src = layouts(src)
    desc.layout = _layer.choose_layout(of_src, [] if out is None else layouts(out))
    if of_src:
        _layer.give_strides(desc, "src", counted_strides(src))
    desc.weight_layout, copy_weight = weight_layout(weights)
    _posts.fill(desc, operands.posts)
    shape = _layer.output_shape(desc, src.ndim)
    copy_addend = operands.describe_addend(desc, shape)
    plan = Plan(desc, options)
    here = plan.implementation.startswith("cpu_")
    return Prepared(desc, options, plan if here else None, shape, not of_src, copy_weight, copy_addend)


def _for_slice(prepared: Prepared, dst: np.ndarray) -> Prepared:
    """The same layer, its result in a slice of a larger array."""
    desc = lib.Desc.from_buffer_copy(prepared.desc)
    _layer.give_strides(desc, "dst", counted_strides(dst))
    plan = None if prepared.plan is None else Plan(desc, prepared.options)
    return prepared._replace(desc=desc, plan=plan)


def weight_layout(weights: np.ndarray) -> tuple[int, bool]:
    """The layout of the weights as they lie, or that of a copy, and whether one has to be made."""
    strides = _element_strides(weights)
    layout = _layer.weight_layout(weights.shape, strides) if strides else None
    return (lib.WEIGHT_IOHW, True) if layout is None else (layout, False)


def layouts(array: np.ndarray) -> list[int]:
    """Those in which it lies."""
    return _layer.lies_as(array.shape, _element_strides(array))


def counted_strides(array: np.ndarray) -> tuple[int, ...]:
    return _layer.strides_that_count(array.shape, _element_strides(array))


def _element_strides(array: np.ndarray) -> tuple[int, ...]:
    """Strides in elements; () where tconv cannot read the array as it lies, whatever its layout."""
    size = array.itemsize
    strides = tuple(stride // size for stride in array.strides)
    whole = all(
        stride % size == 0 and (stride > 0 or n <= 1) for n, stride in zip(array.shape, array.strides, strict=True)
    )
    return strides if whole and array.flags.aligned else ()


def lies(array: np.ndarray, layout: int) -> bool:
    strides = _element_strides(array)
    return bool(strides) and _layer.lies_in(layout, array.shape, strides)


def is_dense(array: np.ndarray, layout: int) -> bool:
    flags = (array if layout == lib.NCHW else array.transpose(_CHANNELS_LAST[array.ndim])).flags
    return flags.c_contiguous and flags.aligned


def _dense_empty(shape: tuple[int, ...], dtype: np.dtype, layout: int) -> np.ndarray:
    try:
        if layout == lib.NCHW:
            return np.empty(shape, dtype)
        last = len(shape) - 1
        return np.empty((shape[0], *shape[2:], shape[1]), dtype).transpose(0, last, *range(1, last))
    except (MemoryError, ValueError) as error:  # the latter where the size is beyond every address
        raise _errors.out_of_memory("out", f"out: no memory for {shape} of {dtype.itemsize} bytes each") from error


def copy(array: np.ndarray, layout: int) -> np.ndarray:
    made = _dense_empty(array.shape, array.dtype, layout)
    made[...] = array
    return made


def dense_as_it_is(array: np.ndarray) -> np.ndarray:
    return np.require(array, requirements=["C", "A"])


# ------------------------------------------------------------------------------------------------ operands of post-ops


class Operands:
    """Those of one call's post-ops, as the library takes them. addresses are what a plan is given, by step."""

    def __init__(self, posts: Sequence[PostOp], dtype: int, batched: bool) -> None:
        self.posts, self._dtype, self._batched = posts, dtype, batched
        self._addend, self._named_addend = None, None
        of_addend = None
        for i, step in enumerate(posts):
            if step.kind == lib.POST_ADD_TENSOR and self._addend is None:
                name = _posts.name_of(i, 0, step)
                array, kind = _view(name, step.operands[0])
                _arrays.check_dtypes({"x": dtype, name: kind})
                self._addend, self._named_addend = array, name
                of_addend = (array.shape, array.strides, array.flags.aligned)
        self.key = (_posts.key(posts), of_addend) if posts else None
        self.addresses: list[int] = []

    def describe_addend(self, desc: lib.Desc, shape: tuple[int, ...]) -> bool:
        """Tells the library how the addend lies; whether it has to be copied. shape is that of the result."""
        if self._addend is None or self._named_addend is None:
            return False
        expected = _layer.without_batch(self._batched, shape)
        _arrays.check_shape(self._named_addend, self._addend.shape, expected, "that of the result, ")
        array = with_batch(self._addend, self._batched)
        if not lies(array, desc.layout):
            return True
        _layer.give_strides(desc, "addend", counted_strides(array))
        return False

    def make(self, out_channels: int, layout: int, copy_addend: bool) -> tuple[np.ndarray, ...]:
        """The arrays that the addresses are of."""
        arrays: list[np.ndarray] = []
        for i, step in enumerate(self.posts):
            if step.kind == lib.POST_ADD_TENSOR and self._addend is not None:
                array = with_batch(self._addend, self._batched)
                arrays.append(copy(array, layout) if copy_addend else array)
            elif step.operands:
                arrays.append(channel_numbers(_posts.named_operands_of(i, step), out_channels, self._dtype))
            else:
                self.addresses.append(0)
                continue
            self.addresses.append(address(arrays[-1]))
        return tuple(arrays)


NO_OPERANDS = Operands((), lib.F32, True)


def channel_numbers(named: dict[str, Any], out_channels: int, dtype: int) -> np.ndarray:
    """The numbers of a step for each channel, one array after the other, of the type in which a layer of this dtype is
    summed. Converting loses nothing."""
    of_sums = lib.F64 if dtype == lib.F64 else lib.F32
    parts = []
    for name, value in named.items():
        array, given = _view(name, value)
        if given == lib.F64 != of_sums:
            raise _errors.wrong_dtype(name, f"{name} is float64: must be float32, in which the layer is summed")
        _arrays.check_shape(name, array.shape, (out_channels,), "the output channels, ")
        if given == lib.BF16:
            array = (array.astype(np.uint32) << 16).view(np.float32)
        parts.append(array.astype(np.float64 if of_sums == lib.F64 else np.float32, copy=False))
    return dense_as_it_is(parts[0] if len(parts) == 1 else np.concatenate(parts))


# ----------------------------------------------------------------------------------------------------------------- runs


def new_options(backend: int, threads: int) -> lib.Options:
    options = lib.new_options()
    options.backend, options.threads = backend, threads
    return options


def address(array: np.ndarray | None) -> int:
    return 0 if array is None else int(array.__array_interface__["data"][0])


def execute(plan: Plan, src: int, weights: int, bias: int, dst: int, post: Sequence[int] = ()) -> None:
    try:
        workspace = np.empty(plan.workspace_size, np.uint8) if plan.workspace_size else None
    except MemoryError as error:
        raise _errors.out_of_memory("workspace", f"workspace: no memory for {plan.workspace_size} bytes") from error
    if post:
        status = plan.execute_with(src, weights, bias, dst, post, address(workspace), 0)
    else:
        status = plan.execute(src, weights, bias, dst, address(workspace), 0)
    if status:
        raise lib.last_error()


def one_shot(
    desc: lib.Desc,
    options: lib.Options,
    addresses: tuple[int, int, int, int],
    location: int,
    post: Sequence[int] = (),
) -> None:
    tensors = [lib.Tensor(address, desc.dtype, location) for address in addresses]
    src, weights, bias, dst = (c.byref(tensor) if tensor.data else None for tensor in tensors)
    issue = lib.Issue()
    if post:
        operands = lib.Operands(c.sizeof(lib.Operands))
        operands.src, operands.weights, operands.bias, operands.dst = (
            c.addressof(tensor) if tensor.data else None for tensor in tensors
        )
        of_steps = [
            lib.Tensor(each, dtype, location) for each, dtype in zip(post, dtypes_of_operands(desc), strict=True)
        ]
        for i, tensor in enumerate(of_steps):
            operands.post[i] = c.addressof(tensor) if tensor.data else None
        status = lib.library().tconv_conv_transpose_with(
            c.byref(desc), c.byref(options), c.byref(operands), c.byref(issue)
        )
    else:
        status = lib.library().tconv_conv_transpose(
            c.byref(desc), c.byref(options), src, weights, bias, dst, c.byref(issue)
        )
    if status:
        raise lib.error(issue)
