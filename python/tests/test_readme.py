"""What the pages show in Python runs as it stands."""

import pathlib
import re

import pytest

import tconv
from tconv import __main__

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
PAGES = [ROOT / "README.md", ROOT / "python/README.md", *sorted(ROOT.glob("docs/*.md"))]
FOUND = {str(page.relative_to(ROOT)): BLOCK.findall(page.read_text()) for page in PAGES}

# The modules that a page's blocks import, where they are not PyTorch's.
NEEDS = {"docs/jax.md": ("tconv.jax", "flax", "equinox")}


def test_pages_have_blocks():
    named = {"README.md", "docs/jax.md", "docs/python.md", "docs/pytorch.md", "docs/quickstart.md"}
    assert named <= {page for page, blocks in FOUND.items() if blocks}


@pytest.mark.parametrize("page", [page for page, blocks in FOUND.items() if blocks])
def test_python_blocks_run(page):
    for module in NEEDS.get(page, ("torch",)):
        pytest.importorskip(module, exc_type=ImportError)
    names = {}  # a page is read from the top
    for block in FOUND[page]:
        exec(compile(block, page, "exec"), names)


def test_verify_prints_what_the_page_shows(capsys):
    """Line for line, but for numbers of layers, which depend on the processor, and what is said of a GPU."""
    page = (ROOT / "docs/python.md").read_text()
    shown = re.search(r"`python -m tconv verify` runs.*?:\n\n((?:    [^\n]*\n)+)", page, re.S)
    lines = [line[4:] for line in shown[1].splitlines()]
    assert __main__.main(["verify"]) == 0
    printed = capsys.readouterr().out.splitlines()
    if tconv.info()["cuda"]["available"]:
        lines, printed = ([line for line in each if not line.startswith("cuda_")] for each in (lines, printed))
    answer = re.compile(
        r"(right: \d+ layers(; \d+ are not its own)?|not tried: none of \d+ layers is its own|(?<=backend = cuda: ).*)$"
    )
    printed, lines = ([re.sub(" +", " ", answer.sub("...", line)) for line in each] for each in (printed, lines))
    assert printed == lines  # but for the width of columns, which follows from the names of a build's implementations
