"""What test_jax_standin.py runs in a process whose library is linked to the stand-in for the CUDA runtime: what is
lowered for CUDA, and the handler for CUDA in a frame like XLA's. The stand-in plays two H200 and a GPU that tconv has
no code for."""

import ctypes as c
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tconv._library as lib
import tconv.jax
from tconv.jax import _shim
from tconv.jax._layer import Layer

STREAM = 0x5EED00
GET_STREAM, GET_DEVICE = 4, 17  # places among the functions of XLA_FFI_Api
LAYER = Layer(lib.NHWC, lib.WEIGHT_IHWO, (2, 2), ((1, 1), (1, 1)), (0, 0), (1, 1), 1)
SHAPES = {"src": (2, 5, 6, 64), "weights": (64, 4, 4, 32), "dst": (2, 10, 12, 32), "bias": (32,)}
OPERANDS = {
    lib.OP_FORWARD: (("src", "weights", "bias"), "dst"),
    lib.OP_BACKWARD_DATA: (("dst", "weights"), "src"),
    lib.OP_BACKWARD_WEIGHTS: (("dst", "src"), "weights"),
}
FFI_DTYPES = {"float16": 10, "float32": 11, "float64": 12, "bfloat16": 16, "uint8": 6, "int64": 5}


class Device(c.Structure):
    """standin_device."""

    _fields_ = [
        ("name", c.c_char_p),
        *[(name, c.c_int) for name in ("major", "minor", "sms", "block_shared", "sm_shared", "l2_bytes")],
        ("memory_bytes", c.c_size_t),
        ("memory_pools", c.c_bool),
    ]


class Call(c.Structure):
    """The beginning of standin_call."""

    _fields_ = [
        ("name", c.c_char_p),
        ("result", c.c_int),
        ("why", c.c_char_p),
        ("device", c.c_int),
        ("stream", c.c_void_p),
        ("kernel", c.c_void_p),
    ]


standin = c.CDLL(lib.path())
standin.standin_call_at.restype = c.POINTER(Call)
standin.standin_call_count.restype = c.c_size_t
h200 = Device.in_dll(standin, "standin_h200")
old = Device.from_buffer_copy(h200)
old.name, old.major, old.minor = b"of Turing", 7, 5
standin.standin_set_devices((Device * 3)(h200, h200, old), 3, 0)


# -------------------------------------------------------------------------------------------------- frames like XLA's


def struct(*fields):
    """A structure of XLA's, which begins with its size and a list of extensions."""
    kind = type("Struct", (c.Structure,), {"_fields_": [("size", c.c_size_t), ("extensions", c.c_void_p), *fields]})
    return kind


Version = struct(("major", c.c_int), ("minor", c.c_int))
Buffer = struct(("dtype", c.c_int), ("data", c.c_void_p), ("rank", c.c_int64), ("dims", c.c_void_p))
Many = struct(("count", c.c_int64), ("types", c.c_void_p), ("items", c.c_void_p))
Attributes = struct(("count", c.c_int64), ("types", c.c_void_p), ("names", c.c_void_p), ("items", c.c_void_p))
Api = struct(("version", Version), ("internal", c.c_void_p), ("functions", c.c_void_p * 18))
Frame = struct(
    ("api", c.c_void_p),
    ("context", c.c_void_p),
    ("stage", c.c_int),
    ("arguments", Many),
    ("results", Many),
    ("attributes", Attributes),
    ("future", c.c_void_p),
)
GetStream = struct(("context", c.c_void_p), ("stream", c.c_void_p))
GetDevice = struct(("context", c.c_void_p), ("device", c.c_int32))
CreateError = struct(("message", c.c_char_p), ("code", c.c_int))
EXECUTE = 3
FUNCTION = c.CFUNCTYPE(c.c_void_p, c.c_void_p)


class Extension(c.Structure):
    """XLA_FFI_Metadata_Extension."""

    _fields_ = [("size", c.c_size_t), ("type", c.c_int), ("next", c.c_void_p), ("metadata", c.c_void_p)]


class Metadata(c.Structure):
    """XLA_FFI_Metadata."""

    _fields_ = [("size", c.c_size_t), ("version", Version), ("traits", c.c_uint32)]


def words_of(op, dtype, layer=LAYER):
    return layer.words(op, jnp.dtype(dtype), SHAPES["src"], SHAPES["weights"], "cuda")


