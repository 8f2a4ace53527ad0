"""What pip makes and installs: the source distribution, the wheel made from it, and the editable install."""

import email
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest

pytest.importorskip("scikit_build_core")

ROOT = pathlib.Path(__file__).parents[2]
LIMIT_SECONDS = 900
LIBRARIES = {"tconv/libtconv.so", "tconv/libtconv_torch.so", "tconv/libtconv_torch_operators.so"} | (
    {"tconv/libtconv_jax.so"} if importlib.util.find_spec("jaxlib") else set()  # whose header it is compiled with
)

PROGRAM = """
import numpy as np
import tconv
x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
y = tconv.conv_transpose2d(x, np.ones((1, 1, 2, 2), np.float32), stride=2)
assert y.tolist() == [[[[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]]]
print(tconv.__version__, tconv.info()["version"], tconv.__file__)
"""
ALONE = """
import importlib.util, shutil
assert importlib.util.find_spec("torch") is None
assert not any(map(shutil.which, ("cc", "gcc", "clang", "cmake", "ninja")))
"""
# What comes first, and whose libgomp the process has after both.
ONE_OPENMP = """
import {first}
import tconv
tconv.info()
import torch
torch.nn.functional.conv2d(torch.ones(4, 16, 64, 64), torch.ones(16, 16, 3, 3))
print(*{{line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line}}, sep="\\n")
"""


def run(*command, **more):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TCONV_LIBRARY")}
    environment |= more.pop("environment", {})
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        env=environment,
        **more,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}"
    return result.stdout


def pip(python, command, *arguments, openmp=False, verbose=False):
    """pip, which builds by what the interpreter has, in a directory that keeps what it has compiled, and for the CPU:
    device code is most of a build, and the tests of the library build it."""
    settings = {
        "build-dir": ROOT / "build" / "package",
        "cmake.define.TCONV_CUDA": "OFF",
        "cmake.define.TCONV_WHEEL_OPENMP": "ON" if openmp else "OFF",
        "cmake.define.TCONV_WHEEL_OPENMP_LICENSES": ROOT / "LICENSE",  # which it is not
    }
    options = [word for name, value in settings.items() for word in ("-C", f"{name}={value}")]
    quiet = ["-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    return run(
        python, "-m", "pip", command, *(["-v", *quiet[1:]] if verbose else quiet), *options, *map(str, arguments)
    )


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    directory = tmp_path_factory.mktemp("sdist")
    program = "import sys, scikit_build_core.build as build; build.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", program, str(directory), cwd=ROOT)
    (built,) = directory.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def sources(sdist):
    """The source distribution, unpacked where the last one was: what is the same keeps its time, so that it is not
    compiled again."""
    directory = ROOT / "build" / "sdist"
    with tarfile.open(sdist) as archive:
        files = {m.name.split("/", 1)[1]: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
    for path in [path for path in directory.rglob("*") if path.is_file()]:
        if path.relative_to(directory).as_posix() not in files:
            path.unlink()
    for name, data in files.items():
        path = directory / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return directory


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "-w", directory, sources)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel_with_openmp(wheel, sources, tmp_path_factory):
    """As scripts/wheel makes it, but for the tag and the texts of libgomp's licence."""
    directory = tmp_path_factory.mktemp("wheel_with_openmp")
    pip(sys.executable, "wheel", "-w", directory, sources, openmp=True)
    (built,) = directory.glob("*.whl")
    return built


def test_sdist_has_what_builds_and_nothing_else(sdist):
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert tops == {"CMakeLists.txt", "LICENSE", "PKG-INFO", "cmake", "include", "pyproject.toml", "python", "src"}


