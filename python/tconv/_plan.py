"""Plans, and the cache that keeps those of the layers used last."""

from __future__ import annotations

import collections
import ctypes as c
import struct
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from . import _library as lib

Value = TypeVar("Value")
OfPlan = TypeVar("OfPlan", bound="Plan")

# As many layers as a large network has, several sizes of each. A plan is a few kilobytes.
CAPACITY = 512
# Host workspaces up to here are each thread's own scratch memory, so that small layers allocate nothing. Larger ones
# cost little beside what is computed in them.
SCRATCH_BYTES = 64 * 1024


class Plan:
    """A layer bound to an implementation. Immutable; any thread may execute it. Unless its weights are packed it holds
    no memory but its own tables, so that dropping it while the device still computes is safe: its kernels were given
    theirs."""

    __slots__ = (
        "_destroy",
        "_execute",
        "_execute_with",
        "_handle",
        "_in_scratch",
        "_post_dtypes",
        "_tensor_tags",
        "implementation",
        "op",
        "owner",
        "total_workspace_size",
        "workspace_size",
    )

    def __init__(self, desc: lib.Desc, options: lib.Options) -> None:
        handle, issue = c.c_void_p(), lib.Issue()
        if lib.library().tconv_plan_create(c.byref(desc), c.byref(options), c.byref(handle), c.byref(issue)):
            raise lib.error(issue)
        self._own(handle.value, desc.dtype, desc.op, dtypes_of_operands(desc))

    def _own(self, handle: int | None, dtype: int, op: int, post_dtypes: tuple[int, ...]) -> None:
        """Becomes the owner of a plan of the library."""
        self._handle, self.op, self._post_dtypes = handle, op, post_dtypes
        self.owner: int | None = None
        library, size = lib.library(), c.c_size_t()
        self._destroy: Callable[[int], object] = library.tconv_plan_destroy
        self._execute = library.tconv_plan_execute
        self._execute_with = library.tconv_plan_execute_with
        if library.tconv_plan_workspace_size(handle, c.byref(size)):
            raise lib.last_error()
        self.total_workspace_size: int = size.value
        self.implementation: str = library.tconv_plan_implementation(handle).decode()
        location = lib.LOCATION_CUDA if self.implementation.startswith("cuda_") else lib.LOCATION_HOST
        self._tensor_tags = (dtype, location)
        self._in_scratch = location == lib.LOCATION_HOST and size.value <= SCRATCH_BYTES
        # what the caller has to give
        self.workspace_size = 0 if self._in_scratch else size.value

    def pack(self: OfPlan, weights: int, stream: int) -> OfPlan:
        """A plan of the same layer that holds the weights at this address, packed on the stream; they are read until
        that is done. It ignores those that execute is given. On CUDA it has memory of the device, which it gives back
        when the device is done."""
        handle, issue = c.c_void_p(), lib.Issue()
        tensor = lib.Tensor(weights, *self._tensor_tags)
        if lib.library().tconv_plan_pack_weights(
            self._handle, c.byref(tensor), stream, c.byref(handle), c.byref(issue)
        ):
            raise lib.error(issue)
        plan = type(self).__new__(type(self))
        plan._own(handle.value, self._tensor_tags[0], self.op, self._post_dtypes)
        return plan

    def __reduce__(self) -> NoReturn:
        raise TypeError("plans can be neither copied nor pickled")

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)  # none where none could be made
        if handle is not None:
            self._handle = None
            self._destroy(handle if self.owner is None else self.owner)

    def describe(self, description: c.Structure) -> None:
        """Fills in what C code needs for executing the plan: native/torch_shim.h's tconv_torch_layer."""
        library = lib.library()
        description.plan = self._handle
        description.execute = c.cast(library.tconv_plan_execute, c.c_void_p)
        description.execute_with = c.cast(library.tconv_plan_execute_with, c.c_void_p)
        description.destroy = c.cast(library.tconv_plan_destroy, c.c_void_p)
        description.workspace_size = self.total_workspace_size
        description.dtype, description.location = self._tensor_tags
        description.op = self.op
        description.post_count = len(self._post_dtypes)
        description.post_dtypes[: len(self._post_dtypes)] = self._post_dtypes

    def hand_over(self, owner: int, release: Callable[[int], object]) -> None:
        """From now on the plan belongs to the owner at this address, too: release(owner) takes the place of destroying
        it."""
        self._destroy, self.owner = release, owner

    def execute(self, src: int, weights: int, bias: int, dst: int, workspace: int, stream: int) -> int:
        """Runs the plan on the tensors at these addresses, 0 for what the operation does without; returns the status. A
        gradient stands where its tensor does. The caller keeps all of them alive: on CUDA, until the work on the stream
        is done."""
        frame = _frames.frame
        dtype, location = self._tensor_tags
        _pack_tensors(
            frame.memory, 0, src, dtype, location, weights, dtype, location, bias, dtype, location, dst, dtype, location
        )
        return self._execute(
            self._handle,
            frame.src if src else None,
            frame.weights if weights else None,
            frame.bias if bias else None,
            frame.dst if dst else None,
            frame.scratch if self._in_scratch else workspace,
            self.total_workspace_size,
            stream,
        )

    def execute_with(
        self, src: int, weights: int, bias: int, dst: int, post: Sequence[int], workspace: int, stream: int
    ) -> int:
        """The same with the operands of the layer's post-ops: the address of each post-op's operand, 0 for one that
        takes none."""
        frame = _frames.frame
        dtype, location = self._tensor_tags
        return self._execute_with(
            self._handle,
            frame.operands(((src, weights, bias, dst), dtype), (post, self._post_dtypes), location),
            frame.scratch if self._in_scratch else workspace,
            self.total_workspace_size,
            stream,
        )


