"""fuse and unfuse, for a model."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ._modules import spatial_axes
from ._replace import _called, _change_class, _class_for, _is_transposed, is_ours, modules_of, unfuse_one, why_left
from ._sequential import Sequential, followers, why_not_follower, why_not_layer, why_watched


@dataclasses.dataclass(frozen=True)
class Fused:
    """What fuse did. str() says it in words.

    Attributes:
        fused (dict): of the layers that compute what follows them the names, with the names of the modules that they
            compute.
        left (dict): of the transposed convolutions left alone the names, with the reason.
    """

    fused: dict[str, list[str]]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{_called(name)}: fused with {', '.join(behind)}" for name, behind in self.fused.items()]
        lines += [f"{_called(name)}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines) or "no transposed convolution"


def fuse(model: torch.nn.Module) -> Fused:
    """For inference in eager mode: layers compute what follows them in a torch.nn.Sequential, in place. Normalization
    and activation then cost no pass over memory. unfuse undoes it.

    What follows is any of BatchNorm1d to BatchNorm3d with running statistics, ReLU, ReLU6, LeakyReLU, Hardtanh, ELU,
    GELU, SiLU, Mish, Tanh, Sigmoid, Softplus (of beta 1 and a threshold of 17 or more; not in float64), Hardswish, and
    between them Identity and Dropout. The layers become tconv's, as by replace, and their Sequentials get a class
    derived from theirs; modules, parameters, buffers and state_dict stay what they are. Each call looks at the
    modules as they are: where one is in training mode or has hooks, gradients are wanted, or the call is compiled,
    traced or inside a mode, every module is called by itself, as without fuse. What is written to a normalization's
    parameters through .data or .numpy() is not seen: who does that calls fuse again.

    Args:
        model (torch.nn.Module): the model, or a Sequential.

    Returns:
        Fused: what became of each transposed convolution.

    Raises:
        TypeError: the model is no module.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = torch.nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        >>> model = torch.nn.Sequential(layer, torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
        >>> print(tconv.torch.fuse(model))
        0: fused with 1, 2
        >>> with torch.inference_mode():
        ...     model(torch.randn(1, 16, 8, 8)).shape
        torch.Size([1, 8, 16, 16])
    """
    fused: dict[str, list[str]] = {}
    left: dict[str, str] = {}
    modules = modules_of(model, "fuse")
    for above, sequential in modules:
        if not isinstance(sequential, torch.nn.Sequential):
            continue
        children = list(sequential._modules.items())
        for i, (child, layer) in enumerate(children):
            if layer is not None and _is_transposed(layer):
                name = _below(above, child)
                answer = _fuse_one(sequential, layer, children[i + 1 :])
                if isinstance(answer, str):
                    left[name] = answer
                else:
                    fused[name] = [_below(above, each) for each in answer]
    for name, module in modules:
        if _is_transposed(module) and name not in fused and name not in left:
            left[name] = "it is in no torch.nn.Sequential, which would say what follows it"
    return Fused(fused, left)


def _below(above: str, child: str) -> str:
    return f"{above}.{child}" if above else child


def _fuse_one(sequential: torch.nn.Sequential, layer: Any, behind: list[tuple[str, Any]]) -> list[str] | str:
    """The names of the modules that a layer computes from now on, or why it computes none."""
    if type(sequential).forward not in (torch.nn.Sequential.forward, Sequential.forward):
        return f"its {type(sequential).__qualname__} has a forward of its own"
    if "forward" in vars(sequential):
        return "its Sequential has a forward of its own"
    why = _why_not(layer)
    if why is not None:
        return why
    if not behind:
        return "nothing follows it"
    found = followers([module for _, module in behind], layer)
    if not found:
        reasons = [(name, why_not_follower(module, spatial_axes(layer), layer.out_channels)) for name, module in behind]
        return next((f"{name} behind it {why}" for name, why in reasons if why is not None), "nothing follows it")
    if not is_ours(layer):
        why = _change_class(layer, _class_for)
    if why is None and not isinstance(sequential, Sequential):
        why = _change_class(sequential, _class_for)
    if why is not None:
        return why
    vars(sequential).pop("_tconv_folds", None)  # parameters may have changed unseen
    return [name for name, _ in behind[: len(found)]]


def _why_not(layer: Any) -> str | None:
    """Why a layer, of tconv's or one that replace would take, cannot compute what follows it."""
    why = why_not_layer(layer) if is_ours(layer) else why_left(layer) or why_watched(layer)
    return f"it {why}" if why is not None and why.startswith("has") else why


def unfuse(model: torch.nn.Module) -> list[str]:
    """Undoes fuse: every module is called by itself. Layers stay tconv's; restore makes them PyTorch's.

    Args:
        model (torch.nn.Module): the model, or a Sequential.

    Returns:
        list of str: the names of the Sequentials that were fused.

    Raises:
        TypeError: the model is no module.

    Examples::

        >>> import torch, tconv.torch
        >>> model = torch.nn.Sequential(torch.nn.ConvTranspose2d(16, 8, 4), torch.nn.ReLU())
        >>> fused = tconv.torch.fuse(model)
        >>> tconv.torch.unfuse(model)
        ['']
        >>> type(model) is torch.nn.Sequential
        True
    """
    return [name for name, module in modules_of(model, "unfuse") if unfuse_one(module)]
