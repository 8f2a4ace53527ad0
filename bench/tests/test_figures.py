"""The README's picture, and the figures of README.md and docs/, are those of bench/results."""

import csv
import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import cpu_runs  # noqa: E402
import gpu_report  # noqa: E402
import report  # noqa: E402
import side_by_side  # noqa: E402
import speedups  # noqa: E402

RESULTS = ROOT / "bench" / "results"
OURS = ("tconv nchw", "tconv nhwc")
# The contenders of docs/performance.md by the names that they have there.
CPU_PEERS = {
    "PyTorch NCHW": "torch nchw",
    "PyTorch channels_last": "torch nhwc",
    "PyTorch without oneDNN": "torch native",
    "oneDNN channels_last, packed": "onednn nhwc packed",
    "ONNX Runtime": "ort",
    "XNNPACK NHWC": "xnnpack nhwc",
}


@pytest.fixture(scope="module")
def rows():
    return {row.label: row for _, group in speedups.load(RESULTS) for row in group}


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def cells(page):
    """The lines of the page's tables: the first column, and the numbers in the others as they are written."""
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("|"):
            name, *others = (cell.strip() for cell in line.strip("|").split("|"))
            yield name, [number for cell in others for number in re.findall(r"\d+\.\d+(?:e-\d+)?", cell)]


def floor_mean(results, name):
    return report.geometric_mean(x for r in results if (x := report.ratio_to_floor(r, name)))


def mean_and_least(ratios):
    return report.geometric_mean(ratios.values()), min(ratios.values())


def written(*numbers):
    return [f"{x:.2f}" for x in numbers]


def test_every_peer_has_every_layer(rows):
    layers = set(next(iter(rows.values())).ratios["nchw"])
    assert len(layers) == 28
    for row in rows.values():
        for ratios in row.ratios.values():
            assert set(ratios) == layers


def test_readme_has_the_pictures_figures(rows):
    """A line of the table for each of the picture, with the mean and the least for each layout."""
    found = dict(cells("README.md"))
    for label, row in rows.items():
        assert found[label] == written(*(x for ratios in row.ratios.values() for x in mean_and_least(ratios))), label


def test_readme_has_the_figures_of_the_broad_layers():
    """Means, layers that PyTorch wins by more than 3 %, and the most that it wins by."""
    ratios = {}
    with open(RESULTS / "broad_h100.csv", newline="") as lines:
        for row in csv.DictReader(lines):
            ratio = float(row["torch_us"]) / float(row["tconv_us"])
            ratios.setdefault((row["precision"], row["layout"]), []).append(ratio)
    text = (ROOT / "README.md").read_text()
    said = text[text.index("On 139 layers") : text.index("Each gradient by itself")]
    assert {len(found) for found in ratios.values()} == {139}
    means, behind = [], []
    for layout in speedups.LAYOUTS:
        found = [ratios[precision, layout] for precision in ("f32", "tf32", "bf16")]
        means += written(*map(report.geometric_mean, found))
        behind += [str(sum(ratio < 0.97 for ratio in of)) for of in found]
    least = f"{1 / min(min(found) for found in ratios.values()):.1f}"
    assert re.findall(r"\d+\.\d+", said) == [*means, least]
    assert [number for of in re.findall(r"on (\d+), (\d+) and (\d+)", said) for number in of] == behind


def test_performance_on_the_cpu():
    run = cpu_runs.load(RESULTS / f"compare_cpu_{speedups.PROCESSOR}.json")
    results = cpu_runs.of_set(run, cpu_runs.TUNED)
    found = dict(cells("docs/performance.md"))
    for label, ours in (("tconv NCHW", OURS[0]), ("tconv NHWC", OURS[1])):
        assert found[label] == written(floor_mean(results, ours))
    for label, peer in CPU_PEERS.items():
        ratios = [x for ours in OURS for x in mean_and_least(gpu_report.speedups(results, ours, [peer]))]
        assert found[label] == written(floor_mean(results, peer), *ratios), label
    best = [x for ours in OURS for x in mean_and_least(gpu_report.speedups(results, ours, list(CPU_PEERS.values())))]
    assert found["the best of all peers, layer by layer"] == written(*best)


@pytest.mark.parametrize("page", list(side_by_side.PAGES))
def test_processors_side_by_side(page):
    """The page has the table that the files of all processors make."""
    base, whole = side_by_side.PAGES[page]
    assert "\n".join(side_by_side.table(side_by_side.load(RESULTS), base, whole)) in (ROOT / page).read_text()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("compare_cpu_*.json")), ids=lambda path: path.stem)
def test_report_of_a_processor_is_its_run(path):
    """Verdicts aside, whose bars were given when it was made."""
    without_bars = [re.sub(r" \(bar [^)]*\)", "", text) for text in (
        path.with_suffix(".md").read_text(), report.markdown(cpu_runs.load(path), {})
    )]  # fmt: skip
    assert without_bars[0] == without_bars[1]
    assert path.stem.removesuffix("_variants") == f"compare_cpu_{cpu_runs.load(path)['processor']['slug']}"


def test_performance_on_cuda():
    run, found = load("compare_gpu"), dict(cells("docs/performance-cuda.md"))
    for precision, label in speedups.GPU_PRECISIONS.items():
        results, expected = gpu_report.view(run, precision), []
        for layout in speedups.LAYOUTS:
            pair = f"tconv {layout}", f"torch {layout}"
            expected += [floor_mean(results, name) for name in pair]
            expected.append(report.geometric_mean(gpu_report.speedups(results, pair[0], [pair[1]]).values()))
        assert found[label] == written(*expected), label


def test_precision():
    run, found = load("compare_gpu"), dict(cells("docs/precision.md"))
    for precision, label in speedups.GPU_PRECISIONS.items():
        results = gpu_report.view(run, precision)
        worst = [max(r["contenders"][ours]["relative_l2"] for r in results) for ours in OURS]
        assert found[label] == [f"{error:.1e}" for error in worst], label


@pytest.mark.parametrize("name", list(speedups.THEMES))
def test_picture_says_the_results(name):
    committed = (RESULTS / name).read_text()
    assert all(figure in committed for figure in speedups.figures(speedups.load(RESULTS)))


@pytest.mark.parametrize("name", list(speedups.THEMES))
def test_picture_is_the_results(name, tmp_path):
    """Drawn again it is the same, where it is drawn by the same version of matplotlib."""
    matplotlib = pytest.importorskip("matplotlib")
    committed = (RESULTS / name).read_text()
    if f"Matplotlib v{matplotlib.__version__}," not in committed:
        pytest.skip("drawn by another version of matplotlib")
    speedups.draw(report.load_pyplot(), speedups.load(RESULTS), speedups.THEMES[name], tmp_path / name)
    assert (tmp_path / name).read_text() == committed
