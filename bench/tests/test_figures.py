"""The README's picture and table, and the figures of docs/, are those of bench/results."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import cpu_runs  # noqa: E402
import gpu_report  # noqa: E402
import headline  # noqa: E402
import report  # noqa: E402
import run_files  # noqa: E402
import side_by_side  # noqa: E402
import speedups  # noqa: E402
import winners  # noqa: E402

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
def groups():
    return speedups.load(RESULTS)


def load(name):
    return run_files.load(RESULTS / f"{name}.json.gz")


def cells(page):
    """The lines of the page's tables: the first column, and the numbers in the others as they are written."""
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("|"):
            name, *others = (cell.strip() for cell in line.strip("|").split("|"))
            yield name, [number for cell in others for number in re.findall(r"\d+\.\d+(?:e-\d+)?", cell)]


def has_row(page, label, numbers):
    """Whether a table of the page has a row with this label and these numbers."""
    return (label, numbers) in cells(page)


def floor_mean(results, name):
    return report.geometric_mean(x for r in results if (x := report.ratio_to_floor(r, name)))


def mean_and_least(ratios):
    return report.geometric_mean(ratios.values()), min(ratios.values())


def written(*numbers):
    return [f"{x:.2f}" for x in numbers]


def test_every_peer_has_every_layer(groups):
    """The layers of a group are the same in each of its rows and layouts, but for the two sets on one processor."""
    for title, rows in groups:
        sets = {frozenset(ratios) for row in rows for ratios in row.ratios.values()}
        assert {len(layers) for layers in sets} <= {28, 139}, title
        assert len(sets) == (len(rows) if rows[0].label.endswith("tuned") else 1), title


def test_a_run_of_the_gpu_with_broad_layers_is_taken():
    """A call of tconv's where there is one, PyTorch in the same layout; layers of the other set are left out."""
    times = {"tconv nchw": 1.0, "tconv call nchw": 2.0, "torch nchw": 6.0, "tconv nhwc": 1.0, "torch nhwc": 5.0}
    contenders = {name: {"ms": ms} for name, ms in times.items()}
    sets = [("broad", gpu_report.BROAD), ("tuned", gpu_report.TUNED)]
    run = {"results": [{"name": name, "set": of, "precisions": {"tf32": contenders}} for name, of in sets]}
    assert speedups.broad_of_run(run) == {"tf32": {"broad": {"nchw": (2.0, 6.0), "nhwc": (1.0, 5.0)}}}


@pytest.fixture(scope="module")
def headline_rows():
    return list(headline.rows(RESULTS))


def test_readme_has_the_headlines_table(headline_rows):
    """One table, of not more figures than a reader takes in, and the sentence of what its means hide."""
    text = (ROOT / "README.md").read_text()
    lines = headline.table(headline_rows)
    assert "\n".join(lines) in text
    assert " ".join(headline.sentence(headline_rows).split()) in " ".join(text.split())
    assert sum(line.startswith("|") for line in text.splitlines()) == len(lines)
    assert len([figure for _, found in cells("README.md") for figure in found]) <= headline.MOST_FIGURES


def test_readme_is_a_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_headline_has_layers_that_nobody_tuned_gradients_and_every_processor(headline_rows):
    labels = [label for label, _, _ in headline_rows]
    assert sum("gradient" in label for label in labels) >= 2
    assert sum(len(untuned) == 139 for _, _, untuned in headline_rows) >= 5
    for run in side_by_side.load(RESULTS).values():
        assert any(run["processor"]["microarchitecture"] in label for label in labels)


def test_headline_is_the_better_layout_of_each_side():
    """By hand: a layer of two layouts, each side with another one as its better."""
    assert headline.of_times({"layer": {"nchw": (2.0, 3.0), "nhwc": (1.0, 6.0)}}) == {"layer": 3.0}
    times = {"tconv nchw": 2.0, "tconv nhwc": 1.0, "torch nchw": 3.0, "torch nhwc": 6.0}
    results = [{"name": "layer", "contenders": {name: {"ms": ms} for name, ms in times.items()}}]
    assert headline.of_contenders(results) == {"layer": 3.0}
    rows = [("row", {"a": 2.0, "b": 0.5}, {"c": 0.95})]
    assert headline.table(rows)[2:] == ["| row | 1.00 | 0.95 |"]
    assert "more than 1 of the 2 layers or on more than 0 of the 1, and" in headline.sentence(rows)
    assert headline.sentence(rows).endswith("a factor of 2.0.")


@pytest.mark.parametrize(("of_gpu", "page"), list(speedups.PAGES.items()))
def test_pages_have_the_pictures_figures(groups, of_gpu, page):
    found = [(title, rows) for title, rows in groups if speedups.is_of_gpu(title) == of_gpu]
    assert found and "\n".join(speedups.table(found)) in (ROOT / page).read_text()


def test_performance_on_the_cpu():
    run = cpu_runs.load(RESULTS / f"compare_cpu_{speedups.PROCESSOR}.json.gz")
    results = cpu_runs.of_set(run, cpu_runs.TUNED)
    page = "docs/performance.md"
    for label, ours in (("tconv NCHW", OURS[0]), ("tconv NHWC", OURS[1])):
        assert has_row(page, label, written(floor_mean(results, ours)))
    for label, peer in CPU_PEERS.items():
        ratios = [x for ours in OURS for x in mean_and_least(gpu_report.speedups(results, ours, [peer]))]
        assert has_row(page, label, written(floor_mean(results, peer), *ratios)), label
    best = [x for ours in OURS for x in mean_and_least(gpu_report.speedups(results, ours, list(CPU_PEERS.values())))]
    assert has_row(page, "the best of all peers, layer by layer", written(*best))


