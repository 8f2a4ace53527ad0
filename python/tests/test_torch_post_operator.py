"""The operators with post-ops by themselves: lists as text, derivatives and transforms, what is refused."""

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_values import difference  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv import post  # noqa: E402
from tconv.torch._post_list import as_text, of_text  # noqa: E402

OPERATOR = torch.ops.tconv.conv_transpose2d_post.default
SIZES = ([2, 2], [0, 0], [0, 0], 1, [1, 1])
TEXT = "mul_channel add_channel snake add(0.5) tanh linear(2.0, -1.0) clamp(-inf, 0.5)"


def arguments(dtype=torch.float32):
    x, weight = torch.randn(2, 4, 5, 6, dtype=dtype), torch.randn(4, 3, 3, 2, dtype=dtype)
    v = torch.rand(3, dtype=torch.float64 if dtype is torch.float64 else torch.float32) + 0.5
    operands = [v, 2 * v, torch.cat([v, 1 / v]), torch.randn(2, 3, 11, 12, dtype=dtype)]
    return x, weight, None, *SIZES, TEXT, operands


def by_pytorch(x, weight, bias, stride, padding, output_padding, groups, dilation, text, operands):
    scale, shift, snake, residual = operands
    a, b = snake.reshape(2, 3, 1, 1)
    y = torch.conv_transpose2d(x, weight, bias, stride) * scale.reshape(3, 1, 1) + shift.reshape(3, 1, 1)
    y = y + b * torch.sin(a * y).square() + 0.5 * residual
    return (torch.tanh(y) * 2 - 1).clamp(max=0.5)


def test_every_operand_and_derivatives():
    given = arguments(torch.float64)
    before = tt.counters()
    answer = OPERATOR(*given)
    assert difference(before) == (1, {}) and tt.counters().fused - before.fused == 1
    torch.testing.assert_close(answer, by_pytorch(*given))
    tensors = [given[0], given[1], *given[9]]
    for tensor in tensors:
        tensor.requires_grad_()
    ours, theirs = (torch.autograd.grad(f(*given).sum(), tensors) for f in (OPERATOR, by_pytorch))
    torch.testing.assert_close(ours, theirs)


def test_transforms_and_tracing():
    given = arguments()
    inputs = torch.stack([given[0], -given[0]])
    answer = torch.vmap(lambda x: OPERATOR(x, *given[1:]))(inputs)
    torch.testing.assert_close(answer, torch.stack([by_pytorch(x, *given[1:]) for x in inputs]))
    program = make_fx(lambda x: OPERATOR(x, *given[1:]))(given[0])
    assert "conv_transpose2d_post" in program.code
    torch.testing.assert_close(program(given[0]), by_pytorch(*given))
    replaced = make_fx(program, decomposition_table=tt.decompositions())(given[0])
    assert "tconv" not in replaced.code
    torch.testing.assert_close(replaced(given[0]), by_pytorch(*given))


def test_text():
    steps = [post.add(alpha=-0.1), post.clamp(0, float("inf")), post.gelu("tanh"), post.elu(1e-30), post.softplus()]
    text = as_text(steps)
    assert text == "add(-0.1) clamp(0.0, inf) gelu_tanh elu(1e-30) softplus"
    assert [(s.kind, s.alpha, s.beta) for s in of_text(text).steps] == [(s.kind, s.alpha, s.beta) for s in steps]
    assert of_text(text) is of_text(text)
    for wrong in ("relu6", "clamp(1.0)", "tanh(1.0)", "linear(a, b)"):
        with pytest.raises(ValueError):
            of_text(wrong)


def test_what_is_refused():
    x, weight, *rest = arguments()
    scale, shift, snake, residual = rest[-1]
    for operands in ([scale, shift, snake], [scale, shift, snake, residual, residual]):
        with pytest.raises(ValueError, match="operands has"):
            OPERATOR(x, weight, *rest[:-1], operands)
    with pytest.raises(tconv.InvalidArgumentError, match="post"):
        OPERATOR(x, weight, *rest[:-1], [scale[:2], shift, snake, residual])
    with pytest.raises(tconv.InvalidArgumentError, match="post"):
        OPERATOR(x, weight, *rest[:-1], [scale, shift, scale, residual])
    with pytest.raises(tconv.InvalidArgumentError, match="post"):
        OPERATOR(x, weight, *rest[:-1], [scale, shift, snake, residual[..., 1:]])


def test_what_the_library_does_not_take_pytorch_computes():
    """A residual of another dtype, and dtypes that tconv does not have."""
    x, weight, *rest = arguments()
    given = (x, weight, *rest[:-2], "add(1.0)", [torch.randn(2, 3, 11, 12, dtype=torch.bfloat16)])
    before = tt.counters()
    answer = OPERATOR(*given)
    assert tt.counters().fused == before.fused
    torch.testing.assert_close(answer, torch.conv_transpose2d(x, weight, stride=2) + given[-1][0])
