"""What follows a layer in a graph of torch.compile, as post-ops: a chain of values, each computed of the one before
alone, of numbers, tensors of channels, and at most one tensor of the result's shape.

A chain is grown step by step, the longest form first (_fusion_forms.py), as long as nothing else needs what a step
leaves in memory no more. Its longest part whose last value has the layer's dtype is what is fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from .. import _library as lib
from . import _fusion_backward
from ._fusion_forms import Bound, Graph, Template, match, name_of, templates
from ._fusion_vectors import Vector, folded
from ._reasons import Reason

# Nodes that a form may be spread over, and raw steps in a row before they are folded.
_FORM_NODES = 32
_CHAIN_STEPS = 64
_NOTHING = Reason("nothing follows", "nothing follows it")
_CONVERSIONS = frozenset({"convert_element_type", "_to_copy", "alias", "clone"})
# These of a node's meta data describe the value: a node that takes over another's meta data does not take these.
_OF_VALUE = ("val", "tensor_meta", "example_value", "eager_input_vals", "arg_kwarg_vals", "original_output_strides")
_SIXTEEN_BITS = frozenset({torch.float16, torch.bfloat16})

Writer = Callable[..., fx.Node]


class Step(NamedTuple):
    """A post-op: for its kinds with operands the tensor of the graph, or that of channels."""

    kind: int
    alpha: float = 0.0
    beta: float = 0.0
    tensor: fx.Node | None = None  # of the result's shape
    vectors: tuple[Vector, ...] = ()


class Grown(NamedTuple):
    """A step of a chain, as it was found."""

    steps: tuple[Step, ...]
    value: fx.Node  # what comes out
    nodes: frozenset[fx.Node]  # what is computed no more, the value among them
    rewrites: tuple[_fusion_backward.Rewrite, ...]  # other users of what goes in, which can do with what comes out


class Found(NamedTuple):
    """What can be fused: the list, the value that it computes, and the nodes and rewrites of all of its steps."""

    steps: tuple[Step, ...]
    value: fx.Node
    nodes: frozenset[fx.Node]
    rewrites: tuple[_fusion_backward.Rewrite, ...]


def value_of(node: Any) -> Any:
    """The fake tensor of a node; None where it is none."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, Tensor) else None


