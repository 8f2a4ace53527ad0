"""What the graph pass has decided in this process, layer by layer."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections import Counter
from typing import Any

from . import _reasons
from ._reasons import Reason

_PARTS = re.compile(r"\['?([^'\]]+)'?\]|\.(\w+)")
# Layers whose names are kept; all are counted.
_KEPT = 1000


@dataclasses.dataclass(frozen=True)
class FusionReport:
    """What the graph pass did to layers of compiled programs. str() says it in words.

    Attributes:
        fused (dict): of the layers that compute what follows them the names, with the post-ops; of those that are not
            computed, because the mean or the sum over the image is all that is needed, with what is in their place.
        left (dict): of the other layers the names, with the reason.
        joined (dict): of the layers that store into concatenations the names, with those of the concatenations.
        copied (dict): of the layers whose results are copied into concatenations the names, with the reason.
    """

    fused: dict[str, str]
    left: dict[str, str]
    joined: dict[str, str] = dataclasses.field(default_factory=dict)
    copied: dict[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name}: fused with {post}" for name, post in self.fused.items()]
        lines += [f"{name}: left, {why}" for name, why in self.left.items()]
        lines += [f"{name}: stores into {cats}" for name, cats in self.joined.items()]
        lines += [f"{name}: copied, {why}" for name, why in self.copied.items()]
        return "\n".join(lines) or "no transposed convolution"


_lock = threading.Lock()
_fused: dict[str, str] = {}
_left: dict[str, str] = {}
_joined: dict[str, str] = {}
_copied: dict[str, str] = {}
_counts: Counter[str] = Counter()


def fused(name: str, post: str) -> None:
    _put((_fused, _left), name, post, "fused")


def left(name: str, reason: Reason) -> None:
    _put((_left, _fused), name, reason.text, reason.cause)


def joined(name: str, cats: str) -> None:
    _put((_joined, _copied), name, cats, "joined")


def copied(name: str, reason: Reason) -> None:
    _put((_copied, _joined), name, reason.text, reason.cause)


def count(cause: str) -> None:
    with _lock:
        _counts[cause] += 1


def _put(into: tuple[dict[str, str], dict[str, str]], name: str, text: str, cause: str) -> None:
    """Into the first one, under a name that neither has."""
    with _lock:
        _counts[cause] += 1
        if sum(map(len, into)) >= _KEPT:
            return
        number, unique = 1, name
        while any(unique in each for each in into):
            number += 1
            unique = f"{name} ({number})"
        into[0][unique] = text


def counts() -> dict[str, int]:
    with _lock:
        return dict(_counts)


_reasons.graph_by.append(counts)


def fusion_report() -> FusionReport:
    """What the pass of fusion_options has done in this process until now. A program that PyTorch finds in its cache
    is not looked at again.

    Returns:
        FusionReport: what became of each layer.

    Examples::

        >>> import tconv.torch
        >>> report = tconv.torch.fusion_report()
        >>> sorted(vars(report))
        ['copied', 'fused', 'joined', 'left']
    """
    with _lock:
        return FusionReport(dict(_fused), dict(_left), dict(_joined), dict(_copied))


def clear() -> None:
    with _lock:
        for kept in (_fused, _left, _joined, _copied):
            kept.clear()


def name_of(layer: Any) -> str:
    """A layer's name in the model where the graph knows it, else the node's. The graph has a path of attributes and
    subscripts, as L['self']._modules['up'].layer."""
    stack = layer.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()), ("",))[0] if stack else ""
    parts = [first or second for first, second in _PARTS.findall(path)]
    while parts and parts[0] in ("self", "fn"):
        parts.pop(0)
    return ".".join(part for part in parts if part != "_modules") or layer.name