def test_wheel_holds_the_shared_objects(wheel):
    names = contents(wheel)
    assert {name for name in names if ".so" in name} == LIBRARIES
    assert {"tconv/py.typed", "tconv/torch/__init__.py"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tconv"}
    assert "-py3-none-" in wheel.name


def test_metadata(wheel):
    (info,) = {name.split("/")[0] for name in contents(wheel) if ".dist-info/" in name}
    with zipfile.ZipFile(wheel) as archive:
        metadata = email.message_from_string(archive.read(f"{info}/METADATA").decode())
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    assert metadata["Name"] == "tconv" and metadata["Version"] == wheel.name.split("-")[1]
    assert metadata["License-Expression"] == "Apache-2.0" and metadata.get_all("License-File") == ["LICENSE"]
    assert licence == (ROOT / "LICENSE").read_text()
    assert metadata["Author"] == "The tconv developers"
    assert ".invalid" not in str(metadata)  # no address is better than one that leads nowhere
    classifiers = metadata.get_all("Classifier")
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert not any(line.startswith("License ::") for line in classifiers)  # the expression has taken their place
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / "python" / "README.md").read_text().strip()
    required = [line for line in metadata.get_all("Requires-Dist") if "extra" not in line]
    assert len(required) == 1 and required[0].startswith("numpy")


def test_a_build_shows_how_far_it_is(wheel, sources, tmp_path):
    """With pip's -v, of one file that has changed."""
    changed = sources / "src" / "core" / "status.c"
    os.utime(changed)
    text = pip(sys.executable, "wheel", "-w", tmp_path, sources, verbose=True)
    steps = [tuple(map(int, step)) for step in re.findall(r"\[(\d+)/(\d+)\]", text)]
    assert steps and steps[-1][0] == steps[-1][1] >= 2
    assert "built for the CPU alone, which takes" in text


def test_a_build_without_a_compiler_says_what_to_do(sources, tmp_path):
    """What to install, and what needs no compiler."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("cmake", "ninja"):
        (programs / name).symlink_to(shutil.which(name))
    command = [programs / "cmake", "-S", sources / "python", "-B", tmp_path / "build", "-G", "Ninja"]
    for compiler in ({}, {"CC": "gcc"}):  # as pip's build has it
        environment = {"PATH": str(programs), "HOME": str(tmp_path), **compiler}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        text = " ".join(result.stderr.split())
        assert result.returncode != 0
        for words in (
            "no C compiler on the PATH",
            "apt-get install build-essential",
            "dnf install gcc",
            "scripts/wheel",
        ):
            assert words in text


def test_index_would_take_it(wheel, sdist):
    pytest.importorskip("twine")
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))


def test_wheel_works_with_numpy_alone(wheel, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel))
    bare = {"PATH": str(tmp_path / "venv" / "bin")}
    version, described, _ = run(python, "-I", "-c", ALONE + PROGRAM, environment=bare).split()
    assert version == described == wheel.name.split("-")[1]


def test_openmp_goes_with_the_wheel(wheel, wheel_with_openmp):
    added = contents(wheel_with_openmp) - contents(wheel)
    (info,) = {name.split("/")[0] for name in added if ".dist-info/" in name}
    assert added == {"tconv/libgomp.so.1", f"{info}/licenses/libgomp/LICENSE"}
    pytest.importorskip("auditwheel")
    text = run(sys.executable, "-m", "auditwheel", "show", str(wheel_with_openmp))
    assert 'platform tag: "manylinux_' in " ".join(text.split())


@pytest.mark.parametrize("first", ["torch", "tconv"])
def test_one_openmp_with_pytorch(first, wheel_with_openmp, tmp_path):
    """Two would each have a team of threads, for the same cores."""
    torch = pytest.importorskip("torch")
    own = pathlib.Path(torch.__file__).parent / "lib" / "libgomp.so.1"
    if not own.exists():
        pytest.skip("this PyTorch does not come with libgomp.so.1")
    with zipfile.ZipFile(wheel_with_openmp) as archive:
        archive.extractall(tmp_path)
    program = ONE_OPENMP.format(first=first)
    loaded = run(sys.executable, "-c", program, environment={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path).split()
    assert loaded == [str(own if first == "torch" else tmp_path / "tconv" / "libgomp.so.1")]


def test_editable_install(sources, wheel, tmp_path):
    """The Python sources are used where they lie, the library where it was installed."""
    venv.create(tmp_path / "venv", with_pip=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "tests.pth").write_text(sysconfig.get_path("purelib"))  # NumPy, and what builds
    python = str(tmp_path / "venv" / "bin" / "python")
    pip(python, "install", "-e", sources)
    version, described, file = run(python, "-I", "-c", PROGRAM, cwd=tmp_path).split()
    assert version == described == wheel.name.split("-")[1]
    assert pathlib.Path(file) == sources / "python" / "tconv" / "__init__.py"
