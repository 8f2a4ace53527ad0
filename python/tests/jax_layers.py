"""Random layers for tconv.jax, and the same by lax."""

import dataclasses
import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tconv.jax

INTEGERS = 1  # of size: every sum is exact in bfloat16
WINDOW = {1: "W", 2: "HW", 3: "DHW"}
# lax's, by the number of spatial axes.
NUMBERS = {1: ("NHC", "HIO", "NHC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NHWDC", "HWDIO", "NHWDC")}
LAX_HAS_CONSISTENT_PADDING = "use_consistent_padding" in inspect.signature(lax.conv_transpose).parameters


@dataclasses.dataclass(frozen=True)
class Layer:
    """Arguments of tconv.jax.conv_transpose, and shapes."""

    lhs: tuple
    rhs: tuple
    out_features: int
    strides: tuple
    padding: object
    rhs_dilation: tuple | None
    dimension_numbers: tuple | None
    transpose_kernel: bool
    use_consistent_padding: bool
    groups: int
    dtype: str
    bias: bool

    def arrays(self, seed=0, integers=INTEGERS):
        rng = np.random.default_rng(seed)
        shapes = [self.lhs, self.rhs, (self.out_features,)][: 3 if self.bias else 2]
        return [jnp.asarray(rng.integers(-integers, integers + 1, shape), self.dtype) for shape in shapes]

    def by_tconv(self, lhs, rhs, bias=None):
        return tconv.jax.conv_transpose(
            lhs,
            rhs,
            self.strides,
            self.padding,
            self.rhs_dilation,
            self.dimension_numbers,
            self.transpose_kernel,
            use_consistent_padding=self.use_consistent_padding,
            bias=bias,
            feature_group_count=self.groups,
        )

    def by_lax(self, lhs, rhs, bias=None):
        """lax.conv_transpose where it has the layer; with groups, the convolution that the function is made of."""
        names = self.dimension_numbers or NUMBERS[len(self.strides)]
        if self.groups == 1:
            options = {"use_consistent_padding": True} if self.use_consistent_padding else {}
            arguments = self.strides, self.padding, self.rhs_dilation, names, self.transpose_kernel
            y = lax.conv_transpose(lhs, rhs, *arguments, **options)
        else:
            numbers = lax.conv_dimension_numbers(self.lhs, self.rhs, names)
            if self.transpose_kernel:
                rhs = lax.rev(rhs, numbers.rhs_spec[2:]).swapaxes(*numbers.rhs_spec[:2])
            y = lax.conv_general_dilated(
                lhs,
                rhs,
                (1,) * len(self.strides),
                self.padding,
                self.strides,
                self.rhs_dilation,
                numbers,
                feature_group_count=self.groups,
            )
        if bias is None:
            return y
        shape = [1] * y.ndim
        shape[names[2].index("C")] = -1
        return y + jnp.broadcast_to(bias.astype(float).reshape(shape), y.shape).astype(y.dtype)  # summed in f32


NHWC = Layer((2, 4, 3, 3), (3, 2, 3, 2), 2, (2, 1), "SAME", None, None, False, False, 1, "float32", True)
LAYERS = {
    "NHWC": NHWC,
    "NCHW, groups, dilated": Layer(
        (2, 4, 3, 4),
        (2, 2, 2, 3),
        2,
        (1, 2),
        ((1, 0), (3, 4)),
        (1, 2),
        ("NCHW", "OIHW", "NCHW"),
        False,
        False,
        2,
        "float32",
        True,
    ),
    "one axis, Keras": Layer((2, 5, 3), (4, 2, 3), 2, (3,), "VALID", None, None, True, False, 1, "float32", True),
    "three axes": Layer(
        (2, 2, 3, 2, 3), (2, 2, 1, 3, 2), 2, (2, 2, 1), "SAME", None, None, False, False, 1, "float32", True
    ),
}


def x64():
    """A context with float64."""
    return jax.experimental.enable_x64(True) if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True)


def named(names, extents):
    """The extents of these axes in the order of their names."""
    return tuple(extents[name] for name in names)


