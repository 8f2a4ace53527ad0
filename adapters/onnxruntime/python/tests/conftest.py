"""The execution provider's shared object: of the package, or named by TCONV_ONNXRUNTIME_LIBRARY."""

import pathlib
import sys

import pytest

# The package that is installed, if there is one.
sys.path += [str(pathlib.Path(__file__).parents[1]), str(pathlib.Path(__file__).parent)]


@pytest.fixture(scope="session", autouse=True)
def library():
    import onnxruntime

    import onnxruntime_ep_tconv

    path = pathlib.Path(onnxruntime_ep_tconv.get_library_path())
    if not path.exists():
        pytest.skip(f"there is no {path}: a build with TCONV_ONNXRUNTIME=ON has it")
    onnxruntime.set_default_logger_severity(3)  # no word on nodes that its own provider gets
    onnxruntime_ep_tconv.register()
    return path
