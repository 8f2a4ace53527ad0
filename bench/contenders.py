"""The layers of workloads.csv as contenders run them: what all comparisons share, tconv in several ways on the CPU, and its
peers there. gpu_contenders.py has those on the GPU.

Every contender of a case works on the case's own tensors, given in the layout that it wants, and packs its weights once if it
can. A peer that is not installed is missing for the whole comparison, one that cannot do a layer for that layer; both say
why.
"""

import csv
import dataclasses
import functools
import math
import typing

import torch
import torch.nn.functional as F

import tconv_ctypes as t
import xnnpack_ctypes

FORMATS = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
LAYOUTS = {"nchw": t.NCHW, "nhwc": t.NHWC}
DTYPES = {
    "f32": (torch.float32, t.F32),
    "f64": (torch.float64, t.F64),
    "f16": (torch.float16, t.F16),
    "bf16": (torch.bfloat16, t.BF16),
}
ELEMENT_BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}
# The relative L2 error that is taken for a mistake: well above what rounding does, well below what a wrong tap does.
MISTAKE = {"f32": 1e-6, "f64": 1e-14, "f16": 2e-3, "bf16": 2e-2}
# Of the output channels of a group, so many of the first image are set against float64, the first and the last among them.
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


def pytorch_arguments(row):
    return (row["sh"], row["sw"]), (row["ph"], row["pw"]), (row["oph"], row["opw"]), row["g"], (row["dh"], row["dw"])


