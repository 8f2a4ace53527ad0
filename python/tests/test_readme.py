"""What the pages show in Python runs as it stands."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", "docs/python.md", "python/README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page):
    pytest.importorskip("torch")
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    assert blocks
    names = {}  # a page is read from the top
    for block in blocks:
        exec(compile(block, page, "exec"), names)
