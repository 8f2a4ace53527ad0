"""tconv.jax on CUDA without a GPU: jax_on_standin.py, in a process whose library is that of the stand-in for the CUDA
runtime (tests/standin)."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("jax")
pytest.importorskip("tconv.jax", exc_type=ImportError)

import tconv
import tconv._library

TESTS = pathlib.Path(__file__).parent


def test_jax_on_the_standin(tmp_path):
    """The shim is found beside the library, so both are put into one folder."""
    library = pathlib.Path(tconv._library.path()).resolve()
    standin = library.parent / "tests" / "standin" / "libtconv_standin.so"
    if not standin.exists():
        pytest.skip("this needs a build with CUDA and tests")
    (tmp_path / "libtconv.so").symlink_to(standin)
    if (library.parent / "libtconv_jax.so").exists():
        (tmp_path / "libtconv_jax.so").symlink_to(library.parent / "libtconv_jax.so")
    environment = {
        **os.environ,
        "PYTEST_ADDOPTS": "",  # which may have options of the plug-in that is left out below
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(pathlib.Path(tconv.__file__).parents[1]),
        "TCONV_LIBRARY": str(tmp_path / "libtconv.so"),
    }
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    run = subprocess.run([*pytest_here, TESTS / "jax_on_standin.py"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout + run.stderr
