"""The library that the package finds: what is said of one that is missing or foreign; python -m tconv."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tconv
from tconv import __main__, _library, _verify

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = pathlib.Path(tconv.__file__).parent
OTHER_VERSION = "9" + tconv.__version__[1:]


def python(*arguments, library=None, **environment):
    known = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment}
    if library is not None:
        known["TCONV_LIBRARY"] = str(library)
    return subprocess.run([sys.executable, *arguments], env=known, capture_output=True, text=True)


def importing(library, **environment):
    """What import says; "" where it succeeds."""
    run = python("-c", "import tconv", library=library, **environment)
    assert run.returncode == (1 if run.stderr else 0)
    return run.stderr.strip().rpartition("\n")[2]


@pytest.fixture
def own(tmp_path):
    """A copy of the library, to be spoiled."""
    return pathlib.Path(shutil.copy(_library.path(), tmp_path / "libtconv.so"))


def test_versions_agree():
    header = (ROOT / "include" / "tconv" / "version.h").read_text()
    assert re.search(r'TCONV_VERSION_STRING "(.*)"', header)[1] == tconv.__version__
    assert tconv.info()["version"] == tconv.__version__


def test_import_loads_nothing():
    program = "import tconv, pathlib; print('libtconv' in pathlib.Path('/proc/self/maps').read_text()); tconv.info()"
    assert python("-c", program).stdout.strip() == "False"


def test_an_untouched_copy_is_taken(own):
    assert importing(own) == ""


@pytest.mark.parametrize("named", [False, True])
def test_a_missing_library(tmp_path, named):
    shutil.copytree(PACKAGE, tmp_path / "tconv", ignore=shutil.ignore_patterns("*.so"))
    library = tmp_path / "nowhere.so" if named else ""
    said = importing(library, PYTHONPATH=str(tmp_path))
    missing = "nowhere.so" if named else str(tmp_path / "tconv" / "libtconv.so")
    assert said.startswith("ImportError") and missing in said and "install" in said and "TCONV_LIBRARY" in said


def spoil(path, change):
    content = path.read_bytes()
    changed = change(content)
    assert changed != content
    path.write_bytes(changed)


SPOILED = {
    "is no shared object": lambda content: b"!<arch>\n" + content,
    "cannot be read": lambda content: b"",
    "another machine": lambda content: content[:18] + bytes([content[18] ^ 0x40]) + content[19:],
    "has no tconv_plan_describe": lambda content: content.replace(b"tconv_plan_describe\0", b"tconv_plan_xxxxxxxx\0"),
    f"is not of version {tconv.__version__.rpartition('.')[0]}": lambda content: content.replace(
        tconv.__version__.encode() + b"\0", OTHER_VERSION.encode() + b"\0"
    ),
}


@pytest.mark.parametrize("why", SPOILED)
def test_a_foreign_library(own, why):
    spoil(own, SPOILED[why])
    said = importing(own)
    assert said.startswith("ImportError") and str(own) in said and why in said and "TCONV_LIBRARY" in said


def test_a_library_of_something_else():
    said = importing(next(pathlib.Path(sys.base_prefix, "lib").glob("python3*/lib-dynload/*.so")))
    assert said.startswith("ImportError") and "is no libtconv" in said


def test_another_version_that_the_loader_finds(own):
    """By a name without a directory nothing is known before it is loaded."""
    spoil(own, lambda content: content.replace(tconv.__version__.encode() + b"\0", OTHER_VERSION.encode() + b"\0"))
    run = python("-c", "import tconv; tconv.info()", library=own.name, LD_LIBRARY_PATH=str(own.parent))
    assert f"ImportError: libtconv.so is libtconv {OTHER_VERSION}, and this package is tconv" in run.stderr


def test_another_patch_of_the_same_version_is_taken(own):
    other = tconv.__version__[:-1] + ("7" if tconv.__version__[-1] != "7" else "8")
    spoil(own, lambda content: content.replace(tconv.__version__.encode() + b"\0", other.encode() + b"\0"))
    run = python("-c", "import tconv; print(tconv.info()['version'])", library=own)
    assert run.stdout.strip() == other, run.stderr


def test_info_as_text():
    run = python("-m", "tconv")
    assert run.returncode == 0, run.stderr
    for part in (f"tconv {tconv.__version__}", f"library: {_library.path()}", "cpu:", "cuda:", "numpy", "environment:"):
        assert part in run.stdout
    if not tconv.info()["cuda"]["available"]:
        assert "reason: " in run.stdout
    assert python("-m", "tconv", "info").stdout == run.stdout


def test_a_reader_that_has_seen_enough():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "tconv"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    run = subprocess.run(command, env=environment, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (run.returncode, run.stderr) == (1, "")


OPERATIONS_OF = {"cpu_dgrad": ["backward_data"], "cpu_wgrad": ["backward_weights"]}
OPERATIONS_OF["cpu_bf16"] = ["forward", "backward_data"]
OPERATIONS_OF["cpu_reference"] = ["forward", "backward_data", "backward_weights"]


def test_verify():
    run = python("-m", "tconv", "verify", "--layers", "40")
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [line.split(maxsplit=2) for line in run.stdout.splitlines() if line.startswith("cpu_")]
    names = [name for name in _library.implementations() if name.startswith("cpu_")]
    expected = {(name, operation) for name in names for operation in OPERATIONS_OF.get(name, ["forward"])}
    assert {(name, operation) for name, operation, _ in lines} == expected
    own = [answer for name, _, answer in lines if name not in ("cpu_bf16", "cpu_pixels", "cpu_col2im", "cpu_carry")]
    assert all(re.match(r"right: [1-9]\d* layers", answer) for answer in own)
    assert "\ncuda_" in run.stdout and "\nnot tried: " in run.stdout and run.stdout.endswith("\nright\n")
    assert python("-m", "tconv", "verify", "--layers", "0").returncode == 2


@pytest.mark.parametrize("which", [0, 1])
def test_verify_sees_a_gradient_that_is_wrong(monkeypatch, capsys, which):
    gradients = _verify._gradients

    def wrong(*arguments):
        made = list(gradients(*arguments))
        made[which] = made[which] + 1
        return made

    monkeypatch.setattr(_verify, "_gradients", wrong)
    assert __main__.main(["verify", "--layers", "2"]) == 1
    said = re.findall(r"^cpu_reference +(\w+) +WRONG on ", capsys.readouterr().out, re.M)
    assert said == [["backward_data", "backward_weights"][which]]


def test_verify_tries_accumulate():
    rng = np.random.default_rng(0)
    for op in _verify._OPERATIONS:
        assert {_verify._random_case(rng, op).desc.accumulate for _ in range(40)} == {0, 1}


def test_verify_sees_what_is_wrong(monkeypatch, capsys):
    formula = _verify._formula
    monkeypatch.setattr(_verify, "_formula", lambda *arguments: formula(*arguments) + 1)
    assert __main__.main(["verify", "--layers", "3"]) == 1
    printed = capsys.readouterr().out
    assert re.search("^cpu_reference +forward +WRONG on ", printed, re.M) and printed.endswith("\nwrong\n")


def test_verify_does_not_call_right_what_it_has_not_tried(capsys):
    for seed in range(10):
        assert __main__.main(["verify", "--layers", "1", "--seed", str(seed)]) == 0
    printed = capsys.readouterr().out
    assert "not tried: none of 1 layers is its own" in printed and "right: 0" not in printed


def test_verify_names_an_environment_mistake():
    run = python("-m", "tconv", "verify", "--layers", "1", TCONV_CPU_ISA="none")
    assert run.returncode == 1 and "FAILED: TCONV_CPU_ISA = none" in run.stdout


@pytest.mark.parametrize("value", np.linspace(-4, 4, 97))
def test_bfloat16_of_the_self_check(value):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    stored = _verify._as_stored(np.array([value]), _library.BF16)
    assert stored.view(bfloat16)[0] == np.float32(value).astype(bfloat16)
