"""compare_cpu.py as it is run, and what it holds results against."""

import math
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))
import contenders  # noqa: E402
import cpu_runs  # noqa: E402
import operations  # noqa: E402
import run_files  # noqa: E402
import tconv_ctypes  # noqa: E402

HEADER = "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias"
OPERATIONS = list(operations.OPERATIONS)
# The last has rows and columns without a tap.
ROWS = ["plain,3,5,6,7,9,3,4,2,1,1,1,1,0,1,1,1,1", "grouped,2,12,5,4,15,3,3,2,2,1,1,1,1,1,2,3,0"]
HOLES = "holes,2,8,9,9,16,3,3,3,4,1,1,1,1,3,2,1,0"


def row_of(line):
    return {k: v if k == "name" else int(v) for k, v in zip(HEADER.split(","), line.split(","), strict=True)}


def right(case):
    """What the operation writes, in float64, by autograd of the forward layer."""
    strides, padding, output_padding, groups, dilation = operations.pytorch_arguments(case.row)
    b = None if case.bias() is None else case.bias().double().requires_grad_()
    x, w = case.src("nchw").double().requires_grad_(), case.weights().double().requires_grad_()
    y = torch.nn.functional.conv_transpose2d(x, w, b, strides, padding, output_padding, groups, dilation)
    if case.op.name == "forward":
        return (y.detach(),)
    y.backward(case.diff_dst("nchw").double())
    return (x.grad,) if case.op.name == "backward_data" else tuple(t.grad for t in (w, b) if t is not None)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("line", [*ROWS, HOLES])
