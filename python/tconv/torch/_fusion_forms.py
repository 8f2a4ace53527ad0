"""The forms in which activations stand in a graph of torch.compile: made by tracing PyTorch's own decompositions of its
functions, so that what PyTorch makes of a function and what is looked for change together.

A form is a tree of what is computed of one variable. Numbers that a post-op has as its own, and its tensors of
channels, have names in it. Conversions between a dtype of 16 bits and float32 are no part of a form, nor are steps that
change nothing, which PyTorch removes from graphs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import fx

from .. import _library as lib

# A value that is the variable, a number by its value, a number or a tensor by its name, or what an operator is called
# with.
Form = tuple[Any, ...]
_VARIABLE: Form = ("variable",)

# What stands for numbers and tensors while a function is traced: exact in float32, and found nowhere in a formula. The
# last one is above the threshold from which PyTorch's Softplus is exact in float32.
_NUMBERS = {-0.37109375: "low", 0.52734375: "high", 0.43359375: "alpha", 17.37109375: "threshold"}
_LOW, _HIGH, _ALPHA, _THRESHOLD = _NUMBERS
# Above PyTorch's threshold Softplus gives back what it is given: from here on that is right in float32.
_LEAST_THRESHOLD = 17
_COMMUTE = frozenset({"add", "mul", "maximum", "minimum", "bitwise_or", "logical_and", "bitwise_and", "logical_or"})


class Kind(NamedTuple):
    """A post-op as functions of PyTorch's: of the variable, and of the tensors of channels that it has."""

    kind: int
    functions: tuple[Callable[..., Any], ...]
    numbers: tuple[str, str] = ("", "")  # the names of alpha and beta; "" is 0
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    channels: int = 0
    default: float = 0.0  # of alpha, where a form has no number for it


_NOT_DOUBLE = (torch.float32, torch.float16, torch.bfloat16)
KINDS = (
    Kind(
        lib.POST_GELU,
        (
            F.gelu,
            lambda y: y * 0.5 * (1.0 + torch.erf(y / math.sqrt(2.0))),
            lambda y: 0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0))),
        ),
    ),
    Kind(lib.POST_GELU_TANH, (lambda y: F.gelu(y, approximate="tanh"),)),
    Kind(lib.POST_SILU, (F.silu, lambda y: y * torch.sigmoid(y))),
    Kind(lib.POST_MISH, (F.mish, lambda y: y * torch.tanh(F.softplus(y)))),
    Kind(lib.POST_SOFTPLUS, (F.softplus, lambda y: F.softplus(y, 1, _THRESHOLD)), dtypes=_NOT_DOUBLE),
    Kind(lib.POST_ELU, (lambda y: F.elu(y, _ALPHA), F.elu), ("alpha", ""), default=1.0),
    Kind(lib.POST_HARDSWISH, (F.hardswish, lambda y: y * F.relu6(y + 3) / 6)),
    Kind(
        lib.POST_CLAMP,
        (
            lambda y: F.hardtanh(y, _LOW, _HIGH),
            lambda y: torch.clamp(y, _LOW, _HIGH),
        ),
        ("low", "high"),
    ),
    Kind(lib.POST_LEAKY_RELU, (lambda y: F.leaky_relu(y, _ALPHA),), ("alpha", "")),
    Kind(lib.POST_LEAKY_RELU, (F.relu,)),
    Kind(lib.POST_SIGMOID, (torch.sigmoid,)),
    Kind(lib.POST_TANH, (torch.tanh,)),
    Kind(
        lib.POST_SNAKE,
        (
            lambda y, a, b: y + b * torch.sin(a * y).pow(2),
            lambda y, a, b: y + b * torch.sin(a * y).square(),
            lambda y, a, b: y + torch.sin(a * y).pow(2) * b,
        ),
        channels=2,
    ),
)


class Template(NamedTuple):
    form: Form
    kind: Kind

    @property
    def size(self) -> int:
        return _size(self.form)


def _size(form: Any) -> int:
    return 1 + sum(_size(each) for each in form[1]) if len(form) == 2 and isinstance(form[1], tuple) else 0


# ------------------------------------------------------------------------------------------------------------- tracing


@functools.lru_cache(1)
def templates() -> dict[str, list[Template]]:
    """All of them by the operator that comes last, larger ones first. A function that this PyTorch cannot trace has
    none."""
    found: dict[str, list[Template]] = {}
    seen = set()
    for kind in KINDS:
        for function in kind.functions:
            form = _traced(function, kind.channels)
            if form is not None and (form, kind.kind) not in seen and len(form) == 2:
                seen.add((form, kind.kind))
                found.setdefault(form[0], []).append(Template(form, kind))
    for each in found.values():
        each.sort(key=lambda template: -template.size)
    return found


