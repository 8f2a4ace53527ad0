"""Layers on CUDA: arrays of any library that speaks DLPack, as they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _arrays, _dlpack, _errors, _host, _layer, _posts
from . import _library as lib
from ._packed_layer import PackedLayer
from ._plan import Plan
from .post import PostOp

Borrowed = dict[str, _dlpack.Borrowed]


def conv_transpose(
    device: int,
    spatial: int,
    given: dict[str, Any],
    arguments: _layer.Arguments,
    backend: int,
    math: int,
    threads: int,
    posts: Sequence[PostOp],
) -> Any:
    stream = _dlpack.current_stream(given["x"], device)
    arrays, dtype = _borrow(given, stream)
    x, weight, out = arrays["x"], arrays["weight"], arrays.get("out")
    _arrays.check_ranks(spatial, len(x.shape), len(weight.shape))
    batched = len(x.shape) == spatial + 2
    shape, strides = _with_batch(x, batched)
    desc = _layer.make_desc(shape, weight.shape, arguments, dtype, math)
    wanted: list[int] = []
    if out is not None and len(out.shape) == len(x.shape):
        wanted = _layer.lies_as(*_with_batch(out, batched))
    # where x lies in neither, NCHW is what the library's message is about
    layouts = _layer.lies_as(shape, strides)
    desc.layout = _layer.choose_layout(layouts, wanted) if layouts else lib.NCHW
    _refuse_repeated("x", shape, strides)
    _layer.give_strides(desc, "src", _layer.strides_that_count(shape, strides))
    desc.weight_layout = _weight_layout(weight)
    _posts.fill(desc, posts)
    out_shape = _layer.output_shape(desc, len(shape))
    steps = _Operands(posts, desc, out_shape, batched, stream)
    answer, written = _result(given, out, batched, out_shape, desc.layout, stream)
    _layer.give_strides(desc, "dst", _layer.strides_that_count(*_with_batch(written, batched)))
    bias = _bias_address(arrays, out_shape[1])
    options = _host.new_options(backend, threads)
    options.device, options.stream = device, stream
    addresses = (x.address, weight.address, bias, written.address)
    _host.one_shot(desc, options, addresses, lib.LOCATION_CUDA, steps.addresses)
    return answer


class _Operands:
    """Those of a call's post-ops, as they lie; the arrays are kept as long as this object. Gives the layer the strides
    of the addend. addresses are what the library is given, by step."""

    def __init__(
        self, posts: Sequence[PostOp], desc: lib.Desc, shape: tuple[int, ...], batched: bool, stream: int
    ) -> None:
        self.addresses: list[int] = []
        self._arrays: list[_dlpack.Borrowed] = []
        for i, step in enumerate(posts):
            named = _posts.named_operands_of(i, step)
            arrays, dtype = _borrow(named, stream) if named else ({}, desc.dtype)
            self._arrays += arrays.values()
            self.addresses.append(next((array.address for array in arrays.values()), 0))
            if step.kind == lib.POST_ADD_TENSOR:
                ((name, addend),) = arrays.items()
                _arrays.check_dtypes({"x": desc.dtype, name: dtype})
                expected = _layer.without_batch(batched, shape)
                _arrays.check_shape(name, addend.shape, expected, "that of the result, ")
                whole, strides = _with_batch(addend, batched)
                _refuse_repeated(name, whole, strides)
                _layer.give_strides(desc, "addend", _layer.strides_that_count(whole, strides))
            elif named:
                _check_channels(arrays, shape[1], lib.F64 if desc.dtype == lib.F64 else lib.F32)


def _check_channels(arrays: Borrowed, out_channels: int, of_sums: int) -> None:
    """The numbers of a step for each channel: nothing can convert or join arrays of any library on a device."""
    end = None
    for name, array in arrays.items():
        if array.dtype != of_sums:
            given, wanted = _arrays.DTYPE_NAMES[array.dtype], _arrays.DTYPE_NAMES[of_sums]
            raise _errors.wrong_dtype(name, f"{name} is {given}: must be {wanted}")
        _arrays.check_shape(name, array.shape, (out_channels,), "the output channels, ")
        if out_channels > 1 and array.strides != (1,):
            raise _errors.invalid(name, f"{name}.strides = {array.strides}: must be dense")
        if end is not None and array.address != end:
            raise _errors.invalid(name, f"{name} lies elsewhere: must lie right behind a, as the half of one array")
        end = array.address + out_channels * (8 if of_sums == lib.F64 else 4)


class Packed:
    """A layer whose weights are packed, for arrays on a CUDA device. Immutable."""

    def __init__(
        self,
        device: int,
        given: dict[str, Any],
        layer_with: Callable[[tuple[int, ...]], PackedLayer],
        options: lib.Options,
    ) -> None:
        self._device = device
        stream = _dlpack.current_stream(given["weight"], device)
        arrays, self.dtype = _borrow(given, stream)
        weight = arrays["weight"]
        self.layer = layer = layer_with(weight.shape)
        desc = layer.make_desc(self.dtype)
        desc.weight_layout = _weight_layout(weight)
        self._shape, self._layout = _layer.output_shape(desc, len(weight.shape)), desc.layout
        self.output_shape = _layer.without_batch(layer.batched, self._shape)
        _bias_address(arrays, self._shape[1])
        self._bias = None
        if "bias" in arrays:
            copy = _dlpack.copy_of(given["bias"])
            self._bias = _dlpack.Borrowed(copy, "bias", _dlpack.as_dlpack_stream(stream))
        self._channels: list[_dlpack.Borrowed] = []  # read where they lie
        self._of_channels: dict[int, int] = {}
        for i, named in layer.named_operands().items():
            if named:
                vectors, _ = _borrow(named, stream)
                _check_channels(vectors, self._shape[1], lib.F64 if self.dtype == lib.F64 else lib.F32)
                self._channels += vectors.values()
                self._of_channels[i] = next(iter(vectors.values())).address
        options.device, options.location = device, lib.LOCATION_CUDA
        plan = Plan(desc, options)
        if not plan.implementation.startswith("cuda_"):
            raise _errors.invalid("backend", "backend = cpu: weight must be an array on the host, as NumPy's are")
        self.plan = plan.pack(weight.address, stream)

    def __del__(self) -> None:
        # First of all: that waits for the device, which may still read the bias, on whatever stream.
        if hasattr(self, "plan"):
            del self.plan

    def __call__(self, given: dict[str, Any]) -> Any:
        x = given["x"]
        stream = _dlpack.current_stream(x, self._device)
        arrays, dtype = _borrow(given, stream)
        self.layer.check_x(arrays["x"].shape, dtype, self.dtype)
        batched = self.layer.batched
        _check_dense("x", arrays["x"], batched, self._layout)
        answer, written = _result(given, arrays.get("out"), batched, self._shape, self._layout, stream)
        _check_dense("out", written, batched, self._layout)
        addend = arrays.get("addend")
        self.layer.check_addend(addend is not None)
        if addend is not None:
            _arrays.check_shape("addend", addend.shape, self.output_shape, "that of the result, ")
            _check_dense("addend", addend, batched, self._layout)
        workspace = None
        if self.plan.workspace_size:
            size = {lib.F64: 8, lib.F32: 4}.get(self.dtype, 2)
            room = _dlpack.new_array(x, (-(-self.plan.workspace_size // size),), False)
            workspace = _dlpack.Borrowed(room, "workspace", _dlpack.as_dlpack_stream(stream))
        addresses = (arrays["x"].address, 0, 0 if self._bias is None else self._bias.address, written.address)
        scratch = 0 if workspace is None else workspace.address
        if self.layer.posts:
            post = self.layer.addresses(self._of_channels, 0 if addend is None else addend.address)
            status = self.plan.execute_with(*addresses, post, scratch, stream)
        else:
            status = self.plan.execute(*addresses, scratch, stream)
        if status:
            raise lib.last_error()
        return answer


def _borrow(given: dict[str, Any], stream: int) -> tuple[Borrowed, int]:
    order = _dlpack.as_dlpack_stream(stream)
    arrays = {name: _dlpack.Borrowed(array, name, order) for name, array in given.items() if array is not None}
    return arrays, _arrays.check_dtypes({name: array.dtype for name, array in arrays.items()})


def _result(
    given: dict[str, Any],
    out: _dlpack.Borrowed | None,
    batched: bool,
    shape: tuple[int, ...],
    layout: int,
    stream: int,
) -> tuple[Any, _dlpack.Borrowed]:
    """What the caller gets, and where the library writes."""
    answer = given.get("out")
    if out is None:
        whole = _dlpack.new_array(given["x"], shape, layout == lib.NHWC)
        answer = whole if batched else whole[0]
        out = _dlpack.Borrowed(answer, "out", _dlpack.as_dlpack_stream(stream))
    _arrays.check_shape("out", out.shape, _layer.without_batch(batched, shape))
    if out.read_only:
        raise _errors.invalid("out", f"out is a {type(answer).__name__}, which is read-only: must be writable")
    _refuse_repeated("out", *_with_batch(out, batched))
    return answer, out


def _with_batch(array: _dlpack.Borrowed, batched: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return _layer.with_batch(batched, array.shape, 1), _layer.with_batch(batched, array.strides, 0)


def _weight_layout(weight: _dlpack.Borrowed) -> int:
    layout = _layer.weight_layout(weight.shape, weight.strides)
    if layout is None:
        raise _errors.invalid("weight", f"weight.strides = {weight.strides}: must be dense")
    return layout


def _bias_address(arrays: Borrowed, out_channels: int) -> int:
    bias = arrays.get("bias")
    if bias is None:
        return 0
    _arrays.check_bias(bias.shape, out_channels)
    if out_channels > 1 and bias.strides != (1,):
        raise _errors.invalid("bias", f"bias.strides = {bias.strides}: must be dense")
    return bias.address


def _check_dense(name: str, array: _dlpack.Borrowed, batched: bool, layout: int) -> None:
    shape, strides = _with_batch(array, batched)
    if 0 not in shape and _layer.strides_that_count(shape, strides) != _layer.dense_strides(shape, layout):
        order = "channels last" if layout == lib.NHWC else "channels first"
        raise _errors.invalid(name, f"{name}.strides = {array.strides}: must be dense as the plan has it, {order}")


def _refuse_repeated(name: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        if extent > 1 and stride < 1:
            raise _errors.invalid(name, f"{name}.strides[{axis}] = {stride}: must be at least 1")
