"""Lists of post-ops without their operands, each made once: what plans are found by, and operators have as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import _library as lib
from .. import _posts
from .._plan import Cache
from ..post import PostOp

_NAMES = {
    lib.POST_ADD_CHANNEL: "add_channel",
    lib.POST_MUL_CHANNEL: "mul_channel",
    lib.POST_ADD_TENSOR: "add",
    lib.POST_LINEAR: "linear",
    lib.POST_CLAMP: "clamp",
    lib.POST_LEAKY_RELU: "leaky_relu",
    lib.POST_SIGMOID: "sigmoid",
    lib.POST_TANH: "tanh",
    lib.POST_SILU: "silu",
    lib.POST_GELU: "gelu",
    lib.POST_GELU_TANH: "gelu_tanh",
    lib.POST_MISH: "mish",
    lib.POST_ELU: "elu",
    lib.POST_SOFTPLUS: "softplus",
    lib.POST_HARDSWISH: "hardswish",
    lib.POST_SNAKE: "snake",
}
_KINDS = {name: kind for kind, name in _NAMES.items()}
# How many numbers a kind has.
_NUMBERS = {
    lib.POST_ADD_TENSOR: 1,
    lib.POST_LINEAR: 2,
    lib.POST_CLAMP: 2,
    lib.POST_LEAKY_RELU: 1,
    lib.POST_ELU: 1,
}
WITH_OPERAND = frozenset({lib.POST_ADD_CHANNEL, lib.POST_MUL_CHANNEL, lib.POST_ADD_TENSOR, lib.POST_SNAKE})


class PostList(NamedTuple):
    """The steps of a list, without their tensors."""

    steps: tuple[PostOp, ...]
    key: bytes  # what a plan depends on
    operands: tuple[int | None, ...]  # by step: which of the list's operands it has, counted from 0
    addend: int | None  # the step that has an operand of the result's shape


_lists: Cache[PostList] = Cache()
_texts: Cache[PostList] = Cache()


def listed(posts: Sequence[PostOp]) -> PostList:
    """The list that these steps are."""
    key = _posts.key(posts)
    found = _lists.get(key)
    return _lists.make(key, lambda: _make(posts, key)) if found is None else found


def _make(posts: Sequence[PostOp], key: bytes) -> PostList:
    operands: list[int | None] = []
    count = 0
    for step in posts:
        operands.append(count if step.kind in WITH_OPERAND else None)
        count += step.kind in WITH_OPERAND
    steps = tuple(PostOp(step.kind, step.alpha, step.beta) for step in posts)
    addends = [i for i, step in enumerate(steps) if step.kind == lib.POST_ADD_TENSOR]
    return PostList(steps, key, tuple(operands), addends[0] if addends else None)


def as_text(posts: Sequence[PostOp]) -> str:
    """The list without its tensors, to be read by of_text and by people: "linear(2.0, 0.0) tanh"."""
    return " ".join(_step_as_text(step) for step in posts)


def _step_as_text(step: PostOp) -> str:
    numbers = (step.alpha, step.beta)[: _NUMBERS.get(step.kind, 0)]
    return _NAMES[step.kind] + (f"({', '.join(map(repr, map(float, numbers)))})" if numbers else "")


def of_text(text: str) -> PostList:
    """The list that as_text made this text of; raises ValueError for another one."""
    found = _texts.get(text)
    return _texts.make(text, lambda: listed([_step_of_text(step) for step in _split(text)])) if found is None else found


def _split(text: str) -> list[str]:
    return text.replace(", ", ",").split()


def _step_of_text(text: str) -> PostOp:
    name, _, numbers = text.partition("(")
    values = [float(number) for number in numbers.rstrip(")").split(",")] if numbers else []
    kind = _KINDS.get(name)
    if kind is None or len(values) != _NUMBERS.get(kind, 0):
        raise ValueError(f"post has {text!r}: must be the name of a post-op with its numbers, as in 'linear(2.0, 0.0)'")
    alpha, beta = (*values, 0.0, 0.0)[:2]
    return PostOp(kind, alpha, beta)
