"""torch.nn.Sequential whose layers compute what follows them, where that makes no difference but for the time.

Nothing is decided when a model is fused but the class of its Sequentials: each call looks at the modules as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _of_all

from .. import _library as lib
from .. import post
from ..post import PostOp
from ._functional import is_watched, try_fused
from ._modules import LAYERS, arguments_of, spatial_axes
from ._packed import optimizer_steps
from ._post import Prepared, fused_as_prepared, prepared
from ._reasons import DTYPES, PLAIN, gains_with_layer

_SPATIAL: dict[type, int] = {nn.BatchNorm1d: 1, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3}
# In evaluation they answer what they are given.
_NOTHING = frozenset({nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d})
_ACTIVATIONS: dict[type, Callable[[Any], PostOp]] = {
    nn.ReLU: lambda module: post.relu(),
    nn.ReLU6: lambda module: post.clamp(0, 6),
    nn.LeakyReLU: lambda module: post.leaky_relu(module.negative_slope),
    nn.Hardtanh: lambda module: post.clamp(module.min_val, module.max_val),
    nn.ELU: lambda module: post.elu(module.alpha),
    nn.GELU: lambda module: post.gelu(module.approximate),
    nn.SiLU: lambda module: post.silu(),
    nn.Mish: lambda module: post.mish(),
    nn.Tanh: lambda module: post.tanh(),
    nn.Sigmoid: lambda module: post.sigmoid(),
    nn.Softplus: lambda module: post.softplus(),
    nn.Hardswish: lambda module: post.hardswish(),
}
# What is above PyTorch's threshold Softplus gives back as it is. From here on that is log(1 + exp(y)) rounded to
# float32, and so to fewer bits.
_SOFTPLUS_THRESHOLD = 17
# Of a module; the first two may change what others see of it, and all may be set at any time.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
HOOKS_OF_ALL = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
_NORMS_KEPT = 64
_FORWARDS = tuple(layer.forward for layer in LAYERS)


# --------------------------------------------------------------------------------------------------- what can be fused


def why_watched(module: nn.Module) -> str | None:
    """Why a module has to be called by itself: somebody looks at what it is given or answers."""
    state = vars(module)
    if any(state.get(hooks) for hooks in _HOOKS):
        return "has hooks"
    if "forward" in state or state.get("_compiled_call_impl") is not None:
        return "has a forward of its own"
    return None


def why_not_layer(layer: nn.Module) -> str | None:
    """Why a layer of tconv's cannot compute what follows it."""
    why = why_watched(layer)
    if why is None and type(layer).forward not in _FORWARDS:
        why = "has a class with a forward of its own"
    return why


def why_not_follower(module: Any, spatial: int, out_channels: int) -> str | None:
    """Why a module behind a layer cannot be computed with it, in evaluation."""
    kind = type(module)
    why = why_watched(module)
    if why is not None or kind in _NOTHING:
        return why
    if kind in _SPATIAL:
        return _why_not_norm(module, spatial, out_channels)
    if kind not in _ACTIVATIONS:
        return f"is a {kind.__name__}, which is no post-op"
    if kind is nn.Softplus and not (module.beta == 1 and module.threshold >= _SOFTPLUS_THRESHOLD):
        return f"has beta = {module.beta} and threshold = {module.threshold}: must be 1 and {_SOFTPLUS_THRESHOLD}"
    return None


def _why_not_norm(norm: Any, spatial: int, out_channels: int) -> str | None:
    if norm.running_mean is None or norm.running_var is None:
        return "has no running statistics, and takes those of the batch"
    if _SPATIAL[type(norm)] != spatial or norm.num_features != out_channels:
        return (
            f"is of {norm.num_features} channels and {_SPATIAL[type(norm)]} axes, the layer of {out_channels} and "
            + (f"{spatial}")
        )
    return None


def followers(modules: Sequence[nn.Module], layer: Any) -> list[nn.Module]:
    """Those of the modules behind a layer that can be computed with it, up to the first that cannot, and no more than
    a list of post-ops has room for."""
    found: list[nn.Module] = []
    steps = 0
    for module in modules:
        steps += 0 if type(module) in _NOTHING else 2 if type(module) in _SPATIAL else 1
        if steps > lib.MAX_POST_OPS or why_not_follower(module, spatial_axes(layer), layer.out_channels) is not None:
            break
        found.append(module)
    return found if any(type(module) not in _NOTHING for module in found) else []


