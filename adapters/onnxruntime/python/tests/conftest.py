"""What the tests of the execution provider share. They need onnx and an ONNX Runtime that loads plug-ins, and skip without."""

import pathlib
import sys

import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime", minversion="1.24")
sys.path[:0] = [str(pathlib.Path(__file__).parents[1]), str(pathlib.Path(__file__).parent)]

import onnxruntime_ep_tconv  # noqa: E402


def pytest_configure():
    onnxruntime.set_default_logger_severity(3)  # no word on nodes that its own provider gets


@pytest.fixture(scope="session", autouse=True)
def library():
    path = pathlib.Path(onnxruntime_ep_tconv.get_library_path())
    if not path.exists():
        pytest.skip(f"there is no {path.name}: it is built with -DTCONV_ONNXRUNTIME=ON, and TCONV_ONNXRUNTIME_LIBRARY names it")
    onnxruntime_ep_tconv.register()
    return path
