"""tconv for PyTorch: a drop-in for torch.nn.ConvTranspose2d.

conv_transpose2d, ConvTranspose2d and LazyConvTranspose2d take what PyTorch's take and answer as they do; replace(model)
changes the layers of a model in place. The forward pass on the CPU and on CUDA is tconv's. What tconv does not take
(other devices and dtypes, every mistake) goes to PyTorch's own operator, so that its error or its answer is what the
caller sees.

A call takes one of three ways, which all end in _forward. Plain eager code goes straight to tconv. Where gradients
are wanted or autocast is on, it goes to PyTorch's operator with a dispatch key that puts tconv in place of what that
operator computes: the graph's node is then PyTorch's own, in C++, and so are autocast's casts and their cache. Under
torch.compile, torch.export, modes, tracing and the profiler it is the operator torch.ops.tconv.conv_transpose2d.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import parametrize

from . import _layer
from . import _library as lib
from ._errors import TconvError
from ._plan import Cache, Plan

__all__ = ["ConvTranspose2d", "LazyConvTranspose2d", "Replaced", "conv_transpose2d", "replace"]

_DTYPES = {torch.float32: lib.F32, torch.float64: lib.F64, torch.float16: lib.F16, torch.bfloat16: lib.BF16}
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_DEVICES = frozenset({"cpu", "cuda"})


# ---------------------------------------------------------------------------------------------------------- the forward


@dataclasses.dataclass(frozen=True)
class _Layer:
    """What is found out once for a layer and the way in which its tensors lie."""

    plan: Plan
    arguments: _layer.Arguments
    shape: tuple[int, ...]  # of dst, with the axis of images
    strides: tuple[int, ...]
    workspace_elements: int  # of src's type
    batched: bool
    memory_format: torch.memory_format  # of dst, which is PyTorch's choice, and of a src that has to be copied
    copy_input: bool
    copy_weight: bool
    copy_bias: bool
    device: int | None  # of CUDA


class _NotTaken:
    """In the cache in place of a layer: PyTorch's operator is to be called."""


_NOT_TAKEN = _NotTaken()
_layers: Cache[_Layer | _NotTaken] = Cache()

# stride, padding, output padding, dilation and groups as the bytes of a key; refuses what is no integer, which as a
# part of a tuple would pass for the integer that it equals.
_pack_arguments = struct.Struct("9q").pack


# PyTorch 2.9 made torch.backends.cudnn.allow_tf32 a part of torch.backends.cudnn.conv.fp32_precision.
_fp32_precision = getattr(torch._C, "_get_fp32_precision_getter", None)
_cudnn_enabled = torch._C._get_cudnn_enabled  # the strides of PyTorch's outputs depend on it


def _tf32() -> bool:
    """Whether PyTorch's convolutions on CUDA may use TF32 now."""
    if _fp32_precision is not None:
        return _fp32_precision("cuda", "conv") == "tf32"
    return torch.backends.cudnn.allow_tf32


def _find_layer(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> _Layer | None:
    """The layer of these arguments from the cache; None where PyTorch's operator is to be called."""
    try:
        sh, sw = (stride, stride) if type(stride) is int else stride
        ph, pw = (padding, padding) if type(padding) is int else padding
        oh, ow = (output_padding, output_padding) if type(output_padding) is int else output_padding
        dh, dw = (dilation, dilation) if type(dilation) is int else dilation
        arguments = _pack_arguments(sh, sw, ph, pw, oh, ow, dh, dw, groups)
        if input.is_neg() or weight.is_neg() or (bias is not None and bias.is_neg()):  # bits that views of complex have
            return None
        key = (
            arguments,
            input.shape,
            input.stride(),
            input.dtype,
            input.device,
            weight.shape,
            weight.stride(),
            weight.dtype,
            weight.device,
            None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.device),
            (_tf32(), _cudnn_enabled()) if input.is_cuda else torch.get_num_threads(),
        )
        layer = _layers.get(key)
    except (TypeError, ValueError, RuntimeError, NotImplementedError, struct.error):
        return None  # no pairs of integers, or tensors without strides
    if layer is None:
        pairs = ((sh, sw), (ph, pw), (oh, ow), groups, (dh, dw))
        layer = _layers.make(key, lambda: _make_layer(input, weight, bias, pairs) or _NOT_TAKEN)
    return layer if type(layer) is _Layer else None


