"""compare_cpu.py as it is run, and what it holds results against."""

import json
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
import tconv_ctypes  # noqa: E402

HEADER = "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias"
ROWS = ["plain,3,5,6,7,9,3,4,2,1,1,1,1,0,1,1,1,1", "grouped,2,12,5,4,15,3,3,2,2,1,1,1,1,1,2,3,0"]


def row_of(line):
    return {k: v if k == "name" else int(v) for k, v in zip(HEADER.split(","), line.split(","), strict=True)}


def right(case):
    strides, padding, output_padding, groups, dilation = contenders.pytorch_arguments(case.row)
    b = None if case.bias() is None else case.bias().double()
    x, w = case.src("nchw").double(), case.weights().double()
    return torch.nn.functional.conv_transpose2d(x, w, b, strides, padding, output_padding, groups, dilation)


@pytest.mark.parametrize("line", ROWS)
@pytest.mark.parametrize("channels", [1, 2, 3, None, 99])
def test_results_are_held_against_float64(line, channels):
    case = contenders.Case(row_of(line), checked_channels=channels)
    result = right(case)
    assert case.error(result, "f32") < 1e-15
    checked = case.expected("f32").shape[1]
    of_group = case.row["Cout"] // case.row["g"]
    assert checked == (case.row["Cout"] if channels is None else min(channels, of_group) * min(2, case.row["g"]))
    result[0, 0 if channels == 1 else -1] += 1e-3  # the last channel of the last group
    assert case.error(result, "f32") > contenders.MISTAKE["f32"]


def run(directory, *arguments):
    library = os.environ.get("TCONV_LIBRARY") or tconv_ctypes.api.path()
    command = [sys.executable, BENCH / "compare_cpu.py", "--library", library, "--threads", "1", "--out", directory]
    done = subprocess.run(
        [*map(str, command), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = directory.glob("*.json")
    assert path.with_suffix(".md").read_text() in done.stdout
    return path, cpu_runs.load(path)


def test_compare_cpu_keeps_sets_and_runs_apart(tmp_path):
    """Two files, two runs of each; then two such as one. There is no program, so that there is no floor."""
    for name, line in zip((cpu_runs.TUNED, cpu_runs.BROAD), ROWS, strict=True):
        (tmp_path / f"{name}.csv").write_text(f"{HEADER}\n{line}\n")
    files = [option for path in sorted(tmp_path.glob("*.csv")) for option in ("--workloads", path)]
    quick = ["--peers", "torch nchw,nhwc", "--runs", 2, "--rounds", 1, "--seconds", 0]
    path, found = run(tmp_path / "one", *files, *quick)
    assert path.stem == f"compare_cpu_{found['processor']['slug']}"
    assert [(r["name"], r["set"]) for r in found["results"]] == [
        ("plain", cpu_runs.TUNED),
        ("grouped", cpu_runs.BROAD),
    ]
    names = ["tconv nchw", "tconv nchw called", "tconv nhwc", "tconv nhwc called", "torch nchw", "torch nhwc"]
    assert all(
        list(r["contenders"]) == names and not r["contenders"]["torch nchw"]["floor_ms"] for r in found["results"]
    )
    assert cpu_runs.count(found) == 2 and not found["left_out"] and not found["failures"]
    _, both = run(tmp_path / "both", "--redraw", path, path)
    assert cpu_runs.count(both) == 4
    before = json.loads(path.read_text())
    assert (
        before["results"][0]["contenders"]["tconv nchw"]["ms"] == both["results"][0]["contenders"]["tconv nchw"]["ms"]
    )


def test_compare_cpu_stops_in_time_and_says_what_is_missing(tmp_path):
    workloads = tmp_path / "few.csv"
    workloads.write_text("\n".join([HEADER, *ROWS, ""]))
    path, found = run(tmp_path / "out", "--workloads", workloads, "--within", 0)
    assert found["left_out"] == ["plain", "grouped"] and not found["results"]
    assert "- left out: plain, grouped" in path.with_suffix(".md").read_text()
