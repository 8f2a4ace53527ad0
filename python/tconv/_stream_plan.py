"""Plans of streams: the next chunk of each stream, and its end."""

from __future__ import annotations

import ctypes as c
import struct
import threading

from . import _library as lib
from ._plan import Plan, scratch

# src, weights, bias, dst and carry as tconv_tensors, and the tconv_step that points at them: struct_size, the five, the
# operands of post-ops, batch, length, slot_count, slots, reset, active, workspace, workspace_size and stream.
_STEP = struct.Struct("@" + "Nii" * 5 + "N" * (15 + lib.MAX_POST_OPS))
_pack_step = _STEP.pack_into
_STEP_SIZE = c.sizeof(lib.Step)
NO_POSTS = (0,) * lib.MAX_POST_OPS
_NO_ROWS = (0, 0, 0)


class StreamPlan(Plan):
    """The plan of a layer with desc.stream_axis, for chunks of any length up to the desc's. Immutable: what a stream
    remembers is in the caller's carry.

    Attributes:
        carry_shape: n, c, h, w, with a slot for each of the desc's images.
        carry_dtype: of its elements.
    """

    __slots__ = ("_flush", "_step", "carry_dtype", "carry_shape")

    def __init__(self, desc: lib.Desc, options: lib.Options) -> None:
        super().__init__(desc, options)
        self.carry_shape = lib.carry_shape(desc)
        self.carry_dtype: int = lib.F64 if desc.dtype == lib.F64 else desc.carry_dtype
        self._step, self._flush = lib.library().tconv_plan_step, lib.library().tconv_plan_flush

    def pack(self, weights: int, stream: int) -> StreamPlan:
        packed = super().pack(weights, stream)
        packed.carry_shape, packed.carry_dtype = self.carry_shape, self.carry_dtype
        packed._step, packed._flush = self._step, self._flush
        return packed

    def describe(self, description: c.Structure) -> None:
        super().describe(description)
        description.step = c.cast(lib.library().tconv_plan_step, c.c_void_p)
        description.carry_dtype = self.carry_dtype

    def step(
        self,
        tensors: tuple[int, int, int, int, int],
        batch: int,
        length: int,
        slot_count: int,
        rows: tuple[int, int, int] = _NO_ROWS,
        workspace: int = 0,
        stream: int = 0,
        posts: tuple[int, ...] = NO_POSTS,
    ) -> int:
        """Computes the next chunk of each image's stream; returns the status.

        Args:
            tensors: the addresses of src, weights, bias, dst and carry, 0 for what there is not.
            batch: images of the chunk.
            length: its inputs along the streamed axis.
            slot_count: slots of the carry.
            rows: the addresses of slots, reset and active, 0 for what there is not.
            workspace: the address of workspace_size bytes.
            stream: of CUDA.
            posts: the addresses of the post-ops' operands, as tconv_tensors.
        """
        return self._step(self._handle, self._fill(tensors, batch, length, slot_count, rows, workspace, stream, posts))

    def flush(
        self,
        tensors: tuple[int, int, int, int, int],
        batch: int,
        slot_count: int,
        rows: tuple[int, int, int] = _NO_ROWS,
        workspace: int = 0,
        stream: int = 0,
        posts: tuple[int, ...] = NO_POSTS,
    ) -> int:
        """Ends the stream of each image, as step computes; src and weights are not read."""
        return self._flush(self._handle, self._fill(tensors, batch, 0, slot_count, rows, workspace, stream, posts))

    def _fill(
        self,
        tensors: tuple[int, int, int, int, int],
        batch: int,
        length: int,
        slot_count: int,
        rows: tuple[int, int, int],
        workspace: int,
        stream: int,
        posts: tuple[int, ...],
    ) -> int:
        """The address of the calling thread's tconv_step, filled with these."""
        frame = _frames.frame
        dtype, location = self._tensor_tags
        src, weights, bias, dst, carry = tensors
        _pack_step(
            frame.memory,
            0,
            src,
            dtype,
            location,
            weights,
            dtype,
            location,
            bias,
            dtype,
            location,
            dst,
            dtype,
            location,
            carry,
            self.carry_dtype,
            location,
            _STEP_SIZE,
            src and frame.src,
            weights and frame.weights,
            bias and frame.bias,
            frame.dst,
            carry and frame.carry,
            *posts,
            batch,
            length,
            slot_count,
            *rows,
            scratch() if self._in_scratch else workspace,
            self.total_workspace_size,
            stream,
        )
        return frame.step


class _Frame:
    """What a call passes, filled anew for each. One for each thread."""

    def __init__(self) -> None:
        size = c.sizeof(lib.Tensor)
        assert _STEP.size == 5 * size + _STEP_SIZE
        self.memory = c.create_string_buffer(_STEP.size)
        start = c.addressof(self.memory)
        self.src, self.weights, self.bias, self.dst, self.carry, self.step = (start + i * size for i in range(6))


class _Frames(threading.local):
    def __init__(self) -> None:
        self.frame = _Frame()


_frames = _Frames()