class Case:
    """A layer and its tensors. Each layout and dtype of them is made once, and all its contenders read the same."""

    def __init__(self, row, device="cpu", checked_images=(0,), checked_channels=CHECKED_CHANNELS):
        """checked_channels: how many output channels of the first and of the last group; None for all of all groups."""
        self.row = row
        self._made = {}
        self._checked_images = sorted(set(checked_images))
        self._checked_channels = checked_channels
        self._x = torch.rand(row["N"], row["Cin"], row["H"], row["W"], device=device) - 0.5
        self._w = torch.rand(row["Cin"], row["Cout"] // row["g"], row["kh"], row["kw"], device=device) - 0.5
        self._b = torch.rand(row["Cout"], device=device) if row["bias"] else None

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

    def src(self, layout, dtype="f32"):
        if layout == "nchw":
            return self._once(lambda: self._held(self._x, dtype), "src", layout, dtype)
        return self._once(
            lambda: self.src("nchw", dtype).contiguous(memory_format=FORMATS[layout]), "src", layout, dtype
        )

    def dst(self, layout, dtype="f32"):
        """One for all contenders that write where they are told; each is judged before the next one runs."""
        return self._once(
            lambda: torch.empty(
                self.output_shape, dtype=DTYPES[dtype][0], device=self._x.device, memory_format=FORMATS[layout]
            ),
            "dst",
            layout,
            dtype,
        )

    def weights(self, dtype="f32"):
        return self._once(lambda: self._held(self._w, dtype), "weights", dtype)

    def bias(self, dtype="f32"):
        return None if self._b is None else self._once(lambda: self._b.to(DTYPES[dtype][0]), "bias", dtype)

    def bytes(self, dtype="f32"):
        """src, weights and dst once each."""
        elements = self._x.numel() + self._w.numel() + math.prod(self.output_shape)
        return ELEMENT_BYTES[dtype] * elements

    def expected(self, dtype):
        """The checked channels of the checked images in float64, of the numbers as dtype holds them."""
        return self._once(lambda: self._expected(dtype), "expected", dtype)

    @functools.cached_property
    def _checked_parts(self):
        """Of each group that is checked: its input channels, and of its output channels those checked, within the group."""
        groups, of_group = self.row["g"], self.row["Cout"] // self.row["g"]
        inputs = self.row["Cin"] // groups
        steps = min(self._checked_channels, of_group)
        picked = [i * (of_group - 1) // max(1, steps - 1) for i in range(steps)]
        return [(group, slice(group * inputs, (group + 1) * inputs), picked) for group in sorted({0, groups - 1})]

    @functools.cached_property
    def _checked_outputs(self):
        if self._checked_channels is None:
            return slice(None)
        of_group = self.row["Cout"] // self.row["g"]
        return [group * of_group + channel for group, _, picked in self._checked_parts for channel in picked]

    def _expected(self, dtype):
        x, w, b = self.src("nchw", dtype)[self._checked_images], self.weights(dtype), self.bias(dtype)
        b = None if b is None else b[self._checked_outputs].double()
        strides, padding, output_padding, groups, dilation = pytorch_arguments(self.row)
        if self._checked_channels is None:
            return F.conv_transpose2d(x.double(), w.double(), b, strides, padding, output_padding, groups, dilation)
        sums = [
            F.conv_transpose2d(
                x[:, inputs].double(), w[inputs, picked].double(), None, strides, padding, output_padding, 1, dilation
            )
            for _, inputs, picked in self._checked_parts
        ]
        return torch.cat(sums, 1) + (0 if b is None else b[:, None, None])

    def error(self, result, dtype):
        """The relative L2 error of a result in that part."""
        expected = self.expected(dtype)
        part = result[:, self._checked_outputs][self._checked_images]
        return ((part.double() - expected).norm() / expected.norm()).item()


def layer_desc(library, row, layout, dtype, math=t.MATH_STRICT):
    """The row as tconv takes it."""
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
        dtype=DTYPES[dtype][1],
        math=math,
    )


@dataclasses.dataclass
class Contender:
    name: str
    layout: str
    run: typing.Callable[[], typing.Any]  # its result is a tensor, or None where it is in dst
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
        layout, dtype = self.layout, self.dtype
        desc = layer_desc(library, case.row, layout, dtype)
        cap = {"": t.CPU_ISA_DEFAULT, "avx2": t.CPU_ISA_AVX2}[self.isa]
        plan = library.plan(desc, backend=t.BACKEND_CPU, threads=self.threads, cpu_isa=cap)
        weights = case.weights(dtype).data_ptr()
        if not self.called:
            plan.pack(weights)
        workspace = torch.empty(max(1, plan.workspace_size), dtype=torch.uint8)
        src, bias, dst = case.src(layout, dtype), case.bias(dtype), case.dst(layout, dtype)
        execute = plan.bind(
            src.data_ptr(),
            weights if self.called else None,
            None if bias is None else bias.data_ptr(),
            dst.data_ptr(),
            workspace.data_ptr(),
        )
        execute.keep = (plan, workspace)  # as long as the function lives
        return Contender(self.name, layout, execute, dtype, plan.workspace_size)


def tconv_ways(layouts, variants, threads):
    """tconv in each layout, and in each of its variants."""
    ways = []
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
    """F.conv_transpose2d, weights as they are. oneDNN below it, or PyTorch's own loops."""

    def __init__(self, name, layout, onednn):
        self.name, self.layout, self.onednn = name, layout, onednn

    def prepare(self, case):
        memory_format = FORMATS[self.layout]
        x, w, b = case.src(self.layout), case.weights().contiguous(memory_format=memory_format), case.bias()
        arguments = pytorch_arguments(case.row)

        def run():
            with torch.backends.mkldnn.flags(enabled=self.onednn):
                return F.conv_transpose2d(x, w, b, *arguments)

        return Contender(self.name, self.layout, run)


class PackedTorchPeer:
    """oneDNN as PyTorch's compiler calls it: the weights reordered once for the shape of the input. Its output is NHWC."""

    name, layout = "onednn nhwc packed", "nhwc"

    def prepare(self, case):
        x, w, b = case.src(self.layout), case.weights(), case.bias()
        stride, padding, output_padding, groups, dilation = map(
            lambda value: list(value) if isinstance(value, tuple) else value, pytorch_arguments(case.row)
        )
        packed = torch.ops.mkldnn._reorder_convolution_transpose_weight(
            w, padding, output_padding, stride, dilation, groups, list(x.shape)
        )

        def run():
            return torch.ops.mkldnn._convolution_transpose_pointwise(
                x, packed, b, padding, output_padding, stride, dilation, groups, "none", [], ""
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
        binding, dst = session.io_binding(), case.dst(self.layout)
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
        bias, dst = case.bias(), case.dst(self.layout)
        layer = xnnpack_ctypes.Deconvolution(
            self.library, row, w.data_ptr(), None if bias is None else bias.data_ptr(), flat.data_ptr(), dst.data_ptr()
        )
        layer.keep = flat
        return Contender(self.name, self.layout, layer.run)


PEERS = ("nchw", "nhwc", "native", "packed", "ort", "xnnpack")


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
