"""Post-ops: what every output of a layer goes through before it is stored.

A list of them is the argument post of tconv.conv_transpose2d, of conv_transpose1d and of tconv.torch's functions. Its
steps are run in order, in float32 (float64 where the layer has it), and the result is rounded to the layer's dtype
once, so that scale and shift, a residual and an activation cost no pass over memory of their own. A list has at most
eight steps, and one add.

Examples::

    >>> import numpy as np
    >>> import tconv
    >>> from tconv import post
    >>> x, weight = np.ones((1, 3, 8, 8), np.float32), np.ones((3, 2, 4, 4), np.float32)
    >>> scale, shift = np.full(2, 0.5, np.float32), np.zeros(2, np.float32)
    >>> steps = [post.mul_channel(scale), post.add_channel(shift), post.relu()]
    >>> tconv.conv_transpose2d(x, weight, stride=2, padding=1, post=steps).shape
    (1, 2, 16, 16)
"""

from __future__ import annotations

import dataclasses
from typing import Any

from . import _arguments, _errors
from . import _library as lib
from ._types import SupportsDLPack

__all__ = [
    "PostOp",
    "add",
    "add_channel",
    "clamp",
    "elu",
    "gelu",
    "hardswish",
    "leaky_relu",
    "linear",
    "mish",
    "mul_channel",
    "relu",
    "sigmoid",
    "silu",
    "snake",
    "softplus",
    "tanh",
]


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)


@dataclasses.dataclass(frozen=True, eq=False)
class PostOp:
    """A step of a list, which this module's functions make.

    Attributes:
        kind (int): the value of the C library's tconv_post_kind.
        alpha (float): the kind's first number, 0 where it has none.
        beta (float): the kind's second number, 0 where it has none.
        operands (tuple): the arrays or tensors of the step: none, one, or the two of snake.

    Examples::

        >>> from tconv import post
        >>> post.clamp(0, 6)
        PostOp(kind=5, alpha=0.0, beta=6.0, operands=())
    """

    kind: int
    alpha: float = 0.0
    beta: float = 0.0
    operands: tuple[Any, ...] = ()


_GELUS = {"none": lib.POST_GELU, "tanh": lib.POST_GELU_TANH}


