"""Why PyTorch computes a call and not tconv, and how often each cause was met."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _library as lib
from .._errors import EnvironmentVariableError, InvalidArgumentError, SizeOverflowError, UnsupportedError

DTYPES = {torch.float32: lib.F32, torch.float64: lib.F64, torch.float16: lib.F16, torch.bfloat16: lib.BF16}
DEVICES = frozenset({"cpu", "cuda"})
SPATIAL = (1, 2, 3)
PLAIN = frozenset({Tensor, torch.nn.Parameter})


class Reason(NamedTuple):
    """Why PyTorch computes a call: one cause, and a text that has its value."""

    cause: str
    text: str
    expected: bool = True  # what a caller who knows docs/python.md counts on; the first that is not gives a warning


NEGATIVE_BIT = Reason("negative bit", "a tensor has PyTorch's bit for negative, as views of complex ones do")
SLOWER = Reason("post-ops", "such a list takes longer with the layer than after it, on CUDA")
MISALIGNED = Reason("alignment", "a tensor's address is no multiple of its element", expected=False)


# Steps of one to three instructions, which CUDA's kernels take their sums through in registers.
AFFINE = frozenset(
    {
        lib.POST_ADD_CHANNEL,
        lib.POST_MUL_CHANNEL,
        lib.POST_LINEAR,
        lib.POST_CLAMP,
        lib.POST_LEAKY_RELU,
    }
)


def gains_with_layer(kinds: Iterable[int], device: str, dtype: torch.dtype, compiled: bool) -> bool:
    """Whether a list of steps is faster with the layer than after it. On CUDA any other list than one of affine steps
    is a pass over the output, as a compiler's own kernel is; in 16 bits the layer is then computed in TF32, so that
    outputs are rounded once, which takes longer than the pass."""
    if device != "cuda" or all(kind in AFFINE for kind in kinds):
        return True
    return not compiled and dtype in (torch.float32, torch.float64)


# The gradients on CUDA that are tconv's, dtypes by operation: those with which training steps are faster than with
# PyTorch's in the mean of many layers, by less work for the GPU or for the host
# (docs/log/2026-11-26-gradients-from-pytorch.md, 2026-11-30-volumes-at-once.md). The bias's comes with the weight's;
# alone it is a sum.
FAST_ON_CUDA = {
    "output": frozenset(DTYPES),
    "input": frozenset(DTYPES),
    "weight": frozenset({torch.float32, torch.float16, torch.bfloat16}),
}
# Without tensor cores: for what the others decline. An output is tconv's all the same.
SLOW_ON_CUDA = {"input": frozenset({"cuda_general"}), "weight": frozenset({"cuda_general"})}


# ---------------------------------------------------------------------------------------------------------- the causes


def unusual(spatial: int, input: Any, weight: Any, bias: Any) -> Reason | None:
    """What keeps a call from tconv before anything is asked of its tensors: what is no tensor is PyTorch's to refuse,
    and subclasses have rules for PyTorch's operators. None also for fake tensors, torch.func's transforms and
    forward-mode derivatives, which are the operator's."""
    fake = torch._subclasses.FakeTensor
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if not isinstance(tensor, Tensor) and (tensor is not None or name != "bias"):
            return Reason("not a tensor", f"{name} is of type {type(tensor).__name__}")
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if type(tensor) not in PLAIN and type(tensor) is not fake and tensor is not None:
            return Reason("tensor subclass", f"{name} is of {type(tensor).__name__}, a subclass of torch.Tensor")
    if weight.dim() != spatial + 2:
        return Reason("shape", f"weight has {weight.dim()} axes: must have {spatial + 2}")
    return None


