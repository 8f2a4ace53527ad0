"""replace: a model's layers become tconv's; restore: they become PyTorch's again."""

from __future__ import annotations

import copyreg
import dataclasses
import types
import weakref
from typing import Any

import torch
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from ._modules import (
    LAYERS,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    LazyConvTranspose1d,
    LazyConvTranspose2d,
    LazyConvTranspose3d,
)
from ._replace_streams import Streamed, base_for, streamed_base, why_not_streamed
from ._sequential import Sequential

_OURS: dict[type, type] = {
    torch.nn.ConvTranspose1d: ConvTranspose1d,
    torch.nn.ConvTranspose2d: ConvTranspose2d,
    torch.nn.ConvTranspose3d: ConvTranspose3d,
    torch.nn.LazyConvTranspose1d: LazyConvTranspose1d,
    torch.nn.LazyConvTranspose2d: LazyConvTranspose2d,
    torch.nn.LazyConvTranspose3d: LazyConvTranspose3d,
}
# By whose classes _class_for goes: with those that fuse changes.
_BASES: dict[type, type] = {**_OURS, torch.nn.Sequential: Sequential}
_PYTORCHS = {ours: theirs for theirs, ours in _BASES.items()}
_NAMES = frozenset(f"ConvTranspose{spatial}d" for spatial in (1, 2, 3))
_LOOKED_FOR = (
    "torch.nn.ConvTranspose1d, 2d and 3d, their lazy forms and subclasses, and streaming layers as moshi has them"
)


