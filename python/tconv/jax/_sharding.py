"""The call, and how it is split over devices: by images, in equal parts. An operand that is split along channels or the
layer's own axes is gathered first. The gradient of the weights is the sum of the gradients of the parts."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import string
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from .. import _library as lib
from ._layer import Layer
from ._shim import TARGETS, workspace_size

# Whether the operands of an operation and its result have images. A bias comes third, with one axis.
_HAVE_IMAGES = {
    lib.OP_FORWARD: ((True, False), True),
    lib.OP_BACKWARD_DATA: ((True, False), True),
    lib.OP_BACKWARD_WEIGHTS: ((True, True), False),
}


def _rule(op: int, rank: int, count: int) -> str:
    """Shardy's rule, a letter for each axis of the operands and the result: n stands for images."""
    letters = (letter for letter in string.ascii_lowercase if letter != "n")

    def axes(has_images: bool) -> str:
        return " ".join([*"n"[:has_images], *itertools.islice(letters, rank - has_images)])

    operands, result = _HAVE_IMAGES[op]
    given = [axes(has_images) for has_images in operands]
    if count == 3:
        given.append(next(letters))
    return f"{', '.join(given)} -> {axes(result)}"


def call(op: int, layer: Layer, platform: str, *operands: jax.Array) -> jax.Array:
    """tconv's, on one device. The workspace is a result that nobody reads, so that XLA provides it."""
    src, weights, result = layer.shapes(op, operands[0].shape, operands[1].shape)
    dtype = operands[0].dtype
    words = layer.words(op, dtype, src, weights, platform)
    size = workspace_size(words, platform)
    results = jax.ShapeDtypeStruct(result, dtype), jax.ShapeDtypeStruct((size,), np.uint8)
    return jax.ffi.ffi_call(TARGETS[op], results)(*operands, layer=np.array(words, np.int64))[0]


def _without_mesh() -> contextlib.AbstractContextManager[Any]:
    """For what a device computes of a part. Some versions of JAX (0.8.0, 0.11.2) trace it in the caller's thread, where
    `jax.set_mesh` may have set a mesh of explicit axes, and then put a sharding on the addition of a psum, which XLA
    refuses. Others (0.9.1, 0.10.2) trace it in a thread of XLA's own, which knows no mesh."""
    use = getattr(jax.sharding, "use_abstract_mesh", None)  # JAX 0.6.1 has no such name, nor jax.set_mesh
    return use(AbstractMesh((), ())) if use else contextlib.nullcontext()


@functools.cache
def partitioned(op: int, layer: Layer, platform: str, count: int) -> Callable[..., jax.Array]:
    """The call of an operation with so many operands, which JAX's partitioners may split."""
    rule = _rule(op, layer.rank, count)
    operands, result = (text.strip() for text in rule.split("->"))
    has_images = [text.strip().startswith("n") for text in operands.split(",")]

    def shardings(mesh: Any, shapes: Sequence[Any]) -> tuple[Any, list[NamedSharding], NamedSharding]:
        """The mesh's axes along which images are split, and the shardings of operands and result that follow."""
        specs = [shape.sharding.spec for shape, has in zip(shapes, has_images, strict=True) if has and shape.sharding]
        images = next((spec[0] for spec in specs if spec and spec[0] is not None), None)

        def split(rank: int, by_images: bool) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*[images][:by_images], *[None] * (rank - by_images)))

        ranks = [len(text.split()) for text in operands.split(",")]
        return (
            images,
            [split(*of) for of in zip(ranks, has_images, strict=True)],
            split(layer.rank, result.startswith("n")),
        )

    def infer(mesh: Any, shapes: Sequence[Any], of_result: Any) -> NamedSharding:
        return shardings(mesh, shapes)[2]

    def partition(mesh: Any, shapes: Sequence[Any], of_result: Any) -> tuple[Any, Any, Any, Any]:
        images, of_operands, of_result = shardings(mesh, shapes)

        def part(*arrays: jax.Array) -> jax.Array:
            with _without_mesh():
                answer = call(op, layer, platform, *arrays)
                return lax.psum(answer, images) if op == lib.OP_BACKWARD_WEIGHTS and images else answer

        return mesh, part, of_result, tuple(of_operands)

    function = custom_partitioning(functools.partial(call, op, layer, platform))
    more: dict[str, Any] = {}
    if "need_replication_factors" in inspect.signature(function.def_partition).parameters:
        more["need_replication_factors"] = tuple(sorted(set(rule) & set(string.ascii_lowercase) - {"n"}))
    function.def_partition(partition=partition, infer_sharding_from_operands=infer, sharding_rule=rule, **more)
    return function
