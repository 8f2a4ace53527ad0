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
    result: typing.Callable[[], torch.Tensor]  # of the first set of buffers
    facts: dict = dataclasses.field(default_factory=dict)
    keep: tuple = ()


def sources(case, layout, dtype, sets):
    first = case.src(layout, dtype)
    return [first] + [first.clone(memory_format=torch.preserve_format) for _ in range(sets - 1)]


def sets_of(case, dtype, machine):
    return gpu_machine.sets_for(case.bytes(dtype), machine.cache_bytes)


class Tconv:
    name = "tconv"

    def __init__(self, library, machine):
        self.library, self.machine = library, machine

    def prepare(self, case, layout, precision):
        dtype, math, _ = PRECISIONS[precision]
        gpu = self.machine.device == "cuda"
        plan = self.library.plan(
            c.layer_desc(self.library, case.row, layout, dtype, math),
            backend=t.BACKEND_CUDA if gpu else t.BACKEND_CPU,
            location=t.LOCATION_CUDA if gpu else t.LOCATION_HOST,
        )
        stream = self.machine.stream_handle
        plan.pack(case.weights(dtype).data_ptr(), stream)
        size = plan.workspace_size
        workspace = torch.empty(max(1, size), dtype=torch.uint8, device=self.machine.device)
        sets, bias = sets_of(case, dtype, self.machine), case.bias(dtype)
        src = sources(case, layout, dtype, sets)
        first = case.dst(layout, dtype)
        dst = [first] + [torch.empty_like(first) for _ in range(sets - 1)]
        runs = [
            plan.bind(
                a.data_ptr(),
                None,
                None if bias is None else bias.data_ptr(),
                b.data_ptr(),
                workspace.data_ptr(),
                stream,
            )
            for a, b in zip(src, dst)
        ]
        replay = self.machine.capture(lambda i: runs[i](), sets)
        first.fill_(float("nan"))  # what is judged is what the replay writes
        replay.launch()
        return Prepared(
            self.name,
            replay,
            lambda: first,
            {"implementation": plan.implementation, "workspace_bytes": size},
            (plan, workspace, src, dst),
        )


class Call:
    """A function that is called as PyTorch's, and allocates its outputs."""

    def prepare(self, case, layout, precision):
        dtype, _, tf32 = PRECISIONS[precision]
        sets, b = sets_of(case, dtype, self.machine), case.bias(dtype)
        src = sources(case, layout, dtype, sets)
        w = case.weights(dtype).contiguous(memory_format=c.FORMATS[layout])
        arguments = c.pytorch_arguments(case.row)
        dst = [None] * sets

        def run(i):
            dst[i] = self.function(src[i], w, b, *arguments)

        self.tune(case)
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        replay = self.machine.capture(run, sets)
        replay.launch()
        return Prepared(self.name, replay, lambda: dst[0], {}, (src, w, dst))

    def tune(self, case):
        """What comes before the first call of a layer."""


class TconvCall(Call):
    """tconv.torch.conv_transpose2d, which packs the weights in each call."""

    name, function = "call", staticmethod(tconv.torch.conv_transpose2d)

    def __init__(self, machine):
        self.machine = machine


class Torch(Call):
    function = staticmethod(F.conv_transpose2d)

    def __init__(self, benchmark, machine):
        self.name, self.benchmark, self.machine = "tuned" if benchmark else "default", benchmark, machine
        self._other = [torch.zeros(1, 1, size, size, device=machine.device) for size in (1, 2)]

    def tune(self, case):
        torch.backends.cudnn.benchmark = False
        F.conv_transpose2d(self._other[0], self._other[1])  # displaces what was chosen before
        torch.backends.cudnn.benchmark = self.benchmark and case.row["kw"] < LONGEST_TUNED
