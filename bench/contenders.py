"""The layers of workloads.csv as contenders run them: what all comparisons share, tconv in several ways on the CPU, and
its peers there. gpu_contenders.py has those on the GPU.

Every contender of a case works on the case's own tensors, given in the layout that it wants, and packs its weights once
if it can. A peer that is not installed is missing for the whole comparison, one that cannot do a layer for that layer;
both say why.
"""

import csv
import dataclasses
import functools
import math
import typing

import torch

import operations
import tconv_ctypes as t
import xnnpack_ctypes
from cpu_runs import ELEMENT_BYTES

FORMATS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
LAYOUTS = {"nchw": t.NCHW, "nhwc": t.NHWC}
WEIGHT_LAYOUTS = {"nchw": 0, "nhwc": 1}  # IOHW; IHWO, which is PyTorch's channels_last
DTYPES = {
    "f32": (torch.float32, t.F32),
    "f64": (torch.float64, t.F64),
    "f16": (torch.float16, t.F16),
    "bf16": (torch.bfloat16, t.BF16),
}
# The relative L2 error that is taken for a mistake: well above what rounding does, well below what a wrong tap does.
MISTAKE = {"f32": 1e-6, "f64": 1e-14, "f16": 2e-3, "bf16": 2e-2}
# What a machine fetches at once, of which a part is not cheaper than the whole.
LINE_BYTES = {"cpu": 64, "cuda": 32}
# Of the channels of a group, so many of the first image are set against float64, the first and the last among them.
CHECKED_CHANNELS = 2
# What random numbers of f32 are multiples of.
F32_STEP = 2.0**-24


def read_workloads(path, names):
    """The rows of the file; those of these names where there are any."""
    with open(path) as file:
        rows = [
            {key: value if key == "name" else int(value) for key, value in row.items()} for row in csv.DictReader(file)
        ]
    unknown = set(names) - {row["name"] for row in rows}
    if unknown:
        raise SystemExit(f"{path}: no {', '.join(sorted(unknown))}")
    return [row for row in rows if not names or row["name"] in names]


def names_of(text, known, what):
    names = [name for name in text.split(",") if name]
    unknown = set(names) - set(known)
    if unknown:
        raise SystemExit(f"--{what} {', '.join(sorted(unknown))}: must be among {', '.join(known)}")
    return names