class Xla:
    """What XLA gives a handler: a stream, a device's number, and errors, of which it keeps the messages."""

    def __init__(self, ordinal=0, stream_error=None):
        self.messages = []
        self.kept = [FUNCTION(f) for f in (self.create_error, self.get_stream, self.get_device)]
        self.ordinal, self.stream_error = ordinal, stream_error
        self.api = Api(size=c.sizeof(Api))
        for place, function in zip((0, GET_STREAM, GET_DEVICE), self.kept, strict=True):
            self.api.functions[place] = c.cast(function, c.c_void_p).value

    def create_error(self, arguments):
        self.messages.append(CreateError.from_address(arguments).message.decode())
        return len(self.messages)

    def get_stream(self, arguments):
        GetStream.from_address(arguments).stream = STREAM
        return self.stream_error

    def get_device(self, arguments):
        GetDevice.from_address(arguments).device = self.ordinal

    def call(self, op, dtype, size, layer=LAYER):
        """The error of a call with so many bytes of workspace, None for none. Nothing reads the memory."""
        names, result = OPERANDS[op]
        memory = np.zeros(16 << 20, np.uint8)
        self.kept.append(memory)
        self.at = (memory.ctypes.data + 255) // 256 * 256
        operands = [self.buffer(SHAPES[name], dtype) for name in names]
        results = [self.buffer(SHAPES[result], dtype), self.buffer((size,), "uint8")]
        frame = Frame(size=c.sizeof(Frame), api=c.addressof(self.api), context=1, stage=EXECUTE)
        frame.arguments, frame.results = self.many(operands), self.many(results)
        frame.attributes = self.attribute(words_of(op, dtype, layer))
        return _shim._shim.tconv_jax_handle_cuda(c.byref(frame))

    def keep(self, thing):
        self.kept.append(thing)
        return c.addressof(thing)

    def buffer(self, shape, dtype):
        made = Buffer(size=c.sizeof(Buffer), dtype=FFI_DTYPES[dtype], data=self.at, rank=len(shape))
        made.dims = self.keep((c.c_int64 * len(shape))(*shape))
        self.at += (int(np.prod(shape)) * jnp.dtype(dtype).itemsize + 255) // 256 * 256
        return made

    def many(self, buffers):
        kinds = self.keep((c.c_int * len(buffers))(*[1] * len(buffers)))
        items = self.keep((c.c_void_p * len(buffers))(*map(self.keep, buffers)))
        return Many(size=c.sizeof(Many), count=len(buffers), types=kinds, items=items)

    def attribute(self, words):
        name = self.keep((c.c_void_p * 2)(self.keep(c.create_string_buffer(b"layer")), len("layer")))
        data = self.keep((c.c_int64 * len(words))(*words))
        value = self.keep((c.c_int64 * 3)(FFI_DTYPES["int64"], len(words), data))  # dtype, size, data
        attributes = Attributes(size=c.sizeof(Attributes), count=1, types=self.keep((c.c_int * 1)(1)))
        attributes.names = self.keep((c.c_void_p * 1)(name))
        attributes.items = self.keep((c.c_void_p * 1)(value))
        return attributes


_shim._shim.tconv_jax_handle_cuda.restype = _shim._shim.tconv_jax_handle.restype = c.c_void_p


@pytest.fixture(autouse=True)
def on_the_first_device():
    standin.cudaSetDevice(0)
    yield
    standin.cudaSetDevice(0)
    _shim._shim.tconv_jax_forget()


def calls_of(function):
    """The functions of CUDA that are called, and what the call gives."""
    standin.standin_forget_calls()
    result = function()
    calls = [standin.standin_call_at(c.c_size_t(i)).contents for i in range(standin.standin_call_count())]
    return [(call.name.decode(), call.result, call.device, call.stream, call.kernel) for call in calls], result


def launches(calls):
    return [call for call in calls if call[0].startswith("cudaLaunch")]


# -------------------------------------------------------------------------------------------------------------- calls


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("op", OPERANDS)
def test_a_call_only_launches_on_xlas_stream(op, dtype):
    """From its second time on, which is what a command buffer records: nothing is allocated, copied from the host or
    waited for, and nothing is planned again."""
    xla, size = Xla(), _shim.workspace_size(words_of(op, dtype), "cuda")
    before = _shim.calls()
    assert xla.call(op, dtype, size) is None, xla.messages
    calls, error = calls_of(lambda: xla.call(op, dtype, size))
    assert error is None and _shim.calls() == before + 2
    assert launches(calls) and all(call[3] == STREAM for call in launches(calls))
    assert not [name for name, result, *_ in calls if result]
    used = {name for name, *_ in calls}
    slow = ("Malloc", "Free", "Synchronize", "Memcpy", "GetAttributes")
    assert not any(word in name for name in used for word in slow)


@pytest.mark.parametrize("op", OPERANDS)
def test_precision_decides_on_the_kernels(op):
    kernels = []
    for precision in (None, (jax.lax.Precision.HIGHEST,) * 2):
        layer = dataclasses.replace(LAYER, precision=precision)
        size = _shim.workspace_size(words_of(op, "float32", layer), "cuda")
        calls, error = calls_of(lambda layer=layer, size=size: Xla().call(op, "float32", size, layer))
        assert error is None
        kernels.append([kernel for *_, kernel in launches(calls)])
    assert kernels[0] != kernels[1]


def test_the_device_is_the_current_one():
    """XLA makes the device of a call current, and may count devices in another way than CUDA does."""
    size = _shim.workspace_size(words_of(lib.OP_FORWARD, "float32"), "cuda")
    for current, ordinal in ((1, 0), (0, 1), (1, 0)):
        xla = Xla(ordinal=ordinal)
        standin.cudaSetDevice(current)
        calls, error = calls_of(lambda xla=xla: xla.call(lib.OP_FORWARD, "float32", size))
        assert error is None and {call[2] for call in launches(calls)} == {current}
        assert not any(name == "cudaSetDevice" for name, *_ in calls)


