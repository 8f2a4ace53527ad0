"""compare_cpu.py's report: which processor, runs that become one, figures against PyTorch, processors side by side."""

import pathlib
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))
import cpu_runs  # noqa: E402
import processor  # noqa: E402
import report  # noqa: E402
import run_files  # noqa: E402
import side_by_side  # noqa: E402

AVX512 = "fpu sse2 avx2 fma f16c avx512f avx512dq avx512bw avx512vl avx512_bf16"


def cpuinfo(vendor, family, model, stepping, flags="fpu sse2 avx2 fma f16c"):
    """The first two processors of a file as x86-64 has it."""
    one = {
        "vendor_id": vendor,
        "cpu family": family,
        "model": model,
        "model name": "A Processor",
        "stepping": stepping,
        "siblings": 4,
        "cpu cores": 2,
        "flags": flags,
    }
    return "\n".join(f"{name}\t: {value}" for name, value in one.items()) + "\n\nprocessor\t: 1\nmodel\t: 0\n"


@pytest.mark.parametrize(
    ("vendor", "numbers", "slug"),
    [
        ("GenuineIntel", (6, 85, 4), "skylake-avx512"),
        ("GenuineIntel", (6, 85, 7), "cascade-lake"),
        ("GenuineIntel", (6, 106, 6), "ice-lake-server"),
        ("GenuineIntel", (6, 143, 8), "sapphire-rapids"),
        ("GenuineIntel", (6, 207, 2), "emerald-rapids"),
        ("GenuineIntel", (6, 173, 1), "granite-rapids"),
        ("GenuineIntel", (6, 200, 1), "intel-6-200"),
        ("AuthenticAMD", (23, 1, 2), "zen"),
        ("AuthenticAMD", (23, 49, 0), "zen2"),
        ("AuthenticAMD", (25, 1, 1), "zen3"),
        ("AuthenticAMD", (25, 33, 0), "zen3"),
        ("AuthenticAMD", (25, 17, 1), "zen4"),
        ("AuthenticAMD", (25, 97, 2), "zen4"),
        ("AuthenticAMD", (25, 160, 2), "zen4"),
        ("AuthenticAMD", (26, 2, 1), "zen5"),
        ("SomebodyElse", (7, 1, 1), "somebodyelse-7-1"),
    ],
)
def test_processor_is_named_by_its_numbers(vendor, numbers, slug):
    assert processor.described(cpuinfo(vendor, *numbers))["slug"] == slug


def test_processor_says_its_instruction_set_and_flags():
    found = processor.described(cpuinfo("AuthenticAMD", 25, 17, 1, AVX512))
    assert (found["isa"], found["flags"], found["threads_per_core"]) == ("AVX-512", ["f16c", "avx512_bf16"], 2)
    assert processor.described(cpuinfo("AuthenticAMD", 25, 1, 1))["isa"] == "AVX2"
    sentence = processor.sentence({**found, "l1d_bytes": 1 << 15, "l2_bytes": 1 << 20, "l3_bytes": None, "cpus": 2})
    assert sentence == (
        "A Processor (Zen 4; family 25, model 17, stepping 1), AVX-512 with f16c, avx512_bf16, L1d 32 KiB, L2 1 MiB, "
        "2 CPUs for the process, 2 to a core"
    )


def test_processor_of_aarch64():
    text = "processor\t: 0\nFeatures\t: fp asimd asimdhp sve bf16\nCPU implementer\t: 0x41\nCPU part\t: {}\n"
    found = processor.described(text.format("0xd40"))
    assert (found["slug"], found["isa"], found["threads_per_core"]) == ("neoverse-v1", "SVE", None)
    assert processor.described(text.format("0x001"))["slug"] == "arm-0x41-0x001"


def test_this_processor_has_a_name():
    found = processor.identify()
    assert found["slug"] and found["cpus"] > 0 and processor.sentence(found)