# ------------------------------------------------------------------------------------------------- normalizations


class _Fold(NamedTuple):
    tensors: tuple[Tensor | None, ...]  # kept, so that no other gets the identity of one
    state: tuple[Any, ...]
    scale_and_shift: tuple[Tensor, Tensor]


class Folds:
    """What normalizations do to each channel, by module, made anew where a module has changed. A copy of it, or one
    that was pickled, starts with none."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, torch.dtype], _Fold] = {}
        self.recipes: dict[tuple[int, torch.dtype, int], _Recipe] = {}

    def __reduce__(self) -> Any:
        return Folds, ()

    def __deepcopy__(self, memo: Any) -> Folds:
        return Folds()

    def scale_and_shift(self, norm: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        tensors = (norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.num_batches_tracked)
        there = [tensor for tensor in tensors if tensor is not None]
        # An inference tensor has no version. What a graph captures is to see the module as it is then.
        if any(t.is_inference() for t in there) or (there[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            return _fold(norm, dtype)
        state = (norm.eps, optimizer_steps(), *((t.data_ptr(), t._version) for t in there))
        kept = self._kept.get((id(norm), dtype))
        if kept is not None and kept.state == state and all(a is b for a, b in zip(kept.tensors, tensors, strict=True)):
            return kept.scale_and_shift
        made = _fold(norm, dtype)
        if there[0].is_cuda:
            torch.cuda.current_stream(there[0].device).synchronize()  # other streams may use it from now on
        if len(self._kept) >= _NORMS_KEPT:
            self._kept.clear()
        self._kept[id(norm), dtype] = _Fold(tensors, state, made)
        return made


@torch.no_grad()
def _fold(norm: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The normalization by running statistics as y * scale + shift."""
    scale = torch.rsqrt(norm.running_var.double() + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    shift = -norm.running_mean.double() * scale
    if norm.bias is not None:
        shift = shift + norm.bias.double()
    return scale.to(dtype), shift.to(dtype)


# ------------------------------------------------------------------------------------------------------------ the calls

# What a post-op is made of.
_NUMBERS: dict[type, tuple[str, ...]] = {
    nn.LeakyReLU: ("negative_slope",),
    nn.Hardtanh: ("min_val", "max_val"),
    nn.ELU: ("alpha",),
    nn.GELU: ("approximate",),
    nn.Softplus: ("beta", "threshold"),
}


class _Recipe:
    """What a call has found out of a layer and the modules behind it, for the next one to see whether it holds."""

    def __init__(
        self, layer: Any, behind: Sequence[nn.Module], after: nn.Module | None, norms: Sequence[Any], made: Prepared
    ) -> None:
        self.behind = tuple(behind)
        self.after = after
        self.norms = norms
        self.made = made
        self.parameters = [p for norm, _ in norms for p in (norm.weight, norm.bias) if p is not None]
        self._modules = [(module, type(module), vars(module)) for module in (layer, *behind)]
        self._values = [(vars(m), name, vars(m)[name]) for m in behind for name in _NUMBERS.get(type(m), ())]
        for norm, _ in norms:
            self._values += [(norm._buffers, name, norm._buffers[name]) for name in ("running_mean", "running_var")]

    def holds(self, modules: Sequence[nn.Module], at: int) -> bool:
        """Whether these, from the layer at this place on, are the modules, nobody looks at one, and none has changed,
        but for normalizations."""
        kept = self._modules
        end = at + len(kept)
        if (modules[end] if end < len(modules) else None) is not self.after or end > len(modules):
            return False
        for module, (expected, kind, state) in zip(modules[at:end], kept, strict=True):
            if module is not expected or type(module) is not kind or state["training"] or "forward" in state:
                return False
            if state["_forward_hooks"] or state["_forward_pre_hooks"] or state["_backward_hooks"]:
                return False
            if state.get("_backward_pre_hooks") or state.get("_compiled_call_impl") is not None:
                return False
        if kept[0][1].forward not in _FORWARDS:
            return False
        return all(state.get(name) is value for state, name, value in self._values)


class Sequential(nn.Sequential):
    """torch.nn.Sequential, in which layers of tconv's compute what follows them where no gradients are wanted. All
    other calls are those of PyTorch's class."""

    _tconv_folds = None  # Folds; TorchScript knows no annotation for it

    def forward(self, input):  # type: ignore[no-untyped-def]
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            for module in self:
                input = module(input)
            return input
        else:
            return self._computed_by_tconv(input)

    @torch.jit.unused
    def _computed_by_tconv(self, input: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or any(getattr(_of_all, hooks) for hooks in HOOKS_OF_ALL):
            return super().forward(input)
        if self._tconv_folds is None:
            self._tconv_folds = Folds()  # type: ignore[assignment]
        folds: Any = self._tconv_folds
        modules = list(self._modules.values())
        done = 0
        while done < len(modules):
            module: Any = modules[done]
            done += 1
            fused = None
            if isinstance(module, LAYERS) and type(input) in PLAIN:
                recipe = folds.recipes.get((id(module), input.dtype, input.dim()))
                if recipe is not None and recipe.holds(modules, done - 1):
                    fused = _as_before(module, recipe, input, folds)
                if fused is None:
                    fused = _with_followers(module, modules[done:], input, folds)
            if fused is None:
                input = module(input)
            else:
                input, count = fused
                done += count
        return input


def _as_before(layer: Any, recipe: _Recipe, input: Tensor, folds: Folds) -> tuple[Tensor, int] | None:
    """The same by what an earlier call has found out; None where the call has to look again."""
    spatial = spatial_axes(layer)
    arguments = arguments_of(layer, spatial, input, None)
    weight = arguments[1]
    for norm, scale_and_shift in recipe.norms:
        if not _is_of(norm, weight, input.dim() - spatial):
            return None
        if folds.scale_and_shift(norm, _of_sums(input.dtype)) is not scale_and_shift:
            return None
    if is_watched((*arguments[:3], *recipe.parameters), spatial) or torch.is_autocast_enabled(input.device.type):
        return None
    answer = fused_as_prepared(spatial, arguments, recipe.made, layer._tconv_packed)
    return None if answer is None else (answer, len(recipe.behind))


def _of_sums(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def _with_followers(layer: Any, behind: Sequence[nn.Module], input: Tensor, folds: Folds) -> tuple[Tensor, int] | None:
    """The answer of a layer and of the modules behind it, and how many these are; None where each is to be called."""
    if why_not_layer(layer) is not None:
        return None
    rest, behind = behind, followers(behind, layer)
    if not behind or layer.training or any(module.training for module in behind):
        return None
    spatial = spatial_axes(layer)
    arguments = arguments_of(layer, spatial, input, None)
    dtype, parameters = input.dtype, []
    steps: list[PostOp] = []
    norms = []
    for module in behind:
        kind = type(module)
        if kind in _SPATIAL:
            norm: Any = module
            parameters += [tensor for tensor in (norm.weight, norm.bias) if tensor is not None]
            if not _is_of(norm, arguments[1], input.dim() - spatial):
                return None
            norms.append((norm, folds.scale_and_shift(norm, _of_sums(dtype))))
            scale, shift = norms[-1][1]
            steps += [post.mul_channel(scale), post.add_channel(shift)]
        elif kind in _ACTIVATIONS:
            # PyTorch's threshold is too low for float64, and autocast has this one in float32
            if kind is nn.Softplus and (dtype is torch.float64 or torch.is_autocast_enabled(input.device.type)):
                return None
            steps.append(_ACTIVATIONS[kind](module))
    if torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters):
        return None
    device = input.device.type
    computed = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else dtype
    if not gains_with_layer((step.kind for step in steps), device, computed, compiled=False):
        return None
    answer = try_fused(spatial, arguments, tuple(steps), layer._tconv_packed)
    if answer is None:
        return None
    after = rest[len(behind)] if len(behind) < len(rest) else None
    # One behind that may be a follower at another time is to be looked at in every call.
    if (
        dtype in DTYPES
        and type(after) not in _SPATIAL
        and type(after) not in _ACTIVATIONS
        and type(after) not in _NOTHING
    ):
        if len(folds.recipes) >= _NORMS_KEPT:
            folds.recipes.clear()
        made = _Recipe(layer, behind, after, norms, prepared(steps, dtype))
        folds.recipes[id(layer), dtype, input.dim()] = made
    return answer, len(behind)


def _is_of(norm: Any, weight: Tensor, axes_before: int) -> bool:
    """Whether PyTorch would take the normalization of such a layer's result."""
    mean = norm.running_mean
    return axes_before == 2 and mean.device == weight.device and mean.dtype in (torch.float32, weight.dtype)