def of_tensors(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Reason | None:
    """What is wrong with the tensors of a layer; None where tconv may take it."""
    reason = _of_kinds({"input": input, "weight": weight, "bias": bias})
    if reason is not None:
        return reason
    spatial = weight.dim() - 2
    if spatial not in SPATIAL:
        return Reason("shape", f"weight has {weight.dim()} axes: must have 3, 4 or 5")
    if input.dim() - spatial not in (1, 2):
        return Reason("shape", f"input has {input.dim()} axes: must have {spatial + 1} or {spatial + 2}")
    if 0 in weight.shape or 0 in input.shape[-spatial - 1 :]:
        name, shape = ("weight", weight.shape) if 0 in weight.shape else ("input", input.shape)
        return Reason("shape", f"{name} of shape {tuple(shape)} has no elements")
    if input.shape[-spatial - 1] != weight.shape[0]:
        channels = input.shape[-spatial - 1]
        return Reason("shape", f"weight has {weight.shape[0]} input channels, input {channels}: must be the same")
    if bias is not None and bias.shape != (weight.shape[1] * groups,):
        return Reason("shape", f"bias has the shape {tuple(bias.shape)}: must be ({weight.shape[1] * groups},)")
    return None


def _of_dtype(name: str, tensor: Tensor) -> Reason:
    return Reason("dtype", f"{name} is of {tensor.dtype}: tconv has float32, float64, float16 and bfloat16")


def _of_kinds(named: dict[str, Tensor | None]) -> Reason | None:
    first, like = next(iter(named.items()))
    assert like is not None
    if like.dtype not in DTYPES:
        return _of_dtype(first, like)
    if like.device.type not in DEVICES:
        return Reason("device", f"{first} is on {like.device}: tconv computes on the CPU and on CUDA")
    for name, tensor in named.items():
        if tensor is None:
            continue
        if tensor.layout != torch.strided:
            return Reason("layout", f"{name} has the layout {tensor.layout}: must be torch.strided")
        if tensor.dtype != like.dtype:
            return Reason("dtype", f"{name} is of {tensor.dtype}, {first} of {like.dtype}: must be the same")
        if tensor.device != like.device:
            return Reason("device", f"{name} is on {tensor.device}, {first} on {like.device}: must be the same")
    return None


def of_gradients(diff_dst: Tensor, *others: Tensor) -> Reason | None:
    """What is wrong with the tensors of a gradient: that of the output, and the input or the weight."""
    reason = _of_kinds({"the gradient": diff_dst, **{f"operand {i}": tensor for i, tensor in enumerate(others)}})
    if reason is not None:
        return reason
    axes = {tensor.dim() for tensor in (diff_dst, *others)}
    if len(axes) != 1 or diff_dst.dim() - 2 not in SPATIAL:
        return Reason("shape", f"the gradient has {diff_dst.dim()} axes: must have 3, 4 or 5, as all of its operands")
    if any(0 in tensor.shape[1:] for tensor in (diff_dst, *others)):
        return Reason("shape", "a tensor has no elements")
    return None


def of_speed(name: str, like: Tensor, implementation: str, deterministic: bool) -> Reason | None:
    """Why the output, or the gradient of the input, weight or bias, is PyTorch's on CUDA, as the faster one, given what
    tconv has for it; None where it is tconv's, as all are where algorithms are to be deterministic."""
    if not like.is_cuda or deterministic:
        return None
    what = "the output" if name == "output" else f"the gradient of the {name}"
    if like.dtype not in FAST_ON_CUDA.get(name, ()):
        return Reason("speed", f"{what} in {like.dtype} is as fast or faster by PyTorch on CUDA")
    if implementation in SLOW_ON_CUDA.get(name, ()):
        return Reason("speed", f"tconv has its general implementation alone for {what}")
    return None


def of_failed_lookup(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> Reason:
    """Why there is no key for these arguments, or why they are none that the operator's schema has."""
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.layout != torch.strided:
            return Reason("layout", f"{name} has the layout {tensor.layout}: must be torch.strided")
        if tensor is not None and tensor.device.type not in DEVICES:
            return Reason("device", f"{name} is on {tensor.device}: tconv computes on the CPU and on CUDA")
        if tensor is not None and tensor.dtype not in DTYPES:
            return _of_dtype(name, tensor)
        if tensor is not None and tensor.is_nested:
            return Reason("layout", f"{name} is a nested tensor")
    spatial = weight.dim() - 2
    if spatial not in SPATIAL:
        return Reason("shape", f"weight has {weight.dim()} axes: must have 3, 4 or 5")
    named = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation}
    for name, value in named.items():
        numbers = (value,) if isinstance(value, int) else value
        is_sequence = isinstance(numbers, (tuple, list)) and len(numbers) in (1, spatial)
        if not is_sequence or any(type(number) is not int for number in numbers):
            return Reason("arguments", f"{name} = {value!r}: must be an int, or one for each of {spatial} axes")
    return Reason("arguments", f"groups = {groups!r}: must be an int; all must be less than 2**63")


def of_error(error: Exception) -> Reason:
    """Why the library made no plan. What it finds wrong with a layer PyTorch will answer for. A bad environment
    variable is nobody's intention, and is raised."""
    if isinstance(error, EnvironmentVariableError):
        raise error
    if isinstance(error, UnsupportedError):
        return Reason("operation", str(error))
    if isinstance(error, (InvalidArgumentError, SizeOverflowError, TypeError, ValueError)):
        return Reason("arguments", str(error))
    return Reason("refused by the library", str(error), expected=False)


# -------------------------------------------------------------------------------------------------------- the counters


@dataclasses.dataclass(frozen=True)
class Counters:
    """Calls since the module was imported.

    Attributes:
        taken (int): those that tconv computed, however they were made.
        passed_on (dict): those that tconv's functions and modules gave to PyTorch, by cause.
        packings (int): how often the weights of a frozen layer were packed.
        gradients (int): how often tconv computed gradients: those of an input, or those of a weight and a bias.
        fused (int): those of the calls taken that computed what follows the layer, too: its post-ops.
        graph (dict): what the graph pass of fusion_options decided for layers of compiled programs: how often "fused",
            how often "joined" to a concatenation, and the others by cause.
        joined (int): those of the calls taken that stored into their part of a concatenation.
    """

    taken: int
    passed_on: dict[str, int]
    packings: int
    gradients: int = 0
    fused: int = 0
    graph: dict[str, int] = dataclasses.field(default_factory=dict)
    joined: int = 0


# Each says how many calls were taken in a place that counts its own.
taken_by: list[Callable[[], int]] = []
fused_by: list[Callable[[], int]] = []
joined_by: list[Callable[[], int]] = []
gradients_by: list[Callable[[], int]] = []
graph_by: list[Callable[[], dict[str, int]]] = []
left_by: list[Callable[[], int]] = []  # gradients that are PyTorch's for its speed
_passed_on: Counter[str] = Counter()
_packings = 0
_warned = False
_lock = threading.Lock()


def counters() -> Counters:
    """What tconv.torch has computed and passed on to PyTorch in this process until now.

    Returns:
        Counters: the numbers of calls.

    Examples::

        >>> import torch, tconv.torch
        >>> before = tconv.torch.counters()
        >>> result = tconv.torch.conv_transpose2d(torch.ones(1, 3, 8, 8), torch.ones(3, 2, 4, 4))
        >>> tconv.torch.counters().taken - before.taken
        1
    """
    with _lock:
        taken, gradients, left = (sum(count() for count in counts) for counts in (taken_by, gradients_by, left_by))
        fused, joined = (sum(count() for count in counts) for counts in (fused_by, joined_by))
        graph = {cause: count for counts in graph_by for cause, count in counts().items()}
        return Counters(taken, dict(_passed_on + Counter(speed=left)), _packings, gradients, fused, graph, joined)


def count_packing() -> None:
    global _packings
    with _lock:
        _packings += 1


def passed_on(reason: Reason) -> None:
    """Counts a call that PyTorch computes, and warns of the first that nobody expects."""
    global _warned
    with _lock:
        _passed_on[reason.cause] += 1
        warn = not reason.expected and not _warned
        _warned = _warned or warn
    if warn:
        warnings.warn(
            f"tconv.torch: PyTorch computes a transposed convolution, because of this: {reason.text}. This is said "
            "once; tconv.torch.counters() counts all, tconv.torch.explain() tells of each",
            RuntimeWarning,
            stacklevel=2,
        )