def test_caches_are_those_of_the_kernel(tmp_path):
    for i, (level, kind, size) in enumerate([(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2048K")]):
        index = tmp_path / f"index{i}"
        index.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (index / name).write_text(f"{value}\n")
    found = processor.sizes_of_caches(tmp_path)
    assert (found["l1d_bytes"], found["l2_bytes"]) == (48 << 10, 2 << 20)


# Milliseconds of tconv nchw, its calls, tconv nhwc, torch nchw and torch nhwc.
NAMES = ["tconv nchw", "tconv nchw called", "tconv nhwc", "torch nchw", "torch nhwc"]


def result(name, times, of=cpu_runs.TUNED):
    contenders = {
        contender: {
            "ms": ms,
            "runs_ms": [ms],
            "relative_l2": 1e-7,
            "layout": contender.split()[1],
            "dtype": "f32",
            "threads": 2,
            "workspace_bytes": 64 if report.is_ours(contender) else None,
            "floor_ms": 1.0,
            "gbyte": 0.1,
        }
        for contender, ms in zip(NAMES, times, strict=True)
    }
    return {"name": name, "set": of, "n": 1, "gflop": 1.0, "contenders": contenders}


def run_of(*results, slug="zen9"):
    return {
        "op": "forward",
        "processor": {"slug": slug, "microarchitecture": slug.title(), "name": None, "isa": "AVX2"},
        "date": "2026-11-26",
        "threads": 2,
        "budget_gflop": {cpu_runs.TUNED: 2.0, cpu_runs.BROAD: 2.0},
        "heading": ["torch nchw: PyTorch 2.11"],
        "rates": {"f32 best 2": {"flops": 2e11, "bytes": 3e10}},
        "failures": [],
        "left_out": [],
        "results": list(results),
    }


def three_runs():
    return cpu_runs.merged(
        [
            run_of(result("a", (2, 3, 2, 8, 4)), result("b", (2, 4, 4, 1, 3), cpu_runs.BROAD)),
            run_of(result("a", (4, 3, 2, 8, 4)), result("b", (2, 4, 4, 1, 3), cpu_runs.BROAD)),
            run_of(result("a", (2, 3, 2, 8, 4))),
        ]
    )


def test_runs_become_one_with_medians_and_spread():
    run = three_runs()
    assert cpu_runs.count(run) == 3 and cpu_runs.sets(run) == [cpu_runs.TUNED, cpu_runs.BROAD]
    ratios, spreads = report.speedups(run["results"], "tconv nchw", ["torch nchw", "torch nhwc"])
    assert ratios == {"a": 2.0, "b": 0.5}  # the median run of a, and the better of PyTorch's layouts
    assert spreads == {"a": 2.0, "b": 1.0}


def test_runs_of_other_processors_or_batches_are_not_one():
    one = result("a", (1, 1, 1, 1, 1))
    with pytest.raises(ValueError, match="zen9 and on zen8"):
        cpu_runs.merged([run_of(one), run_of(one, slug="zen8")])
    with pytest.raises(ValueError, match="1 images in one run, 2"):
        cpu_runs.merged([run_of(one), run_of({**one, "n": 2})])


def test_report_has_a_section_for_each_set_and_counts_the_slower():
    text = " ".join(report.markdown(three_runs(), {}).split())
    tuned, broad = text.split("## 1 layers that it was not tuned for")
    assert "## 1 layers that tconv was tuned for" in tuned and "2 threads, medians of 3 runs." in tuned
    assert (
        "- tconv nchw against PyTorch in its better layout: 0.50x as fast in geometric mean of 1 layers, least 0.50x "
        "(b); layers below 0.95: 1, 0.9: 1, 0.85: 1, 0.7: 1; between runs the ratio spreads by 1.00, most 1.00 (b); "
        "the worst: b 0.50"
    ) in broad
    assert "- tconv nchw called against PyTorch in its better layout: 1.33x" in tuned
    assert "- tconv nhwc against PyTorch in channels_last: 0.75x" in broad
    assert "| a | 1 | 1.00 | 2.00 (2.00) | 2.00 (2.00) | 8.00 | 4.00 | 2.00 [2.00] | 2.00 |" in tuned


def test_reports_have_no_long_line_but_tables():
    """A line of a list goes on below its text; tables and titles stay as they are."""
    row, title = "| " + "a | " * 100, "# " + "title " * 40
    text = report.filled("\n".join([row, title, "- " + "word " * 50, "short", "long-word " * 20]))
    lines = text.split("\n")
    assert lines[:2] == [row, title] and "short" in lines
    assert all(len(line) <= report.LINE for line in lines[2:])
    assert lines[2].startswith("- word") and lines[3].startswith("  word")
    assert text.split() == " ".join([row, title, "- " + "word " * 50, "short", "long-word " * 20]).split()


def test_worst_layers_are_named_and_no_more():
    results = [result(f"layer{i}", (1, 1, 1, 1 - i / 100, 2)) for i in range(30)]
    (line,) = (line for line in report.pytorch_lines(results) if line.startswith("- tconv nchw against"))
    worst = line.split("the worst: ")[1].split(", ")
    assert worst[0] == "layer29 0.71" and len(worst) == report.WORST_LAYERS
    assert report.named({"a": 0.5, "b": 0.6, "c": 0.7}, 2) == "a 0.50, b 0.60 and 1 more"


def test_processors_stand_side_by_side(tmp_path):
    for run in (three_runs(), run_of(result("a", (1, 1, 1, 3, 2)), slug="lake")):
        run_files.save(tmp_path / f"compare_cpu_{run['processor']['slug']}.json.gz", run)
    (tmp_path / "compare_cpu_lake_variants.json.gz").write_text("not read")
    runs = side_by_side.load(tmp_path)
    lines = side_by_side.table(runs, "results")
    assert lines[0] == "| | [Lake, AVX2](results/compare_cpu_lake.md) | [Zen9, AVX2](results/compare_cpu_zen9.md) |"
    assert "| NCHW against PyTorch's better layout | 2.00 (2.00) | 2.00 (2.00) |" in lines
    assert "| NCHW against PyTorch's better layout | – | 0.50 (0.50) |" in lines  # noqa: RUF001
    assert "| layers below .95, .90, .85, .70 there | – | 1, 1, 1, 1 |" in lines  # noqa: RUF001
