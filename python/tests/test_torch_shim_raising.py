"""The shim after an exception at any entry into Python, and what it refuses to remember."""

import contextlib
import sys

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch_layers import FUNCTIONS, tensors  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _eager, _gradient_operators, _gradients, _native, _operator, _settings  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not _native.is_installed(), reason="libtconv_torch.so is not beside the library"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
SIZES = (2, 1, 1, 1, 2)  # stride, padding, output_padding, groups, dilation
LISTS = ([2, 2], [1, 1], [1, 1], 1, [2, 2])


class Mine(BaseException):
    """What no except clause for errors catches, as KeyboardInterrupt."""


class RaisingAt:
    """A context in which this thread's entry of this number into a function of Python raises Mine."""

    def __init__(self, number):
        self.left = number

    def __enter__(self):
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _profile(self, frame, event, argument):
        # Its own end is none of what is tried.
        if event != "call" or frame.f_code is RaisingAt.__exit__.__code__:
            return
        self.left -= 1
        if self.left == 0:
            raise Mine


def leaves_that_want(input, weight, bias):
    return [t.requires_grad_(want) for t, want in zip(tensors(), (input, weight, bias), strict=True)]


def gradients(result, leaves, cotangent=None, **more):
    cotangent = torch.ones_like(result) if cotangent is None else cotangent
    return torch.autograd.grad(result, [leaf for leaf in leaves if leaf.requires_grad], cotangent, **more)


# Each calls the package's function or PyTorch's in a context, and returns its results.


def eager(function, context):
    arguments = tensors()
    with torch.no_grad(), context:
        return function(*arguments, *SIZES)


def with_graph(function, context):
    leaves = leaves_that_want(True, True, True)
    with context:
        return gradients(function(*leaves, *SIZES), leaves)


def with_more_graph(function, context):
    """The gradient of the bias alone, as a part of a graph: the shim does not read this call, Python plans it."""
    leaves = leaves_that_want(False, False, True)
    with context:
        return gradients(function(*leaves, *SIZES), leaves, create_graph=True)


def with_negative(function, context):
    leaves = leaves_that_want(True, True, False)
    with context:
        result = function(*leaves, *SIZES)
        return gradients(result, leaves, torch._neg_view(torch.ones_like(result)))


def by_operator(function):
    return _operator.OPERATORS[2] if function is tt.conv_transpose2d else function


def operator(function, context):
    arguments = tensors()
    with torch.no_grad(), context:
        return by_operator(function)(*arguments, *LISTS)


def operator_with_graph(function, context):
    leaves = leaves_that_want(True, True, True)
    with context:
        return gradients(by_operator(function)(*leaves, *LISTS), leaves)


def operators_of_gradients(function, context):
    x, weight, bias = leaves_that_want(True, True, True)
    result = F.conv_transpose2d(x, weight, bias, *SIZES)
    cotangent, sizes = torch.ones_like(result), ([2, 2], [1, 1], 1, [2, 2])
    if function is not tt.conv_transpose2d:
        return torch.autograd.grad(result, (x, weight, bias), cotangent)
    with torch.no_grad(), context:
        data = _gradient_operators.DATA_OPERATORS[2](cotangent, weight, x.shape[2:], *sizes, False)
        both = _gradient_operators.WEIGHTS_OPERATORS[2](x, cotangent, [2, 2], *sizes, [True, True], False)
    return data, *both


CALLS = [eager, with_graph, with_more_graph, with_negative, operator, operator_with_graph, operators_of_gradients]


def check(call):
    torch.manual_seed(0)
    ours = call(tt.conv_transpose2d, contextlib.nullcontext())
    torch.manual_seed(0)
    torch.testing.assert_close(ours, call(F.conv_transpose2d, contextlib.nullcontext()), **CLOSE)


