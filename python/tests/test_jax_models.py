"""Layers of flax and equinox by tconv, `python -m tconv verify --jax`, and imports that cannot work."""

import os
import pathlib
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("tconv.jax", exc_type=ImportError)

import jax
import jax.numpy as jnp

import tconv
import tconv._library
import tconv.jax
from tconv import __main__
from tconv.jax import _shim

ROOT = pathlib.Path(tconv.__file__).parents[1]


def calls_of(function, *arrays):
    before = _shim.calls()
    result = jax.block_until_ready(function(*arrays))
    return result, _shim.calls() - before


@pytest.mark.parametrize("library", ["linen", "nnx"])
@pytest.mark.parametrize("axes", [2, 3])
def test_flax(library, axes):
    """A layer whose padding is named, and one whose padding is a pair, in groups' stead dilated."""
    x = jax.random.normal(jax.random.key(0), (2, *(6, 7, 2)[:axes], 3))
    kernel = (3, 4, 2)[:axes]
    options = (
        {"strides": (2,) * axes, "padding": "SAME"},
        {"strides": (1, 2, 2)[:axes], "padding": "VALID", "kernel_dilation": (2, 1, 1)[:axes]},
    )
    if library == "linen":
        linen = pytest.importorskip("flax.linen")
        layers = [linen.ConvTranspose(f, kernel, **more) for f, more in zip((8, 4), options, strict=True)]
        model = linen.Sequential([layers[0], linen.relu, layers[1]])
        variables = model.init(jax.random.key(1), x)

        def apply(variables, x):
            return model.apply(variables, x)

    else:
        nnx = pytest.importorskip("flax.nnx")
        layers = [
            nnx.ConvTranspose(i, o, kernel, rngs=nnx.Rngs(0), **more)
            for (i, o), more in zip(((3, 8), (8, 4)), options, strict=True)
        ]
        model = nnx.Sequential(layers[0], jax.nn.relu, layers[1])
        graph, variables = nnx.split(model)

        def apply(variables, x):
            return nnx.merge(graph, variables)(x)

    step = jax.value_and_grad(lambda variables, x: (apply(variables, x) ** 2).sum())
    theirs, none = calls_of(jax.jit(lambda *arguments: step(*arguments)), variables, x)
    with tconv.jax.patched():
        ours, some = calls_of(jax.jit(lambda *arguments: step(*arguments)), variables, x)
    assert (none, some) == (0, 5)  # the first layer's input has no gradient
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_patched_puts_lax_back():
    """Also after an error, from contexts within contexts, and from two threads that leave in another order."""
    original = jax.lax.conv_transpose
    with pytest.raises(KeyError), tconv.jax.patched(), tconv.jax.patched():
        assert jax.lax.conv_transpose is tconv.jax.conv_transpose
        raise KeyError
    assert jax.lax.conv_transpose is original
    inside, leave = threading.Event(), threading.Event()

    def other():
        with tconv.jax.patched():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with tconv.jax.patched():
        thread.start()
        assert inside.wait(10)
    assert jax.lax.conv_transpose is tconv.jax.conv_transpose
    leave.set()
    thread.join()
    assert jax.lax.conv_transpose is original


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    "more",
    [
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
        {"stride": 3, "padding": "SAME", "use_bias": False},
        {"dilation": 2, "padding": "VALID"},
    ],
    ids=str,
)
def test_equinox(axes, more):
    equinox = pytest.importorskip("equinox")
    import tconv.jax.equinox

    name = f"ConvTranspose{axes}d"
    layer = getattr(equinox.nn, name)(4, 6, 4, key=jax.random.key(0), **more)
    ours = getattr(tconv.jax.equinox, name).from_layer(layer)
    assert isinstance(ours, getattr(equinox.nn, name)) and ours.weight is layer.weight and ours.bias is layer.bias
    x = jax.random.normal(jax.random.key(1), (3, 4, *(7, 6, 4)[:axes]))

    def step(module):
        return equinox.filter_value_and_grad(lambda module: (jax.vmap(module)(x) ** 2).sum())(module)

    (value, gradients), calls = calls_of(equinox.filter_jit(step), ours)
    expected, expected_gradients = step(layer)
    assert calls == 2
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


def test_equinox_circular_padding_and_other_layers():
    equinox = pytest.importorskip("equinox")
    import tconv.jax.equinox

    layer = equinox.nn.ConvTranspose1d(2, 3, 3, padding="SAME", padding_mode="CIRCULAR", key=jax.random.key(0))
    x = jnp.arange(12.0).reshape(2, 6)
    np.testing.assert_array_equal(tconv.jax.equinox.ConvTranspose1d.from_layer(layer)(x), layer(x))
    with pytest.raises(TypeError, match=r"takes an equinox\.nn\.ConvTranspose2d, not ConvTranspose1d"):
        tconv.jax.equinox.ConvTranspose2d.from_layer(layer)


def test_verify_says_what_is_right(capsys):
    assert __main__.main(["verify", "--jax", "--layers", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    right = [["cpu", name, "right:", "3"] for name in _shim.TARGETS.values()]
    assert [line.split()[:4] for line in lines[1:4]] == right
    assert lines[-2].startswith("cuda ") and lines[-1] == "right"


def test_verify_says_what_is_wrong(capsys, monkeypatch):
    """Of a function that leaves a column of the kernel out."""
    from tconv.jax import _verify

    monkeypatch.setattr(
        _verify, "conv_transpose", lambda x, w, *more: tconv.jax.conv_transpose(x, w.at[:, 0].set(0), *more)
    )
    assert __main__.main(["verify", "--jax", "--layers", "3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "wrong" and all("WRONG on x (" in line for line in lines[1:4])


def import_in(directory, program="import tconv.jax", **environment):
    """The last line of what an import says that fails in a process of its own."""
    variables = {**os.environ, "PYTHONPATH": str(directory), **environment}
    run = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, cwd=directory)
    assert run.returncode == 1
    return run.stderr.splitlines()[-1]


def test_import_without_the_shim_says_so(tmp_path):
    """As in a wheel that was made without jaxlib's header."""
    shutil.copytree(ROOT / "tconv", tmp_path / "tconv", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    library = tmp_path / "libtconv.so"
    library.symlink_to(pathlib.Path(tconv._library.path()).resolve())
    text = import_in(tmp_path, TCONV_LIBRARY=str(library))
    assert text.startswith("ImportError: tconv.jax needs libtconv_jax.so") and "TCONV_JAXLIB_INCLUDE" in text


def test_import_without_jax_says_so(tmp_path):
    program = "import sys; sys.modules['jax'] = None; import tconv.jax"
    assert "pip install" in import_in(tmp_path, program, PYTHONPATH=str(ROOT))


def test_import_with_a_shim_of_another_version_says_so(tmp_path):
    """One whose text of the version was changed."""
    library = pathlib.Path(tconv._library.path()).resolve()
    shim = (
        next(path for path in (library.parent, ROOT / "tconv") if (path / "libtconv_jax.so").exists())
        / "libtconv_jax.so"
    )
    (tmp_path / "libtconv.so").symlink_to(library)
    version = tconv.__version__.encode()
    (tmp_path / "libtconv_jax.so").write_bytes(shim.read_bytes().replace(version + b"\0", b"9.9.9\0"))
    text = import_in(tmp_path, PYTHONPATH=str(ROOT), TCONV_LIBRARY=str(tmp_path / "libtconv.so"))
    assert "is of tconv 9.9.9, and this package is" in text


def test_importing_tconv_does_not_import_jax():
    program = "import sys, tconv; sys.exit('jax' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0
