"""conv_transpose1d and conv_transpose2d for NumPy arrays and everything that speaks DLPack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments, _arrays, _cuda, _host


def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    out: Any = None,
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
) -> Any:
    """2-D transposed convolution, as torch.nn.functional.conv_transpose2d defines it.

    x: (N, C, H, W) or (C, H, W); weight: (C, out_channels / groups, kh, kw); bias: (out_channels,) or None. NumPy
    arrays, or arrays of any library that speaks DLPack, all on one device and of one dtype: float32, float64, float16,
    or bfloat16 where the library has it. Axes are always in this order, whatever the memory: an x that lies as (N, H,
    W, C) is computed so, and so lies the result.

    stride, output_padding, dilation: an integer, or two for rows and columns. padding: also ((top, bottom), (left,
    right)), the rows and columns that are cut off the result. Integers are Python's, NumPy's and those of arrays
    without axes; booleans are none.
    out: where to write; returned. It must have the result's shape and dtype, and may be a slice of a larger array.
    Without it the result is a new array of x's library.
    backend: "auto" (where x lives), "cpu" or "cuda"; NumPy arrays are copied to the GPU and back where it is forced.
    math: how float32 is multiplied: "strict", "tf32" (CUDA may round the factors to 11 bits), or "default" (what the
    environment variable TCONV_MATH says, "strict" if it is not set).
    threads: of the CPU, at most; None: what TCONV_NUM_THREADS says, else every core that this process may use.

    On the host, arrays are read and written as they lie where images and channels, or images and pixels, are at any
    distance and rows are dense; any other is copied once. CUDA arrays have to lie so. CUDA work is ordered on the
    current stream of CuPy or PyTorch for their arrays, on the legacy default stream for those of others.

    Raises a tconv.TconvError, which names the field at fault and the rule.
    """
    return _conv_transpose(
        2, x, weight, bias, out, backend, math, threads, stride, padding, output_padding, groups, dilation
    )


def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    out: Any = None,
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
) -> Any:
    """1-D transposed convolution, as torch.nn.functional.conv_transpose1d defines it.

    x: (N, C, L) or (C, L); weight: (C, out_channels / groups, width); an x that lies as (N, L, C) is computed so.
    stride, output_padding, dilation: an integer, or a sequence of one; padding: also ((left, right),). All else is as
    in conv_transpose2d, which computes it as a layer of height 1: errors speak of in_w, stride_w, pad_left and so on.
    """
    return _conv_transpose(
        1, x, weight, bias, out, backend, math, threads, stride, padding, output_padding, groups, dilation
    )


def _conv_transpose(
    spatial: int,
    x: Any,
    weight: Any,
    bias: Any,
    out: Any,
    backend: Any,
    math: Any,
    threads: Any,
    *sizes: Any,
) -> Any:
    arguments = _arguments.of_layer(spatial, *sizes)
    choices = _arguments.choices(backend, math, threads)
    given = {"x": x, "weight": weight, "bias": bias, "out": out}
    device = _arrays.common_device(given)
    if device is None:
        return _host.conv_transpose(spatial, given, arguments, *choices)
    return _cuda.conv_transpose(device, spatial, given, arguments, *choices)
