"""The gradients of conv_transpose1d, conv_transpose2d and conv_transpose3d, for arrays on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _arguments, _arrays, _errors, _host, _layer
from . import _library as lib
from ._plan import Cache, Plan
from ._types import Array, Padding, Sizes, SupportsDLPack

# None where the one-shot call is to copy between host and device.
_plans: Cache[tuple[lib.Desc, lib.Options, Plan | None]] = Cache()


def conv_transpose2d_backward_data(
    diff_dst: Array,
    weight: SupportsDLPack,
    in_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    out: Array | None = None,
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
) -> Array:
    """The gradient of conv_transpose2d's x, from that of its result and the weight. Arrays live on the host.

    Args:
        diff_dst: the gradient of the result.
        weight: the kernel.
        in_size: the rows and columns of x, or one integer for both. They do not follow from those of diff_dst; with
            them these must be what some output_padding gives.
        stride: as in conv_transpose2d, and so are all that follow.
        padding: rows and columns that were cut off the result.
        groups: parts of the channels.
        dilation: distance of the kernel's taps.
        out: where to write, of the shape of x.
        backend: "auto", "cpu" or "cuda".
        math: "default", "strict" or "tf32".
        threads: of the CPU, at most.

    Shape:
        - diff_dst: (N, out_channels, H_out, W_out) or without the N
        - weight: (C, out_channels / groups, kh, kw)
        - result: (N, C, *in_size), or without the N

    Returns:
        out if it is given, else a new array of diff_dst's library, which lies as that does.

    Raises:
        tconv.TconvError: names the field at fault and the rule.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> diff_dst, weight = np.ones((1, 2, 16, 16), np.float32), np.ones((3, 2, 4, 4), np.float32)
        >>> tconv.conv_transpose2d_backward_data(diff_dst, weight, 8, stride=2, padding=1).shape
        (1, 3, 8, 8)
    """
    sizes = (stride, padding, groups, dilation)
    return _backward_data(2, diff_dst, weight, in_size, sizes, out, backend, math, threads)


def conv_transpose1d_backward_data(
    diff_dst: Array,
    weight: SupportsDLPack,
    in_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    out: Array | None = None,
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
) -> Array:
    """The gradient of conv_transpose1d's x, from that of its result and the weight. Arrays live on the host.

    Args:
        diff_dst: the gradient of the result.
        weight: the kernel.
        in_size: the length of x, which does not follow from that of diff_dst.
        stride: as in conv_transpose1d, and so are all that follow.
        padding: elements that were cut off the result.
        groups: parts of the channels.
        dilation: distance of the kernel's taps.
        out: where to write, of the shape of x.
        backend: "auto", "cpu" or "cuda".
        math: "default", "strict" or "tf32".
        threads: of the CPU, at most.

    Shape:
        - diff_dst: (N, out_channels, L_out) or without the N
        - weight: (C, out_channels / groups, width)
        - result: (N, C, in_size), or without the N

    Returns:
        out if it is given, else a new array of diff_dst's library, which lies as that does.

    Raises:
        tconv.TconvError: names the field at fault and the rule.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> diff_dst, weight = np.ones((1, 2, 16), np.float32), np.ones((3, 2, 4), np.float32)
        >>> tconv.conv_transpose1d_backward_data(diff_dst, weight, 8, stride=2, padding=1).shape
        (1, 3, 8)
    """
    sizes = (stride, padding, groups, dilation)
    return _backward_data(1, diff_dst, weight, in_size, sizes, out, backend, math, threads)


def conv_transpose3d_backward_data(
    diff_dst: Array,
    weight: SupportsDLPack,
    in_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    out: Array | None = None,
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
) -> Array:
    """The gradient of conv_transpose3d's x, from that of its result and the weight. Arrays live on the host.

    Args:
        diff_dst: the gradient of the result.
        weight: the kernel.
        in_size: the planes, rows and columns of x, or one integer for all three, which do not follow from those of
            diff_dst.
        stride, padding, groups, dilation: as in conv_transpose3d.
        out: where to write, of the shape of x.
        backend, math, threads: as in conv_transpose3d.

    Shape:
        - diff_dst: (N, out_channels, D_out, H_out, W_out) or without the N
        - weight: (C, out_channels / groups, kd, kh, kw)
        - result: (N, C, *in_size), or without the N

    Returns:
        out if it is given, else a new array of diff_dst's library, which lies as that does.

    Raises:
        tconv.TconvError: names the field at fault and the rule.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> diff_dst, weight = np.ones((1, 2, 8, 8, 8), np.float32), np.ones((3, 2, 2, 2, 2), np.float32)
        >>> tconv.conv_transpose3d_backward_data(diff_dst, weight, 4, stride=2).shape
        (1, 3, 4, 4, 4)
    """
    sizes = (stride, padding, groups, dilation)
    return _backward_data(3, diff_dst, weight, in_size, sizes, out, backend, math, threads)


def conv_transpose2d_backward_weights(
    x: Array | None,
    diff_dst: Array,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    wanted: tuple[bool, bool] = (True, True),
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
) -> tuple[Array | None, Array | None]:
    """The gradients of conv_transpose2d's weight and bias, from its x and the gradient of its result. Arrays live on
    the host.

    Args:
        x: the input, or None where the gradient of the weight is not wanted.
        diff_dst: the gradient of the result, with as many axes.
        kernel_size: the rows and columns of the weight, or one integer for both.
        stride: as in conv_transpose2d, and so are all that follow but wanted.
        padding: rows and columns that were cut off the result.
        groups: parts of the channels.
        dilation: distance of the kernel's taps.
        wanted: whether the gradient of the weight is, and that of the bias.
        backend: "auto", "cpu" or "cuda".
        math: "default", "strict" or "tf32".
        threads: of the CPU, at most.

    Shape:
        - x: (N, C, H, W) or (C, H, W)
        - diff_dst: (N, out_channels, H_out, W_out) or without the N
        - results: (C, out_channels / groups, *kernel_size) and (out_channels,)

    Returns:
        Both, as new arrays of diff_dst's library, None in place of one that is not wanted. Each is a sum over all
        images.

    Raises:
        tconv.TconvError: names the field at fault and the rule.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> x, diff_dst = np.ones((1, 3, 8, 8), np.float32), np.ones((1, 2, 16, 16), np.float32)
        >>> of_weight, of_bias = tconv.conv_transpose2d_backward_weights(x, diff_dst, 4, stride=2, padding=1)
        >>> of_weight.shape, of_bias
        ((3, 2, 4, 4), array([256., 256.], dtype=float32))
    """
    sizes = (stride, padding, groups, dilation)
    return _backward_weights(2, x, diff_dst, kernel_size, sizes, wanted, backend, math, threads)


def conv_transpose1d_backward_weights(
    x: Array | None,
    diff_dst: Array,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    wanted: tuple[bool, bool] = (True, True),
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
) -> tuple[Array | None, Array | None]:
    """The gradients of conv_transpose1d's weight and bias, from its x and the gradient of its result. Arrays live on
    the host.

    Args:
        x: the input, or None where the gradient of the weight is not wanted.
        diff_dst: the gradient of the result, with as many axes.
        kernel_size: the width of the weight.
        stride: as in conv_transpose1d, and so are all that follow but wanted.
        padding: elements that were cut off the result.
        groups: parts of the channels.
        dilation: distance of the kernel's taps.
        wanted: whether the gradient of the weight is, and that of the bias.
        backend: "auto", "cpu" or "cuda".
        math: "default", "strict" or "tf32".
        threads: of the CPU, at most.

    Shape:
        - x: (N, C, L) or (C, L)
        - diff_dst: (N, out_channels, L_out) or without the N
        - results: (C, out_channels / groups, kernel_size) and (out_channels,)

    Returns:
        Both, as new arrays of diff_dst's library, None in place of one that is not wanted. Each is a sum over all
        images.

    Raises:
        tconv.TconvError: names the field at fault and the rule.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> x, diff_dst = np.ones((1, 3, 8), np.float32), np.ones((1, 2, 16), np.float32)
        >>> of_weight, of_bias = tconv.conv_transpose1d_backward_weights(x, diff_dst, 4, stride=2, padding=1)
        >>> of_weight.shape, of_bias
        ((3, 2, 4), array([16., 16.], dtype=float32))
    """
    sizes = (stride, padding, groups, dilation)
    return _backward_weights(1, x, diff_dst, kernel_size, sizes, wanted, backend, math, threads)


def conv_transpose3d_backward_weights(
    x: Array | None,
    diff_dst: Array,
    kernel_size: Sizes,
    stride: Sizes = 1,
    padding: Padding = 0,
    groups: int = 1,
    dilation: Sizes = 1,
    *,
    wanted: tuple[bool, bool] = (True, True),
    backend: str = "auto",
    math: str = "default",
    threads: int | None = None,
) -> tuple[Array | None, Array | None]:
    """The gradients of conv_transpose3d's weight and bias, from its x and the gradient of its result. Arrays live on
    the host.

    Args:
        x: the input, or None where the gradient of the weight is not wanted.
        diff_dst: the gradient of the result, with as many axes.
        kernel_size: the planes, rows and columns of the weight, or one integer for all three.
        stride, padding, groups, dilation: as in conv_transpose3d.
        wanted: whether the gradient of the weight is, and that of the bias.
        backend, math, threads: as in conv_transpose3d.

    Shape:
        - x: (N, C, D, H, W) or (C, D, H, W)
        - diff_dst: (N, out_channels, D_out, H_out, W_out) or without the N
        - results: (C, out_channels / groups, *kernel_size) and (out_channels,)

    Returns:
        Both, as new arrays of diff_dst's library, None in place of one that is not wanted. Each is a sum over all
        images.

    Raises:
        tconv.TconvError: names the field at fault and the rule.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> x, diff_dst = np.ones((1, 3, 4, 4, 4), np.float32), np.ones((1, 2, 8, 8, 8), np.float32)
        >>> of_weight, of_bias = tconv.conv_transpose3d_backward_weights(x, diff_dst, 2, stride=2)
        >>> of_weight.shape, of_bias
        ((3, 2, 2, 2, 2), array([512., 512.], dtype=float32))
    """
    sizes = (stride, padding, groups, dilation)
    return _backward_weights(3, x, diff_dst, kernel_size, sizes, wanted, backend, math, threads)


# ------------------------------------------------------------------------------------------------------------ the calls


def _backward_data(
    spatial: int, diff_dst: Any, weight: Any, in_size: Any, sizes: Any, out: Any, backend: Any, math: Any, threads: Any
) -> Any:
    arguments = _of_layer(spatial, sizes)
    extents = _arguments.extents(spatial, "in_size", in_size)
    choices = _arguments.choices(backend, math, threads)
    given = {"diff_dst": diff_dst, "weight": weight, "out": out}
    arrays, dtype = _on_the_host(given)
    _arrays.check_ranks(spatial, arrays["diff_dst"].ndim, arrays["weight"].ndim, "diff_dst")
    batched = arrays["diff_dst"].ndim == spatial + 2
    dst, weights = _host.with_batch(arrays["diff_dst"], batched), arrays["weight"]
    shape = (dst.shape[0], weights.shape[0], *extents)
    target = None
    if out is not None:
        _host.check_out(arrays["out"], _layer.without_batch(batched, shape))
        target = _host.with_batch(arrays["out"], batched)
    layouts = _host.layouts(dst)
    layout = _layer.choose_layout(layouts, [] if target is None else _host.layouts(target))
    dst = dst if layout in layouts else _host.copy(dst, layout)
    weight_layout, copy_weight = _host.weight_layout(weights)
    weights = _host.dense_as_it_is(weights) if copy_weight else weights
    result = _host.Result({"x": diff_dst, "out": out}, target, batched, shape, layout, (dst, weights), _host.lies)

    def make_desc() -> lib.Desc:
        desc = _make_desc(shape, weights.shape, dst.shape, arguments, dtype, choices[1])
        desc.op, desc.layout, desc.weight_layout = lib.OP_BACKWARD_DATA, layout, weight_layout
        _layer.give_strides(desc, "src", _host.counted_strides(result.written))
        _layer.give_strides(desc, "dst", _host.counted_strides(dst))
        return desc

    lying = (layout, weight_layout, _host.counted_strides(result.written), _host.counted_strides(dst))
    key = ("data", shape, weights.shape, dst.shape, lying, arguments, dtype, choices)
    _run(key, make_desc, choices, (result.written, weights, None, dst))
    return result.hand_over()


def _backward_weights(
    spatial: int,
    x: Any,
    diff_dst: Any,
    kernel_size: Any,
    sizes: Any,
    wanted: Any,
    backend: Any,
    math: Any,
    threads: Any,
) -> tuple[Any, Any]:
    arguments = _of_layer(spatial, sizes)
    extents = _arguments.extents(spatial, "kernel_size", kernel_size)
    choices = _arguments.choices(backend, math, threads)
    of_weight, of_bias = (_arguments.flag("wanted", want) for want in wanted)
    if of_weight and x is None:
        raise _errors.invalid("x", "x is None: must be there where the gradient of the weight is wanted")
    arrays, dtype = _on_the_host({"x": x if of_weight else None, "diff_dst": diff_dst})
    _arrays.check_x_rank("diff_dst", spatial, arrays["diff_dst"].ndim)
    batched = arrays["diff_dst"].ndim == spatial + 2
    dst = _host.with_batch(arrays["diff_dst"], batched)
    src, shape = None, dst.shape
    weight_shape: tuple[int, ...] = (dst.shape[1], *[1] * (spatial + 1))
    if of_weight:
        if arrays["x"].ndim != arrays["diff_dst"].ndim:
            axes = arrays["diff_dst"].ndim
            raise _errors.invalid("x", f"x has {arrays['x'].ndim} axes: must have {axes}, as diff_dst")
        src = _host.with_batch(arrays["x"], batched)
        shape, weight_shape = src.shape, (src.shape[1], dst.shape[1] // max(arguments[3], 1), *extents)
    else:  # that of the bias is the same by every layer: by one with one tap and each channel by itself
        arguments = _of_layer(spatial, (1, 0, dst.shape[1], 1))
    layouts = _host.layouts(dst)
    layout = _layer.choose_layout([] if src is None else _host.layouts(src), layouts)
    dst = dst if layout in layouts else _host.copy(dst, layout)
    if src is not None and layout not in _host.layouts(src):
        src = _host.copy(src, layout)
    inputs = (dst,) if src is None else (src, dst)
    template = {"x": diff_dst}
    weights = bias = None
    if of_weight:
        weights = _host.Result(template, None, True, weight_shape, lib.NCHW, inputs, _host.is_dense)
    if of_bias:
        bias = _host.Result(template, None, True, (dst.shape[1],), lib.NCHW, inputs, _host.is_dense)

    def make_desc() -> lib.Desc:
        desc = _make_desc(shape, weight_shape, dst.shape, arguments, dtype, choices[1])
        desc.op, desc.layout = lib.OP_BACKWARD_WEIGHTS, layout
        _layer.give_strides(desc, "dst", _host.counted_strides(dst))
        if src is not None:
            _layer.give_strides(desc, "src", _host.counted_strides(src))
        return desc

    lying = (layout, None if src is None else _host.counted_strides(src), _host.counted_strides(dst))
    key = ("weights", shape, weight_shape, dst.shape, lying, arguments, dtype, choices)
    to_weights, to_bias = (None if result is None else result.written for result in (weights, bias))
    if of_weight or of_bias:
        _run(key, make_desc, choices, (src, to_weights, to_bias, dst))
    return None if weights is None else weights.hand_over(), None if bias is None else bias.hand_over()


def _of_layer(spatial: int, sizes: Any) -> _layer.Arguments:
    stride, padding, groups, dilation = sizes
    return _arguments.of_layer(spatial, stride, padding, 0, groups, dilation)


def _on_the_host(given: dict[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    present = {name: array for name, array in given.items() if array is not None}
    device = _arrays.common_device(present)
    if device is not None:
        first = next(iter(present))
        where = _arrays.device_name(device)
        raise _errors.invalid(first, f"{first} is on {where}: must be on the host; tconv.torch has gradients on CUDA")
    return _host.views(given)


def _make_desc(
    shape: Sequence[int],
    weight_shape: Sequence[int],
    dst_shape: Sequence[int],
    arguments: _layer.Arguments,
    dtype: int,
    math: int,
) -> lib.Desc:
    """The layer, whose output_padding is what the size of its output leaves over."""
    desc = _layer.make_desc(shape, weight_shape, arguments, dtype, math)
    least = _layer.output_shape(desc, len(shape))
    left = [there - without for there, without in zip(dst_shape, least, strict=True)]
    stride, _, _, _, dilation = arguments
    room = [max(s, d) - 1 for s, d in zip(stride, dilation, strict=True)]
    if left[:2] != [0, 0] or not all(0 <= n <= most for n, most in zip(left[2:], room, strict=True)):
        most = (*least[:2], *(n + more for n, more in zip(least[2:], room, strict=True)))
        rule = f"must be from {least} to {most} with these sizes"
        raise _errors.invalid("diff_dst", f"diff_dst has the shape {tuple(dst_shape)}, with images: {rule}")
    desc.output_padding_d, desc.output_padding_h, desc.output_padding_w = _layer.of_all_axes(left[2:], 0)
    return desc


def _run(
    key: Any,
    make_desc: Callable[[], lib.Desc],
    choices: tuple[int, int, int],
    arrays: tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None, np.ndarray | None],
) -> None:
    def make() -> tuple[lib.Desc, lib.Options, Plan | None]:
        desc, options = make_desc(), _host.new_options(choices[0], choices[2])
        plan = Plan(desc, options)
        return desc, options, plan if plan.implementation.startswith("cpu_") else None

    desc, options, plan = _plans.get(key) or _plans.make(key, make)
    src, weights, bias, dst = (_host.address(array) for array in arrays)
    if plan is not None:
        _host.execute(plan, src, weights, bias, dst)
    else:
        _host.one_shot(desc, options, (src, weights, bias, dst), lib.LOCATION_HOST)
