"""The benchmarks of the package run where there is no GPU, on small sizes, and their answers are right."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

BENCH = pathlib.Path(__file__).parents[2] / "bench"
LIMIT_SECONDS = 300


def run(script, path, *options):
    command = [sys.executable, str(BENCH / script), "--small", "--device", "cpu", "--runs", "1", "--json", str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        env=environment,
    )
    assert result.returncode == 0, result.stdout
    return json.loads(path.read_text())["results"]


def test_kernelbench(tmp_path):
    results = run(
        "kernelbench/run.py", tmp_path / "results.json", "--math", "strict", "--rivals", "eager,channels_last"
    )
    assert len(results) == 7 and all(result["right"] for result in results)
    assert all(set(result["ms"]) == {"tconv", "eager", "channels_last"} for result in results)


def test_end_to_end(tmp_path):
    results = run("end_to_end.py", tmp_path / "results.json", "--math", "strict", "--steps", "5")
    assert [len(result["swapped"]) for result in results] == [4, 5, 2]
    assert all(result["losses_agree"] and not result["left"] for result in results)
    assert all(result["losses"]["after"][0] > result["losses"]["after"][-1] for result in results)
