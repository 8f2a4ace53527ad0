"""The scripts that compare models in PyTorch with and without tconv: KernelBench's problems are the layers of
workloads.csv, and all scripts run on the CPU and find what they compare right."""

import csv
import importlib
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))
import report  # noqa: E402
import run_files  # noqa: E402

CASES = ["kb57", "kb65", "kb69", "kb71", "kb75", "kb78", "kb81"]


@pytest.fixture(params=CASES)
def case(request, monkeypatch):
    """The row of workloads.csv and the module."""
    monkeypatch.syspath_prepend(BENCH / "kernelbench")
    with open(BENCH / "workloads.csv") as file:
        row = next(row for row in csv.DictReader(file) if row["name"] == request.param)
    return {key: int(value) for key, value in row.items() if key != "name"}, importlib.import_module(request.param)


def test_problem_is_the_layer_of_the_workload(case):
    row, module = case
    with torch.device("meta"):  # full size, without memory
        models = [kind(*module.get_init_inputs()) for kind in (module.Model, module.ModelNew)]
        (x,) = module.get_inputs()
        shapes = [model(x).shape for model in models]
    assert x.shape == (row["N"], row["Cin"], row["H"], row["W"])
    assert shapes[0] == shapes[1]
    for model in models:
        layer = model.conv_transpose2d
        assert layer.weight.shape == (row["Cin"], row["Cout"] // row["g"], row["kh"], row["kw"])
        assert (layer.bias is not None) == bool(row["bias"])
        assert layer.stride == (row["sh"], row["sw"])
        assert layer.padding == (row["ph"], row["pw"])
        assert layer.output_padding == (row["oph"], row["opw"])
        assert layer.dilation == (row["dh"], row["dw"])
        assert layer.groups == row["g"]


# What KernelBench's constructors take after in_channels, out_channels and kernel_size, in its order.
SETTINGS = {
    "kb57": ["stride", "padding", "output_padding", "groups", "bias"],
    "kb65": ["stride", "padding", "output_padding", "groups", "bias"],
    "kb69": ["stride", "padding", "output_padding", "dilation", "groups", "bias"],
    "kb71": ["stride", "padding", "output_padding", "groups", "bias"],
    "kb75": ["stride", "padding", "dilation", "groups", "bias"],
    "kb78": ["stride", "padding", "bias"],
    "kb81": ["stride", "padding", "dilation", "bias"],
}
VALUES = {"stride": (4, 4), "padding": (2, 2), "output_padding": (1, 1), "dilation": (3, 3), "groups": 2, "bias": True}


def test_constructors_are_kernelbenchs(case):
    module = case[1]
    names = SETTINGS[module.__name__]
    for kind in (module.Model, module.ModelNew):
        assert list(inspect.signature(kind).parameters) == ["in_channels", "out_channels", "kernel_size", *names]
        layer = kind(4, 6, 3, *(VALUES[name] for name in names)).conv_transpose2d
        assert kind(4, 6, 3).conv_transpose2d.bias is None and layer.bias is not None
        assert all(getattr(layer, name) == VALUES[name] for name in names if name != "bias")


def test_models_are_pytorch_and_tconv_with_the_same_weights(case):
    import tconv.torch

    _, module = case
    problem = module.PROBLEM.cut()
    layers = []
    for kind in (module.Model, module.ModelNew):
        torch.manual_seed(1)
        layers.append(kind(*problem.get_init_inputs()).conv_transpose2d)
    assert [type(layer) for layer in layers] == [torch.nn.ConvTranspose2d, tconv.torch.ConvTranspose2d]
    assert torch.equal(layers[0].weight, layers[1].weight)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("run", "kernelbench"),
        ("level2", "kernelbench_level2"),
        ("end_to_end", "end_to_end"),
        ("network_layers", "network_layers"),
    ],
)
def test_committed_report_is_its_run(script, name, monkeypatch):
    monkeypatch.syspath_prepend(BENCH / "kernelbench")
    path = BENCH / "results" / f"{name}{run_files.ENDING}"
    if name == "kernelbench_level2" and not path.exists():
        pytest.skip("KernelBench's second level has not been measured")
    text = report.filled(importlib.import_module(script).markdown(run_files.load(path)))
    assert run_files.report_of(path).read_text() == text


