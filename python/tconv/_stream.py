"""Stream: a layer over an input that comes in chunks."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from . import _arguments, _arrays, _errors, _host, _layer, _posts
from . import _library as lib
from ._stream_plan import NO_POSTS, StreamPlan
from ._types import Array, Padding, Sizes, SupportsDLPack
from .post import PostOp

# The desc.stream_axis of each axis that a caller can name.
_AXES = {-1: lib.STREAM_COLUMNS, -2: lib.STREAM_ROWS}


class Stream:
    """A layer over an input that comes in chunks: frames of audio, bands of an image. Each chunk gives stride outputs
    for each of its inputs, and what its last inputs add to outputs that are not finished stays in the carry. All chunks
    together, and flush() at the end, are what one call of conv_transpose2d gives for the whole input; without flush(),
    they are that without its last columns.

    A stream computes on the host. The weights are packed once, and chunks of every length are computed by one plan. The
    library says in its description of the plan whether bits depend on how the input is cut; on the CPU they do not.
    One thread at a time may call a stream. It can be neither copied nor pickled; its carry is an array, which can.

    Args:
        weight: the kernel, of NumPy or any library that speaks DLPack, on the host. It is copied, as the bias is.
        bias: what is added to each output channel once, when an output leaves; or None.
        stride: as in conv_transpose2d, or in conv_transpose1d where weight has three axes; so are all that follow.
        padding: what is cut off the result along the other axis of a 2-D layer; 0 along the streamed one.
        output_padding: what is more at its end along the other axis; 0 along the streamed one.
        groups: parts of the channels.
        dilation: distance of the kernel's taps.
        axis: the streamed axis of x: -1, the columns of a 2-D layer and the one axis of a 1-D layer; or -2, the rows.
        batch: the number of streams, each with a slot of its own in the carry; None: one, whose x has no axis for it.
        longest: inputs along the streamed axis that are computed at once. A longer chunk is computed in several steps.
        extent: of x along the other axis, of a 2-D layer alone.
        math: "default", "strict" or "tf32", as in conv_transpose2d.
        threads: of the CPU, at most.
        post: what every output goes through before it is stored, a list of what tconv.post makes, without post.add().

    Shape:
        - weight: (C, out_channels / groups, width) or (C, out_channels / groups, kh, kw)
        - bias: (out_channels,)
        - x: (N, C, L), of a 2-D layer (N, C, extent, L) or, with axis=-2, (N, C, L, extent); without the N where batch
          is None. N is at most batch, L any number.
        - result: the same with out_channels and stride * L in place of C and L
        - carry: (batch, out_channels, tail), of a 2-D layer (batch, out_channels, H_out, tail) or (batch, out_channels,
          tail, W_out); without the batch where that is None

    Attributes:
        carry: the unfinished sums, without bias, zeros where a stream begins: a NumPy array of float32, of float64
            where weight is that. It can be read, written, saved, and set to what was saved.
        tail: outputs along the streamed axis that flush() gives, max(0, dilation * (width - 1) + 1 - stride).
        longest: inputs that are computed at once.
        dtype: its name.
        implementation: which one of the library computes, "cpu_...".

    Raises:
        tconv.TconvError: names the field at fault and the rule.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> weight = np.array([[[1, 1, 10]]], np.float32)
        >>> stream = tconv.Stream(weight, stride=2)
        >>> stream(np.array([[1]], np.float32)), stream(np.array([[2, 3]], np.float32)), stream.flush()
        (array([[1., 1.]], dtype=float32), array([[12.,  2., 23.,  3.]], dtype=float32), array([[30.]], dtype=float32))
    """

    __slots__ = (
        "_addresses",
        "_arguments",
        "_axis",
        "_batched",
        "_carry",
        "_dtype",
        "_kept",
        "_like",
        "_plan",
        "_posts",
        "_stride",
        "_x_shape",
        "longest",
    )

    def __init__(
        self,
        weight: SupportsDLPack,
        bias: SupportsDLPack | None = None,
        stride: Sizes = 1,
        padding: Padding = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
        *,
        axis: int = -1,
        batch: int | None = None,
        longest: int = 64,
        extent: int | None = None,
        math: str = "default",
        threads: int | None = None,
        post: Sequence[PostOp] | None = None,
    ) -> None:
        given, posts = {"weight": weight, "bias": bias}, _posts.as_list(post, of_plan=True)
        for i, each in enumerate(posts):
            if each.kind == lib.POST_ADD_TENSOR:
                raise _errors.invalid(
                    f"post[{i}]", f"post[{i}] is add(): must be a step without an array of x's length"
                )
        _check_host({**given, **_posts.named_operands(posts)})
        arrays, self._dtype = _host.views(given)
        spatial = arrays["weight"].ndim - 2
        if spatial not in (1, 2):
            raise _errors.invalid("weight", f"weight.ndim = {spatial + 2}: must be 4, or 3 for one dimension")
        streamed = _streamed(axis, spatial)
        self._axis = spatial + 2 + streamed
        slots, self.longest = _count("batch", 1 if batch is None else batch), _count("longest", longest)
        weights = arrays["weight"]
        sizes = [_other_extent(extent, spatial)] * spatial
        sizes[streamed] = self.longest
        self._x_shape = (slots, weights.shape[0], *sizes)
        self._batched = batch is not None
        self._arguments = _arguments.of_layer(spatial, stride, padding, output_padding, groups, dilation)
        self._stride = self._arguments[0][self._axis - 2]

        math_code = _arguments.choice("math", math, _arguments.MATHS)
        desc = _layer.make_desc(self._x_shape, weights.shape, self._arguments, self._dtype, math_code)
        desc.stream_axis = _AXES[streamed]
        desc.weight_layout, copy_weight = _host.weight_layout(weights)
        _posts.fill(desc, posts)
        out_channels = _layer.output_shape(desc, weights.ndim)[1]
        plan = StreamPlan(desc, _host.new_options(lib.BACKEND_CPU, _arguments.thread_count(threads)))
        of_bias = None
        if "bias" in arrays:
            _arrays.check_bias(arrays["bias"].shape, out_channels)
            of_bias = np.array(arrays["bias"], order="C")
        channels, tensors, self._posts = _operands(posts, out_channels, self._dtype)
        self._kept, self._like = (of_bias, channels, tensors), weight
        self._plan = plan.pack(_host.address(_host.dense_as_it_is(weights) if copy_weight else weights), 0)
        carry_shape = (*plan.carry_shape[:2], *plan.carry_shape[4 - spatial :])
        self._carry = np.zeros(carry_shape, np.float64 if plan.carry_dtype == lib.F64 else np.float32)
        self._addresses = (_host.address(of_bias), _host.address(self._carry) if self._carry.size else 0)

    def __call__(
        self,
        x: Array,
        *,
        slots: Any = None,
        reset: Any = None,
        active: Any = None,
        out: Array | None = None,
    ) -> Array:
        """The outputs of the next chunk of each stream, as step() gives them."""
        return self.step(x, slots=slots, reset=reset, active=active, out=out)

    def step(
        self,
        x: Array,
        *,
        slots: Any = None,
        reset: Any = None,
        active: Any = None,
        out: Array | None = None,
    ) -> Array:
        """The outputs of the next chunk of each stream, in out if it is given, else a new array of x's library.

        Args:
            x: the chunk, of the weight's dtype, on the host. Any length, 0 too.
            slots: the slot of each image of x, N integers, no two alike. None: image n has slot n.
            reset: N booleans, True where a stream begins: its carry counts as zeros. None: nowhere.
            active: N booleans, False where an image has no part: its slot stays as it is, and what the result has for
                it means nothing. None: all have.
            out: where to write, of the result's shape.

        Raises:
            tconv.TconvError: names the argument at fault and the rule. The carry is then as it was.
        """
        given = {"x": x, "out": out}
        _check_host(given)
        arrays, dtype = _host.views(given)
        src = self._check_x(arrays["x"], dtype)
        batch, length = src.shape[0], src.shape[self._axis]
        rows = _Rows(batch, slots, reset, active)
        shape = self._result_shape(batch, length * self._stride)
        target = None
        if "out" in arrays:
            _host.check_out(arrays["out"], _layer.without_batch(self._batched, shape))
            target = _host.with_batch(arrays["out"], self._batched)
        result = _host.Result(given, target, self._batched, shape, lib.NCHW, (src, self._carry), _host.is_dense)
        if batch and length:
            self._steps(src, result.written, rows)
        elif batch:
            self._begin(rows)
        return result.hand_over()

    def flush(self, *, slots: Any = None, active: Any = None) -> Any:
        """Ends the streams: what their last inputs reach beyond the outputs that step() gave, tail of them. Their slots
        are zeros then, so that other streams may begin.

        Args:
            slots: whose streams end, integers, no two alike. None: those of all.
            active: booleans, False for a slot that stays as it is. None: all have a part.

        Returns:
            an array of the weight's library.

        Raises:
            tconv.TconvError: names the argument at fault and the rule.
        """
        batch = self._x_shape[0] if slots is None else len(_integers(slots))
        rows = _Rows(batch, slots, None, active)
        shape = self._result_shape(batch, self.tail)
        like = {"x": self._like}
        result = _host.Result(like, None, self._batched, shape, lib.NCHW, (_empty_like(like),), _host.is_dense)
        if batch and self.tail:
            bias, carry = self._addresses
            tensors, scratch = (0, 0, bias, _host.address(result.written), carry), self._workspace()
            if self._plan.flush(
                tensors, batch, self._x_shape[0], rows.addresses, _host.address(scratch), posts=self._posts
            ):
                raise lib.last_error()
        return result.hand_over()

    def reset(self, rows: Any = None) -> None:
        """Begins streams anew, without an end of those before.

        Args:
            rows: their slots, an integer, a sequence of integers, or a boolean for each slot. None: all.

        Raises:
            tconv.TconvError: rows are no slots.
        """
        try:
            self._carry[slice(None) if rows is None else np.asarray(rows)] = 0
        except IndexError as error:
            raise _errors.invalid("rows", f"rows = {rows!r}: must be slots, below {self._x_shape[0]}") from error

    @property
    def carry(self) -> np.ndarray:
        return self._carry if self._batched else self._carry[0]

    @carry.setter
    def carry(self, value: Any) -> None:
        mine, given = self.carry, np.asarray(value)
        if given.dtype != mine.dtype:
            raise _errors.wrong_dtype("carry", f"carry is {given.dtype.name}: must be {mine.dtype.name}")
        _arrays.check_shape("carry", given.shape, mine.shape)
        mine[...] = given

    @property
    def tail(self) -> int:
        return self._carry.shape[self._axis]

    @property
    def dtype(self) -> str:
        return _arrays.DTYPE_NAMES[self._dtype]

    @property
    def implementation(self) -> str:
        return self._plan.implementation

    def __reduce__(self) -> NoReturn:
        raise TypeError("a tconv.Stream can be neither copied nor pickled: make it anew and set its carry")

    def __repr__(self) -> str:
        x = _layer.without_batch(self._batched, self._x_shape)
        parts = [f"{x} at most", f"stride={self._stride}", f"tail={self.tail}", self.dtype, self.implementation]
        return f"<tconv.Stream {', '.join(parts)}>"

    # ------------------------------------------------------------------------------------------------------------ steps

    def _steps(self, src: np.ndarray, dst: np.ndarray, rows: _Rows) -> None:
        """Computes a chunk, in several steps where it is longer than the plan has it."""
        batch, length, scratch = src.shape[0], src.shape[self._axis], self._workspace()
        for first in range(0, length, self.longest):
            count = min(self.longest, length - first)
            part = dst[self._along(first * self._stride, count * self._stride)]
            read = src[self._along(first, count)]
            read = read if _host.is_dense(read, lib.NCHW) else _host.copy(read, lib.NCHW)
            written = part if _host.is_dense(part, lib.NCHW) else np.empty(part.shape, part.dtype)
            bias, carry = self._addresses
            tensors = (_host.address(read), 0, bias, _host.address(written), carry)
            if self._plan.step(
                tensors, batch, count, self._x_shape[0], rows.addresses, _host.address(scratch), posts=self._posts
            ):
                raise lib.last_error()
            if written is not part:
                part[...] = written
            rows.begin()

    def _begin(self, rows: _Rows) -> None:
        """A chunk without inputs: streams may begin with it all the same."""
        slots = np.arange(rows.count) if rows.slots is None else rows.slots
        if rows.slots is not None and (slots.min() < 0 or slots.max() >= self._x_shape[0]):
            raise _errors.invalid("slots", f"slots = {slots}: must be from 0 to {self._x_shape[0] - 1}")
        if rows.reset is not None:
            begins = rows.reset if rows.active is None else rows.reset & rows.active
            self._carry[slots[begins != 0]] = 0

    def _along(self, first: int, count: int) -> tuple[slice, ...]:
        return tuple(
            slice(first, first + count) if axis == self._axis else slice(None) for axis in range(len(self._x_shape))
        )

    def _workspace(self) -> np.ndarray | None:
        size = self._plan.workspace_size
        try:
            return np.empty(size, np.uint8) if size else None
        except MemoryError as error:
            raise _errors.out_of_memory("workspace", f"workspace: no memory for {size} bytes") from error

    def _check_x(self, x: np.ndarray, dtype: int) -> np.ndarray:
        """x with its images."""
        whole = list(_layer.without_batch(self._batched, self._x_shape))
        streamed = self._axis - len(self._x_shape)
        if dtype != self._dtype:
            raise _errors.wrong_dtype(
                "x", f"x is {_arrays.DTYPE_NAMES[dtype]}: must be of weight's dtype, {self.dtype}"
            )
        if x.ndim == len(whole):
            whole[streamed] = x.shape[streamed]
            if self._batched and x.shape[0] <= self._x_shape[0]:
                whole[0] = x.shape[0]
        _arrays.check_shape("x", x.shape, tuple(whole), "of any length and at most as many streams, ")
        return _host.with_batch(x, self._batched)

    def _result_shape(self, batch: int, extent: int) -> tuple[int, ...]:
        _, channels, *sizes = self._carry.shape
        sizes[self._axis - 2] = extent
        return (batch, channels, *sizes)


class _Rows:
    """What a call says of its images, and the addresses of these arrays."""

    def __init__(self, count: int, slots: Any, reset: Any, active: Any) -> None:
        self.count = count
        self.slots, self.reset, self.active = None, _mask("reset", reset, count), _mask("active", active, count)
        if slots is not None:
            self.slots = _integers(slots)
            _arrays.check_shape("slots", self.slots.shape, (count,), "the images, ")
        self.addresses = (_host.address(self.slots), _host.address(self.reset), _host.address(self.active))

    def begin(self) -> None:
        """From now on no stream begins."""
        self.addresses = (self.addresses[0], 0, self.addresses[2])


def _mask(name: str, value: Any, count: int) -> np.ndarray | None:
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype != np.bool_:
        raise _errors.wrong_dtype(name, f"{name} is {array.dtype.name}: must be booleans")
    _arrays.check_shape(name, array.shape, (count,), "the images, ")
    return np.ascontiguousarray(array).view(np.uint8)


def _integers(slots: Any) -> np.ndarray:
    array = np.asarray(slots)
    if array.dtype.kind not in "iu" and array.size:
        raise _errors.wrong_dtype("slots", f"slots is {array.dtype.name}: must be integers")
    if array.ndim != 1:
        raise _errors.invalid("slots", f"slots.shape = {array.shape}: must be one integer for each image")
    if array.size and not -(2**31) <= int(array.min()) <= int(array.max()) < 2**31:
        raise _errors.invalid("slots", f"slots = {slots!r}: must fit in 32 bits")
    return array.astype(np.int32)


def _operands(posts: Sequence[PostOp], out_channels: int, dtype: int) -> tuple[list[np.ndarray], Any, tuple[int, ...]]:
    """The numbers of the post-ops for each channel, these as tconv_tensors, and the tensors' addresses by step."""
    of_sums = lib.F64 if dtype == lib.F64 else lib.F32
    arrays, tensors, addresses = [], (lib.Tensor * lib.MAX_POST_OPS)(), list(NO_POSTS)
    for i, each in enumerate(posts):
        if each.operands:
            numbers = np.array(_host.channel_numbers(_posts.named_operands_of(i, each), out_channels, dtype))
            tensors[i].data, tensors[i].dtype, tensors[i].location = _host.address(numbers), of_sums, lib.LOCATION_HOST
            arrays.append(numbers)
            addresses[i] = c.addressof(tensors[i])
    return arrays, tensors, tuple(addresses)