def same_sizes(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether they are known to be the same, symbols of dynamic shapes among them."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return len(first) == len(second) and all(statically_known_true(a == b) for a, b in zip(first, second, strict=True))


def arguments_of(node: fx.Node) -> list[Any]:
    """All of an operator's arguments, in order."""
    target: Any = node.target
    arguments = list(node.args)
    for argument in target._schema.arguments[len(arguments) :]:
        arguments.append(node.kwargs.get(argument.name, argument.default_value))
    return arguments


def writer(graph: fx.Graph, layer: fx.Node, emitted: list[fx.Node]) -> Writer:
    """A function that puts an operator into a graph, in a layer's place, and notes the operator."""

    def call(target: Any, *arguments: Any, **more: Any) -> fx.Node:
        node = graph.call_function(target, arguments, more)
        emitted.append(node)
        node.meta = {key: value for key, value in layer.meta.items() if key not in _OF_VALUE}
        with value_of(layer).fake_mode:
            node.meta["val"] = target(*fx.map_arg(arguments, lambda each: each.meta["val"]), **more)
        return node

    return call


def erase(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    """Takes nodes out of a graph, of which none is used by a node that stays."""
    for node in reversed(nodes):
        graph.erase_node(node)


def is_trained(graph: fx.Graph) -> bool:
    """Whether a graph has a backward pass."""
    return any(node.op == "placeholder" and "tangent" in node.name for node in graph.nodes)


class Chain(Graph):
    """The chain behind one layer."""

    def __init__(self, layer: fx.Node, spatial: int) -> None:
        self.layer = layer
        self.spatial = spatial
        self.result = value_of(layer)
        self.channels = self.result.shape[-spatial - 1]
        self.dtype = self.result.dtype
        self.value = layer
        self.why = _NOTHING

    # ------------------------------------------------------------------------------------------ what matching asks

    def is_variable(self, node: Any) -> bool:
        return node is self.value

    def without_conversions(self, node: Any) -> tuple[Any, frozenset[fx.Node]]:
        between: set[fx.Node] = set()
        while isinstance(node, fx.Node) and node is not self.value and self.is_conversion(node):
            between.add(node)
            node = node.args[0]
        return node, frozenset(between)

    def is_conversion(self, node: fx.Node) -> bool:
        """Whether it changes between the layer's dtype of 16 bits and float32, or nothing."""
        if not node.args or not isinstance(node.args[0], fx.Node):
            return False
        name = name_of(node)
        if name not in _CONVERSIONS and not (name in ("mul", "div") and self.number(node.args[1]) == 1):
            return False
        before, after = value_of(node.args[0]), value_of(node)
        if before is None or after is None or before.device != after.device:
            return False
        if before.dtype is after.dtype:
            return same_sizes(before.stride(), after.stride())
        return {before.dtype, after.dtype} == {torch.float32, self.dtype} and self.dtype in _SIXTEEN_BITS

    def is_of_channels(self, node: Any) -> bool:
        """Whether it has one number for each channel, or one for all, of a dtype that becomes that of sums exactly."""
        tensor = value_of(node)
        of_sums = torch.float64 if self.dtype is torch.float64 else torch.float32
        if tensor is None or not tensor.dtype.is_floating_point or tensor.device != self.result.device:
            return False
        if torch.promote_types(tensor.dtype, of_sums) is not of_sums or tensor.dim() > self.result.dim():
            return False
        at = tensor.dim() - self.spatial - 1
        return all(
            same_sizes((size,), (self.channels if i == at and not same_sizes((size,), (1,)) else 1,))
            for i, size in enumerate(tensor.shape)
        )

    def number(self, value: Any) -> float | None:
        if isinstance(value, bool):
            return None
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, fx.Node):
            value, _ = self.without_conversions(value)
            if name_of(value) in ("full", "scalar_tensor"):
                number, made = value.args[-1], value_of(value)
                if isinstance(number, (int, float)) and made is not None and made.dtype.is_floating_point:
                    return float(torch.tensor(number, dtype=made.dtype, device="cpu").item())
        return None

    # --------------------------------------------------------------------------------------------------- growing

    def grow(self) -> Found | None:
        """What can be fused; None where nothing can, and why says the reason."""
        found: Found | None = None
        steps: tuple[Step, ...] = ()
        nodes: frozenset[fx.Node] = frozenset()
        while len(steps) < _CHAIN_STEPS:
            grown = self._next()
            if grown is None:
                break
            self.value = grown.value
            self._take_conversion()
            steps, nodes = steps + grown.steps, nodes | grown.nodes | {self.value}
            found = self._ended(steps, nodes, grown.rewrites) or found
            if grown.rewrites:
                break
        return found

    def _ended(
        self, steps: tuple[Step, ...], nodes: frozenset[fx.Node], rewrites: tuple[_fusion_backward.Rewrite, ...]
    ) -> Found | None:
        """What is to be fused where the chain ends here; None where it cannot end here."""
        result = value_of(self.value)
        if result.dtype is not self.dtype:
            self.why = Reason("dtype", f"what follows it is of {result.dtype}")
        elif not same_sizes(result.stride(), self.result.stride()):
            self.why = Reason("strides", f"{self.value.name} behind it lies in other strides")
        else:
            listed = folded(steps, Step)
            addends = sum(step.kind == lib.POST_ADD_TENSOR for step in listed)
            if len(listed) <= lib.MAX_POST_OPS and addends <= 1:
                return Found(listed, self.value, nodes, rewrites)
            self.why = Reason("length", "more follows it than a list has room for")
        return None

    def _take_conversion(self) -> None:
        """Where all that a value in float32 becomes is one of the layer's dtype, the chain goes on there."""
        users = list(self.value.users)
        if value_of(self.value).dtype is not self.dtype and len(users) == 1 and self.is_conversion(users[0]):
            self.value = users[0]

    def _next(self) -> Grown | None:
        reasons = []
        for steps, value, bound in (*self._forms(), *self._single()):
            nodes = bound.nodes | {value}
            rewrites = self._rest_of_users(nodes, value, steps)
            if isinstance(rewrites, Reason):
                reasons.append(rewrites)
            elif not same_sizes(value_of(value).shape, self.result.shape):
                reasons.append(Reason("shape", f"{value.name} behind it has another shape"))
            else:
                return Grown(steps, value, nodes, rewrites)
        self.why = reasons[0] if reasons else self._why_not()
        return None

    def _cone(self) -> list[fx.Node]:
        """What is computed of the value, in a few steps, last ones first."""
        found: dict[fx.Node, None] = {}
        waiting = list(self.value.users)
        while waiting and len(found) < _FORM_NODES:
            node = waiting.pop(0)
            if node.op == "call_function" and node not in found and value_of(node) is not None:
                found[node] = None
                waiting += node.users
        return list(found)[::-1]

    def _forms(self) -> Iterator[tuple[tuple[Step, ...], fx.Node, Bound]]:
        """Those that stand in the graph behind the value, larger ones first."""
        found = []
        known = templates()
        for node in self._cone():
            for template in known.get(name_of(node), ()):
                if self.dtype in template.kind.dtypes:
                    bounds = match(template.form, node, self, Bound())
                    found += [(template, node, bound) for bound in bounds]
        found.sort(key=lambda each: -each[0].size)
        for template, node, bound in found:
            yield (self._step(template, bound),), node, bound

    def _step(self, template: Template, bound: Bound) -> Step:
        kind = template.kind
        alpha, beta = (bound.number(name, kind.default) for name in kind.numbers)
        if kind.kind == lib.POST_CLAMP and alpha > beta:
            alpha = beta  # as PyTorch has it
        return Step(kind.kind, alpha, beta, vectors=tuple(Vector(node) for _, node in sorted(set(bound.tensors))))

    def _rest_of_users(
        self, nodes: frozenset[fx.Node], value: fx.Node, steps: tuple[Step, ...]
    ) -> tuple[_fusion_backward.Rewrite, ...] | Reason:
        """What becomes of those who use what would be computed no more; why it has to be computed."""
        rewrites: list[_fusion_backward.Rewrite] = []
        for node in (self.value, *nodes):
            if node is value:
                continue
            for user in node.users:
                if user in nodes:
                    continue
                rewrite = _fusion_backward.rewrite(user, node, self, steps[-1]) if self._is_value(node) else None
                if rewrite is None:
                    what = "it" if self._is_value(node) and self.value is self.layer else f"{node.name} behind it"
                    who = "the program, which returns it" if user.op == "output" else user.name
                    return Reason("needed", f"{what} is needed by {who}, too")
                rewrites += rewrite
        return tuple(rewrites)

    def _why_not(self) -> Reason:
        users = list(self.value.users)
        if self.value is not self.layer or all(user.op == "output" for user in users):
            return _NOTHING
        if len(users) > 1:
            return Reason("needed", f"{len(users)} operators use it: {', '.join(user.name for user in users[:4])}")
        return Reason("no post-op", f"{name_of(users[0]) or users[0].name} follows it, which is no post-op here")

    # ------------------------------------------------------------------------------------------ steps of one operator

    def _single(self) -> Iterator[tuple[tuple[Step, ...], fx.Node, Bound]]:
        """Steps that are one operator."""
        for user, between in self._users():
            steps = self._steps_of(user)
            if steps is not None:
                yield steps, user, Bound(nodes=between | {user})

    def _users(self) -> Iterator[tuple[fx.Node, frozenset[fx.Node]]]:
        """Those who use the value, as it is or converted, with the conversions."""
        waiting: list[tuple[fx.Node, frozenset[fx.Node]]] = [(self.value, frozenset())]
        while waiting:
            node, between = waiting.pop()
            for user in node.users:
                if user.op != "call_function" or value_of(user) is None:
                    continue
                if self.is_conversion(user):
                    waiting.append((user, between | {user}))
                else:
                    yield user, between

    def _is_value(self, node: Any) -> bool:
        return self.without_conversions(node)[0] is self.value

    def _steps_of(self, user: fx.Node) -> tuple[Step, ...] | None:
        name, arguments = name_of(user), user.args
        scale = user.kwargs.get("alpha", 1)
        if set(user.kwargs) - {"alpha"} or not isinstance(scale, (int, float)):
            return None
        if name == "neg":
            return (Step(lib.POST_LINEAR, -1.0),)
        if name in ("clamp", "clamp_min", "clamp_max"):
            bounds = (None, arguments[1]) if name == "clamp_max" else (*arguments[1:], None)[:2]
            return self._clamped(*bounds) if self._is_value(arguments[0]) else None
        if len(arguments) != 2 or self._is_value(arguments[0]) == self._is_value(arguments[1]):
            return None
        first = self._is_value(arguments[0])
        other = arguments[1] if first else arguments[0]
        if name == "rsub":
            name, first = "sub", not first
        if name in ("maximum", "minimum"):
            return self._clamped(*((other, None) if name == "maximum" else (None, other)))
        if name == "mul":
            return self._multiplied(other)
        if name == "div" and first:
            return self._divided(other)
        if name == "add":
            return self._added(other, scale, 1.0) if first or scale == 1 else None
        if name == "sub":
            if first:
                return self._added(other, -scale, 1.0)
            return self._added(other, 1, -1.0) if scale == 1 else None
        return None

    def _clamped(self, low: Any, high: Any) -> tuple[Step, ...] | None:
        """Between two numbers, None where there is none. The upper one counts where it is below the other."""
        lowest = -math.inf if low is None else self.number(low)
        highest = math.inf if high is None else self.number(high)
        if lowest is None or highest is None or math.isnan(lowest) or math.isnan(highest):
            return None
        return (Step(lib.POST_CLAMP, min(lowest, highest), highest),)

    def _multiplied(self, other: Any) -> tuple[Step, ...] | None:
        number = self.number(other)
        if number is not None:
            return (Step(lib.POST_LINEAR, number),) if math.isfinite(number) else None
        return (Step(lib.POST_MUL_CHANNEL, vectors=(Vector(other),)),) if self.is_of_channels(other) else None

    def _divided(self, other: Any) -> tuple[Step, ...] | None:
        """By a number, where PyTorch multiplies by the reciprocal, too, or where that is exact."""
        number = self.number(other)
        if number is None or number == 0 or not math.isfinite(number):
            return None
        of_sums = torch.float64 if self.dtype is torch.float64 else torch.float32
        reciprocal = (1 / torch.tensor(number, dtype=of_sums, device="cpu")).item()
        exact = abs(math.frexp(number)[0]) == 0.5
        as_cuda = self.result.device.type == "cuda" and isinstance(other, (int, float))
        if not (exact or as_cuda) or not math.isfinite(reciprocal) or reciprocal == 0:
            return None
        return (Step(lib.POST_LINEAR, reciprocal),)

    def _added(self, other: Any, scale: float, sign: float) -> tuple[Step, ...] | None:
        """sign * y + scale * other."""
        number = self.number(other)
        if number is not None:
            beta = scale * number
            return (Step(lib.POST_LINEAR, sign, beta),) if math.isfinite(beta) else None
        before = () if sign == 1 else (Step(lib.POST_LINEAR, sign),)
        if self.is_of_channels(other):
            return (*before, Step(lib.POST_ADD_CHANNEL, vectors=(Vector(other, scale),)))
        tensor, _ = self.without_conversions(other)
        scaled = self._scaled(tensor)
        if scaled is not None:
            tensor, factor = scaled
            scale = scale * factor
        if not self._is_addend(tensor):
            return None
        return (*before, Step(lib.POST_ADD_TENSOR, float(scale), tensor=tensor))

    def _scaled(self, node: Any) -> tuple[fx.Node, float] | None:
        """A tensor and the number that it is multiplied by here, and nowhere else."""
        if isinstance(node, fx.Node) and name_of(node) == "mul" and len(node.users) == 1 and not node.kwargs:
            number = self.number(node.args[1])
            if number is not None and isinstance(node.args[0], fx.Node) and math.isfinite(number):
                return self.without_conversions(node.args[0])[0], number
        return None

    def _is_addend(self, node: Any) -> bool:
        """Whether it is of the result's shape and dtype, and in memory anyway: what Inductor would compute in the loop
        that adds it costs more written and read."""
        tensor = value_of(node)
        if tensor is None or tensor.dtype is not self.dtype or tensor.device != self.result.device:
            return False
        if not same_sizes(tensor.shape, self.result.shape):
            return False
        if node.op != "call_function":
            return True
        is_pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
        return not is_pointwise or len(node.users) > 1
