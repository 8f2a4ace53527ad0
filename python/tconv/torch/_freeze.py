"""freeze and thaw, for a model."""

from __future__ import annotations

import dataclasses

import torch

from ._packed import PackedWeights
from ._replace import _called, _is_transposed, is_ours, modules_of, why_left


@dataclasses.dataclass(frozen=True)
class Frozen:
    """What freeze did. str() says it in words.

    Attributes:
        frozen (list of str): the names of the modules whose weights are packed once.
        left (dict): of the transposed convolutions left alone the names, with the reason.
    """

    frozen: list[str]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{_called(name)}: frozen" for name in self.frozen]
        lines += [f"{_called(name)}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines) or "no layer of tconv's: tconv.torch.replace(model) makes them"


def _is_fsdps(module: torch.nn.Module) -> bool:
    """Whether FSDP gathers its weights in every call, into the same memory and uncounted."""
    kinds = {kind.__name__ for kind in type(module).__mro__}
    return not kinds.isdisjoint({"FSDPModule", "FullyShardedDataParallel"})


def _why_not(module: torch.nn.Module) -> str | None:
    if not is_ours(module):
        return why_left(module) or "it is PyTorch's: tconv.torch.replace(model) comes first"
    weight = module._parameters.get("weight")
    if weight is None:
        return "its weight is computed in every call, as weight_norm and parametrizations do: remove them first"
    if not torch.nn.parameter.is_lazy(weight) and weight.is_inference():
        return "its weight is an inference tensor, which has no version"
    return None


def freeze(model: torch.nn.Module) -> Frozen:
    """For inference: from now on the weights of every layer of tconv's are packed once for each shape of input, and
    kept for the last eight shapes, in place of being packed in every call. thaw undoes it.

    Packed weights are used where a call wants no gradients and is plain: not under autocast, modes, torch.compile,
    tracing or the capture of a CUDA graph, where weights are packed in the call as ever. They are packed anew where the
    weight is another tensor, lies elsewhere, PyTorch counted a change in place, or an optimizer made a step. What is
    written through .data, .numpy() or another library is not seen: who does that calls freeze again.

    Args:
        model (torch.nn.Module): the model, or a layer, of tconv's layers.

    Returns:
        Frozen: what became of each transposed convolution.

    Raises:
        TypeError: the model is no module.

    Examples::

        >>> import torch, tconv.torch
        >>> model = torch.nn.Sequential(torch.nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), torch.nn.ReLU())
        >>> tconv.torch.freeze(model).left
        {'0': "it is PyTorch's: tconv.torch.replace(model) comes first"}
        >>> replaced = tconv.torch.replace(model)
        >>> tconv.torch.freeze(model).frozen
        ['0']
    """
    frozen: list[str] = []
    left: dict[str, str] = {}
    modules = modules_of(model, "freeze")
    gathered = [name for name, module in modules if _is_fsdps(module)]
    for name, module in modules:
        if not _is_transposed(module):
            continue
        why = _why_not(module)
        if why is None and any(above in ("", name) or name.startswith(f"{above}.") for above in gathered):
            why = "its weight is gathered by FSDP in every call"
        if why is None:
            module._tconv_packed = PackedWeights()  # type: ignore[assignment]
            frozen.append(name)
        else:
            left[name] = why
    return Frozen(frozen, left)


def thaw(model: torch.nn.Module) -> list[str]:
    """Undoes freeze, and frees the packed weights.

    Args:
        model (torch.nn.Module): the model, or a layer.

    Returns:
        list of str: the names of the modules that were frozen.

    Raises:
        TypeError: the model is no module.

    Examples::

        >>> import tconv.torch
        >>> layer = tconv.torch.ConvTranspose2d(16, 8, 4)
        >>> frozen = tconv.torch.freeze(layer)
        >>> tconv.torch.thaw(layer)
        ['']
    """
    return [name for name, module in modules_of(model, "thaw") if vars(module).pop("_tconv_packed", None) is not None]
