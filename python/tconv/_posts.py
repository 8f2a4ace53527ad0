"""A list of post-ops on its way to the library."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from . import _errors
from . import _library as lib
from ._plan import Cache
from .post import PostOp

_OPERANDS = {lib.POST_ADD_CHANNEL: 1, lib.POST_MUL_CHANNEL: 1, lib.POST_ADD_TENSOR: 1, lib.POST_SNAKE: 2}
_pack = struct.Struct("=qdd").pack


def as_list(post: Any, *, of_plan: bool = False) -> tuple[PostOp, ...]:
    """The argument of this name; None and an empty sequence are no post-ops. A plan is given its addend later."""
    if post is None:
        return ()
    if isinstance(post, (PostOp, str, bytes)) or not isinstance(post, Sequence):
        raise _errors.wrong_dtype("post", f"post is a {type(post).__name__}: must be a list of what tconv.post makes")
    for i, step in enumerate(post):
        if not isinstance(step, PostOp):
            kind = type(step).__name__
            raise _errors.wrong_dtype(f"post[{i}]", f"post[{i}] is a {kind}: must be what tconv.post's functions make")
        of_call = of_plan and step.kind == lib.POST_ADD_TENSOR
        due = 0 if of_call else _OPERANDS.get(step.kind, 0)
        if len(step.operands) != due:
            why = ", for a plan is given it with each call" if of_call else ""
            raise _errors.invalid(f"post[{i}]", f"post[{i}] has {len(step.operands)} arrays: must have {due}{why}")
    return tuple(post)


def named_operands(posts: Sequence[PostOp]) -> dict[str, Any]:
    """The arrays of all steps by the name that a mistake is told of."""
    return {name: value for i, step in enumerate(posts) for name, value in named_operands_of(i, step).items()}


def named_operands_of(index: int, step: PostOp) -> dict[str, Any]:
    return {name_of(index, j, step): value for j, value in enumerate(step.operands)}


def name_of(index: int, operand: int, step: PostOp) -> str:
    return f"post[{index}].{'ab'[operand]}" if step.kind == lib.POST_SNAKE else f"post[{index}]"


def key(posts: Sequence[PostOp]) -> bytes:
    """What a plan depends on, exactly: 0 and -0 differ."""
    return b"".join(_pack(step.kind, step.alpha, step.beta) for step in posts)


def addend(posts: Sequence[PostOp]) -> Any:
    """The operand of the step that has one of the result's shape; None where there is none."""
    return next((step.operands[0] for step in posts if step.kind == lib.POST_ADD_TENSOR), None)


def fill(desc: lib.Desc, posts: Sequence[PostOp]) -> None:
    """Gives a layer the list. One that is too long the library refuses by its count."""
    desc.post_count = len(posts)
    for i, step in enumerate(posts[: lib.MAX_POST_OPS]):
        desc.post[i].kind, desc.post[i].alpha, desc.post[i].beta = step.kind, step.alpha, step.beta


_right_lists: Cache[bool] = Cache()


def check(posts: Sequence[PostOp]) -> None:
    """Raises what is wrong with the numbers of a list, whatever the layer; operands are not looked at."""
    of_list = key(posts)
    if _right_lists.get(of_list) is None:
        desc = lib.new_desc()
        desc.batch = desc.in_channels = desc.in_h = desc.in_w = 1
        desc.out_channels = desc.kernel_h = desc.kernel_w = 1
        fill(desc, posts)
        lib.output_shape(desc)
        _right_lists.make(of_list, lambda: True)