def test_processors_side_by_side():
    """The page has the table that the files of all processors make."""
    table = side_by_side.table(side_by_side.load(RESULTS), side_by_side.BASE)
    assert "\n".join(table) in (ROOT / side_by_side.PAGE).read_text()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("compare_cpu_*.json.gz")), ids=run_files.stem)
def test_report_of_a_processor_is_its_run(path):
    """Verdicts aside, whose bars were given when it was made, and where lines end, which verdicts move."""
    texts = [run_files.report_of(path).read_text(), report.markdown(cpu_runs.load(path), {})]
    without_bars = [re.sub(r" \(bar [^)]*\)", "", " ".join(text.split())) for text in texts]
    assert without_bars[0] == without_bars[1]
    assert run_files.stem(path).removesuffix("_variants") == f"compare_cpu_{cpu_runs.load(path)['processor']['slug']}"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("compare_gpu*.json.gz")), ids=run_files.stem)
def test_report_of_a_gpu_is_its_run(path):
    assert run_files.report_of(path).read_text() == gpu_report.markdown(run_files.load(path))


def test_results_are_read():
    """Every file of bench/results is read by a page, a script or a test, and what is large is compressed."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench" / "README.md"]
    sources = [*ROOT.glob("bench/**/*.py"), *ROOT.glob("tests/*.c"), ROOT / "tests" / "CMakeLists.txt"]
    texts = "\n".join(path.read_text() for path in [*pages, *sources])
    for path in sorted(RESULTS.iterdir()):
        is_run = path.name.endswith(run_files.ENDING) and run_files.report_of(path).exists()
        assert is_run or path.name in texts or (path.suffix == ".md" and f"results/{path.stem}" in texts), path.name
        assert path.suffix in (".gz", ".svg") or path.stat().st_size < 64 << 10, path.name


def test_performance_on_cuda():
    run = load("compare_gpu")
    for precision, label in speedups.GPU_PRECISIONS.items():
        results, expected = gpu_report.view(run, precision), []
        for layout in speedups.LAYOUTS:
            pair = f"tconv {layout}", f"torch {layout}"
            expected += [floor_mean(results, name) for name in pair]
            expected.append(report.geometric_mean(gpu_report.speedups(results, pair[0], [pair[1]]).values()))
        assert has_row("docs/performance-cuda.md", label, written(*expected)), label


def test_gradients_in_the_better_layout_of_each_side():
    text = (ROOT / "docs" / "performance-cuda.md").read_text()
    said = text[text.index("the gradients of the 139 layers are") : text.index("\n### Over the floor")]
    found = speedups.broad_gradients(RESULTS)
    ratios = [headline.of_times(found[op, mode]).values() for op in speedups.GRADIENTS for mode in ("tf32", "bf16")]
    assert re.findall(r"\d+\.\d+", said) == written(*map(report.geometric_mean, ratios))
    behind = [sum(ratio < 1 / headline.AHEAD for ratio in of) for of in ratios]
    assert "on {}, {}, {} and {} layers".format(*behind) in " ".join(said.split())


def test_architecture_has_the_winners():
    """The table of CUDA's implementations by class is that of the times; the CPU's has the order of the CPU's lists."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert "\n".join(winners.table()) in text
    source = (ROOT / "src" / "dispatch" / "impl_list.c").read_text()
    lists = [
        re.findall(r"&tconv_(cpu_\w+)", found) for found in re.findall(r"const cpu_\w+\[\] = \{(.*?)\}", source, re.S)
    ]
    order = [re.sub(r"_(data|weights)$", "", name) for found in lists for name in found]
    cpu = text[text.index("### On the CPU") : text.index("## Where the code is")]
    assert len(lists) == 3 and re.findall(r"^\|[^|]*\| `(cpu_\w+)` \|", cpu, re.M) == order


def test_winners_count_no_layer_that_lacks_igemms_time(tmp_path):
    """Two layers of stride 2, one of which has no time of cuda_igemm, and one of four outputs."""
    names = "mode,layout,layer,implementation,ms,tile,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g"
    tail = "1,64,32,32,{outs},4,4,2,2,1,1,0,0,1,1,1"
    times = [
        ("a", 64, "cuda_igemm", 1.0),
        ("a", 64, "cuda_mma", 2.0),
        ("b", 64, "cuda_mma", 1.0),
        ("c", 4, "cuda_igemm", 2.0),
    ]
    times.append(("c", 4, "cuda_col2im", 1.0))
    lines = [f"f16,nchw,{layer},{name},{ms},x,{tail.format(outs=outs)}" for layer, outs, name, ms in times]
    (tmp_path / "times.csv").write_text("\n".join([names, *lines, ""]))
    wins, layers = winners.fastest(tmp_path / "times.csv")
    assert dict(wins["stride 2", "f16", "nchw"]) == {"cuda_igemm": 1} and layers["stride 2"] == 2
    assert winners.cell(wins["≤ 4 outputs", "f16", "nchw"]) == "col2im 100"


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
