"""The kernels of tconv's operators on the CPU and on CUDA: the shim's, which computes what it knows where nothing is
derived from and nothing looks on (native/torch_operators.c), and asks operators here for all else; where there is no
shim, what these call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# The kernels of the first two come first: they say whether there is a shim that works.
from . import (
    _backward,  # noqa: F401
    _eager,  # noqa: F401
    _gradient_operators,
    _native,
    _operator,
    _post_operator,
    _reasons,
    _stream_operator,
    _tools,
)
from ._raised import keeping

_library = torch.library.Library("tconv", "FRAGMENT")


def _define(name: str, schema: str, kernel: Callable[..., Any], autograd_kernel: Callable[..., Any]) -> None:
    below, above = f"{name}_below_autograd", f"{name}_at_autograd"
    _library.define(below + schema)
    _library.impl(below, keeping(kernel), "CompositeExplicitAutograd")
    _library.impl(below, torch.library.fallthrough_kernel, "Autograd")
    _library.define(above + schema)
    _library.impl(above, keeping(autograd_kernel), "Autograd", with_keyset=True)


_tools.register_when_there()
_kernels = _operator.kernels + _post_operator.kernels + _gradient_operators.kernels + _stream_operator.kernels
for _name, _schema, _kernel, _autograd_kernel in _kernels:
    _define(_name, _schema, _kernel, _autograd_kernel)


def _shim_works() -> bool:
    """Whether a call reaches the shim and comes back, and the second one needs no Python."""
    one, sizes = torch.ones(1, 1, 1, 1), ([1, 1], [1, 1], [0, 0], 1, [1, 1])
    layer = (one, one, None, [1, 1], [0, 0], [0, 0], 1, [1, 1])
    taken, gradients = _native.taken(), _native.gradients()
    try:
        with torch.no_grad():
            answers = [
                answer.item()
                for _ in range(2)
                for answer in (
                    torch.ops.tconv.conv_transpose2d.default(one, one, stride=[1, 1]),
                    torch.ops.tconv.conv_transpose2d_post.default(
                        *layer, "add_channel linear(1.0, -1.0)", [one[0, 0, 0]]
                    ),
                    torch.ops.tconv.conv_transpose1d_step.default(one[0], one[0], None, one.new_empty(1, 1, 0), 1),
                    torch.ops.tconv.conv_transpose2d_backward_data.default(one, one, *sizes, False),
                    *torch.ops.tconv.conv_transpose2d_backward_weights.default(one, one, *sizes, [True, True], False),
                )
            ]
    except Exception:
        return False
    return answers == [1] * 12 and (_native.taken() - taken, _native.gradients() - gradients) in ((3, 2), (4, 2))


_reasons.fused_by.append(_native.fused)
if not (_native.install_operators() and _shim_works()):
    _native.uninstall_operators()
    for _name, _, _kernel, _ in _kernels:
        for _device in ("CPU", "CUDA"):
            _library.impl(_name, _kernel, _device)
