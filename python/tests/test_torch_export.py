"""Models that leave the process: ONNX, .pt2, AOTInductor and TorchScript, with tconv's operators and without."""

import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tconv.torch as tt  # noqa: E402


class Decoder(nn.Module):
    """Three axes, then two, then one, by modules and by the functions."""

    def __init__(self):
        super().__init__()
        self.planes = tt.ConvTranspose3d(3, 3, (2, 3, 1), (2, 1, 1), (0, 1, 0))
        self.layers = nn.Sequential(tt.ConvTranspose2d(3, 4, 4, 2, 1), nn.ReLU(), tt.ConvTranspose2d(4, 2, 3, groups=2))
        self.weight = nn.Parameter(torch.randn(2, 3, 5))

    def forward(self, x):
        lines = self.layers(self.planes(x.unsqueeze(2)).sum(2)).mean(2)
        return tt.conv_transpose1d(lines, self.weight, stride=2, padding=1, dilation=2)


IMAGES = (2, 3, 5, 6)


@pytest.fixture
def model():
    return Decoder().eval().requires_grad_(False)


@pytest.fixture
def images():
    return torch.randn(IMAGES)


def expected(model, x):
    """By PyTorch's functions."""
    planes, (first, _, last) = model.planes, model.layers
    x = F.conv_transpose3d(x.unsqueeze(2), planes.weight, planes.bias, (2, 1, 1), (0, 1, 0)).sum(2)
    y = F.conv_transpose2d(x, first.weight, first.bias, 2, 1).relu()
    y = F.conv_transpose2d(y, last.weight, last.bias, groups=2).mean(2)
    return F.conv_transpose1d(y, model.weight, None, 2, 1, 0, 1, 2)


def quietly(function, *arguments, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **more)


def operators(graph):
    return {node.target for node in graph.nodes if node.op == "call_function"}


TCONVS = {getattr(torch.ops.tconv, f"conv_transpose{spatial}d").default for spatial in (1, 2, 3)}


# ---------------------------------------------------------------------------------------------------------------- ONNX


def export_of_program(model, images, path):
    torch.onnx.export(torch.export.export(model, (images,)), (), path, dynamo=True, verbose=False)


ONNX_EXPORTERS = {
    "dynamo": lambda model, images, path: torch.onnx.export(model, (images,), path, dynamo=True, verbose=False),
    "of a program": export_of_program,
    "older": lambda model, images, path: torch.onnx.export(model, (images,), path, dynamo=False),
}


@pytest.mark.parametrize("exporter", ONNX_EXPORTERS)
def test_onnx_has_its_own_operator(exporter, model, images, tmp_path):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    if exporter != "older":
        pytest.importorskip("onnxscript")
    path = str(tmp_path / "model.onnx")
    quietly(ONNX_EXPORTERS[exporter], model, images, path)
    nodes = onnx.load(path).graph.node
    assert [node.op_type for node in nodes].count("ConvTranspose") == 4
    assert {node.domain for node in nodes} <= {"", "ai.onnx"}
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    torch.testing.assert_close(torch.from_numpy(answer), expected(model, images), rtol=1e-4, atol=1e-5)
    model(images)  # after which the operator is tconv's again
    assert operators(torch.export.export(model, (images,)).graph) >= TCONVS


ONNX_SIZES = {
    "dynamo": dict(dynamo=True, dynamic_shapes=({0: "images", 2: "height"},), verbose=False),
    "older": dict(dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "images", 2: "height"}}),
}