def _number(name: str, value: Any) -> float:
    """A number of Python's, NumPy's, or that of any array without axes."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise _errors.wrong_dtype(name, f"{name} = {value!r}: must be a number") from None
    except OverflowError:
        raise _errors.invalid(name, f"{name} = {value!r}: must be finite") from None


def _tensor(name: str, value: Any) -> Any:
    if value is None:
        raise _errors.wrong_dtype(name, f"{name} = None: must be an array")
    return value


def add_channel(v: SupportsDLPack) -> PostOp:
    """y + v[c]: something is added to each channel.

    Args:
        v: an array of float32, and of float64 where the layer is of float64. On the host, and of PyTorch, it may lie in
            any way, and be of 16 bits.

    Shape:
        - v: (out_channels,)

    Returns:
        PostOp: the step.

    Raises:
        tconv.DtypeError: v is None.
        tconv.InvalidArgumentError: by the call that gets the list, where v has another shape.

    Examples::

        >>> import numpy as np
        >>> from tconv import post
        >>> post.add_channel(np.zeros(8, np.float32)).operands[0].shape
        (8,)
    """
    return PostOp(lib.POST_ADD_CHANNEL, operands=(_tensor("v", v),))


def mul_channel(v: SupportsDLPack) -> PostOp:
    """y * v[c]: each channel has a factor. With an add_channel that follows at once, as in a folded BatchNorm, it is
    rounded once.

    Args:
        v: an array of float32, and of float64 where the layer is of float64. On the host, and of PyTorch, it may lie in
            any way, and be of 16 bits.

    Shape:
        - v: (out_channels,)

    Returns:
        PostOp: the step.

    Raises:
        tconv.DtypeError: v is None.
        tconv.InvalidArgumentError: by the call that gets the list, where v has another shape.

    Examples::

        >>> import numpy as np
        >>> from tconv import post
        >>> post.mul_channel(np.ones(8, np.float32)).operands[0].shape
        (8,)
    """
    return PostOp(lib.POST_MUL_CHANNEL, operands=(_tensor("v", v),))


def add(t: SupportsDLPack | None = None, alpha: float = 1) -> PostOp:
    """y + alpha * t: a residual. A list has at most one.

    Args:
        t: an array of the layer's dtype, which may be a slice of a larger one. None in a tconv.Plan alone, which is
            given the array with each call.
        alpha: what t is multiplied by.

    Shape:
        - t: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        tconv.DtypeError: alpha is no number.
        tconv.InvalidArgumentError: by the call that gets the list, where t has another shape, or there are two.

    Examples::

        >>> import numpy as np
        >>> from tconv import post
        >>> post.add(np.ones((1, 2, 16, 16), np.float32), 0.5).alpha
        0.5
    """
    return PostOp(lib.POST_ADD_TENSOR, _number("alpha", alpha), operands=() if t is None else (t,))


def linear(a: float, b: float) -> PostOp:
    """a * y + b, rounded once.

    Args:
        a: the factor.
        b: the summand.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        tconv.DtypeError: a or b is no number.
        tconv.InvalidArgumentError: by the call that gets the list, where one is not finite.

    Examples::

        >>> from tconv import post
        >>> post.linear(2, 1)
        PostOp(kind=4, alpha=2.0, beta=1.0, operands=())
    """
    return PostOp(lib.POST_LINEAR, _number("a", a), _number("b", b))


def clamp(lo: float, hi: float) -> PostOp:
    """min(max(y, lo), hi): ReLU6, Hardtanh, and with an infinite bound a minimum or a maximum. NaN stays NaN.

    Args:
        lo: the lower bound, which may be infinite.
        hi: the upper bound, which may be infinite.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        tconv.DtypeError: lo or hi is no number.
        tconv.InvalidArgumentError: by the call that gets the list, where lo is above hi, or one is NaN.

    Examples::

        >>> from tconv import post
        >>> post.clamp(0, 6)
        PostOp(kind=5, alpha=0.0, beta=6.0, operands=())
    """
    return PostOp(lib.POST_CLAMP, _number("lo", lo), _number("hi", hi))


def relu() -> PostOp:
    """max(y, 0), which is 0 for -Inf, too. NaN stays NaN.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        Nothing.

    Examples::

        >>> from tconv import post
        >>> post.relu()
        PostOp(kind=6, alpha=0.0, beta=0.0, operands=())
    """
    return PostOp(lib.POST_LEAKY_RELU)


def leaky_relu(slope: float = 0.01) -> PostOp:
    """y where y > 0, else slope * y.

    Args:
        slope: the factor of what is negative.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        tconv.DtypeError: slope is no number.
        tconv.InvalidArgumentError: by the call that gets the list, where it is not finite.

    Examples::

        >>> from tconv import post
        >>> post.leaky_relu(0.25)
        PostOp(kind=6, alpha=0.25, beta=0.0, operands=())
    """
    return PostOp(lib.POST_LEAKY_RELU, _number("slope", slope))


def sigmoid() -> PostOp:
    """1 / (1 + exp(-y)).

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        Nothing.

    Examples::

        >>> from tconv import post
        >>> post.sigmoid()
        PostOp(kind=7, alpha=0.0, beta=0.0, operands=())
    """
    return PostOp(lib.POST_SIGMOID)


def tanh() -> PostOp:
    """tanh(y).

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        Nothing.

    Examples::

        >>> from tconv import post
        >>> post.tanh()
        PostOp(kind=8, alpha=0.0, beta=0.0, operands=())
    """
    return PostOp(lib.POST_TANH)


def silu() -> PostOp:
    """y / (1 + exp(-y)), also called swish; -0 for -Inf.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        Nothing.

    Examples::

        >>> from tconv import post
        >>> post.silu()
        PostOp(kind=9, alpha=0.0, beta=0.0, operands=())
    """
    return PostOp(lib.POST_SILU)


def gelu(approximate: str = "none") -> PostOp:
    """y * (1 + erf(y / sqrt(2))) / 2, or its approximation by tanh; -0 for -Inf.

    Args:
        approximate: "none", or "tanh" for y * (1 + tanh(sqrt(2 / pi) * (y + 0.044715 * y**3))) / 2.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        tconv.InvalidArgumentError: approximate is neither.

    Examples::

        >>> from tconv import post
        >>> post.gelu("tanh")
        PostOp(kind=11, alpha=0.0, beta=0.0, operands=())
    """
    return PostOp(_arguments.choice("approximate", approximate, _GELUS))


def mish() -> PostOp:
    """y * tanh(log(1 + exp(y))); -0 for -Inf.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        Nothing.

    Examples::

        >>> from tconv import post
        >>> post.mish()
        PostOp(kind=12, alpha=0.0, beta=0.0, operands=())
    """
    return PostOp(lib.POST_MISH)


def elu(alpha: float = 1) -> PostOp:
    """y where y > 0, else alpha * (exp(y) - 1).

    Args:
        alpha: the factor of what is negative.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        tconv.DtypeError: alpha is no number.
        tconv.InvalidArgumentError: by the call that gets the list, where it is not finite.

    Examples::

        >>> from tconv import post
        >>> post.elu()
        PostOp(kind=13, alpha=1.0, beta=0.0, operands=())
    """
    return PostOp(lib.POST_ELU, _number("alpha", alpha))


def softplus() -> PostOp:
    """log(1 + exp(y)).

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        Nothing.

    Examples::

        >>> from tconv import post
        >>> post.softplus()
        PostOp(kind=14, alpha=0.0, beta=0.0, operands=())
    """
    return PostOp(lib.POST_SOFTPLUS)


def hardswish() -> PostOp:
    """y * min(max(y + 3, 0), 6) / 6; -0 for -Inf.

    Shape:
        - y and the result: that of the layer's result

    Returns:
        PostOp: the step.

    Raises:
        Nothing.

    Examples::

        >>> from tconv import post
        >>> post.hardswish()
        PostOp(kind=15, alpha=0.0, beta=0.0, operands=())
    """
    return PostOp(lib.POST_HARDSWISH)


def snake(a: SupportsDLPack, b: SupportsDLPack) -> PostOp:
    """y + b[c] * sin(a[c] * y)**2: Snake of BigVGAN and of audio codecs, where b is 1 / a or a number of its own.

    Args:
        a: the factor in the sine; an array of float32, and of float64 where the layer is of float64. On the host, and
            of PyTorch, it may lie in any way, and be of 16 bits.
        b: the factor, likewise. NumPy's and PyTorch's may lie anywhere; other CUDA arrays have to be the two halves of
            one array.

    Shape:
        - a, b: (out_channels,)

    Returns:
        PostOp: the step.

    Raises:
        tconv.DtypeError: a or b is None.
        tconv.InvalidArgumentError: by the call that gets the list, where one has another shape.

    Examples::

        >>> import numpy as np
        >>> from tconv import post
        >>> len(post.snake(np.ones(8, np.float32), np.ones(8, np.float32)).operands)
        2
    """
    return PostOp(lib.POST_SNAKE, operands=(_tensor("a", a), _tensor("b", b)))
