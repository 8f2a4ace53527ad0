"""What `import tconv.torch` brings, and that tools of PyTorch's find what is registered with them all the same."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import tconv

IMPORT = """
import sys
import numpy, torch
before = set(sys.modules)
import tconv.torch
brought = {name for name in set(sys.modules) - before if name.partition(".")[0] != "tconv"}
print(*sorted(name for name in brought if name.partition(".")[0] not in sys.stdlib_module_names))
"""

FLOPS = """
import importlib, sys, torch
{first}
{second}
from torch.utils.flop_counter import FlopCounterMode
x = torch.randn(2, 4, 5, 6)
weight = torch.randn(4, 3, 2, 2, requires_grad=True)
for function in (tconv.torch.conv_transpose2d, torch.nn.functional.conv_transpose2d):
    with FlopCounterMode(display=False) as counter:
        function(x, weight).sum().backward()
    print(counter.get_total_flops())
assert not any("tconv" in type(finder).__module__ for finder in sys.meta_path)
"""
MODULES = ("import tconv.torch", "import torch.utils.flop_counter")


def output_of(program):
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(tconv.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_the_import_brings_nothing_beside_pytorch():
    """No module of PyTorch's or others' that `import torch` does not bring: these cost more than all of tconv."""
    assert output_of(IMPORT) == []


@pytest.mark.parametrize("order", [MODULES, MODULES[::-1]], ids=str)
def test_flops_are_counted_whichever_was_imported_first(order):
    ours, theirs = output_of(FLOPS.format(first=order[0], second=order[1]))
    assert ours == theirs != "0"
