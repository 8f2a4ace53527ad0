"""replace: a model's layers become tconv's."""

from __future__ import annotations

import dataclasses

import torch
from torch.nn.utils import parametrize

from ._modules import ConvTranspose2d, LazyConvTranspose2d


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