@pytest.mark.parametrize("exporter", ONNX_SIZES)
def test_onnx_with_sizes_that_vary(exporter, images, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    layer = tt.ConvTranspose2d(3, 4, 4, 2, 1).eval()
    path = str(tmp_path / "model.onnx")
    quietly(torch.onnx.export, layer, (images,), path, **ONNX_SIZES[exporter])
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    more = torch.randn(3, 3, 9, 6)
    (answer,) = session.run(None, {session.get_inputs()[0].name: more.numpy()})
    torch.testing.assert_close(torch.from_numpy(answer), layer(more).detach(), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------- without tconv


def portable(export):
    def make(model, images, path):
        with tt.portable():
            export(model, images, path)

    return make


def decomposed(model, images, path):
    program = torch.export.export(model, (images,)).run_decompositions(tt.decompositions())
    torch.export.save(program, path)


def core_aten(model, images, path):
    table = {**torch.export.default_decompositions(), **tt.decompositions()}
    torch.export.save(torch.export.export(model, (images,)).run_decompositions(table), path)


def aot_inductor(model, images, path, **options):
    torch._inductor.aoti_compile_and_package(
        torch.export.export(model, (images,)),
        package_path=path,
        inductor_configs={"aot_inductor.compile_wrapper_opt_level": "O0", **options},
    )


PT2 = "torch.export.load({path!r}).module()"
SCRIPT = "torch.jit.load({path!r})"
PACKAGE = "torch._inductor.aoti_load_package({path!r})"
# How a program is made, and how it is loaded.
WITH_TCONV = {
    "export": (lambda model, images, path: torch.export.save(torch.export.export(model, (images,)), path), PT2),
    "trace": (lambda model, images, path: torch.jit.trace(model, images).save(path), SCRIPT),
    "aot_inductor": (aot_inductor, PACKAGE),
    "fused aot_inductor": (lambda *arguments: aot_inductor(*arguments, **tt.fusion_options()), PACKAGE),
}
WITHOUT_TCONV = {
    "portable export": (portable(WITH_TCONV["export"][0]), PT2),
    "portable strict export": (
        portable(lambda *a: torch.export.save(torch.export.export(a[0], (a[1],), strict=True), a[2])),
        PT2,
    ),
    "portable trace": (portable(WITH_TCONV["trace"][0]), SCRIPT),
    "portable aot_inductor": (portable(aot_inductor), PACKAGE),
    "decomposed": (decomposed, PT2),
    "core ATen": (core_aten, PT2),
}
# Every program is loaded in one process: importing PyTorch takes seconds.
PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
{imported}
images, expected = torch.load({data!r})
for name, load in {programs!r}.items():
    try:
        answer = eval(load)(images)
    except RuntimeError as error:
        print(name, "error", str(error).replace("\\n", " "))
        continue
    torch.testing.assert_close(answer, expected, rtol=1e-4, atol=1e-5)
    print(name, "right", "tconv" in sys.modules)
"""


def loaded_elsewhere(made, model, images, folder, imported=""):
    """What another process says of the programs; without an import it has no path to tconv."""
    programs = {}
    torch.manual_seed(0)
    for number, (name, (make, load)) in enumerate(made.items()):
        path = str(folder / f"{number}.pt2")
        quietly(make, model, images, path)
        programs[name] = load.format(path=path)
    data = str(folder / "data")
    torch.save((images, expected(model, images)), data)
    program = PROGRAM.format(imported=imported, data=data, programs=programs)
    alone = [] if imported else ["-I"]
    done = subprocess.run([sys.executable, *alone, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_programs_that_load_without_tconv(model, images, tmp_path):
    done = loaded_elsewhere(WITHOUT_TCONV, model, images, tmp_path)
    assert done.stdout.splitlines() == [f"{name} right False" for name in WITHOUT_TCONV]


@pytest.mark.parametrize("ci", [False, True])
def test_programs_that_load_after_an_import(ci, model, images, tmp_path, monkeypatch):
    """Where CI is set, as services for continuous integration do, Inductor refuses more than elsewhere."""
    monkeypatch.delenv("CI", raising=False)
    if ci:
        monkeypatch.setenv("CI", "true")
    done = loaded_elsewhere(WITH_TCONV, model, images, tmp_path, "import tconv.torch")
    assert done.stdout.splitlines() == [f"{name} right True" for name in WITH_TCONV]


def test_programs_with_the_operator_are_refused_without_tconv(model, images, tmp_path):
    made = {name: WITH_TCONV[name] for name in ("export", "trace")}
    done = loaded_elsewhere(made, model, images, tmp_path)
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[name, "error"] for name in made]
    assert "tconv" in done.stderr and "tconv::conv_transpose3d" in lines[1]  # export's error points to its warnings


# --------------------------------------------------------------------------------------------------------- the options


def test_portable_ends_with_its_block(model, images):
    with tt.portable():
        with tt.portable():
            pass
        assert not operators(torch.export.export(model, (images,)).graph) & TCONVS
        torch.testing.assert_close(model(images), expected(model, images), rtol=1e-4, atol=1e-5)
    before = tt.counters().passed_on
    with tt.portable():
        torch.jit.trace(model, (images,))
    assert tt.counters().passed_on == before  # nobody is told that PyTorch computes what is only captured
    with pytest.raises(ZeroDivisionError), tt.portable():
        raise ZeroDivisionError
    assert operators(torch.export.export(model, (images,)).graph) >= TCONVS


def test_portable_reaches_compiled_programs(model, images):
    """What was compiled before is compiled anew."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(operators(graph.graph))
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    compiled(images)
    with tt.portable():
        compiled(images)
    compiled(images)
    assert [bool(graph & TCONVS) for graph in graphs] == [True, False]


def test_decompositions_by_themselves(model, images):
    program = torch.export.export(model, (images,))
    assert operators(program.run_decompositions().graph) >= TCONVS
    decomposed = program.run_decompositions(tt.decompositions())
    assert not operators(decomposed.graph) & TCONVS
    torch.testing.assert_close(decomposed.module()(images), expected(model, images), rtol=1e-4, atol=1e-5)
