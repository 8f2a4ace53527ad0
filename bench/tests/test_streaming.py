"""streaming.py runs on the CPU, and its committed tables are those of their runs."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))
import run_files  # noqa: E402


def run(*arguments):
    command = [sys.executable, BENCH / "streaming.py", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["streaming_zen5", "streaming_h200"])
def test_committed_tables_are_their_run(name, tmp_path):
    path = BENCH / "results" / f"{name}{run_files.ENDING}"
    if not path.exists():
        pytest.skip(f"{name} has not been measured")
    run("--redraw", path, "--out", tmp_path)
    assert (tmp_path / f"{name}.md").read_text() == run_files.report_of(path).read_text()


def test_all_parts_are_measured(tmp_path):
    few = ["--models", "mimi", "--dtypes", "float32", "--batches", "1", "--voices", "3", "--threads", "1"]
    run(*few, "--runs", "2", "--seconds", "0.0001", "--out", tmp_path)
    (path,) = tmp_path.glob(f"streaming_*{run_files.ENDING}")
    found, text = run_files.load(path), run_files.report_of(path).read_text()
    layers = [result for result in found["results"] if "model" in result]
    assert len(layers) == 2 * 2 * 5 and all(len(times) == 2 for r in layers for times in r["runs_us"].values())
    assert text.count("| **sum** |") == 2 and "3 voices" in text and "conv_transpose1d_step" in text
