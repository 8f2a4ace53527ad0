"""What README.md and the pages of docs/ show in Python runs as it stands."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
FOUND = {page.name: BLOCK.findall(page.read_text()) for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]}


def test_pages_have_blocks():
    assert {"README.md", "python.md", "pytorch.md", "quickstart.md"} <= {
        page for page, blocks in FOUND.items() if blocks
    }


@pytest.mark.parametrize("page", [page for page, blocks in FOUND.items() if blocks])
def test_python_blocks_run(page):
    pytest.importorskip("torch")
    names = {}  # a page is read from the top
    for block in FOUND[page]:
        exec(compile(block, page, "exec"), names)
