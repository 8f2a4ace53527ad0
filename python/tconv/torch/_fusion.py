"""The graph pass for torch.compile: how it is asked for, and what it says of what it did. PyTorch's compiler is
imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _fusion_record as record

# The setting of PyTorch's compiler that holds passes over the joint graph.
_HOOK = "joint_custom_post_pass"


def _pass(before: Any, replace: bool) -> Any:
    """The pass behind others; None where this PyTorch has no place for it."""
    try:
        from torch._inductor import config

        from ._fusion_pass import FusionPass
    except ImportError:
        record.count("no hook")
        return None
    if not hasattr(config, _HOOK):
        record.count("no hook")
        return None
    return FusionPass(before, replace)


def fusion_options(*, replace: bool = False) -> dict[str, Any]:
    """Options of torch.compile with which layers compute what follows them: normalizations in evaluation, activations,
    numbers, tensors of channels, one residual. In training those activations alone whose derivative follows from their
    result: ReLU, LeakyReLU, clamp, tanh, sigmoid, ELU. In inference the mean or the sum over the image of what a layer
    answers is computed from sums of the layer's input, without the layer.

    A pass over graphs that is set in torch._inductor.config when this is called runs before tconv's.

    Args:
        replace (bool): PyTorch's own transposed convolutions in the program become tconv's, too, in one and two
            dimensions.

    Returns:
        dict: options, to which others can be added; empty where this PyTorch has no place for the pass.

    Raises:
        Nothing.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        >>> model = torch.nn.Sequential(layer, torch.nn.ReLU()).eval()
        >>> compiled = torch.compile(model, options=tconv.torch.fusion_options())
    """
    made = _pass(_set_before(), replace)
    return {} if made is None else {_HOOK: made}


def _set_before() -> Any:
    """What is set in PyTorch, but for tconv's pass."""
    try:
        from torch._inductor import config

        from ._fusion_pass import without
    except ImportError:
        return None
    return without(getattr(config, _HOOK, None))


def fuse_compiled(on: bool = True, *, replace: bool = False) -> None:
    """Has every torch.compile of this process from now on do what fusion_options says, or do so no more.

    Args:
        on (bool): whether.
        replace (bool): as of fusion_options.

    Raises:
        Nothing.

    Examples::

        >>> import tconv.torch
        >>> tconv.torch.fuse_compiled()
        >>> tconv.torch.fuse_compiled(False)
    """
    before = _set_before()
    made = _pass(before, replace) if on else before
    if made is not None or not on:
        from torch._inductor import config

        if hasattr(config, _HOOK):
            setattr(config, _HOOK, made)


def compile_with_fusion(
    model: Any, inputs: Sequence[Any], *, mode: str | None = None, options: dict[str, Any] | None = None, **more: Any
) -> Callable[..., Any]:
    """torch.compile's backend of the name "tconv": PyTorch's own, "inductor", with fusion_options. More is what newer
    versions of PyTorch tell backends, as the name of a program."""
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    patches = dict(list_mode_options(mode)) if mode else {}
    patches.update({key.replace("-", "_"): value for key, value in (options or {}).items()})
    if _HOOK in patches:  # the caller's pass, before tconv's
        made = _pass(patches[_HOOK], False)
        patches.update({} if made is None else {_HOOK: made})
    else:
        patches.update(fusion_options())
    compiled: Any = compile_fx(model, inputs, config_patches=patches)
    return compiled
