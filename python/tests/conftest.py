import os
import sys

import pytest

# JAX's arrays are the CPU's in these tests. On a GPU each process would also take three quarters of the memory.
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a CUDA device")


def cuda_missing():
    """Why nothing can be computed on a GPU here; "" where it can."""
    torch = pytest.importorskip("torch")
    import tconv

    if not torch.cuda.is_available():
        return "no CUDA device"
    cuda = tconv.info()["cuda"]
    return "" if cuda["available"] else "the library has no CUDA backend"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    if request.param == "cuda" and (why := cuda_missing()):
        pytest.skip(f"this needs a GPU: {why}")
    return request.param


@pytest.fixture(autouse=True)
def same_numbers_in_strict_math():
    """The same random numbers in every test, and on CUDA no TF32 unless the test says so. The flag is set below
    torch.backends, whose setters torch.testing._internal locks."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    torch.manual_seed(0)
    torch._C._set_cudnn_allow_tf32(False)
    yield
    torch._C._set_cudnn_allow_tf32(True)


@pytest.fixture
def compiled_anew():
    """Without what torch.compile has kept of earlier tests."""
    pytest.importorskip("torch")._dynamo.reset()


@pytest.fixture
def deterministic():
    """So that gradients are tconv's on CUDA, too."""
    torch = pytest.importorskip("torch")
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def cuda():
    """For what is CUDA's alone."""
    if why := cuda_missing():
        pytest.skip(f"this needs a GPU: {why}")
    return "cuda"


@pytest.fixture
def calls():
    from torch_values import Calls

    return Calls()
