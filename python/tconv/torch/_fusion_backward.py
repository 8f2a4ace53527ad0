"""Backward nodes that read what goes into an activation, as the same of what comes out: what training needs for an
activation to be fused with its layer. Only what comes out is in memory then, which is kept in place of what goes in."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx

from .. import _library as lib
from ._fusion_forms import name_of

# Whether the value is above or at most 0 the result says, too; whether it is less than 0 does not, for what is small
# may have become 0.
_OF_SIGN = frozenset({"gt", "le"})


class Rewrite(NamedTuple):
    """A node, and the argument of it that is to be the result in place of the value: or the exponential function of the
    value, which is to be (result + alpha) / alpha."""

    node: fx.Node
    alpha: float | None = None


def rewrite(user: fx.Node, value: fx.Node, chain: Any, step: Any) -> list[Rewrite] | None:
    """What a user of the value, which goes into the step, has to become; None where it needs the value."""
    if user.op != "call_function":
        return None
    if chain.is_conversion(user):
        found: list[Rewrite] = []
        for each in user.users:
            below = rewrite(each, user, chain, step)
            if below is None:
                return None
            found += [one for one in below if one.alpha is not None]
        return [Rewrite(user), *found]
    name = name_of(user)
    if name in ("gt", "ge", "lt", "le") and len(user.args) == 2 and user.args[0] is value:
        number = chain.number(user.args[1])
        return [Rewrite(user)] if number is not None and _is_the_same(name, number, step, chain.dtype) else None
    if name == "exp" and _is_of_elu(user, chain, step):
        return [Rewrite(user, step.alpha)]
    return None


def _is_the_same(name: str, number: float, step: Any, dtype: torch.dtype) -> bool:
    """Whether a comparison of the value with a number gives what that of the result gives."""
    if step.kind in (lib.POST_LEAKY_RELU, lib.POST_ELU):
        # A slope of 0, as ReLU's, leaves the sign, too; an ELU of 0 does as well, but it is none.
        return step.alpha >= 0 and number == 0 and name in _OF_SIGN
    if step.kind != lib.POST_CLAMP:
        return False
    # A bound that the dtype does not have is rounded: up or down. In float32 the comparison rounds it as well.
    if dtype in (torch.float16, torch.bfloat16) and torch.tensor(number, dtype=dtype, device="cpu").item() != number:
        return False
    low, high = step.alpha, step.beta
    return low <= number < high if name in ("gt", "le") else low < number <= high


def _is_of_elu(exp: fx.Node, chain: Any, step: Any) -> bool:
    """Whether exp(z) is in ELU's derivative alone, where z is at most 0: where(z <= 0, (...) * exp(z), ...). In 16 bits
    too few digits of it are left in the result."""
    if step.kind != lib.POST_ELU or step.alpha <= 0 or chain.dtype not in (torch.float32, torch.float64):
        return False
    for product in exp.users:
        if name_of(product) != "mul" or product.args.count(exp) != 1:
            return False
        for where in product.users:
            if name_of(where) != "where" or where.args[1] is not product or where.args[2] is product:
                return False
            condition: Any = where.args[0]
            if (
                name_of(condition) != "le"
                or not chain._is_value(condition.args[0])
                or chain.number(condition.args[1]) != 0
            ):
                return False
    return True