@pytest.mark.parametrize("call", CALLS)
def test_an_exception_at_any_entry_leaves_nothing_behind(call):
    """After each comes a gradient that the shim does not read, as it does no gradient with a graph of its own, but that
    Python plans and puts into the table; then this call, and calls that are read and others that are not."""
    for each in CALLS:
        check(each)
    leaves = leaves_that_want(False, False, True)
    prepared, expected = (f(*leaves, *SIZES) for f in FUNCTIONS[2])
    of_bias = gradients(expected, leaves)
    number, fired = 0, True
    while fired:
        number += 1
        forget_plans()
        torch.manual_seed(0)
        raising = RaisingAt(number)
        try:
            call(tt.conv_transpose2d, raising)
        except (Mine, RuntimeError):  # an error of that text, where PyTorch's C interface keeps no more of it
            pass
        fired = raising.left <= 0
        torch.testing.assert_close(gradients(prepared, leaves, create_graph=True), of_bias, **CLOSE)
        for each in (call, eager, with_negative):
            check(each)
    for each in CALLS:
        check(each)
    assert number > 3


def test_plans_of_another_kind_are_refused(monkeypatch):
    """A gradient's plan that is put while the shim waits for that of a layer, and the other way about."""
    x, weight, bias = leaves_that_want(True, True, True)
    result, expected = (f(x, weight, bias, *SIZES) for f in FUNCTIONS[2])
    cotangent, arguments = torch.ones_like(result), ([2, 2], [1, 1], 1, [2, 2])
    layer = _compute.find(x, weight, bias, *SIZES)
    found = _gradients.find(cotangent, x, weight, *arguments, [True] * 3)
    put, put_gradients = _native.table.put, _native.table.put_gradients

    def check_all():
        for _ in range(2):
            before = x.detach().clone()
            torch.testing.assert_close(tt.conv_transpose2d(x, weight, bias, *SIZES), expected, **CLOSE)
            torch.testing.assert_close(
                *(torch.autograd.grad(y, (x, weight, bias), cotangent, retain_graph=True) for y in (result, expected)),
                **CLOSE,
            )
            assert torch.equal(x, before)

    for wrong in (
        (lambda _: put_gradients(found), put_gradients),
        (lambda _: _native.table.put_gradient(found.data, None), put_gradients),
        (lambda _: _native.table.put_gradient(found.weights, None), put_gradients),
        (put, lambda _: put(layer)),
        (put, lambda _: _native.table.put_gradient(found.weights, found.data)),
        (put, lambda _: _native.table.put_gradient(found.weights, None)),
    ):
        forget_plans()
        with monkeypatch.context() as patch:
            patch.setattr(_native.table, "put", wrong[0])
            patch.setattr(_native.table, "put_gradients", wrong[1])
            check_all()
        check_all()


def test_settings_that_change_on_the_way():
    """A plan is kept for the number of threads that it was made for, not for the one that the shim read before."""
    x, weight, bias = tensors()
    threads = torch.get_num_threads()
    find_layer, forward = _eager.find_layer, lambda: tt.conv_transpose2d(x, weight, bias, *SIZES)

    def slowly(*arguments):
        torch.set_num_threads(3)
        return find_layer(*arguments)

    forget_plans()
    try:
        torch.set_num_threads(2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_eager, "find_layer", slowly)
            forward()
        before = _native.taken()
        forward()
        assert _native.taken() == before + 1
        torch.set_num_threads(2)
        forward()
        assert _native.taken() == before + 1
        forward()
        assert _native.taken() == before + 2
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["tf32", "get_num_threads"])
def test_a_setting_is_read_once_for_a_plan(monkeypatch, name):
    """By PyTorch's own functions, as another thread may change them at any time."""
    asked = []
    holder = _settings if name == "tf32" else torch
    now = getattr(holder, name)
    device = "cuda" if name == "tf32" else "cpu"
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        x, weight = torch.empty(1, 4, 5, 6, device=device), torch.empty(4, 3, 2, 2, device=device)
        diff_dst = torch.empty(1, 3, 6, 7, device=device)
        monkeypatch.setattr(holder, name, lambda: asked.append(1) or now())
        forget_plans()
        _compute.find(x, weight, None, 1, 0, 0, 1, 1)
        assert len(asked) == 1
        _gradients.find(diff_dst, x, weight, [1, 1], [0, 0], 1, [1, 1], [True] * 3)
        assert len(asked) == 2