def run(script, directory, *arguments):
    """What a script finds on the CPU, on one thread: threads that wait for each other say nothing here."""
    command = [sys.executable, BENCH / script, "--small", "--device", "cpu", "--rounds", "1", "--out", directory]
    done = subprocess.run(
        [*map(str, command), *arguments], env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = directory.glob("*.json.gz")
    assert run_files.report_of(path).read_text() in done.stdout
    return run_files.load(path)


def test_kernelbench_runs_on_the_cpu_and_all_are_right(tmp_path):
    found = run("kernelbench/run.py", tmp_path, "--rivals", "eager,channels_last")
    assert [(r["rival"], r["name"]) for r in found["results"]] == [
        (rival, name) for rival in ("eager", "channels_last") for name in CASES
    ]
    assert all(r["right"] and r["max_abs"] <= 1e-4 and r["float64"]["tconv"] <= 1e-6 for r in found["results"])
    assert all(r["speedup"] == r["rival_ms"] / r["tconv_ms"] > 0 for r in found["results"])
    assert not found["failures"] and not found["left_out"]


def test_kernelbench_runs_against_torch_compile(tmp_path):
    found = run("kernelbench/run.py", tmp_path, "--rivals", "compile", "--cases", "kb75")
    assert [(r["rival"], r["name"], r["right"]) for r in found["results"]] == [("compile", "kb75", True)]


def level2(directory, *arguments):
    found = run("kernelbench/level2.py", directory, *arguments)
    assert found["results"] and not found["failures"] and not found["left_out"]
    assert all(r["right"] and r["against"] == "float64" and r["floor_ms"] > 0 for r in found["results"])
    assert all(e <= 1e-6 for r in found["results"] if r["precision"] == "strict" for e in r["errors"].values())
    return found["results"]


def test_second_level_runs_on_the_cpu_and_all_are_right(tmp_path):
    results = level2(tmp_path, "--contenders", "tconv fused,torch layer,tconv layer")
    numbers = ["2", "5", "10", "11", "16", "19", "36", "42", "44", "91", "93"]
    assert [(r["precision"], r["number"]) for r in results] == [(p, n) for p in ("strict", "bf16") for n in numbers]
    fused = {"11": ["BatchNorm2d", "Tanh"], "16": ["Mish"], "19": ["GELU"]}
    for result in results:
        assert result["fuse"] == fused.get(result["number"], []) and result["pass"] == "-"
        expected = {"torch", "torch layer", "tconv", "tconv layer", *(["tconv fused"] if result["fuse"] else [])}
        assert result["ms"].keys() == expected and min(result["ms"].values()) > 0


def test_second_level_says_what_the_pass_fuses_though_programs_are_cached(tmp_path):
    only = ["--numbers", "5,42,36,5", "--precisions", "strict", "--contenders", "torch compiled,tconv compiled fused"]
    results = level2(tmp_path, *only)
    tanh, least = "add_channel tanh", "left: min follows it, which is no post-op here"
    passed = [("5", tanh), ("42", "mean over the image"), ("36", least), ("5", tanh)]
    assert [(r["number"], r["pass"]) for r in results] == passed
    compiled = {"torch", "torch compiled", "tconv", "tconv compiled fused"}
    assert all(r["ms"].keys() == r["errors"].keys() == compiled for r in results)


SWAPPED = {"unet": 4, "unet512": 4, "dcgan": 5, "sam": 2, "pix2pix": 8, "hifigan": 4, "codec": 4, "nnunet": 7}


def end_to_end(directory, networks, precisions, layouts, steps):
    """Every setting of these, found right."""
    found = run(
        "end_to_end.py",
        directory,
        *("--networks", ",".join(networks), "--precisions", ",".join(precisions), "--layouts", ",".join(layouts)),
        *("--steps", str(steps)),
    )
    settings = [(r["network"], r["precision"], r["layout"]) for r in found["results"]]
    assert settings == [
        (network, precision, layout)
        for network in networks
        for precision in precisions
        for layout in layouts
        if layout == "nchw" or network not in ("hifigan", "codec")  # in one dimension
    ]
    for result in found["results"]:
        assert result["right"] and result["losses_agree"] and not result["left"]
        assert len(result["swapped"]) == SWAPPED[result["network"]]
        assert len(result["losses"]["after"]) == steps
        assert result["losses"]["before"][-1] < result["losses"]["before"][0]  # it does train
    assert not found["failures"] and not found["left_out"]


def test_end_to_end_runs_on_the_cpu_and_losses_agree(tmp_path):
    end_to_end(tmp_path, ["unet", "dcgan", "sam"], ["strict", "bf16"], ["nchw", "channels_last"], 10)


def test_end_to_end_has_networks_of_several_kinds(tmp_path):
    end_to_end(tmp_path, ["unet512", "pix2pix", "nnunet"], ["strict"], ["nchw"], 4)
    end_to_end(tmp_path, ["hifigan", "codec"], ["bf16"], ["nchw", "channels_last"], 4)


def test_end_to_end_runs_through_torch_compile(tmp_path):
    only = ["--compile", "--networks", "sam", "--precisions", "strict", "--layouts", "nchw", "--steps", "5"]
    found = run("end_to_end.py", tmp_path, *only)
    assert [(r["mode"], r["right"], r["losses_agree"]) for r in found["results"]] == [
        (mode, True, True) for mode in ("eager", "compile")
    ]


@pytest.mark.parametrize("every", [[], ["--every-gradient"]], ids=str)
def test_network_layers_run_on_the_cpu_and_gradients_are_right(tmp_path, every):
    networks = ["sam", "hifigan"]
    found = run("network_layers.py", tmp_path, "--networks", ",".join(networks), "--precisions", "strict", *every)
    assert [(r["network"], r["layout"]) for r in found["results"]] == [
        ("sam", "nchw"),
        ("sam", "channels_last"),
        ("hifigan", "nchw"),
    ]
    for result in found["results"]:
        layers, sums = result["layers"], result["sums_ms"]
        assert result["right"] and len(layers) == SWAPPED[result["network"]]
        assert ["input" in layer["ms"] for layer in layers] == [
            i > 0 or result["network"] == "hifigan" for i in range(len(layers))
        ]
        together = sums.pop("together")
        assert together.keys() == {"before", "after"} and min(together.values()) > 0
        for way, times in sums.items():
            parts = [layer["ms"][way] for layer in layers if way in layer["ms"]]
            assert parts and times == {which: sum(part[which] for part in parts) for which in ("before", "after")}
    assert found["every_gradient"] == bool(every) and not found["failures"] and not found["left_out"]