@pytest.mark.parametrize("channels", [1, 2, 3, None, 99])
def test_results_are_held_against_float64(line, channels, op):
    case = contenders.Case(row_of(line), checked_channels=channels, op=op)
    written = right(case)
    assert case.error(written, "f32") < 1e-14
    axis = 0 if op == "backward_weights" else 1
    checked, extent = case.expected("f32")[0].shape[axis], written[0].shape[axis]
    groups, picked = case.row["g"], case.row["Cout" if op == "forward" else "Cin"]
    assert picked == extent
    assert checked == (extent if channels is None else min(channels, extent // groups) * min(2, groups))
    for tensor in written:
        last = (0 if channels == 1 else -1,)  # the last channel of the last group
        at = last if tensor.dim() == 1 or axis == 0 else (0, *last)
        tensor[at] += 1e-2
        assert case.error(written, "f32") > contenders.MISTAKE["f32"]
        tensor[at] -= 1e-2


@pytest.mark.parametrize("layout", contenders.LAYOUTS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("line", [*ROWS, HOLES])
def test_bytes_that_a_gradient_reads(line, dtype, layout):
    """Those of the lines of memory with an element that a tap reaches, counted one by one; all, where the gradient of
    bias is computed."""
    row = row_of(line)
    case = contenders.Case({**row, "g": 1, "bias": 0}, op="backward_data")
    taps = torch.ones(1, 1, row["kh"], row["kw"])
    strides, padding, output_padding, _, dilation = operations.pytorch_arguments(row)
    hit = torch.nn.functional.conv_transpose2d(
        torch.ones(1, 1, row["H"], row["W"]), taps, None, strides, padding, output_padding, 1, dilation
    )[0, 0]
    size = contenders.ELEMENT_BYTES[dtype]
    beside, width = (1, row["Cout"] * size) if layout == "nhwc" else (row["Cout"], size)
    total = 0
    for columns in hit > 0:
        bytes_hit = columns.repeat_interleave(width)
        lines = bytes_hit.split(case.line_bytes)
        total += sum(len(line) for line in lines if line.any())
    others = size * (math.prod(case.src_shape) + row["Cin"] * row["Cout"] * row["kh"] * row["kw"])
    assert case.bytes(dtype, layout) == others + row["N"] * beside * total
    both = contenders.Case({**row, "g": 1, "bias": 1}, op="backward_weights")
    assert both.bytes(dtype, layout) == others + size * math.prod(case.output_shape)


@pytest.mark.parametrize("op", OPERATIONS)
def test_contenders_agree(op):
    """tconv in every way, and PyTorch, compute what they are compared in."""
    library = tconv_ctypes.Library(os.environ.get("TCONV_LIBRARY") or tconv_ctypes.api.path())
    peers, _ = contenders.make_peers(contenders.GRADIENT_PEERS, 1)
    for line in (*ROWS, HOLES):
        case = contenders.Case(row_of(line), checked_channels=None, op=op)
        ways = contenders.tconv_ways(contenders.LAYOUTS, ["called", "f64", "f16", "bf16"], 1, op)
        assert any(way.called for way in ways) == (op != "backward_weights")
        for entrant in [*(way.prepare(library, case) for way in ways), *(peer.prepare(case) for peer in peers)]:
            case.forget_written(entrant.layout, entrant.dtype)
            written = entrant.run() or case.written(entrant.layout, entrant.dtype)
            assert case.error(written, entrant.dtype) < contenders.MISTAKE[entrant.dtype], (line, entrant.name)


def run(directory, *arguments, script="compare_cpu.py", load=cpu_runs.load):
    library = os.environ.get("TCONV_LIBRARY") or tconv_ctypes.api.path()
    command = [sys.executable, BENCH / script, "--library", library, "--out", directory]
    done = subprocess.run(
        [*map(str, command), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = directory.glob("*.json.gz")
    assert run_files.report_of(path).read_text() in done.stdout
    return path, load(path)


def test_compare_cpu_keeps_sets_and_runs_apart(tmp_path):
    """Two files, two runs of each; then two such as one. There is no program, so that there is no floor."""
    for name, line in zip((cpu_runs.TUNED, cpu_runs.BROAD), ROWS, strict=True):
        (tmp_path / f"{name}.csv").write_text(f"{HEADER}\n{line}\n")
    one = ["--threads", 1]
    files = [option for path in sorted(tmp_path.glob("*.csv")) for option in ("--workloads", path)]
    quick = ["--peers", "torch nchw,nhwc", "--runs", 2, "--rounds", 1, "--seconds", 0]
    path, found = run(tmp_path / "one", *one, *files, *quick)
    assert run_files.stem(path) == f"compare_cpu_{found['processor']['slug']}"
    assert [(r["name"], r["set"]) for r in found["results"]] == [
        ("plain", cpu_runs.TUNED),
        ("grouped", cpu_runs.BROAD),
    ]
    names = ["tconv nchw", "tconv nchw called", "tconv nhwc", "tconv nhwc called", "torch nchw", "torch nhwc"]
    assert all(
        list(r["contenders"]) == names and not r["contenders"]["torch nchw"]["floor_ms"] for r in found["results"]
    )
    assert cpu_runs.count(found) == 2 and not found["left_out"] and not found["failures"]
    _, both = run(tmp_path / "both", *one, "--redraw", path, path)
    assert cpu_runs.count(both) == 4
    before = run_files.load(path)
    assert (
        before["results"][0]["contenders"]["tconv nchw"]["ms"] == both["results"][0]["contenders"]["tconv nchw"]["ms"]
    )


def test_compare_cpu_stops_in_time_and_says_what_is_missing(tmp_path):
    workloads = tmp_path / "few.csv"
    workloads.write_text("\n".join([HEADER, *ROWS, ""]))
    path, found = run(tmp_path / "out", "--workloads", workloads, "--within", 0)
    assert found["left_out"] == ["plain", "grouped"] and not found["results"]
    assert "- left out: plain, grouped" in run_files.report_of(path).read_text()


def test_a_gradient_has_files_and_titles_of_its_own(tmp_path):
    (tmp_path / "few.csv").write_text(f"{HEADER}\n{ROWS[0]}\n{HOLES}\n")
    few = ["--workloads", tmp_path / "few.csv", "--op", "backward_weights", "--bias", "with", "holes"]
    path, found = run(tmp_path / "cpu", *few, "--rounds", 1, "--seconds", 0, "--peers", "nchw")
    assert found["op"] == "backward_weights"
    assert run_files.stem(path) == f"compare_cpu_backward_weights_{found['processor']['slug']}"
    assert [list(r["contenders"]) for r in found["results"]] == [["tconv nchw", "tconv nhwc", "torch nchw"]]
    assert run_files.report_of(path).read_text().startswith("# ConvTranspose2d, gradients of weights and bias: Against")


@pytest.mark.parametrize("op", OPERATIONS)
def test_compare_gpu_runs_without_a_gpu(tmp_path, op):
    """Its figures mean nothing there; its results are right, and the report is made."""
    (tmp_path / "few.csv").write_text(f"{HEADER}\n{ROWS[0]}\n{HOLES}\n")
    few = ["--workloads", tmp_path / "few.csv", "--op", op, "--device", "cpu", "--idle", 0, "--dtypes", "f32,bf16"]
    path, found = run(tmp_path / "gpu", *few, "--sustain", 0, script="compare_gpu.py", load=run_files.load)
    assert run_files.stem(path) == ("compare_gpu" if op == "forward" else f"compare_gpu_{op}") and not found["left_out"]
    assert [(r["name"], r["failures"]) for r in found["results"]] == [("plain", []), ("holes", [])]
    names = [
        f"{who} {layout}"
        for layout in ("nchw", "nhwc")
        for who in ("tconv", "tconv call", "torch")
        if op != "backward_weights" or who != "tconv call"
    ]
    for result in found["results"]:
        assert all(list(contenders) == names for contenders in result["precisions"].values())
