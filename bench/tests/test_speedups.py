"""The README's picture and its figures are those of bench/results."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import speedups  # noqa: E402

RESULTS = ROOT / "bench" / "results"


@pytest.fixture(scope="module")
def rows():
    return {row.label: row for _, group in speedups.load(RESULTS) for row in group}


def test_every_peer_has_every_layer(rows):
    layers = set(next(iter(rows.values())).ratios["nchw"])
    assert len(layers) == 28
    for row in rows.values():
        for ratios in row.ratios.values():
            assert set(ratios) == layers


def cells(page):
    """The first column of the page's tables, and the others as numbers, those that are no number left out."""
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("|"):
            name, *others = (cell.strip() for cell in line.strip("|").split("|"))
            yield name, [float(number) for cell in others for number in re.findall(r"\d+\.\d+", cell)]


def test_readme_has_the_pictures_figures(rows):
    """A line of the table for each of the picture, with the mean and the least for each layout."""
    found = dict(cells("README.md"))
    for label, row in rows.items():
        expected = [f"{x:.2f}" for layout in row.ratios for x in (row.mean(layout), min(row.ratios[layout].values()))]
        assert [f"{x:.2f}" for x in found[label]] == expected, label


@pytest.mark.parametrize("name", list(speedups.THEMES))
def test_picture_is_the_results(name, tmp_path, monkeypatch):
    """Drawn again it is the same, where it is drawn by the same version of matplotlib."""
    matplotlib = pytest.importorskip("matplotlib")
    committed = (RESULTS / name).read_text()
    if f"Matplotlib v{matplotlib.__version__}," not in committed:
        pytest.skip("drawn by another version of matplotlib")
    speedups.draw(speedups.report.load_pyplot(), speedups.load(RESULTS), speedups.THEMES[name], tmp_path / name)
    assert (tmp_path / name).read_text() == committed