def flop(row):
    return 2.0 * row["N"] * row["H"] * row["W"] * row["Cin"] * (row["Cout"] // row["g"]) * row["kh"] * row["kw"]


def cut_batch(row, budget):
    """The row with as many images, of those that it has, as make at most budget FLOP; at least one."""
    return {**row, "N": max(1, min(row["N"], int(budget / (flop(row) / row["N"]))))}


@dataclasses.dataclass(frozen=True)
class Part:
    """Channels whose sums are computed in float64 by themselves."""

    inputs: typing.Any  # indices of channels of src
    outputs: typing.Any  # and of dst
    within: typing.Any  # the same, within their group
    groups: int

    def of(self, weights):
        return weights[self.inputs][:, self.within]


class Case:
    """A layer, an operation, and their tensors. Each layout and dtype of them is made once, and all contenders read the same."""

    def __init__(self, row, device="cpu", checked_images=(0,), checked_channels=CHECKED_CHANNELS, op="forward"):
        """checked_channels: how many channels of the first and of the last group are set against float64; None for all
        of all groups."""
        self.row, self.op = row, operations.OPERATIONS[op]
        self.checked_images = sorted(set(checked_images))
        self.line_bytes = LINE_BYTES[torch.device(device).type]
        self._made, self._device = {}, device
        self._checked_channels = checked_channels
        self._x = torch.rand(self.src_shape, device=device) - 0.5
        self._w = torch.rand(row["Cin"], row["Cout"] // row["g"], row["kh"], row["kw"], device=device) - 0.5
        self._b = torch.rand(row["Cout"], device=device) if row["bias"] else None

    @property
    def src_shape(self):
        return tuple(self.row[key] for key in ("N", "Cin", "H", "W"))

    @functools.cached_property
    def output_shape(self):
        row = self.row
        return (
            row["N"],
            row["Cout"],
            (row["H"] - 1) * row["sh"] - 2 * row["ph"] + row["dh"] * (row["kh"] - 1) + row["oph"] + 1,
            (row["W"] - 1) * row["sw"] - 2 * row["pw"] + row["dw"] * (row["kw"] - 1) + row["opw"] + 1,
        )

    def _once(self, make, *key):
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    @staticmethod
    def _held(tensor, dtype):
        """The numbers as dtype holds them. f64 gets low bits of its own: sums of products of f32 are exact there."""
        held = tensor.to(DTYPES[dtype][0])
        return held + F32_STEP * torch.rand_like(held) if dtype == "f64" else held

    def _in_layout(self, make, name, layout, dtype):
        """make's numbers in NCHW, or those of NCHW in another layout."""
        if layout == "nchw":
            return self._once(lambda: self._held(make(), dtype), name, layout, dtype)
        first = self._in_layout(make, name, "nchw", dtype)
        return self._once(lambda: first.contiguous(memory_format=FORMATS[layout]), name, layout, dtype)

    def src(self, layout, dtype="f32"):
        return self._in_layout(lambda: self._x, "src", layout, dtype)

    def weights(self, dtype="f32", layout="nchw"):
        return self._in_layout(lambda: self._w, "weights", layout, dtype)

    def bias(self, dtype="f32"):
        return None if self._b is None else self._once(lambda: self._b.to(DTYPES[dtype][0]), "bias", dtype)

    def diff_dst(self, layout, dtype="f32"):
        return self._in_layout(self._numbers_of_dst, "diff_dst", layout, dtype)

    def _numbers_of_dst(self):
        return self._once(lambda: torch.rand(self.output_shape, device=self._device) - 0.5, "numbers of dst")

    def empty(self, shape, layout, dtype):
        return torch.empty(shape, dtype=DTYPES[dtype][0], device=self._device, memory_format=FORMATS[layout])

    def written(self, layout, dtype="f32"):
        """Buffers for what the operation writes, for all contenders that write where they are told; each is judged
        before the next one runs."""
        return self._once(lambda: self.op.empty(self, layout, dtype), "written", layout, dtype)

    def forget_written(self, layout, dtype="f32"):
        """What one contender wrote is not the next one's."""
        for tensor in self.written(layout, dtype):
            tensor.fill_(float("nan"))

    @staticmethod
    def element_bytes(dtype):
        return ELEMENT_BYTES[dtype]

    def elements(self, *names):
        shapes = {"src": self.src_shape, "weights": self._w.shape, "dst": self.output_shape}
        return sum(math.prod(shapes[name]) for name in names)

    def bytes(self, dtype="f32", layout="nchw"):
        """What the operation has to move, once each."""
        return self.op.bytes(self, layout, dtype)

    @functools.cached_property
    def parts(self):
        """What is checked: all channels, or some of those that the operation picks, of the first and the last group."""
        row, groups, count = self.row, self.row["g"], self._checked_channels
        if count is None:
            return [Part(slice(None), slice(None), slice(None), groups)]
        sizes = {"inputs": row["Cin"] // groups, "outputs": row["Cout"] // groups}
        steps = min(count, sizes[self.op.picks])
        picked = [i * (sizes[self.op.picks] - 1) // max(1, steps - 1) for i in range(steps)]
        within = {name: list(range(size)) for name, size in sizes.items()} | {self.op.picks: picked}
        return [
            Part(
                *([group * sizes[name] + i for i in within[name]] for name in ("inputs", "outputs")),
                within["outputs"],
                1,
            )
            for group in sorted({0, groups - 1})
        ]

    def picked(self, tensor, axis, channels):
        """The checked channels of a tensor that has its channels on that axis."""
        indices = [getattr(part, channels) for part in self.parts]
        if isinstance(indices[0], slice):
            return tensor
        flat = torch.tensor([i for part in indices for i in part], device=tensor.device)
        return tensor.index_select(axis, flat)

    def expected(self, dtype):
        """What is checked in float64, of the numbers as dtype holds them."""
        return self._once(lambda: self.op.expected(self, dtype), "expected", dtype)

    def error(self, written, dtype):
        """The largest relative L2 error of the tensors written, in what is checked of them."""
        pairs = zip(self.op.checked(self, written), self.expected(dtype), strict=True)
        return max(((found.double() - right).norm() / right.norm()).item() for found, right in pairs)


def layer_desc(library, row, layout, dtype, math=t.MATH_STRICT, op=operations.OPERATIONS["forward"]):
    """The row as tconv takes it, and what is to be computed of it."""
    return library.desc(
        batch=row["N"],
        in_channels=row["Cin"],
        in_h=row["H"],
        in_w=row["W"],
        out_channels=row["Cout"],
        kernel_h=row["kh"],
        kernel_w=row["kw"],
        stride_h=row["sh"],
        stride_w=row["sw"],
        pad_top=row["ph"],
        pad_bottom=row["ph"],
        pad_left=row["pw"],
        pad_right=row["pw"],
        output_padding_h=row["oph"],
        output_padding_w=row["opw"],
        dilation_h=row["dh"],
        dilation_w=row["dw"],
        groups=row["g"],
        layout=LAYOUTS[layout],
        weight_layout=WEIGHT_LAYOUTS[op.weights_of(layout)],
        dtype=DTYPES[dtype][1],
        math=math,
        op=op.code,
    )


@dataclasses.dataclass
class Contender:
    name: str
    layout: str
    run: typing.Callable[[], typing.Any]  # its result is a tuple of tensors, or None where they are the case's own
    dtype: str = "f32"
    workspace_bytes: typing.Optional[int] = None


@dataclasses.dataclass(frozen=True)
class TconvWay:
    """How tconv is to run. The floor is that of the same dtype, instruction set and threads."""

    name: str
    layout: str
    threads: int
    dtype: str = "f32"
    isa: str = ""  # a cap; none
    called: bool = False  # the weights as they are, as PyTorch is given them: a plan that packs them in each call

    def prepare(self, library, case):
        layout, dtype, op = self.layout, self.dtype, case.op
        desc = layer_desc(library, case.row, layout, dtype, op=op)
        cap = {"": t.CPU_ISA_DEFAULT, "avx2": t.CPU_ISA_AVX2}[self.isa]
        plan = library.plan(desc, backend=t.BACKEND_CPU, threads=self.threads, cpu_isa=cap)
        weights = case.weights(dtype, op.weights_of(layout)).data_ptr()
        if op.packs and not self.called:
            plan.pack(weights)
        workspace = torch.empty(max(1, plan.workspace_size), dtype=torch.uint8)
        reads, writes = op.activations(case, layout, dtype), case.written(layout, dtype)
        given = weights if self.called else None
        execute = op.bind(plan, reads, given, case.bias(dtype), writes, workspace.data_ptr())
        execute.keep = (plan, workspace)  # as long as the function lives
        return Contender(self.name, layout, execute, dtype, plan.workspace_size)


def tconv_ways(layouts, variants, threads, op="forward"):
    """tconv in each layout, and in each of its variants."""
    ways = []
    if not operations.OPERATIONS[op].packs:  # every way is called so
        variants = [variant for variant in variants if variant != "called"]
    for layout in layouts:
        ways.append(TconvWay(f"tconv {layout}", layout, threads))
        for variant in variants:
            name = f"tconv {layout} {variant}"
            if variant in DTYPES:
                ways.append(TconvWay(name, layout, threads, dtype=variant))
            elif variant == "called":
                ways.append(TconvWay(name, layout, threads, called=True))
            elif variant == "avx2":
                ways.append(TconvWay(name, layout, threads, isa="avx2"))
            else:
                ways.append(TconvWay(name, layout, 1))
    return ways


# --------------------------------------------------------------------------------------------------------------- peers


class TorchPeer:
    """PyTorch's call for the operation, weights as they are. oneDNN below it, or PyTorch's own loops."""

    def __init__(self, name, layout, onednn):
        self.name, self.layout, self.onednn = name, layout, onednn

    def prepare(self, case):
        reads, call = case.op.activations(case, self.layout, "f32"), case.op.pytorch(case, self.layout, "f32")

        def run():
            with torch.backends.mkldnn.flags(enabled=self.onednn):
                return call(*reads)

        return Contender(self.name, self.layout, run)


class PackedTorchPeer:
    """oneDNN as PyTorch's compiler calls it: the weights reordered once for the shape of the input. Its output is NHWC."""

    name, layout = "onednn nhwc packed", "nhwc"

    def prepare(self, case):
        x, w, b = case.src(self.layout), case.weights(), case.bias()
        stride, padding, output_padding, groups, dilation = map(
            lambda value: list(value) if isinstance(value, tuple) else value, operations.pytorch_arguments(case.row)
        )
        packed = torch.ops.mkldnn._reorder_convolution_transpose_weight(
            w, padding, output_padding, stride, dilation, groups, list(x.shape)
        )

        def run():
            return (
                torch.ops.mkldnn._convolution_transpose_pointwise(
                    x, packed, b, padding, output_padding, stride, dilation, groups, "none", [], ""
                ),
            )

        return Contender(self.name, self.layout, run)


class OnnxRuntimePeer:
    name, layout = "ort", "nchw"

    def __init__(self, threads):
        import onnx
        import onnxruntime

        self.onnx, self.runtime, self.threads = onnx, onnxruntime, threads

    def prepare(self, case):
        onnx, row, x = self.onnx, case.row, case.src(self.layout)
        constants = {"w": case.weights(), **({} if case.bias() is None else {"b": case.bias()})}
        node = onnx.helper.make_node(
            "ConvTranspose",
            ["x", *constants],
            ["y"],
            kernel_shape=[row["kh"], row["kw"]],
            strides=[row["sh"], row["sw"]],
            pads=[row["ph"], row["pw"]] * 2,
            output_padding=[row["oph"], row["opw"]],
            dilations=[row["dh"], row["dw"]],
            group=row["g"],
        )
        value = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            [node],
            "layer",
            [value("x", onnx.TensorProto.FLOAT, list(x.shape))],
            [value("y", onnx.TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(tensor.numpy(), name) for name, tensor in constants.items()],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # into the next contender's time
        session = self.runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding, (dst,) = session.io_binding(), case.written(self.layout)
        for bind, name, tensor in ((binding.bind_input, "x", x), (binding.bind_output, "y", dst)):
            bind(name, "cpu", 0, tensor.numpy().dtype, list(tensor.shape), tensor.data_ptr())
        return Contender(self.name, self.layout, lambda: session.run_with_iobinding(binding))


class XnnpackPeer:
    name, layout = "xnnpack nhwc", "nhwc"

    def __init__(self, threads):
        self.library = xnnpack_ctypes.Library(threads)

    def prepare(self, case):
        row, groups = case.row, case.row["g"]
        w = case.weights().view(groups, row["Cin"] // groups, row["Cout"] // groups, row["kh"], row["kw"])
        w = w.permute(0, 2, 3, 4, 1).contiguous()
        # A copy of src with room behind it, which XNNPACK may read.
        x = case.src(self.layout)
        flat = torch.empty(x.numel() + xnnpack_ctypes.EXTRA_BYTES // ELEMENT_BYTES["f32"])
        flat[: x.numel()] = x.permute(0, 2, 3, 1).reshape(-1)
        bias, (dst,) = case.bias(), case.written(self.layout)
        layer = xnnpack_ctypes.Deconvolution(
            self.library, row, w.data_ptr(), None if bias is None else bias.data_ptr(), flat.data_ptr(), dst.data_ptr()
        )
        layer.keep = flat
        return Contender(self.name, self.layout, layer.run)


PEERS = ("nchw", "nhwc", "native", "packed", "ort", "xnnpack")
GRADIENT_PEERS = ("nchw", "nhwc", "native")  # the others infer


def make_peers(names, threads):
    """The peers of these names that are here, and a line about each: its version, or why it is missing."""
    peers, lines = [], []
    version = f"PyTorch {torch.__version__} with oneDNN {onednn_version()}"
    for name in names:
        try:
            if name == "ort":
                peers.append(OnnxRuntimePeer(threads))
                lines.append(f"ort: ONNX Runtime {peers[-1].runtime.__version__}")
            elif name == "xnnpack":
                peers.append(XnnpackPeer(threads))
                lines.append(f"xnnpack nhwc: XNNPACK {peers[-1].library.version}")
            elif name == "packed":
                torch.ops.mkldnn._convolution_transpose_pointwise  # not in every build
                peers.append(PackedTorchPeer())
                lines.append(f"{peers[-1].name}: {version}, weights reordered once")
            else:
                layout = "nhwc" if name == "nhwc" else "nchw"
                peers.append(TorchPeer(f"torch {name}", layout, name != "native"))
                lines.append(f"torch {name}: {version if name != 'native' else 'PyTorch without oneDNN'}")
        except (ImportError, AttributeError, xnnpack_ctypes.Missing) as missing:
            lines.append(f"{name}: MISSING: {missing}")
    return peers, lines


def onednn_version():
    for line in torch.__config__.show().splitlines():
        if "MKL-DNN" in line or "oneDNN" in line:
            return line.split(" v")[-1].split()[0]
    return "(none)"
