"""libtconv_torch_operators.so: tconv's operators without the package, in Python and in C++ programs."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv import _library  # noqa: E402
from tconv.torch import _fusion_record  # noqa: E402

TESTS = pathlib.Path(__file__).parent
NAME = "libtconv_torch_operators.so"
FOLDERS = pathlib.Path(_library.path()).parent, pathlib.Path(tconv.__file__).parent
LIBRARY = next((str(folder / NAME) for folder in FOLDERS if (folder / NAME).exists()), None)

pytestmark = pytest.mark.skipif(LIBRARY is None, reason=f"{NAME} is not beside the library")


def run(*command, **more):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "TCONV_LIBRARY")}
    return subprocess.run(command, capture_output=True, text=True, env={**environment, **more})


def test_they_are_pytorchs_layers(device):
    done = run(sys.executable, str(TESTS / "operators_alone.py"), LIBRARY, device)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


LOADED = "import torch; torch.ops.load_library({!r}); "


def test_a_bad_environment_is_an_error():
    program = LOADED.format(LIBRARY) + "torch.ops.tconv.conv_transpose2d(*[torch.ones(1, 1, 1, 1)] * 2)"
    done = run(sys.executable, "-c", program, TCONV_CPU_ISA="fast")
    assert done.returncode == 1 and "TCONV_CPU_ISA" in done.stderr.splitlines()[-1]


def test_a_process_has_either_of_the_two():
    """The package and this library define the same operators: who comes second is told so, and the first works on."""
    layer = "print(torch.ops.tconv.conv_transpose2d(*[torch.ones(1, 1, 1, 1)] * 2).item())"
    path = os.pathsep.join((str(TESTS.parent), os.environ.get("PYTHONPATH", "")))
    paths = {"PYTHONPATH": path, "TCONV_LIBRARY": _library.path()}
    second = run(sys.executable, "-c", f"import tconv.torch; {LOADED.format(LIBRARY)}{layer}", **paths)
    assert (second.returncode, second.stdout) == (0, "1.0\n"), second.stderr
    assert f"{NAME}: tconv's operators are defined in this process already" in second.stderr
    first = run(sys.executable, "-c", LOADED.format(LIBRARY) + "import tconv.torch", **paths)
    assert first.returncode == 1 and "tconv" in first.stderr.splitlines()[-1]


def test_without_pytorch_it_says_so():
    done = run(sys.executable, "-c", f"import ctypes; ctypes.CDLL({LIBRARY!r})")
    assert done.returncode == 0 and "load libtorch first" in done.stderr


# --------------------------------------------------------------------------------------------------------- AOTInductor


class Decoder(nn.Module):
    """Layers in both numbers of axes, alone and with what the pass fuses with them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            tt.ConvTranspose2d(3, 4, 4, 2, 1), nn.ReLU(), tt.ConvTranspose2d(4, 2, 3, groups=2), nn.BatchNorm2d(2)
        )
        self.last = tt.ConvTranspose1d(2, 3, 5, 2, 1)
        self.scale = nn.Parameter(torch.rand(3, 1))

    def forward(self, x):
        return torch.tanh(self.last(self.layers(x).mean(2)) * self.scale)


PROGRAM = """
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <dlfcn.h>
#include <cstdio>

int main(int count, char **texts)
{
    if (dlopen(texts[1], RTLD_NOW) == nullptr)
        return std::fprintf(stderr, "%s\\n", dlerror()), 2;
    if (dlsym(RTLD_DEFAULT, "Py_Initialize") != nullptr)
        return 3;
    at::globalContext().setAllowTF32CuDNN(false); // which holds for the operators, too
    for (int i = 3; i < count; i++) {
        torch::inductor::AOTIModelPackageLoader loader(texts[i]);
        for (int calls = 0; calls < 2; calls++) {
            at::Tensor x = (at::arange(180, at::device(at::Device(texts[2]))) * .1).sin().reshape({2, 3, 5, 6});
            at::Tensor y = loader.run({x})[0].cpu().contiguous();
            for (int64_t j = 0; j < y.numel(); j++)
                std::printf("%.9g ", (double)y.data_ptr<float>()[j]);
            std::printf("\\n");
        }
    }
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A C++ program that runs packages."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("this needs a C++ compiler")
    folder = tmp_path_factory.mktemp("program")
    (folder / "main.cpp").write_text(textwrap.dedent(PROGRAM))
    of_torch = pathlib.Path(torch.__file__).parent
    headers = [f"-I{of_torch / 'include' / part}" for part in ("", "torch/csrc/api/include")]
    wanted = ["-ltorch_cuda"] * torch.cuda.is_available() + ["-ltorch_cpu", "-ltorch", "-lc10", "-ldl"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    flags = ["-std=c++20", abi, *headers, f"-L{of_torch / 'lib'}", f"-Wl,-rpath,{of_torch / 'lib'}"]
    flags += ["-Wl,--no-as-needed,--allow-shlib-undefined", *wanted]
    done = run(compiler, str(folder / "main.cpp"), "-o", str(folder / "main"), *flags)
    assert done.returncode == 0, done.stderr
    return str(folder / "main")


@pytest.mark.parametrize("fused", [False, True], ids=["layers", "fused"])
def test_packages_run_in_cpp(device, fused, program, tmp_path):
    torch.manual_seed(0)
    _fusion_record.clear()  # of the tests before
    model = Decoder().eval().requires_grad_(False).to(device)
    x = (torch.arange(180, device=device) * 0.1).sin().reshape(2, 3, 5, 6)
    package, options = str(tmp_path / "model.pt2"), tt.fusion_options() if fused else {}
    configs = {"aot_inductor.compile_wrapper_opt_level": "O0", **options}
    torch._inductor.aoti_compile_and_package(
        torch.export.export(model, (x,)), package_path=package, inductor_configs=configs
    )
    posts = []
    if fused:  # but for the ReLU, whose list of tensors is empty, and on CUDA for tanh, which is a pass there anyway
        posts = ["mul_channel add_channel"] + ["mul_channel tanh"] * (device == "cpu")
        report = tt.fusion_report()
        assert [*report.fused.values()] == posts and "no empty list" in str(report), report
    expected = model(x).flatten()
    done = run(program, LIBRARY, device, package, TCONV_VERBOSE="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tconv,execute") == 3 * 2
    assert done.stderr.count("post=mul_channel") == 2 * len(posts)
    answers = [torch.tensor([*map(float, line.split())], device=device) for line in done.stdout.splitlines()]
    torch.testing.assert_close(torch.stack(answers), torch.stack([expected] * 2), rtol=1e-4, atol=1e-5)
    without = run(program, "libm.so.6", device, package)
    assert without.returncode != 0 and "tconv::conv_transpose" in without.stderr
