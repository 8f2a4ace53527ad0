"""tconv's C API by ctypes, as far as the comparisons in this directory need it."""
import ctypes as c

F32, F64, F16, BF16 = range(4)
NCHW, NHWC = range(2)
WEIGHT_IOHW, WEIGHT_IHWO, WEIGHT_HWOI = range(3)
MATH_DEFAULT, MATH_STRICT, MATH_TF32 = range(3)
BACKEND_AUTO, BACKEND_CPU, BACKEND_CUDA = range(3)
LOCATION_AUTO, LOCATION_HOST, LOCATION_CUDA = range(3)
CPU_ISA_DEFAULT, CPU_ISA_GENERIC, CPU_ISA_AVX2, CPU_ISA_AVX512, CPU_ISA_NEON = range(5)


class Desc(c.Structure):
    _fields_ = (
        [("struct_size", c.c_size_t)]
        + [(name, c.c_int64) for name in (
            "batch in_channels in_h in_w out_channels kernel_h kernel_w stride_h stride_w pad_top pad_left pad_bottom "
            "pad_right output_padding_h output_padding_w dilation_h dilation_w groups").split()]
        + [(name, c.c_int) for name in "dtype layout weight_layout math".split()]
        + [("src_strides", c.c_int64 * 4), ("dst_strides", c.c_int64 * 4)]
    )


class Allocator(c.Structure):
    _fields_ = [("allocate", c.c_void_p), ("release", c.c_void_p), ("context", c.c_void_p)]


class Options(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t), ("backend", c.c_int), ("location", c.c_int), ("device", c.c_int32),
        ("threads", c.c_int32), ("cpu_isa", c.c_int), ("implementation", c.c_char_p), ("allocator", Allocator),
        ("stream", c.c_void_p),
    ]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int), ("location", c.c_int)]


class Issue(c.Structure):
    _fields_ = [("status", c.c_int), ("field", c.c_char * 44), ("message", c.c_char * 208)]


class Library:
    """The shared library. Every call raises RuntimeError with the issue's message where it fails."""

    def __init__(self, path):
        self.lib = c.CDLL(path)
        self.lib.tconv_plan_implementation.restype = c.c_char_p
        self.lib.tconv_plan_destroy.restype = None
        self.lib.tconv_plan_destroy.argtypes = [c.c_void_p]

    def _check(self, status, issue=None):
        if status == 0:
            return
        if issue is None:
            issue = Issue()
            self.lib.tconv_last_issue(c.byref(issue))
        raise RuntimeError(issue.message.decode())

    def desc(self, **fields):
        desc = Desc()
        self._check(self.lib.tconv_desc_init_sized(c.byref(desc), c.c_size_t(c.sizeof(Desc))))
        for name, value in fields.items():
            setattr(desc, name, value)
        return desc

    def output_shape(self, desc):
        shape, issue = (c.c_int64 * 4)(), Issue()
        self._check(self.lib.tconv_output_shape(c.byref(desc), shape, c.byref(issue)), issue)
        return tuple(shape)

    def plan(self, desc, **options):
        return Plan(self, desc, options)


class Plan:
    """A plan, with its weights packed once where pack() was called."""

    def __init__(self, library, desc, options):
        self.library, self.dtype, self.handle = library, desc.dtype, c.c_void_p()
        self.location = options.get("location", LOCATION_AUTO)  # said once, it is not looked up in every call
        settings, issue = Options(), Issue()
        library._check(library.lib.tconv_options_init_sized(c.byref(settings), c.c_size_t(c.sizeof(Options))))
        for name, value in options.items():
            setattr(settings, name, value)
        library._check(library.lib.tconv_plan_create(c.byref(desc), c.byref(settings), c.byref(self.handle),
                                                     c.byref(issue)), issue)

    def __del__(self):
        if self.handle:
            self.library.lib.tconv_plan_destroy(self.handle)

    @property
    def implementation(self):
        return self.library.lib.tconv_plan_implementation(self.handle).decode()

    @property
    def workspace_size(self):
        size = c.c_size_t()
        self.library._check(self.library.lib.tconv_plan_workspace_size(self.handle, c.byref(size)))
        return size.value

    def _tensor(self, address):
        return c.byref(Tensor(address, self.dtype, self.location)) if address else None

    def pack(self, weights, stream=None):
        """Packs the weights at this address once; execute() then ignores the weights that it is given."""
        packed, issue = c.c_void_p(), Issue()
        self.library._check(self.library.lib.tconv_plan_pack_weights(
            self.handle, self._tensor(weights), c.c_void_p(stream), c.byref(packed), c.byref(issue)), issue)
        self.library.lib.tconv_plan_destroy(self.handle)
        self.handle = packed

    def bind(self, src, weights, bias, dst, workspace, stream=None):
        """A function of no arguments that executes the plan on these addresses (None for no bias or weights)."""
        tensors = [Tensor(address, self.dtype, self.location) for address in (src, weights, bias, dst)]
        pointers = [c.byref(t) if t.data else None for t in tensors]
        arguments = (self.handle, *pointers, c.c_void_p(workspace), c.c_size_t(self.workspace_size), c.c_void_p(stream))
        execute, check = self.library.lib.tconv_plan_execute, self.library._check
        return lambda: check(execute(*arguments))