def _empty_like(given: dict[str, Any]) -> np.ndarray:
    """A NumPy array of the dtype of what is given."""
    return np.empty(0, _host.views(given)[0]["x"].dtype)


def _check_host(given: dict[str, Any]) -> None:
    device = _arrays.common_device(given)
    if device is not None:
        where, first = _arrays.device_name(device), next(iter(given))
        raise _errors.invalid(
            first, f"{first} is on {where}: must be on the host; tconv.torch.conv_transpose1d_step computes on CUDA"
        )


def _streamed(axis: Any, spatial: int) -> int:
    number = _arguments.integer("axis", axis)
    if number not in _AXES or (spatial == 1 and number == -2):
        raise _errors.invalid("axis", f"axis = {number}: must be -1{', or -2 for rows' if spatial == 2 else ''}")
    return number


def _other_extent(extent: Any, spatial: int) -> int:
    if spatial == 1:
        if extent is not None:
            raise _errors.invalid("extent", f"extent = {extent!r}: must be None, a 1-D layer has no other axis")
        return 1
    if extent is None:
        raise _errors.invalid("extent", "extent = None: must be the extent of x along the axis that is not streamed")
    return _count("extent", extent)


def _count(name: str, value: Any) -> int:
    number = _arguments.integer(name, value)
    if number < 1:
        raise _errors.invalid(name, f"{name} = {number}: must be at least 1")
    return number