def test_too_little_workspace_is_refused():
    """XLA's allocator for scratch would do for one call, and not for what a command buffer launches again."""
    xla = Xla()
    calls, error = calls_of(lambda: xla.call(lib.OP_FORWARD, "float32", 16))
    assert error == 1 and not launches(calls)
    assert "gives 16 bytes of workspace" in xla.messages[0] and "compiled for another GPU" in xla.messages[0]


def test_an_error_of_xla_s_is_handed_back():
    calls, error = calls_of(lambda: Xla(stream_error=77).call(lib.OP_FORWARD, "float32", 1 << 20))
    assert error == 77 and not launches(calls)


@pytest.mark.parametrize("handler, traits", [("tconv_jax_handle", 0), ("tconv_jax_handle_cuda", 1)])
def test_xla_is_told_what_may_be_recorded(handler, traits):
    """The trait is that of command buffers."""
    metadata = Metadata(size=c.sizeof(Metadata), traits=9)
    extension = Extension(size=24, type=1, metadata=c.addressof(metadata))
    frame = Frame(size=c.sizeof(Frame), extensions=c.addressof(extension))
    assert getattr(_shim._shim, handler)(c.byref(frame)) is None
    assert metadata.traits == traits
    assert (metadata.version.major, metadata.version.minor) == _shim._interface_of(_shim._shim)


def test_a_gpu_without_code_does_not_hinder_others():
    words = words_of(lib.OP_FORWARD, "float32")
    assert len(_shim._gpus()) == 2  # models
    assert _shim.workspace_size(words, "cuda") > 0
    _shim._gpus.cache_clear()
    everything = _shim._machine()["devices"]
    try:
        _shim._machine()["devices"] = everything[2:]
        with pytest.raises(tconv.UnavailableError, match="no code"):
            _shim.workspace_size(words, "cuda")
    finally:
        _shim._machine()["devices"] = everything
        _shim._gpus.cache_clear()


# ----------------------------------------------------------------------------------------------------------- lowering


def lowered(function, *arrays, platforms=("cuda",)):
    return str(jax.jit(function).trace(*arrays).lower(lowering_platforms=platforms).as_text())


def maths(text):
    """The words of math of the layers of all calls: those of depth come after them."""
    return [int(part.split("]")[0].split(",")[22]) for part in text.split("layer = dense<[")[1:]]


X, KERNEL = jnp.ones((2, 5, 6, 64)), jnp.ones((4, 4, 64, 32))
STRICT, TF32 = lib.MATH_STRICT, lib.MATH_TF32


def test_layer_and_gradients_are_calls_with_a_workspace():
    def norm(x, kernel):
        return (tconv.jax.conv_transpose(x, kernel, (2, 2), "SAME") ** 2).sum()

    text = lowered(jax.grad(norm, (0, 1)), X, KERNEL)
    assert [text.count(f"@{name}(") for name in _shim.TARGETS.values()] == [1, 1, 1]
    assert "stablehlo.convolution" not in text and maths(text) == [TF32] * 3
    sizes = [int(part.split("xui8>")[0]) for part in text.split("tensor<") if "xui8>" in part.split("\n")[0]]
    assert sizes and all(size > 0 for size in sizes)


@pytest.mark.parametrize(
    "precision, default, math",
    [
        (None, None, TF32),
        ("default", None, TF32),
        (jax.lax.Precision.HIGH, None, TF32),
        ("highest", None, STRICT),
        ((jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT), None, STRICT),
        (None, "float32", STRICT),
        (None, "tensorfloat32", TF32),
        ("default", "float32", TF32),
    ],
    ids=str,
)
def test_precision_is_lax_s(precision, default, math):
    """Of the argument, else of jax_default_matmul_precision; on the CPU float32 is strict always."""

    def layer(x, kernel):
        return tconv.jax.conv_transpose(x, kernel, (2, 2), "SAME", precision=precision)

    def gradients(x, kernel):
        return jax.vjp(layer, x, kernel)[1](jnp.ones((2, 10, 12, 32)))

    with jax.default_matmul_precision(default):
        assert maths(lowered(layer, X, KERNEL)) == [math]
        assert maths(lowered(gradients, X, KERNEL)) == [math] * 2
        assert maths(lowered(layer, X, KERNEL, platforms=("cpu",))) == [STRICT]


def test_other_dtypes_have_one_way():
    for dtype in ("float16", "bfloat16"):
        x, kernel = X.astype(dtype), KERNEL.astype(dtype)
        assert maths(lowered(lambda x, w: tconv.jax.conv_transpose(x, w, (2, 2), "SAME"), x, kernel)) == [STRICT]


def test_a_program_for_both_platforms_has_both_calls():
    text = lowered(lambda x, w: tconv.jax.conv_transpose(x, w, (2, 2), "SAME"), X, KERNEL, platforms=("cpu", "cuda"))
    assert sorted(maths(text)) == [STRICT, TF32]
