"""What help() and dir() show: arguments, shapes, errors and an example that runs, of all that is public; and types."""

import doctest
import inspect
import os
import pathlib
import re
import subprocess
import sys

import pytest

import tconv
import tconv.post

try:
    import torch

    import tconv.torch

    MODULES = [tconv, tconv.post, tconv.torch]
except ImportError:
    torch, MODULES = None, [tconv, tconv.post]
try:
    import tconv.jax

    MODULES.append(tconv.jax)
except ImportError:
    pass

PUBLIC = [(module, name) for module in MODULES for name in module.__all__]
FUNCTIONS = [(m, n) for m, n in PUBLIC if inspect.isfunction(getattr(m, n))]
# A layer, or what is called as one.
LAYERS = [(m, n) for m, n in PUBLIC if n in ("Plan", "Stream") or "ConvTranspose" in n]


def called(pair):
    return f"{pair[0].__name__}.{pair[1]}"


def sections(text):
    """The titles of a docstring's sections, as PyTorch writes them, with what stands in each."""
    found, title = {}, ""
    for line in inspect.cleandoc(text).splitlines():
        if line.rstrip(":") in ("Args", "Shape", "Attributes", "Returns", "Raises", "Examples") and line.endswith(":"):
            title = line.rstrip(":")
        found[title] = found.get(title, "") + line + "\n"
    return found


@pytest.mark.parametrize("public", FUNCTIONS + LAYERS, ids=called)
def test_docstrings_have_arguments_shapes_errors_and_an_example(public):
    what = getattr(*public)
    assert "__doc__" in vars(what) or inspect.isfunction(what)
    found = sections(what.__doc__)
    parameters = inspect.signature(what).parameters
    for name in parameters:
        assert re.search(rf"^ +([a-z_]+, )*{name}\b.*: ", found["Args"], re.MULTILINE), name
    assert ">>>" in found["Examples"]
    if "conv_transpose" in public[1] or public in LAYERS:
        assert "Shape" in found and "Raises" in found
    if parameters:
        assert "Raises" in found
    if inspect.isfunction(what) and inspect.signature(what).return_annotation not in (None, "None"):
        assert "Returns" in found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_of_docstrings_run(module):
    finder, results = doctest.DocTestFinder(recurse=False), []
    for what in [module, *(getattr(module, name) for name in module.__all__ if name != "__version__")]:
        for test in finder.find(what, module.__name__, module=False, globs={}):
            results.append(doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test))
    assert sum(result.attempted for result in results) > len(module.__all__)
    assert sum(result.failed for result in results) == 0


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_dir_shows_what_is_public_alone(module):
    assert set(dir(module)) - {"jax", "torch"} == set(module.__all__)


TYPED = """
import numpy as np
import tconv
x, weight = np.ones((1, 3, 8, 8), np.float32), np.ones((3, 2, 4, 4), np.float32)
reveal_type(tconv.conv_transpose2d(x, weight, out=x))
reveal_type(tconv.conv_transpose1d(x.reshape(1, 3, 64), weight.reshape(3, 2, 16)))
reveal_type(tconv.conv_transpose2d_backward_data(x, weight, 8))
reveal_type(tconv.conv_transpose2d_backward_weights(x, x, 4)[0])
reveal_type(tconv.Plan(x.shape, weight, padding=((1, 2), (3, 4)))(x))
tconv.conv_transpose2d("x", weight)
tconv.conv_transpose2d(x, [[1.0]])
tconv.conv_transpose2d(x, weight, stride="2")
"""


def test_functions_of_arrays_have_types(tmp_path):
    """As a type checker sees them: the result is of x's type, and what is no array is refused."""
    pytest.importorskip("mypy")
    program = tmp_path / "typed.py"
    program.write_text(TYPED)
    environment = {**os.environ, "MYPYPATH": str(pathlib.Path(tconv.__file__).parents[1])}
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(program)]
    lines = subprocess.run(command, env=environment, capture_output=True, text=True).stdout.splitlines()
    notes = [line for line in lines if "Revealed type" in line]
    errors = [line for line in lines if ": error:" in line]
    assert len(notes) == 5 and all("ndarray[" in line for line in notes), lines
    assert [line.split(":")[1] for line in errors] == ["10", "11", "12"], lines
