"""The wheel: one shared object, nothing needed but NumPy."""

import os
import pathlib
import subprocess
import sys
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
LIMIT_SECONDS = 900

PROGRAM = """
import importlib.util, sys
import numpy as np
import tconv
assert importlib.util.find_spec("torch") is None
x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
y = tconv.conv_transpose2d(x, np.ones((1, 1, 2, 2), np.float32), stride=2)
assert y.tolist() == [[[[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]]]
print(tconv.__version__, tconv.info()["version"])
"""


def run(*command):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TCONV_LIBRARY")}
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_SECONDS, env=environment
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """For the CPU: the device code is most of a build, and the tests of the library build it."""
    pytest.importorskip("scikit_build_core")
    directory = tmp_path_factory.mktemp("wheel")
    settings = ["-C", "cmake.define.TCONV_CUDA=OFF", "-C", f"build-dir={ROOT / 'build' / 'python'}"]
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    run(*pip, *settings, "-w", str(directory), str(ROOT / "python"))
    (built,) = directory.glob("*.whl")
    return built


def test_wheel_holds_one_shared_object(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert [name for name in names if ".so" in name] == ["tconv/libtconv.so"]
    assert {"tconv/py.typed", "tconv/torch/__init__.py"} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tconv"}
    assert "-py3-none-" in wheel.name
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra" not in line]
    assert len(required) == 1 and "numpy" in required[0]


def test_wheel_works_with_numpy_alone(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel))
    version, described = run(python, "-I", "-c", PROGRAM).split()
    assert version == described == wheel.name.split("-")[1]
