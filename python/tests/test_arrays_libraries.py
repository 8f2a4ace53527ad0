"""Arrays of PyTorch, JAX and CuPy, and what DLPack would change."""

import sys
import types
import weakref

import numpy as np
import pytest
from random_arrays import Other, W, X, Y

import tconv
from tconv import _host


def test_what_dlpack_would_change_without_a_word():
    torch = pytest.importorskip("torch")
    negated = torch.complex(torch.ones(2, 4, 5, 6), torch.ones(2, 4, 5, 6)).conj().imag
    weight = torch.from_numpy(W)
    with pytest.raises(tconv.InvalidArgumentError, match="resolve_neg"):
        tconv.conv_transpose2d(negated, weight)
    assert (tconv.conv_transpose2d(negated.resolve_neg(), weight) < 0).all()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.from_numpy(X), torch.ones(X.shape))
        with pytest.raises(tconv.InvalidArgumentError, match="tangent"):
            tconv.conv_transpose2d(dual, weight)
        assert tconv.conv_transpose2d(torch.from_numpy(X), weight).shape == Y.shape


def test_subclasses_of_pytorch_are_its_tensors():
    torch = pytest.importorskip("torch")

    class Mine(torch.Tensor):
        pass

    x, weight = torch.from_numpy(X).as_subclass(Mine), torch.from_numpy(W)
    result = tconv.conv_transpose2d(x, weight)
    np.testing.assert_array_equal(result.numpy(), tconv.conv_transpose2d(X, W))
    with pytest.raises(tconv.InvalidArgumentError, match="resolve_neg"):
        tconv.conv_transpose2d(torch._neg_view(x), weight)


def test_what_pytorch_does_not_hand_over():
    torch = pytest.importorskip("torch")
    x, weight = torch.from_numpy(X), torch.from_numpy(W)
    fake = torch._subclasses.FakeTensorMode().from_tensor(x)
    for wrong in (x.clone().requires_grad_(), x.to("meta"), x.to_sparse(), x.to(torch.cfloat).conj(), fake):
        with pytest.raises(tconv.TconvError, match=r"^x"):
            tconv.conv_transpose2d(wrong, weight)
    for transform in (torch.func.vmap, lambda f: torch.func.grad(lambda a: f(a).sum())):
        with pytest.raises(tconv.TconvError, match=r"^x"):
            transform(lambda a: tconv.conv_transpose2d(a, weight))(x)


def test_jax_arrays_are_never_written_to():
    jnp = pytest.importorskip("jax.numpy")
    out = jnp.zeros(Y.shape)
    with pytest.raises(tconv.InvalidArgumentError, match="read-only") as raised:
        tconv.conv_transpose2d(X, W, out=out)
    assert raised.value.field == "out" and not out.any()
    with pytest.raises(tconv.InvalidArgumentError, match="read-only"):
        tconv.Plan(X.shape, W)(X, out=out)
    result = tconv.conv_transpose2d(jnp.asarray(X), jnp.asarray(W))
    assert type(result) is type(out)
    np.testing.assert_array_equal(result, tconv.conv_transpose2d(X, W))


def test_jax_arrays_of_float64_stay_so():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        x, weight = jax.numpy.asarray(X.astype(float)), jax.numpy.asarray(W.astype(float))
        assert tconv.conv_transpose2d(x, weight).dtype == np.float64
    with pytest.raises(tconv.DtypeError, match="jax_enable_x64"):
        tconv.conv_transpose2d(x, weight)
    assert tconv.conv_transpose2d(x, weight, out=Y.astype(float)).any()


def test_under_jax_transforms():
    jax = pytest.importorskip("jax")
    x, weight = jax.numpy.asarray(X), jax.numpy.asarray(W)
    for transform in (jax.jit, lambda f: jax.grad(lambda a: f(a).sum()), jax.vmap, jax.make_jaxpr):
        for call in (lambda a: tconv.conv_transpose2d(a, weight), lambda a: tconv.Plan(X.shape, weight)(a)):
            with pytest.raises(tconv.InvalidArgumentError, match="pure_callback") as raised:
                transform(call)(x)
            assert raised.value.field == "x"
    with pytest.raises(tconv.TconvError, match="stride"):
        jax.jit(lambda s: tconv.conv_transpose2d(X, W, stride=s))(2)

    def call_back(a):
        like = jax.ShapeDtypeStruct(Y.shape, a.dtype)
        return jax.pure_callback(lambda b: tconv.conv_transpose2d(np.asarray(b), W), like, a)

    np.testing.assert_array_equal(jax.jit(call_back)(x), tconv.conv_transpose2d(X, W))


class Cupys(Other):
    """What a cupy.ndarray has, which has no __array_namespace__; in the host's memory."""

    __module__ = "cupy"
    entered = 0

    @property
    def dtype(self):
        return self.array.dtype

    @property
    def device(self):
        return self

    def __enter__(self):
        Cupys.entered += 1

    def __exit__(self, *error):
        return None

    def __getitem__(self, index):
        return Cupys(self.array[index])

    def transpose(self, axes):
        return Cupys(self.array.transpose(axes))


@pytest.mark.parametrize("channels_last", [False, True])
def test_arrays_are_made_as_cupy_makes_them(monkeypatch, channels_last):
    """On the device of x. This has never seen a GPU: CuPy itself is not among what the tests are run with."""
    cupy = types.ModuleType("cupy")
    cupy.empty = lambda shape, dtype: Cupys(np.empty(shape, dtype))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    x, weight = np.asfortranarray(X[0, :, 0]) if channels_last else X[0, :, 0], W[:, :, 0]
    entered = Cupys.entered
    result = tconv.conv_transpose1d(Cupys(x), Cupys(weight))
    assert type(result) is Cupys and Cupys.entered == entered + 1
    assert result.array.flags.f_contiguous == channels_last
    np.testing.assert_array_equal(result.array, tconv.conv_transpose1d(x, weight))


def test_memory_made_for_the_call_lives_as_long_as_it_is_read(monkeypatch):
    class Fresh(Other):
        def __dlpack__(self, **options):
            memory = self.array.copy()
            capsule = memory.__dlpack__(**options)
            alive.append(weakref.ref(memory))
            return capsule

    def execute(*arguments):
        assert alive and all(memory() is not None for memory in alive)
        real(*arguments)

    alive, real = [], _host.execute
    monkeypatch.setattr(_host, "execute", execute)
    tconv.conv_transpose2d(Fresh(X), Fresh(W), Fresh(np.ones(3, np.float32)), out=Y.copy())
    assert len(alive) == 3 and all(memory() is None for memory in alive)


def test_subclasses_of_numpy_come_back_as_plain_arrays():
    class Named(np.ndarray):
        @property
        def __array_interface__(self):
            raise AssertionError("the subclass was asked")

    assert type(tconv.conv_transpose1d(X[0, :, 0].view(Named), W[:, :, 0].view(Named))) is np.ndarray