def _traced(function: Callable[..., Any], channels: int) -> Form | None:
    """What PyTorch makes of a function under torch.compile."""
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, make_fx

    try:
        with (
            unset_fake_temporarily(),
            disable_proxy_modes_tracing(),
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
        ):
            tensors = [torch.ones(1, 3, 2, 2, device="cpu", dtype=torch.float32)]
            tensors += [torch.ones(3, 1, 1, device="cpu", dtype=torch.float32) for _ in range(channels)]
            # The tracer wants a function without arguments that have defaults.
            traced = function if channels else lambda y: function(y)
            graph = make_fx(traced, decomposition_table=select_decomp_table())(*tensors).graph
    except Exception:
        return None
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    leaves = {inputs[0]: _VARIABLE, **{node: ("tensor", i) for i, node in enumerate(inputs[1:])}}
    (result,) = (node.args[0] for node in graph.nodes if node.op == "output")
    return _form_of(result, leaves)


def _form_of(value: Any, leaves: dict[fx.Node, Form]) -> Form | None:
    if isinstance(value, (int, float)):
        name = _NUMBERS.get(value)
        return ("number", float(value)) if name is None else ("named", name)
    if value in leaves:
        return leaves[value]
    if not isinstance(value, fx.Node) or value.op != "call_function":
        return None
    if name_of(value) in ("convert_element_type", "alias", "clone"):
        return _form_of(value.args[0], leaves)
    parts = [_form_of(each, leaves) for each in value.args]
    if value.kwargs or None in parts:
        return None
    name = name_of(value)
    if len(parts) == 2 and parts[1] == ("number", _NEUTRAL.get(name)):
        return parts[0]
    if len(parts) == 2 and name == "mul" and parts[0] == ("number", 1.0):
        return parts[1]
    return (name, tuple(parts))


# PyTorch removes these steps from graphs.
_NEUTRAL = {"mul": 1.0, "div": 1.0, "add": 0.0, "sub": 0.0}


# ------------------------------------------------------------------------------------------------------------ matching


def name_of(node: fx.Node) -> str:
    """The operator's name without namespace and overload; "" where it is none."""
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else schema.name.rpartition(":")[2]


class Bound(NamedTuple):
    """What a form's names are in a graph, and the nodes that it takes there, the variable not among them."""

    numbers: tuple[tuple[str, float], ...] = ()
    tensors: tuple[tuple[int, fx.Node], ...] = ()
    nodes: frozenset[fx.Node] = frozenset()

    def number(self, name: str, default: float) -> float:
        return dict(self.numbers).get(name, default) if name else 0.0


class Graph:
    """What matching asks of a graph."""

    def is_variable(self, node: Any) -> bool:
        raise NotImplementedError

    def without_conversions(self, node: Any) -> tuple[Any, frozenset[fx.Node]]:
        """What was converted, and the nodes that convert it."""
        raise NotImplementedError

    def is_of_channels(self, node: Any) -> bool:
        raise NotImplementedError

    def number(self, value: Any) -> float | None:
        """A number, or the one of which a tensor is full."""
        raise NotImplementedError


def match(form: Form, value: Any, graph: Graph, bound: Bound) -> Iterator[Bound]:
    """The ways in which a value in a graph is of this form."""
    if form == _VARIABLE or not isinstance(value, fx.Node) or not graph.is_variable(value):
        value, between = graph.without_conversions(value)
        bound = bound._replace(nodes=bound.nodes | between)
    if form == _VARIABLE:
        if graph.is_variable(value):
            yield bound
        return
    what, parts = form
    if what in ("number", "named"):
        yield from _match_number(what, parts, graph.number(value), bound)
    elif what == "tensor":
        if graph.is_of_channels(value) and dict(bound.tensors).get(parts, value) is value:
            yield bound._replace(tensors=(*bound.tensors, (parts, value)))
    elif isinstance(value, fx.Node) and value.op == "call_function" and name_of(value) == what and not value.kwargs:
        if graph.is_variable(value) or len(value.args) != len(parts):
            return
        bound = bound._replace(nodes=bound.nodes | {value})
        yield from _match_all(parts, value.args, graph, bound)
        if what in _COMMUTE:
            yield from _match_all(parts, value.args[::-1], graph, bound)


def _match_number(what: str, expected: Any, value: float | None, bound: Bound) -> Iterator[Bound]:
    if value is None:
        return
    if what == "number":
        if value == expected:
            yield bound
    elif dict(bound.numbers).get(expected, value) == value and (expected != "threshold" or value >= _LEAST_THRESHOLD):
        yield bound._replace(numbers=(*bound.numbers, (expected, value)))


def _match_all(parts: tuple[Form, ...], values: tuple[Any, ...], graph: Graph, bound: Bound) -> Iterator[Bound]:
    if not parts:
        yield bound
        return
    for first in match(parts[0], values[0], graph, bound):
        yield from _match_all(parts[1:], values[1:], graph, first)
