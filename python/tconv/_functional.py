"""conv_transpose1d, conv_transpose2d and conv_transpose3d for NumPy arrays and everything that speaks DLPack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments, _arrays, _cuda, _host, _posts
from ._types import Array, Padding, Sizes, SupportsDLPack
from .post import PostOp


def conv_transpose2d(
    x: Array,
    weight: SupportsDLPack,
    bias: SupportsDLPack | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    out: Array | None = None,
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
    post: Sequence[PostOp] | None = None,
) -> Array:
    """2-D transposed convolution, as torch.nn.functional.conv_transpose2d defines it.

    Arrays are NumPy's, or those of any library that speaks DLPack, all on one device and of one dtype: float32,
    float64, float16, or bfloat16 where the library has it. Axes are always in the order below, whatever the memory: an
    x that lies as (N, H, W, C) is computed so, and so lies the result. Integers are Python's, NumPy's and those of
    arrays without axes; booleans are none.

    Args:
        x: the input.
        weight: the kernel.
        bias: what is added to each output channel, or None.
        stride: of the input's pixels in the result, an integer, or two for rows and columns.
        padding: rows and columns that are cut off the result: an integer, (rows, columns), or ((top, bottom), (left,
            right)).
        output_padding: rows and columns more at the result's lower and right end.
        groups: parts of the channels that are computed each by itself.
        dilation: distance of the kernel's taps.
        out: where to write. It must have the result's shape and dtype, and may be a slice of a larger array.
        backend: "auto" (where x lives), "cpu" or "cuda"; NumPy arrays are copied to the GPU and back where it is
            forced.
        math: how float32 is multiplied: "strict", "tf32" (CUDA may round the factors to 11 bits), or "default" (what
            the environment variable TCONV_MATH says, "strict" if it is not set).
        threads: of the CPU, at most; None: what TCONV_NUM_THREADS says, else every core that this process may use.
        post: what every output goes through before it is stored, a list of what tconv.post makes. Its arrays live
            where x does.

    Shape:
        - x: (N, C, H, W) or (C, H, W)
        - weight: (C, out_channels / groups, kh, kw)
        - bias: (out_channels,)
        - result: (N, out_channels, H_out, W_out) or without the N, where
          H_out = (H - 1) * stride - top - bottom + dilation * (kh - 1) + output_padding + 1, W_out likewise

    Returns:
        out if it is given, else a new array of x's library.

    Raises:
        tconv.TconvError: names the field at fault and the rule, as one of its subclasses: InvalidArgumentError (a
            ValueError) for a size, DtypeError (a TypeError), UnavailableError where the backend is not there, and more.

    On the host, arrays are read and written as they lie where images and channels, or images and pixels, are at any
    distance and rows are dense; any other is copied once. CUDA arrays have to lie so. CUDA work is ordered on the
    current stream of CuPy or PyTorch for their arrays, on the legacy default stream for those of others.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> x, weight = np.ones((1, 3, 8, 8), np.float32), np.ones((3, 2, 4, 4), np.float32)
        >>> tconv.conv_transpose2d(x, weight, stride=2, padding=1).shape
        (1, 2, 16, 16)
        >>> tconv.conv_transpose2d(x, weight, stride=0)
        Traceback (most recent call last):
            ...
        tconv._errors.InvalidArgumentError: stride_h = 0: must be from 1 to 9223372036854775807
    """
    return _conv_transpose(
        2, x, weight, bias, out, backend, math, threads, post, stride, padding, output_padding, groups, dilation
    )


def conv_transpose1d(
    x: Array,
    weight: SupportsDLPack,
    bias: SupportsDLPack | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    out: Array | None = None,
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
    post: Sequence[PostOp] | None = None,
) -> Array:
    """1-D transposed convolution, as torch.nn.functional.conv_transpose1d defines it.

    conv_transpose2d tells more of arrays, of how they may lie and of streams. An x that lies as (N, L, C) is computed
    so, and so lies the result.

    Args:
        x: the input.
        weight: the kernel.
        bias: what is added to each output channel, or None.
        stride: of the input's elements in the result, an integer or a sequence of one, as are output_padding and
            dilation.
        padding: elements that are cut off both ends of the result, or ((left, right),).
        output_padding: elements more at the result's right end.
        groups: parts of the channels that are computed each by itself.
        dilation: distance of the kernel's taps.
        out: where to write, of the result's shape and dtype.
        backend: "auto", "cpu" or "cuda", as in conv_transpose2d.
        math: "default", "strict" or "tf32", as in conv_transpose2d.
        threads: of the CPU, at most.
        post: what every output goes through before it is stored, as in conv_transpose2d.

    Shape:
        - x: (N, C, L) or (C, L)
        - weight: (C, out_channels / groups, width)
        - bias: (out_channels,)
        - result: (N, out_channels, L_out) or without the N, where
          L_out = (L - 1) * stride - left - right + dilation * (width - 1) + output_padding + 1

    Returns:
        out if it is given, else a new array of x's library.

    Raises:
        tconv.TconvError: as conv_transpose2d does; the fields are in_w, stride_w, pad_left and so on.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> x, weight = np.ones((1, 3, 8), np.float32), np.ones((3, 2, 4), np.float32)
        >>> tconv.conv_transpose1d(x, weight, stride=2, padding=1).shape
        (1, 2, 16)
    """
    return _conv_transpose(
        1, x, weight, bias, out, backend, math, threads, post, stride, padding, output_padding, groups, dilation
    )


def conv_transpose3d(
    x: Array,
    weight: SupportsDLPack,
    bias: SupportsDLPack | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    out: Array | None = None,
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
    post: Sequence[PostOp] | None = None,
) -> Array:
    """3-D transposed convolution, as torch.nn.functional.conv_transpose3d defines it.

    conv_transpose2d tells more of arrays, of how they may lie and of streams. An x that lies as (N, D, H, W, C) is
    computed so, and so lies the result.

    Args:
        x: the input.
        weight: the kernel.
        bias: what is added to each output channel, or None.
        stride: of the input's voxels in the result, an integer, or three for planes, rows and columns, as are
            output_padding and dilation.
        padding: what is cut off the result: an integer, (planes, rows, columns), or ((front, back), (top, bottom),
            (left, right)).
        output_padding: planes, rows and columns more at the result's back, lower and right end.
        groups: parts of the channels that are computed each by itself.
        dilation: distance of the kernel's taps.
        out: where to write, of the result's shape and dtype.
        backend: "auto", "cpu" or "cuda", as in conv_transpose2d.
        math: "default", "strict" or "tf32", as in conv_transpose2d.
        threads: of the CPU, at most.
        post: what every output goes through before it is stored, as in conv_transpose2d.

    Shape:
        - x: (N, C, D, H, W) or (C, D, H, W)
        - weight: (C, out_channels / groups, kd, kh, kw)
        - bias: (out_channels,)
        - result: (N, out_channels, D_out, H_out, W_out) or without the N, where
          D_out = (D - 1) * stride - front - back + dilation * (kd - 1) + output_padding + 1, H_out and W_out likewise

    Returns:
        out if it is given, else a new array of x's library.

    Raises:
        tconv.TconvError: as conv_transpose2d does; the fields are in_d, in_h, in_w, stride_d, pad_front and so on.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> x, weight = np.ones((1, 3, 4, 8, 8), np.float32), np.ones((3, 2, 2, 4, 4), np.float32)
        >>> tconv.conv_transpose3d(x, weight, stride=2, padding=(0, 1, 1)).shape
        (1, 2, 8, 16, 16)
    """
    return _conv_transpose(
        3, x, weight, bias, out, backend, math, threads, post, stride, padding, output_padding, groups, dilation
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
    post: Any,
    *sizes: Any,
) -> Any:
    arguments = _arguments.of_layer(spatial, *sizes)
    choices = _arguments.choices(backend, math, threads)
    given = {"x": x, "weight": weight, "bias": bias, "out": out}
    posts = _posts.as_list(post) if post is not None else ()
    device = _arrays.common_device({**given, **_posts.named_operands(posts)} if posts else given)
    if device is None:
        return _host.conv_transpose(spatial, given, arguments, *choices, posts)
    return _cuda.conv_transpose(device, spatial, given, arguments, *choices, posts)