@dataclasses.dataclass(frozen=True)
class Replaced:
    """What replace did. str() says it in words.

    Attributes:
        swapped (list of str): the names of the modules that are tconv's now.
        left (dict): of the transposed convolutions left alone the names, with the reason.
        already (list of str): the names of those that were tconv's before.
        modules (int): how many modules it looked at.
    """

    swapped: list[str]
    left: dict[str, str]
    already: list[str] = dataclasses.field(default_factory=list)
    modules: int = 0

    def __str__(self) -> str:
        lines = [f"{_called(name)}: tconv" for name in self.swapped]
        lines += [f"{_called(name)}: tconv's before" for name in self.already]
        lines += [f"{_called(name)}: left, {why}" for name, why in self.left.items()]
        if not lines:
            return (
                f"no transposed convolution among {self.modules} modules: looked for {_LOOKED_FOR}; calls of functions "
                "are not seen"
            )
        if self.swapped:
            lines.append(
                "What goes by PyTorch's very classes does not know tconv's: torch.ao.quantization (fuse_modules, "
                "prepare, convert, quantize_dynamic), torch.fx.experimental.optimization (fuse) and other passes over "
                "modules of torch.fx. It goes before replace, or after tconv.torch.restore(model)"
            )
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Restored:
    """What restore did. str() says it in words.

    Attributes:
        restored (list of str): the names of the modules that are PyTorch's now.
        left (dict): the names of those left tconv's, with the reason.
    """

    restored: list[str]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{_called(name)}: PyTorch's" for name in self.restored]
        lines += [f"{_called(name)}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines) or "no layer of tconv's"


def _called(name: str) -> str:
    return name or "(the model itself)"


def modules_of(model: object, function: str) -> list[tuple[str, torch.nn.Module]]:
    """The modules of what a function of tconv.torch was given, with their names."""
    if not isinstance(model, torch.nn.Module):
        given = f"the class {model.__qualname__}" if isinstance(model, type) else f"an object of {type(model).__name__}"
        raise TypeError(f"tconv.torch.{function} takes a model, an instance of torch.nn.Module: {given} is none")
    return list(model.named_modules())


# ------------------------------------------------------------------------------------------------------------- classes


def is_ours(module: torch.nn.Module) -> bool:
    return isinstance(module, LAYERS)


class _Derived:
    """What a class made by _class_for has besides: pickle finds it by the class that it stands for."""

    _tconv_stands_for: type

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(2)
        if reduced[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return reduced  # the class has its own way
        _, (_, *arguments), *state = reduced
        return _new, (type(self)._tconv_stands_for, *arguments), *state


def _new(kind: type, *arguments: Any) -> Any:
    made: Any = _class_for(kind)
    return made.__new__(made, *arguments)


# Classes that stand for subclasses of PyTorch's, by these, as long as somebody uses them.
_derived: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()


def _class_for(kind: type) -> type:
    """tconv's class in place of this one, which inherits PyTorch's forward. That of a subclass is derived from it and
    from tconv's class, which comes before PyTorch's where Python looks for forward; that of a streaming layer has
    tconv's forward before its own."""
    if kind in _BASES:
        return _BASES[kind]
    made = _derived.get(kind)
    if made is None:
        streamed = base_for(kind)
        if streamed is not None:
            bases: tuple[type, ...] = (_Derived, streamed, kind)
        else:
            bases = (
                _Derived,
                kind,
                next(ours for theirs, ours in reversed(_BASES.items()) if issubclass(kind, theirs)),
            )
        members: dict[str, Any] = {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "_tconv_stands_for": kind,
        }
        if issubclass(kind, LazyModuleMixin):
            becomes: Any = kind.cls_to_become
            members["cls_to_become"] = _class_for(becomes)
        made = types.new_class(kind.__name__, bases, exec_body=lambda space: space.update(members))
        _derived[kind] = made
    return made


def _stands_for(kind: type) -> type | None:
    """The class in whose place _class_for put this one; None where it is somebody's subclass of tconv's."""
    return _PYTORCHS.get(kind) or vars(kind).get("_tconv_stands_for")


def _with_base(kind: type, base: type) -> type:
    """A class that parametrize made for one module, with a property for each tensor: the same upon another base. It is
    the very class that this one was made of, where that has this base and still the same members."""
    members, origin = _members(kind), vars(kind).get("_tconv_made_of")
    if origin is not None and origin.__bases__ == (base,) and _members(origin) == members:
        return origin
    return type(kind.__name__, (base,), {**members, "_tconv_made_of": kind})


def _members(kind: type) -> dict[str, Any]:
    return {key: value for key, value in vars(kind).items() if key not in ("__dict__", "__weakref__", "_tconv_made_of")}


def _is_parametrized(module: torch.nn.Module) -> bool:
    """Whether its class is one that parametrize made."""
    return parametrize.is_parametrized(module) and type(module).__name__.startswith("Parametrized")


# ------------------------------------------------------------------------------------------------------------- replace


def _is_transposed(module: torch.nn.Module) -> bool:
    """Whether it is a transposed convolution: quantized and scripted ones have classes of their own, of this name."""
    if isinstance(module, torch.jit.ScriptModule):
        return module.original_name in _NAMES
    return isinstance(module, _ConvTransposeNd) or any(kind.__name__ in _NAMES for kind in type(module).__mro__)


def why_left(module: torch.nn.Module) -> str | None:
    """Why replace leaves a transposed convolution that is not tconv's; None where it takes it."""
    if isinstance(module, torch.jit.ScriptModule):
        return "it is scripted"
    kind = type(module)
    of = f"its class {kind.__module__}.{kind.__qualname__}"
    if not isinstance(module, tuple(_OURS)):
        quantized = "quantized" in kind.__module__
        return f"{of} is quantized" if quantized else f"{of} is none of {_LOOKED_FOR}"
    if "forward" in vars(module):
        return "it has a forward of its own"
    if getattr(module, "qconfig", None) is not None:
        return "it is prepared for quantization (its qconfig), which asks for PyTorch's class"
    pytorchs = next(theirs for theirs in _OURS if issubclass(kind, theirs))
    if kind.forward is not pytorchs.forward:  # type: ignore[attr-defined]
        return f"{of} has a forward of its own and may compute something else"
    return None


def replace(model: torch.nn.Module) -> Replaced:
    """Makes every torch.nn.ConvTranspose1d, ConvTranspose2d and ConvTranspose3d in the model tconv's, in place.

    A module keeps its identity and everything in it: parameters, hooks, weight_norm and parametrizations, training
    flag; only its class changes. Subclasses whose forward is PyTorch's are taken too: the module's class is then
    derived from them. Every other transposed convolution is left alone, and named in the answer with the reason. Calls
    of torch.nn.functional's functions cannot be seen.

    Streaming layers as moshi has them (StreamingConvTranspose1d, and RawStreamingConvTranspose1d of older versions)
    take their steps by tconv, with the state, masks and resets that they have, in the middle of a stream too. What is
    made like them is tried before: a class that computes something else is left.

    Args:
        model (torch.nn.Module): the model, or a layer.

    Returns:
        Replaced: what became of each transposed convolution.

    Raises:
        TypeError: the model is no module.

    Examples::

        >>> import torch, tconv.torch
        >>> model = torch.nn.Sequential(torch.nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1), torch.nn.ReLU())
        >>> tconv.torch.replace(model).swapped
        ['0']
        >>> model(torch.randn(1, 16, 8, 8)).shape
        torch.Size([1, 8, 16, 16])
    """
    swapped: list[str] = []
    left: dict[str, str] = {}
    already: list[str] = []
    modules = 0
    for name, module in modules_of(model, "replace"):
        modules += 1
        base = streamed_base(module)
        if is_ours(module) or isinstance(module, Streamed):
            already.append(name)
        elif base is not None:
            why = _try_stream(module, base) or _change_class(module, _class_for)
            if why is None:
                swapped.append(name)
            else:
                left[name] = why
        elif _is_transposed(module):
            why = why_left(module) or _change_class(module, _class_for)
            if why is None:
                swapped.append(name)
            else:
                left[name] = why
    return Replaced(swapped, left, already, modules)


def _try_stream(module: torch.nn.Module, base: type[Streamed]) -> str | None:
    """Why a streaming layer is left."""
    try:
        made = _class_for(type(module).__bases__[0] if _is_parametrized(module) else type(module))
    except TypeError:
        return None  # which _change_class says better
    return why_not_streamed(module, base, made)


def _change_class(module: torch.nn.Module, choose: Any) -> str | None:
    """Gives a module the class that choose says for its own; returns why not."""
    kind = type(module)
    try:
        if _is_parametrized(module):
            module.__class__ = _with_base(kind, choose(kind.__bases__[0]))
        else:
            module.__class__ = choose(kind)
    except TypeError as error:  # of a metaclass, slots or __init_subclass__
        return f"its class {kind.__qualname__} cannot be derived from: {error}"
    return None


def unfuse_one(module: torch.nn.Module) -> bool:
    """Gives a Sequential that fuse has changed its class back; whether it is one."""
    if not isinstance(module, Sequential) or _stands_for(type(module)) is None:
        return False
    vars(module).pop("_tconv_folds", None)
    _change_class(module, _stands_for)
    return True


def restore(model: torch.nn.Module) -> Restored:
    """Undoes replace, and freeze and fuse with it: every layer of tconv's gets back the class that it had, and those
    that were made as tconv's become PyTorch's. Subclasses of tconv's classes are left, and named in the answer.

    Args:
        model (torch.nn.Module): the model, or a layer.

    Returns:
        Restored: what became of each layer of tconv's.

    Raises:
        TypeError: the model is no module.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.ConvTranspose2d(16, 8, 4)
        >>> tconv.torch.restore(layer).restored
        ['']
        >>> type(layer) is torch.nn.ConvTranspose2d
        True
    """
    restored: list[str] = []
    left: dict[str, str] = {}
    for name, module in modules_of(model, "restore"):
        if unfuse_one(module) or not (is_ours(module) or isinstance(module, Streamed)):
            continue
        kind = type(module).__bases__[0] if _is_parametrized(module) else type(module)
        if _stands_for(kind) is None:
            left[name] = f"its class {kind.__qualname__} is a subclass of tconv's"
            continue
        vars(module).pop("_tconv_packed", None)
        why = _change_class(module, _stands_for)
        if why is None:
            restored.append(name)
        else:
            left[name] = why
    return Restored(restored, left)
