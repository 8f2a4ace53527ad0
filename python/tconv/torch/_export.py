"""Programs that were captured with tconv's operators and are to have PyTorch's in place of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._compute import PYTORCHS
from ._gradient_operators import DATA_OPERATORS, WEIGHTS_OPERATORS, data_by_pytorch, weights_by_pytorch
from ._operator import OPERATORS
from ._post_operator import POST_OPERATORS, one_after_the_other
from ._stream_operator import OPERATOR, PURE_OPERATOR, by_pytorch, in_place_by_pytorch


def decompositions() -> dict[Any, Callable[..., Any]]:
    """tconv's operators as PyTorch's: a table for ExportedProgram.run_decompositions, make_fx and whatever else takes
    decompositions. What such a program became loads and runs without tconv.

    PyTorch's table of all decompositions does not have them: torch.compile, which calls operators as they are,
    refuses one that has an entry there wherever the environment variable CI is set.

    A functional program keeps conv_transpose1d_step, which changes its state in place, inside of an operator of
    PyTorch's: capture conv_transpose1d_step_pure, or within portable().

    Returns:
        dict: operators, and what computes the same by PyTorch's.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.ConvTranspose2d(3, 2, 4).eval()
        >>> program = torch.export.export(layer, (torch.ones(1, 3, 8, 8),))
        >>> "tconv" in program.graph_module.code
        True
        >>> "tconv" in program.run_decompositions(tconv.torch.decompositions()).graph_module.code
        False
    """
    layers: dict[Any, Callable[..., Any]] = {operator: PYTORCHS[spatial] for spatial, operator in OPERATORS.items()}
    layers |= {operator: _with_posts(spatial) for spatial, operator in POST_OPERATORS.items()}
    data = dict.fromkeys(DATA_OPERATORS.values(), data_by_pytorch)
    steps: dict[Any, Callable[..., Any]] = {OPERATOR: in_place_by_pytorch, PURE_OPERATOR: by_pytorch}
    return {**layers, **steps, **data, **dict.fromkeys(WEIGHTS_OPERATORS.values(), weights_by_pytorch)}


def _with_posts(spatial: int) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        *of_layer, post, operands = arguments
        return one_after_the_other(spatial, PYTORCHS[spatial], of_layer, post, operands)

    return call
