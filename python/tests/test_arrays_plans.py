"""Plans of layers on arrays, and threads that share them."""

import copy
import ctypes
import pickle
import sys
import threading

import numpy as np
import pytest
from random_arrays import W, X, Y

import tconv
from tconv import _host, _library, _plan


def described(plan):
    text = ctypes.create_string_buffer(1024)
    assert _library.library().tconv_plan_describe(plan._handle, text, len(text), None) == 0
    return text.value.decode()


def test_threads():
    expected = tconv.conv_transpose2d(X, W)
    _host.prepared_layers.clear()
    np.testing.assert_array_equal(tconv.conv_transpose2d(X, W), expected)
    np.testing.assert_array_equal(tconv.conv_transpose2d(X, W, threads=1), expected)
    assert len(_host.prepared_layers) == 2
    *_, last = _host.prepared_layers._values.values()
    assert "threads=1 " in described(last.plan)
    assert "threads=1 " in described(tconv.Plan(X.shape, W, threads=1)._packed.plan)


def test_a_plan_keeps_what_it_was_made_of():
    weight, bias = W.copy(), np.ones(3, np.float32)
    plan = tconv.Plan(X.shape, weight, bias)
    expected = tconv.conv_transpose2d(X, weight, bias)
    weight[...] = bias[...] = 9
    np.testing.assert_array_equal(plan(X), expected)


def test_a_plan_says_what_it_is():
    plan = tconv.Plan((np.int64(4), 9), W[..., 0], stride=2, padding=((1, 0),), channels_last=True)
    assert plan.input_shape == (4, 9) and plan.output_shape == (3, 18) and plan.dtype == "float32"
    assert plan.implementation.startswith("cpu_") and isinstance(plan.workspace_size, int)
    for part in (
        "(4, 9) -> (3, 18)",
        "stride=(2,)",
        "padding=((1, 0),)",
        "float32",
        "channels last",
        plan.implementation,
    ):
        assert part in repr(plan)
    for name in ("input_shape", "implementation", "workspace_size", "anything"):
        with pytest.raises(AttributeError):
            setattr(plan, name, 1)


def test_a_plan_lies_as_it_was_asked_to():
    own = tconv.Plan(X.shape, W)(X)
    assert own.flags.c_contiguous and own.flags.owndata
    result = tconv.Plan(X.shape, W, channels_last=True)(X)
    assert result.transpose(0, 2, 3, 1).flags.c_contiguous
    np.testing.assert_array_equal(result, tconv.conv_transpose2d(X, W))


def test_a_plan_refuses_what_it_was_not_made_for():
    plan = tconv.Plan(X.shape, W)
    for x, why in ((X[:1], "x.shape = "), (X[0], "x.shape = "), (X.astype(float), "x is float64")):
        with pytest.raises(tconv.InvalidArgumentError, match=why) as raised:
            plan(x)
        assert raised.value.field == "x"
    for shape, field in ((3, "x_shape"), ((4, 5), "x_shape"), ((2, 4, 5.0, 6), "x_shape"), ((2, 4, -5, 6), "in_h")):
        with pytest.raises(tconv.TconvError) as raised:
            tconv.Plan(shape, W)
        assert raised.value.field == field and field in raised.value.message
    with pytest.raises(tconv.DtypeError, match="channels_last = 1"):
        tconv.Plan(X.shape, W, channels_last=1)


def test_a_plan_is_its_own_copy_and_no_pickle():
    plan = tconv.Plan(X.shape, W)
    assert copy.copy(plan) is plan and copy.deepcopy([plan])[0] is plan
    with pytest.raises(TypeError, match="make it anew"):
        pickle.dumps(plan)


def test_a_dropped_plan_frees_both_of_the_library(monkeypatch):
    destroyed = []
    real = _plan.Plan.__del__
    monkeypatch.setattr(_plan.Plan, "__del__", lambda plan: (destroyed.append(plan._handle), real(plan)))
    plan = tconv.Plan(X.shape, W)
    assert len(destroyed) == 1  # that from which it was packed
    del plan
    assert len(set(destroyed)) == 2


def test_threads_share_a_plan():
    plan = tconv.Plan(X.shape, W, channels_last=True)
    inputs = [np.full(X.shape, i, np.float32) for i in range(8)]
    expected = [tconv.conv_transpose2d(x, W) for x in inputs]
    wrong = []

    def work(seed):
        for i in np.random.default_rng(seed).integers(0, len(inputs), 200):
            if not np.array_equal(plan(inputs[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_plans_of_plain_calls_are_not_forgotten_references():
    """Results hold nothing of the plan, and the plan nothing of its arrays."""
    x = X.copy()
    before = sys.getrefcount(x)
    plan = tconv.Plan(X.shape, W)
    for _ in range(3):
        plan(x, out=Y.copy())
    assert sys.getrefcount(x) == before