def random_layer(seed):
    rng = np.random.default_rng(seed)

    def pick(*values):
        return values[rng.integers(len(values))]

    def some(low, high):
        return int(rng.integers(low, high + 1))

    spatial = pick(1, 2, 2, 3)
    window = WINDOW[spatial]
    kernel, strides, dilation = (tuple(some(1, most) for _ in range(spatial)) for most in (4, 3, 2))
    groups = pick(1, 1, 2, 3)
    ins, outs = groups * some(1, 4), groups * some(1, 4)
    names = pick(
        None,
        (f"N{window}C", f"{window}IO", f"N{window}C"),
        (f"NC{window}", f"OI{window}", f"NC{window}"),
        (f"NC{window}", f"IO{window}", f"N{window}C"),
        tuple("".join(rng.permutation(list(axes))) for axes in (f"NC{window}", f"IO{window}", f"NC{window}")),
    )
    defaults = NUMBERS[spatial]
    sizes = dict(
        zip(
            [name for name in (names or defaults)[1] if name not in "IO"],
            [some(3, 7 if spatial < 3 else 4) for _ in kernel],
            strict=True,
        )
    )
    taps = dict(zip(sizes, kernel, strict=True))
    transpose_kernel = pick(False, True)
    into, out = ("O", "I") if transpose_kernel else ("I", "O")
    extents = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    consistent = groups == 1 and pick(False, True) and LAX_HAS_CONSISTENT_PADDING
    padding = pick("SAME", "VALID", "pairs", "pairs")
    if padding == "pairs" and consistent:
        padding = tuple((some(0, e // 2), some(0, e // 2)) for e in extents)
    elif padding == "pairs" or groups > 1:  # output padding too
        padding = tuple(
            (some((e + 1) // 2, e), some((e + 1) // 2, e + max(s, d) - 1))
            for e, s, d in zip(extents, strides, dilation, strict=True)
        )
    return Layer(
        lhs=named((names or defaults)[0], {"N": some(1, 2), "C": ins, **sizes}),
        rhs=named((names or defaults)[1], {into: ins // groups, out: outs, **taps}),
        out_features=outs,
        strides=strides,
        padding=padding,
        rhs_dilation=pick(None, dilation) if max(dilation) == 1 else dilation,
        dimension_numbers=names,
        transpose_kernel=transpose_kernel,
        use_consistent_padding=consistent,
        groups=groups,
        dtype=pick("float32", "float32", "bfloat16", "float16"),
        bias=pick(False, True),
    )


def with_gradients(layer, function):
    """The result, and the gradients of all arrays for a result's gradient of small integers."""

    @jax.jit
    def run(*arrays):
        y, pull = jax.vjp(function, *arrays)
        of_result = (jnp.arange(y.size, dtype=jnp.int32) % 3 - 1).reshape(y.shape).astype(y.dtype)
        return y, *pull(of_result)

    return jax.block_until_ready(run(*layer.arrays()))


def stacked(layer, axes):
    """The layer's arrays: where an axis is named, three of them along that new axis."""

    def of(i, axis):
        arrays = [layer.arrays(seed)[i] for seed in range(3)]
        return arrays[0] if axis is None else jnp.stack(arrays, axis)

    return [of(i, axis) for i, axis in enumerate(axes)]


def mapped(function, axes):
    """The function and its gradients, for each element along the axes of stacked arrays."""

    def one(*arrays):
        y, pull = jax.vjp(function, *arrays)
        return y, *pull(jnp.round(y / 4))

    return jax.jit(jax.vmap(one, axes))


def every_padding():
    """Kernel, stride and dilation of an axis, with all paddings that have names, and a pair with output padding."""
    for kernel, stride, dilation in itertools.product((1, 2, 3, 5), (1, 2, 3), (1, 2)):
        extent = dilation * (kernel - 1)
        for padding in ("SAME", "VALID", (extent // 2, extent + max(stride, dilation) - 1)):
            yield kernel, stride, dilation, padding
