"""What the pages show in Python runs as it stands."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PAGES = [ROOT / "README.md", ROOT / "python/README.md", *sorted(ROOT.glob("docs/*.md"))]
FOUND = {str(page.relative_to(ROOT)): BLOCK.findall(page.read_text()) for page in PAGES}


def test_pages_have_blocks():
    named = {"README.md", "docs/python.md", "docs/pytorch.md", "docs/quickstart.md"}
    assert named <= {page for page, blocks in FOUND.items() if blocks}


@pytest.mark.parametrize("page", [page for page, blocks in FOUND.items() if blocks])
def test_python_blocks_run(page):
    pytest.importorskip("torch")
    names = {}  # a page is read from the top
    for block in FOUND[page]:
        exec(compile(block, page, "exec"), names)
