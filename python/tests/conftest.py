import os
import sys

import pytest

# JAX has the CPU alone, unless JAX_PLATFORMS=cuda,cpu asks for test_jax_cuda.py. Of a GPU's memory each process would
# take three quarters.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


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


def jax_cuda_missing():
    """Why tconv.jax computes nothing on a GPU here; "" where it does."""
    if "cuda" not in os.environ["JAX_PLATFORMS"].split(","):
        return f"JAX_PLATFORMS is {os.environ['JAX_PLATFORMS']}, not cuda,cpu"
    import jax

    import tconv

    try:
        jax.devices("cuda")
    except RuntimeError as error:
        return str(error)
    return tconv.info()["cuda"].get("reason", "")


@pytest.fixture(autouse=True)
def jax_on_the_cpu():
    """Where JAX has a GPU too, tests that do not ask for it have the CPU."""
    jax = sys.modules.get("jax")
    if jax is None or os.environ["JAX_PLATFORMS"] == "cpu":
        yield
        return
    with jax.default_device(jax.devices("cpu")[0]):
        yield


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
