"""Plan: a layer whose weights are packed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from . import _arguments, _arrays, _cuda, _errors, _host, _posts
from . import _library as lib
from ._packed_layer import PackedLayer
from ._types import Array, Padding, Sizes, SupportsDLPack
from .post import PostOp


class Plan:
    """A layer for inference: the weights are packed once, the implementation is chosen once, and plan(x) computes.

    A plan takes what conv_transpose2d takes, with the shape of x in place of x, and is of this one shape, batch size
    included: by it the implementation is chosen. Make one for each that occurs. A plan never changes, and any number of
    threads may call it at once. Its copy is itself; it cannot be pickled. tconv.reload_environment() does not change
    it. On CUDA the weights are packed on the stream that is current when the plan is made: before calls on other
    streams, let those wait for it.

    Args:
        x_shape: the shape of x.
        weight: the kernel, of NumPy or any library that speaks DLPack, on the host or on a CUDA device. It is copied,
            as the bias is: what is written to them later is not seen. x lives where they do and is of their dtype.
        bias: what is added to each output channel, or None.
        stride: as in conv_transpose2d, or in conv_transpose1d where weight has three axes and conv_transpose3d where
            it has five; so are all that follow.
        padding: what is cut off the result.
        output_padding: what is more at its lower and right end.
        groups: parts of the channels.
        dilation: distance of the kernel's taps.
        channels_last: x and the result lie as (N, H, W, C) in memory, (N, L, C) in 1-D, (N, D, H, W, C) in 3-D; the
            order of their axes stays.
        backend: "auto", "cpu" or "cuda"; a plan copies nothing between host and device.
        math: "default", "strict" or "tf32".
        threads: of the CPU, at most.
        post: what every output goes through before it is stored, a list of what tconv.post makes. What they have for
            channels is copied on the host, and read where it lies on CUDA; post.add() has no array here, which comes
            with each call.

    Shape:
        - x_shape: (N, C, H, W) or (C, H, W); with a weight of three axes (N, C, L) or (C, L), of five
          (N, C, D, H, W) or (C, D, H, W)
        - weight: (C, out_channels / groups, kh, kw), (C, out_channels / groups, width) or
          (C, out_channels / groups, kd, kh, kw)
        - bias: (out_channels,)

    Attributes:
        input_shape: of x.
        output_shape: of the result.
        dtype: its name.
        implementation: which one of the library computes, "cpu_..." or "cuda_...".
        workspace_size: the bytes that a call needs beside x and the result, of its own or of its thread.

    Raises:
        tconv.TconvError: names the field at fault and the rule.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> plan = tconv.Plan((1, 3, 8, 8), np.ones((3, 2, 4, 4), np.float32), stride=2, padding=1)
        >>> plan(np.ones((1, 3, 8, 8), np.float32)).shape == plan.output_shape == (1, 2, 16, 16)
        True
    """

    __slots__ = ("_device", "_packed")

    def __init__(
        self,
        x_shape: Sequence[int],
        weight: SupportsDLPack,
        bias: SupportsDLPack | None = None,
        stride: Sizes = 1,
        padding: Padding = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
        *,
        channels_last: bool = False,
        backend: str = "auto",
        math: str = "default",
        threads: int | None = None,
        post: Sequence[PostOp] | None = None,
    ) -> None:
        shape = _arguments.integers("x_shape", x_shape)
        sizes = (stride, padding, output_padding, groups, dilation)
        layout = lib.NHWC if _arguments.flag("channels_last", channels_last) else lib.NCHW
        options = _host.new_options(
            _arguments.choice("backend", backend, _arguments.BACKENDS), _arguments.thread_count(threads)
        )
        posts = _posts.as_list(post, of_plan=True)
        math_code = _arguments.choice("math", math, _arguments.MATHS)

        def layer_with(weight_shape: tuple[int, ...]) -> PackedLayer:
            spatial = _arrays.spatial_of(len(weight_shape))
            _arrays.check_x_rank("x_shape", spatial, len(shape))
            arguments = _arguments.of_layer(spatial, *sizes)
            return PackedLayer(shape, weight_shape, arguments, layout, math_code, posts)

        given = {"weight": weight, "bias": bias}
        self._device = _arrays.common_device({**given, **_posts.named_operands(posts)})
        self._packed: _host.Packed | _cuda.Packed
        if self._device is None:
            self._packed = _host.Packed(given, layer_with, options)
        else:
            self._packed = _cuda.Packed(self._device, given, layer_with, options)

    def __call__(self, x: Array, *, out: Array | None = None, addend: SupportsDLPack | None = None) -> Array:
        """The result, in out if it is given, else a new array of x's library. On the host x and out may lie in any way:
        what does not lie as the plan has it is copied. CUDA arrays have to be dense, in the plan's order.

        Args:
            x: of the plan's input_shape and dtype, where the weight was.
            out: where to write, of the plan's output_shape.
            addend: what the add of the plan's post adds, of output_shape.

        Raises:
            tconv.TconvError: names the array at fault and the rule.
        """
        given = {"x": x, "out": out, "addend": addend}
        device = _arrays.common_device(given)
        if device != self._device:
            where = _arrays.device_name
            raise _errors.invalid("x", f"x is on {where(device)}: must be where the plan is, on {where(self._device)}")
        return self._packed(given)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self._packed.layer.x_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self._packed.output_shape

    @property
    def dtype(self) -> str:
        return _arrays.DTYPE_NAMES[self._packed.dtype]

    @property
    def implementation(self) -> str:
        return self._packed.plan.implementation

    @property
    def workspace_size(self) -> int:
        return self._packed.plan.total_workspace_size

    def __copy__(self) -> Plan:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a tconv.Plan cannot be pickled: make it anew, from its weights")

    def __repr__(self) -> str:
        layer = self._packed.layer
        stride, padding, output_padding, groups, dilation = layer.arguments
        parts = [
            f"{self.input_shape} -> {self.output_shape}",
            f"weight={layer.weight_shape}",
            f"stride={stride}",
            f"padding={padding}",
            f"output_padding={output_padding}",
            f"groups={groups}",
            f"dilation={dilation}",
            self.dtype,
            "channels last" if layer.layout == lib.NHWC else "channels first",
            f"{self.implementation} on {_arrays.device_name(self._device)}",
            f"workspace_size={self.workspace_size}",
        ]
        return f"<tconv.Plan {', '.join(parts)}>"
