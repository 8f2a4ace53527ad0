"""The module of a layer that runs over whole inputs, and over inputs that come in chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from . import _stream
from ._functional import conv_transpose1d
from ._stream_operator import tail_of

torch.fx.wrap("conv_transpose1d")  # as in __init__.py

_TRIMS = ("right", "both", None)


class StreamingConvTranspose1d(torch.nn.ConvTranspose1d):
    """A ConvTranspose1d of a decoder that gets its input in chunks. Parameters, initialisation and state_dict are those
    of torch.nn.ConvTranspose1d. A call is the one call for a whole input; inside of `with layer.streaming(batch):` it
    is the next chunk, and the results of all chunks, joined, with what flush() gives at the end, are those of the one
    call. Outside of streaming the layer has gradients; inside it computes under torch.no_grad() or
    torch.inference_mode().

    Let total = dilation * (kernel_size - 1) + 1 - stride, what the one call has beyond stride outputs for each input.

    Args:
        in_channels (int): channels of the input.
        out_channels (int): channels of the result.
        kernel_size (int or tuple): of the weight.
        stride (int or tuple): of the input's elements in the result.
        padding (int or tuple): what is cut off on both sides where trim is None; else 0.
        output_padding (int or tuple): elements more at the result's right end where trim is None; else 0.
        groups (int): parts of the channels that are computed each by itself.
        bias (bool): whether there is a bias.
        dilation (int or tuple): distance of the kernel's taps.
        padding_mode (str): "zeros" alone.
        device, dtype: of the parameters.
        trim (str or None): what is cut off the result. "right": total on the right, the causal layer of a codec.
            "both": total // 2 on the right, the rest on the left. None: what padding and output_padding say, as
            torch.nn.ConvTranspose1d does.

    Shape:
        - input: (N, C, L), outside of streaming (C, L) too
        - result: (N, out_channels, stride * L), with trim=None as of ConvTranspose1d; of a step stride * L columns too,
          but for the first columns of a stream, as many as are cut off on the left

    Attributes:
        weight (Tensor): (C, out_channels / groups, width)
        bias (Tensor): (out_channels,), or None
        state (Tensor or None): while streaming, the unfinished sums, (batch, out_channels, max(0, total)), of float32,
            of float64 in float64. Save a copy of it; what is assigned is copied into it, and goes on with a stream
            whose first columns have been dropped.
        to_drop (int): columns of the stream that are cut off on the left, and have not come yet.

    Raises:
        RuntimeError: streaming() inside of streaming(); flush() or reset() outside; a step that wants gradients.
        ValueError: a trim that is not known, or that a stream cannot have; padding beside a trim; a reset of some
            streams where columns are cut off on the left.
        tconv.TconvError: a step's arguments, by name.

    Examples::

        >>> import torch, tconv.torch
        >>> layer = tconv.torch.StreamingConvTranspose1d(3, 2, 4, stride=2).requires_grad_(False)
        >>> frames = torch.ones(1, 3, 8)
        >>> with layer.streaming(batch=1):
        ...     chunks = [layer(frames[..., :3]), layer(frames[..., 3:])]
        >>> torch.allclose(torch.cat(chunks, -1), layer(frames), atol=1e-6)
        True
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: Any = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        trim: str | None = "right",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            bias,
            dilation,
            padding_mode,
            device,
            dtype,
        )
        if trim not in _TRIMS:
            raise ValueError(f"trim = {trim!r}: must be one of {', '.join(map(repr, _TRIMS))}")
        if trim is not None and (self.padding != (0,) or self.output_padding != (0,)):
            raise ValueError(f"padding and output_padding must be 0 with trim = {trim!r}, which says what is cut off")
        self.trim = trim
        self.to_drop = 0
        self._state: Tensor | None
        # A buffer, so that compiled programs write it where it lies, in CUDA graphs too.
        self.register_buffer("_state", None, persistent=False)
        self._of_layer = (self.stride[0], self.dilation[0], self.groups)

    def forward(  # type: ignore[override]
        self,
        input: Tensor,
        *,
        reset: Tensor | None = None,
        active: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> Tensor:
        """The result for a whole input; while streaming, the outputs of the next chunk. reset, active and slots are as
        in conv_transpose1d_step, of a step alone."""
        state = self._buffers["_state"]
        if state is None:
            if reset is not None or active is not None or slots is not None:
                raise RuntimeError("reset, active and slots are of a step: the layer is not streaming")
            return self._whole(input)
        if reset is not None and self._cuts()[0]:
            raise ValueError(self._no_part_of_a_reset())
        parameters: Any = self._parameters  # where torch.nn.Module looks for an attribute last
        of_layer = self._of_layer
        y = _stream.step(input, parameters["weight"], parameters["bias"], state, *of_layer, slots, reset, active)
        return self._without_first(y) if self.to_drop else y

    @contextlib.contextmanager
    def streaming(self, batch: int) -> Iterator[StreamingConvTranspose1d]:
        """Inside of it, calls are steps of so many streams, which begin anew."""
        if self._state is not None:
            raise RuntimeError("the layer is streaming: streaming() cannot be nested")
        left, rest = self._cuts()
        weight = self.weight
        tail = tail_of(weight.shape[2], self.stride[0], self.dilation[0])
        if not 0 <= rest <= tail:
            raise ValueError(
                f"padding = {self.padding[0]}, output_padding = {self.output_padding[0]}: a stream of this layer would "
                f"end {rest} columns after its last step, must be from 0 to {tail}; trim='right' has 0"
            )
        dtype = torch.float64 if weight.dtype is torch.float64 else torch.float32
        self._state = torch.zeros((batch, self.out_channels, tail), dtype=dtype, device=weight.device)
        self.to_drop = left
        try:
            yield self
        finally:
            self._state, self.to_drop = None, 0

    def reset(self, mask: Tensor | None = None) -> None:
        """Begins streams anew: those of the slots where mask, a bool for each, is true; all where it is None."""
        state, left = self._streamed(), self._cuts()[0]
        if mask is None:
            state.zero_()
            self.to_drop = left
        elif left:
            raise ValueError(self._no_part_of_a_reset())
        else:
            state.masked_fill_(mask.view(-1, 1, 1), 0)

    def flush(self) -> Tensor:
        """Ends all streams: the columns of the one call's result that come after those of all steps. Others may begin
        then."""
        state, (left, rest) = self._streamed(), self._cuts()
        y = _stream.flush(
            self.weight.detach(), None if self.bias is None else self.bias.detach(), state, self._of_layer
        )
        y = y[..., :rest]
        y = self._without_first(y) if self.to_drop else y
        self.to_drop = left
        return y

    @property
    def state(self) -> Tensor | None:
        return self._state

    @state.setter
    def state(self, value: Tensor) -> None:
        state = self._streamed()
        if value.shape != state.shape or value.dtype != state.dtype:
            raise ValueError(
                f"state is {tuple(value.shape)} of {value.dtype}: must be {tuple(state.shape)} of {state.dtype}"
            )
        state.copy_(value)
        self.to_drop = 0

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, trim={self.trim!r}"

    def _streamed(self) -> Tensor:
        if self._state is None:
            raise RuntimeError("the layer is not streaming: call it inside of `with layer.streaming(batch):`")
        return self._state

    def _total(self) -> int:
        return self.dilation[0] * (self.kernel_size[0] - 1) + 1 - self.stride[0]

    def _cuts(self) -> tuple[int, int]:
        """Columns that are cut off a stream on the left, and those that it has after its last step."""
        total = self._total()
        if self.trim is None:
            left = int(self.padding[0])
            return left, total - left + self.output_padding[0]
        right = total // 2 if self.trim == "both" and total > 0 else total
        return total - right, total - right

    def _without_first(self, y: Tensor) -> Tensor:
        dropped = min(self.to_drop, y.shape[-1])
        self.to_drop -= dropped
        return y[..., dropped:]

    def _whole(self, input: Tensor) -> Tensor:
        padding: Any = self.padding  # which may not be text
        of_layer = (self.groups, self.dilation)
        if self.trim is None:
            return conv_transpose1d(input, self.weight, self.bias, self.stride, padding, self.output_padding, *of_layer)
        more = max(0, -self._total())
        y = conv_transpose1d(input, self.weight, self.bias, self.stride, 0, more, *of_layer)
        left = self._cuts()[0]
        return y[..., left : left + self.stride[0] * input.shape[-1]]

    def _no_part_of_a_reset(self) -> str:
        return (
            f"{self._cuts()[0]} columns of each stream are cut off on the left, so that all have to begin at once, by "
            "reset(): take trim=None and padding=0, and drop the first columns of each stream"
        )
