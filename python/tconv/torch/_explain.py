"""explain: what a call would come to."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .. import _posts
from ..post import PostOp
from ._compute import Layer, find
from ._functional import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ._gradients import find as find_gradients
from ._modules import arguments_of, spatial_axes
from ._operator import _autocast, as_list
from ._packed import PackedWeights
from ._post_list import listed
from ._reasons import MISALIGNED, PLAIN, Reason, unusual
from ._replace import _is_transposed, is_ours, why_left

_OURS = {conv_transpose1d: 1, conv_transpose2d: 2, conv_transpose3d: 3}
_PYTORCHS = {getattr(F, name): name for name in ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")}


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What explain found out. str() says it in words.

    Attributes:
        taken (bool): whether tconv computes the call.
        implementation (str): which of tconv's, "" where PyTorch computes.
        why (str): why PyTorch does; for a frozen layer of tconv's, whether its packed weights are used.
        gradients (dict): of those that want one ("input", "weight", "bias"), by which implementation of tconv's it
            would be computed, or why by PyTorch.
    """

    taken: bool
    implementation: str
    why: str
    gradients: dict[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        who = f"tconv, by {self.implementation}" if self.taken else "PyTorch"
        lines = [f"{who}: {self.why}" if self.why else who]
        return "\n".join(lines + [f"gradient of {name}: {how}" for name, how in self.gradients.items()])


def explain(layer_or_function: torch.nn.Module | Callable[..., Any], *arguments: Any, **more: Any) -> Explanation:
    """Whether tconv takes the call layer_or_function(*arguments), as it would be made here and now, and why not.

    It computes nothing.

    Args:
        layer_or_function: a transposed convolution, tconv's or another, or one of tconv's and PyTorch's functions.
        arguments, more: what the call is given.

    Returns:
        Explanation: who computes, and why.

    Raises:
        TypeError: it is none of these, or the arguments are not what it takes.
        tconv.EnvironmentVariableError: a TCONV_* variable has a value that it does not accept, as the call would raise.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.ConvTranspose2d(3, 2, 4)
        >>> tconv.torch.explain(layer, torch.ones(1, 3, 8, 8)).taken
        True
        >>> print(tconv.torch.explain(layer, torch.ones(1, 3, 8, 8, dtype=torch.int32)))
        PyTorch: input is of torch.int32: tconv has float32, float64, float16 and bfloat16
    """
    call: Any = layer_or_function
    if isinstance(call, torch.nn.Module) and is_ours(call):
        bound = inspect.signature(call.forward).bind(*arguments, **more)
        bound.apply_defaults()
        spatial = spatial_axes(call)
        packed: Any = call._tconv_packed
        return _of_arguments(spatial, *arguments_of(call, spatial, *bound.arguments.values()), packed=packed)
    if isinstance(call, torch.nn.Module) and _is_transposed(call):
        return Explanation(False, "", why_left(call) or "it is PyTorch's: tconv.torch.replace makes it tconv's")
    if callable(call) and call in _PYTORCHS:
        name = _PYTORCHS[call]
        return Explanation(False, "", f"torch.nn.functional.{name} is PyTorch's: tconv.torch.{name} is tconv's")
    if not callable(call) or call not in _OURS:
        given = f"the class {call.__qualname__}" if isinstance(call, type) else f"an object of {type(call).__name__}"
        raise TypeError(
            "tconv.torch.explain takes a transposed convolution, a module, or one of tconv.torch's functions: "
            f"{given} is none"
        )
    bound = inspect.signature(call).bind(*arguments, **more)
    bound.apply_defaults()
    posts = _posts.as_list(bound.arguments.pop("post"))
    return _of_arguments(_OURS[call], *bound.arguments.values(), posts=posts)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Not so fake tensors and those that torch.func's transforms hand out."""
    return type(tensor) in PLAIN and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _of_arguments(
    spatial: int,
    input: Any,
    weight: Any,
    bias: Any,
    *rest: Any,
    packed: PackedWeights | None = None,
    posts: Sequence[PostOp] = (),
) -> Explanation:
    found = unusual(spatial, input, weight, bias)
    if found is not None:
        return Explanation(False, "", found.text)
    device = input.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if autocast:
        input, weight, bias = _autocast(device, input, weight, bias)
    operands = _posts.named_operands(posts).values()
    apart = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (input, weight, bias, *operands))
    stride, padding, output_padding, groups, dilation = rest
    of_layer = () if apart else posts
    of_list = listed(of_layer) if of_layer else None
    layer = find(
        input, weight, bias, stride, padding, output_padding, groups, dilation, of_list, _posts.addend(of_layer)
    )
    if isinstance(layer, Reason):
        return Explanation(False, "", layer.text)
    tensors = [tensor for tensor in (input, weight, bias) if tensor is not None]
    if any(_has_memory(tensor) and tensor.data_ptr() % tensor.element_size() for tensor in tensors):
        return Explanation(False, "", MISALIGNED.text)
    why = ""
    wants = [
        torch.is_grad_enabled() and tensor is not None and tensor.requires_grad for tensor in (input, weight, bias)
    ]
    if posts and apart:
        why = "what follows it is computed by PyTorch, for gradients are wanted"
    if packed is not None:
        unused = "autocast is on" if autocast else "gradients are wanted" if any(wants) else ""
        why = f"weights are packed in this call, for {unused}" if unused else "weights are packed once"
    return Explanation(True, layer.plan.implementation, why, _of_gradients(layer, wants, input, weight, *rest))


def _of_gradients(
    layer: Layer,
    wants: list[bool],
    input: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    _: Any,
    groups: Any,
    dilation: Any,
) -> dict[str, str]:
    """By what they would be computed, of an output's gradient that lies as the output does."""
    if not any(wants):
        return {}
    spatial = weight.dim() - 2
    diff_dst = input.new_empty_strided(layer.shape, layer.strides)
    if input.dim() == spatial + 1:
        input, diff_dst = input.unsqueeze(0), diff_dst.unsqueeze(0)
    sizes = (as_list(stride, spatial), as_list(padding, spatial), groups, as_list(dilation, spatial))
    found = find_gradients(diff_dst, input, weight, *sizes, wants)
    operations = {"input": found.data, "weight": found.weights, "bias": found.weights}
    return {
        name: f"PyTorch: {how.text}" if isinstance(how, Reason) else f"tconv, by {how.plan.implementation}"
        for (name, how), want in zip(operations.items(), wants, strict=True)
        if want and how is not None
    }
