"""tconv and PyTorch on the GPU, as compare_gpu.py runs them: on the same numbers, each in buffers that take turns.

PyTorch with cudnn.benchmark on and off are two contenders of which the faster counts. cuDNN's choice for a layer is kept by
PyTorch whichever way it was made, and the next run takes it, benchmark or not; so the cache is limited to one choice (before
PyTorch is imported) and displaced by another layer's before each choice is made anew.
"""

import dataclasses
import os
import typing

os.environ["TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT"] = "1"
import torch
import torch.nn.functional as F

import contenders as c
import gpu_machine
import operations
import tconv_ctypes as t  # finds the package
import tconv.torch

# What a precision is: the tensors' dtype, tconv's math, whether PyTorch may use TF32.
PRECISIONS = {
    "f32": ("f32", t.MATH_STRICT, False),
    "tf32": ("f32", t.MATH_TF32, True),
    "f16": ("f16", t.MATH_STRICT, False),
    "bf16": ("bf16", t.MATH_STRICT, False),
    "f64": ("f64", t.MATH_STRICT, False),
}

# Kernels of more columns are not tuned: trying cuDNN's algorithms takes minutes.
LONGEST_TUNED = 400


@dataclasses.dataclass
class Prepared:
    """A contender, ready to be timed."""

    name: str
    replay: typing.Any
    result: typing.Callable[[], tuple]  # of the first set of buffers
    facts: dict = dataclasses.field(default_factory=dict)
    keep: tuple = ()


def activations(case, layout, dtype, sets):
    """So many sets of what the operation reads beside weights and bias; the first is the case's own."""
    first = case.op.activations(case, layout, dtype)
    return [first] + [tuple(x.clone(memory_format=torch.preserve_format) for x in first) for _ in range(sets - 1)]


def sets_of(case, layout, dtype, machine):
    return gpu_machine.sets_for(case.bytes(dtype, layout), machine.cache_bytes)


class Tconv:
    """The C API, weights packed once or in each call."""

    def __init__(self, library, machine, packed=True):
        self.library, self.machine, self.packed = library, machine, packed
        self.name = "tconv" if packed else "call"

    def prepare(self, case, layout, precision):
        dtype, math, _ = PRECISIONS[precision]
        gpu = self.machine.device == "cuda"
        plan = self.library.plan(
            c.layer_desc(self.library, case.row, layout, dtype, math, case.op),
            backend=t.BACKEND_CUDA if gpu else t.BACKEND_CPU,
            location=t.LOCATION_CUDA if gpu else t.LOCATION_HOST,
        )
        weights = case.weights(dtype, case.op.weights_of(layout)).data_ptr()
        stream = self.machine.stream_handle
        if self.packed and case.op.packs:
            plan.pack(weights, stream)
        given = None if self.packed else weights
        size = plan.workspace_size
        workspace = torch.empty(max(1, size), dtype=torch.uint8, device=self.machine.device)
        sets, bias = sets_of(case, layout, dtype, self.machine), case.bias(dtype)
        reads, first = activations(case, layout, dtype, sets), case.written(layout, dtype)
        writes = [first] + [tuple(map(torch.empty_like, first)) for _ in range(sets - 1)]
        runs = [
            case.op.bind(plan, read, given, bias, written, workspace.data_ptr(), stream)
            for read, written in zip(reads, writes)
        ]
        replay = self.machine.capture(lambda i: runs[i](), sets)
        case.forget_written(layout, dtype)  # what is judged is what the replay writes
        replay.launch()
        return Prepared(
            self.name,
            replay,
            lambda: first,
            {"implementation": plan.implementation, "workspace_bytes": size},
            (plan, workspace, reads, writes),
        )


class Call:
    """A function that is called as PyTorch's, and allocates its outputs."""

    def prepare(self, case, layout, precision):
        dtype, _, tf32 = PRECISIONS[precision]
        sets = sets_of(case, layout, dtype, self.machine)
        reads, function = activations(case, layout, dtype, sets), self.function(case, layout, dtype)
        written = [None] * sets

        def run(i):
            written[i] = function(*reads[i])

        self.tune(case)
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        replay = self.machine.capture(run, sets)
        replay.launch()
        return Prepared(self.name, replay, lambda: written[0], {}, (reads, function, written))

    def tune(self, case):
        """What comes before the first call of a layer."""


class TconvCall(Call):
    """tconv.torch.conv_transpose2d, which packs the weights in each call. It is the forward operation alone."""

    name = "call"

    def __init__(self, machine):
        self.machine = machine

    @staticmethod
    def function(case, layout, dtype):
        weights, bias, arguments = case.weights(dtype, layout), case.bias(dtype), operations.pytorch_arguments(case.row)
        return lambda src: (tconv.torch.conv_transpose2d(src, weights, bias, *arguments),)


class Torch(Call):
    def __init__(self, benchmark, machine):
        self.name, self.benchmark, self.machine = "tuned" if benchmark else "default", benchmark, machine
        self._other = [torch.zeros(1, 1, size, size, device=machine.device) for size in (1, 2)]

    @staticmethod
    def function(case, layout, dtype):
        return case.op.pytorch(case, layout, dtype)

    def tune(self, case):
        torch.backends.cudnn.benchmark = False
        F.conv_transpose2d(self._other[0], self._other[1])  # displaces what was chosen before
        torch.backends.cudnn.benchmark = self.benchmark and case.row["kw"] < LONGEST_TUNED


def make_entrants(op, library, machine):
    """tconv first. The gradients have no function in tconv.torch: their call is the C API's, packing in each."""
    entrants = [Tconv(library, machine)]
    if op.name == "forward":
        entrants.append(TconvCall(machine))
    elif op.packs:
        entrants.append(Tconv(library, machine, packed=False))
    return [*entrants, Torch(False, machine), Torch(True, machine)]