def dtypes_of_operands(desc: lib.Desc) -> tuple[int, ...]:
    """By post-op: an addend has the layer's dtype, numbers of channels that of sums."""
    of_sums = lib.F64 if desc.dtype == lib.F64 else lib.F32
    kinds = [post.kind for post in desc.post[: desc.post_count]]
    return tuple(desc.dtype if kind == lib.POST_ADD_TENSOR else of_sums for kind in kinds)


_TENSORS = struct.Struct("@" + "Nii" * 4)  # src, weights, bias and dst as tconv_tensors
_pack_tensors = _TENSORS.pack_into
_ONE_TENSOR = struct.Struct("@Nii")


class _Frame:
    """The tconv_tensors that a call passes, filled anew for each, and scratch memory. One for each thread."""

    def __init__(self) -> None:
        size = c.sizeof(lib.Tensor)
        assert _TENSORS.size == 4 * size
        self.memory = c.create_string_buffer(4 * size)
        self._scratch = c.create_string_buffer(SCRATCH_BYTES)
        self.scratch = c.addressof(self._scratch)
        self.src, self.weights, self.bias, self.dst = (c.addressof(self.memory) + i * size for i in range(4))
        self._operands = lib.Operands(c.sizeof(lib.Operands))
        self._operands_address = c.addressof(self._operands)
        self._post_tensors = c.create_string_buffer(lib.MAX_POST_OPS * size)

    def operands(
        self, tensors: tuple[Sequence[int], int], post: tuple[Sequence[int], Sequence[int]], location: int
    ) -> int:
        """The address of tconv_operands for these: addresses of src, weights, bias and dst with their dtype, and those
        of the post-ops' operands with theirs."""
        (src, weights, bias, dst), dtype = tensors
        operands = self._operands
        _pack_tensors(
            self.memory, 0, src, dtype, location, weights, dtype, location, bias, dtype, location, dst, dtype, location
        )
        operands.src, operands.weights = src and self.src, weights and self.weights
        operands.bias, operands.dst = bias and self.bias, dst and self.dst
        size, start, pointers = _ONE_TENSOR.size, c.addressof(self._post_tensors), [0] * lib.MAX_POST_OPS
        for i, (address, of_operand) in enumerate(zip(*post, strict=True)):
            if address:
                _ONE_TENSOR.pack_into(self._post_tensors, i * size, address, of_operand, location)
                pointers[i] = start + i * size
        operands.post[:] = pointers
        return self._operands_address


class _Frames(threading.local):
    def __init__(self) -> None:
        self.frame = _Frame()


_frames = _Frames()


def scratch() -> int:
    """The address of the calling thread's scratch memory."""
    return _frames.frame.scratch


# Everything that has a clear().
caches: weakref.WeakSet[Any] = weakref.WeakSet()


def forget_plans() -> None:
    """Empties every cache, so that layers are planned anew."""
    for cache in list(caches):
        cache.clear()


class Cache(Generic[Value]):
    """The values used last, by key, made where they are missing. Any thread may ask. One that falls out lives on as
    long as somebody uses it."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        caches.add(self)
        self._capacity = capacity
        self._values: collections.OrderedDict[Hashable, Value] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Value | None:
        value = self._values.get(key)
        if value is not None:
            try:
                self._values.move_to_end(key)
            except KeyError:  # another thread has just dropped it
                pass
        return value

    def make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of key; make() is called where there is none, outside the lock."""
        value = make()
        with self._lock:
            value = self._values.setdefault(key, value)
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)
        return value

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

    def __len__(self) -> int:
        return len(self._values)