def _make_layer(input: Tensor, weight: Tensor, bias: Tensor | None, arguments: _layer.Arguments) -> _Layer | None:
    tensors = [input, weight] if bias is None else [input, weight, bias]
    dtype = _DTYPES.get(input.dtype)
    if (
        dtype is None
        or input.device.type not in _DEVICES
        or any(t.dtype != input.dtype or t.device != input.device or t.layout != torch.strided for t in tensors)
        or input.dim() not in (3, 4)
        or weight.dim() != 4
        or 0 in weight.shape
        or 0 in input.shape[-3:]
        or (bias is not None and bias.shape != (weight.shape[1] * arguments[3],))
    ):
        return None
    batched = input.dim() == 4
    if not batched:
        input = input.unsqueeze(0)
    on_cuda = input.device.type == "cuda"
    math = lib.MATH_TF32 if on_cuda and _tf32() else lib.MATH_STRICT
    try:
        desc = _layer.make_desc(input.shape, weight.shape, arguments, dtype, math)
        shape = lib.output_shape(desc)
        memory_format = _memory_format(input, weight, bias, arguments)
        desc.layout = lib.NHWC if memory_format == torch.channels_last else lib.NCHW
        as_it_lies = _layer.lies_in(desc.layout, input.shape, input.stride())
        if as_it_lies:
            desc.src_strides[:] = _layer.strides_that_count(input.shape, input.stride())
        weight_layout = _layer.weight_layout(weight.shape, weight.stride())
        desc.weight_layout = lib.WEIGHT_IOHW if weight_layout is None else weight_layout
        options = lib.new_options()
        if on_cuda:
            options.backend, options.location = lib.BACKEND_CUDA, lib.LOCATION_CUDA
            options.device = input.device.index
        else:
            options.backend, options.location = lib.BACKEND_CPU, lib.LOCATION_HOST
            options.threads = torch.get_num_threads()
        plan = Plan(desc, options)
    except (TconvError, TypeError):
        return None
    return _Layer(
        plan,
        arguments,
        shape,
        torch.empty(shape, device="meta", memory_format=memory_format).stride(),
        -(-plan.workspace_size // input.element_size()),
        batched,
        memory_format,
        not as_it_lies,
        weight_layout is None,
        bias is not None and not bias.is_contiguous(),
        input.device.index if on_cuda else None,
    )


def _memory_format(
    input: Tensor, weight: Tensor, bias: Tensor | None, arguments: _layer.Arguments
) -> torch.memory_format:
    """What PyTorch chooses for the output of this layer: its operator depends on the layer, on flags and on the
    build."""
    stride, padding, output_padding, groups, dilation = arguments
    backend = torch._C._select_conv_backend(
        input,
        weight,
        bias=bias,
        bias_sizes=None,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=True,
        output_padding=output_padding,
        groups=groups,
    )
    return torch._C._conv_determine_backend_memory_format(input, weight, backend)


def _forward(layer: _Layer, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """tconv's answer. Everything that it works on is alive until it returns; on CUDA it is ordered on the current
    stream, to which PyTorch's allocator gives memory back."""
    plan = layer.plan
    src = input if layer.batched else input.unsqueeze(0)
    if layer.copy_input:
        src = src.clone(memory_format=layer.memory_format)
    weights = weight.contiguous() if layer.copy_weight else weight
    biases = bias.contiguous() if bias is not None and layer.copy_bias else bias
    dst = src.new_empty_strided(layer.shape, layer.strides)
    workspace = src.new_empty(layer.workspace_elements) if layer.workspace_elements else None
    status = plan.execute(
        src.data_ptr(),
        weights.data_ptr(),
        0 if biases is None else biases.data_ptr(),
        dst.data_ptr(),
        0 if workspace is None else workspace.data_ptr(),
        0 if layer.device is None else torch._C._cuda_getCurrentRawStream(layer.device),
    )
    if status == 0:
        return dst if layer.batched else dst.squeeze(0)
    if status == lib.INVALID_ARGUMENT:  # an address that is no multiple of an element
        return torch.conv_transpose2d(input, weight, bias, *layer.arguments)
    raise lib.last_error()


# --------------------------------------------------------------------------------------------------------- the backward


def gradients(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    arguments: Sequence[Any],
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input, weight and bias that are wanted, for the operator. They are PyTorch's, as those of eager
    calls are, and can be differentiated again. The arguments are stride, padding, output padding and dilation as pairs,
    groups before the last."""
    stride, padding, output_padding, groups, dilation = arguments
    unbatched = input.dim() == 3
    if unbatched:
        grad, input = grad.unsqueeze(0), input.unsqueeze(0)
    grad_input, grad_weight, grad_bias = torch.ops.aten.convolution_backward.default(
        grad, input, weight, bias_sizes, stride, padding, dilation, True, output_padding, groups, wanted
    )
    if unbatched and grad_input is not None:
        grad_input = grad_input.squeeze(0)
    return grad_input, grad_weight, grad_bias


def _as_pair(value: Any) -> list[Any]:
    return [value, value] if isinstance(value, int) else list(value)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, weight, bias, stride, padding, output_padding, groups, dilation = inputs
    ctx.save_for_backward(input, weight)
    ctx.bias_sizes = None if bias is None else bias.shape
    ctx.arguments = (_as_pair(stride), _as_pair(padding), _as_pair(output_padding), groups, _as_pair(dilation))


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    input, weight = ctx.saved_tensors
    needed = ctx.needs_input_grad  # of the arguments that were given, which bias need not be
    wanted = (needed[0], needed[1], ctx.bias_sizes is not None and needed[2])
    return *gradients(grad, input, weight, ctx.bias_sizes, ctx.arguments, wanted), None, None, None, None, None


# --------------------------------------------------------------------------------------------------------- the operator

# Kept as long as the module is: the registrations go when it does.
_library = torch.library.Library("tconv", "DEF")
_library.define(
    "conv_transpose2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0, "
    "SymInt[2] output_padding=0, SymInt groups=1, SymInt[2] dilation=1) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_op = torch.ops.tconv.conv_transpose2d.default


def _kernel(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    groups: int = 1,
    dilation: Sequence[int] = (1, 1),
) -> Tensor:
    layer = _find_layer(input, weight, bias, stride, padding, output_padding, groups, dilation)
    if layer is None:
        return torch.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _forward(layer, input, weight, bias)


def _fake(*arguments: Any) -> Tensor:
    return torch.conv_transpose2d(*arguments)


def _autocast_kernel(device_type: str) -> Any:
    key = getattr(torch._C.DispatchKey, f"Autocast{device_type.upper()}")

    def kernel(input: Tensor, weight: Tensor, bias: Tensor | None = None, *arguments: Any) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return _op(*_autocast(device_type, input, weight, bias), *arguments)

    return kernel


def _autocast(device_type: str, *tensors: Tensor | None) -> list[Any]:
    """PyTorch's rule for convolutions under autocast: everything in the lower precision, but for float64."""
    dtype = torch.get_autocast_dtype(device_type)
    return [
        tensor
        if tensor is None
        or tensor.dtype is dtype
        or tensor.dtype is torch.float64
        or not tensor.is_floating_point()
        or not (tensor.is_cuda if device_type == "cuda" else tensor.is_cpu)
        else tensor.to(dtype)
        for tensor in tensors
    ]


_library.impl("conv_transpose2d", _kernel, "CPU")
_library.impl("conv_transpose2d", _kernel, "CUDA")
_library.impl("conv_transpose2d", _autocast_kernel("cpu"), "AutocastCPU")
_library.impl("conv_transpose2d", _autocast_kernel("cuda"), "AutocastCUDA")
torch.library.register_fake("tconv::conv_transpose2d", _fake, lib=_library)
torch.library.register_autograd("tconv::conv_transpose2d", _backward, setup_context=_setup_context, lib=_library)


# ----------------------------------------------------------------------------------------- inside of PyTorch's operator

# torch.conv_transpose2d ends in aten::convolution, below autocast and autograd. While a thread has this key, _inside
# takes the place of what that computes. Its own purpose are tensors with the bit for "negative", views of complex ones;
# their convolutions get here too.
_inside_key = torch._C.DispatchKey.Negative
_include_key = torch._C._dispatch_tls_set_dispatch_key_included


def _inside(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    _include_key(_inside_key, False)
    layer = None
    if transposed:
        layer = _find_layer(input, weight, bias, stride, padding, output_padding, groups, dilation)
    if layer is not None:
        return _forward(layer, input, weight, bias)
    return torch.convolution(
        input.resolve_neg(),
        weight.resolve_neg(),
        None if bias is None else bias.resolve_neg(),
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
    )


_aten = torch.library.Library("aten", "IMPL")
_aten.impl("convolution", _inside, "Negative")


# -------------------------------------------------------------------------------------------------------- the functions

_is_compiling = torch.compiler.is_compiling
_autocast_enabled = torch._C._is_any_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._is_torch_function_mode_enabled
_tracing_state = torch._C._get_tracing_state
_transforms = torch._C._functorch.peek_interpreter_stack
_profiling = torch._C._autograd._profiler_enabled
_grad_enabled = torch.is_grad_enabled


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """torch.nn.functional.conv_transpose2d, computed by tconv."""
    if _is_compiling():
        return _through_the_dispatcher(input, weight, bias, stride, padding, output_padding, groups, dilation)
    arguments = (input, weight, bias, stride, padding, output_padding, groups, dilation)
    if (
        not (type(input) in _PLAIN and type(weight) in _PLAIN and (bias is None or type(bias) in _PLAIN))
        or _transforms() is not None
        or forward_ad._current_level >= 0
    ):
        return _unusual(arguments)
    if _dispatch_modes() or _function_modes() or _tracing_state() is not None or _profiling():
        return _through_the_dispatcher(*arguments)
    if _autocast_enabled() or (
        _grad_enabled() and (weight.requires_grad or input.requires_grad or (bias is not None and bias.requires_grad))
    ):
        _include_key(_inside_key, True)
        try:
            return torch.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)
        finally:
            _include_key(_inside_key, False)
    layer = _find_layer(input, weight, bias, stride, padding, output_padding, groups, dilation)
    if layer is None:
        return torch.conv_transpose2d(*arguments)
    return _forward(layer, input, weight, bias)


# A leaf for torch.fx's symbolic tracing, which otherwise would find PyTorch's operator in it.
torch.fx.wrap("conv_transpose2d")


def _through_the_dispatcher(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> Tensor:
    """The operator takes lists of two. PyTorch's takes more than that, or says what is wrong."""
    taken = isinstance(groups, int)
    for tensor in (input, weight, bias):
        if tensor is not None:
            taken = taken and tensor.layout is torch.strided and tensor.device.type in _DEVICES
    for value in (stride, padding, output_padding, dilation):
        taken = taken and (isinstance(value, int) or (isinstance(value, (tuple, list)) and len(value) == 2))
    if not taken:
        return torch.conv_transpose2d(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _op(
        input, weight, bias, _as_pair(stride), _as_pair(padding), _as_pair(output_padding), groups, _as_pair(dilation)
    )


def _unusual(arguments: tuple[Any, ...]) -> Tensor:
    """Fake tensors go to the operator. Other subclasses, torch.func's transforms and forward-mode derivatives are
    rules for PyTorch's operators, and what is no tensor is PyTorch's to refuse."""
    fake = torch._subclasses.FakeTensor
    if _transforms() is None and forward_ad._current_level < 0:
        if all(tensor is None or type(tensor) in _PLAIN or type(tensor) is fake for tensor in arguments[:3]):
            if arguments[0] is not None and arguments[1] is not None:
                return _through_the_dispatcher(*arguments)
    return torch.conv_transpose2d(*arguments)


# ---------------------------------------------------------------------------------------------------------- the modules


class ConvTranspose2d(torch.nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d, computed by tconv. All but forward is PyTorch's."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            padding = self._output_padding(
                input,
                output_size,
                self.stride,  # type: ignore[arg-type]
                self.padding,  # type: ignore[arg-type]
                self.kernel_size,  # type: ignore[arg-type]
                2,
                self.dilation,  # type: ignore[arg-type]
            )
            return F.conv_transpose2d(
                input,
                self.weight,
                self.bias,
                self.stride,
                self.padding,  # type: ignore[arg-type]
                padding,
                self.groups,
                self.dilation,
            )
        else:
            return self._computed_by_tconv(input, output_size)

    @torch.jit.unused
    def _computed_by_tconv(self, input: Tensor, output_size: list[int] | None) -> Tensor:
        if self.padding_mode != "zeros":
            raise ValueError("Only `zeros` padding mode is supported for ConvTranspose2d")
        layer: Any = self  # whose attributes are annotated for every number of dimensions
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = layer._output_padding(
                input, output_size, layer.stride, layer.padding, layer.kernel_size, 2, layer.dilation
            )
        parameters = layer._parameters  # where torch.nn.Module looks for an attribute last
        weight = parameters["weight"] if "weight" in parameters else layer.weight
        bias = parameters["bias"] if "bias" in parameters else layer.bias
        return conv_transpose2d(
            input, weight, bias, layer.stride, layer.padding, output_padding, layer.groups, layer.dilation
        )


class LazyConvTranspose2d(torch.nn.LazyConvTranspose2d, ConvTranspose2d):  # type: ignore[misc]
    """torch.nn.LazyConvTranspose2d that becomes tconv's ConvTranspose2d."""

    cls_to_become = ConvTranspose2d


# -------------------------------------------------------------------------------------------------------------- replace


@dataclasses.dataclass(frozen=True)
class Replaced:
    """What replace did: the names of the modules that are tconv's now, and of those left alone, with the reason."""

    swapped: list[str]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{name or '(the model itself)'}: tconv" for name in self.swapped]
        lines += [f"{name or '(the model itself)'}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines) or "no ConvTranspose2d"


_SWAPS: dict[type, type] = {
    torch.nn.ConvTranspose2d: ConvTranspose2d,
    torch.nn.LazyConvTranspose2d: LazyConvTranspose2d,
}


def replace(model: torch.nn.Module) -> Replaced:
    """Makes every torch.nn.ConvTranspose2d in the model tconv's, in place.

    A module keeps its identity and everything in it: parameters, hooks, weight_norm and parametrizations, training
    flag; only its class changes. Left alone, and named in the answer with the reason, are subclasses, which may
    compute something else, modules with a forward of their own, and scripted ones.
    """
    swapped: list[str] = []
    left: dict[str, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            if module.original_name == "ConvTranspose2d":
                left[name] = "it is scripted"
            continue
        if not isinstance(module, torch.nn.ConvTranspose2d) or isinstance(module, ConvTranspose2d):
            continue
        kind = type(module)
        parametrized = parametrize.is_parametrized(module) and kind.__bases__ == (torch.nn.ConvTranspose2d,)
        if "forward" in vars(module):
            left[name] = "it has a forward of its own"
        elif kind in _SWAPS:
            module.__class__ = _SWAPS[kind]
            swapped.append(name)
        elif parametrized:
            # A class made for this module alone, with a property for each tensor: the same upon another base.
            members = {key: value for key, value in vars(kind).items() if key not in ("__dict__", "__weakref__")}
            module.__class__ = type(kind.__name__, (ConvTranspose2d,), members)
            swapped.append(name)
        else:
            left[name] = f"its class {kind.__qualname__} may compute something else"
    return Replaced(swapped, left)
