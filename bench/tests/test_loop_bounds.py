"""bench/loop_bounds.py finds the inner loop of a microkernel, counts what is in it and reads llvm-mca right: with loops
that are written for it here, and one that the compiler makes of a microkernel."""

import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))
import loop_bounds  # noqa: E402
import loop_code  # noqa: E402
import loop_mca  # noqa: E402

PROCESSORS = {processor.name: processor for processor in loop_mca.PROCESSORS}
# A loop around two others: at 0x10 one with two multiply-adds, at 0x30 one with one.
NESTED = [
    (0x00, "xor    %eax,%eax"),
    (0x10, "vmovups (%rdi,%rax,4),%zmm1"),
    (0x18, "vfmadd231ps (%rsi){1to16},%zmm1,%zmm2"),
    (0x20, "vfmadd231ps 0x4(%rsi){1to16},%zmm1,%zmm3"),
    (0x24, "add    $0x10,%rax"),
    (0x28, "cmp    %rax,%rdx"),
    (0x2C, "jne    10"),
    (0x30, "vfmadd231ps %zmm4,%zmm5,%zmm6"),
    (0x38, "jne    30"),
    (0x40, "jmp    0"),
    (0x48, "ret"),
]


def loop_of(*instructions, machine="x86_64", label="build"):
    return loop_code.Loop("2x1", label, machine, instructions)


def test_the_loop_is_the_innermost_one_with_the_most_multiply_adds():
    body = loop_code.innermost_loop(NESTED)
    assert body == tuple(text for _, text in NESTED[1:7])
    assert loop_code.innermost_loop(NESTED[:1]) == ()


def test_counts_of_a_loop():
    loop = loop_of(*loop_code.innermost_loop(NESTED))
    assert (loop.fmas, loop.terms, loop.bits) == (2, 1, 512)
    assert loop.slots == 5  # the compare and its jump are one
    spilled = loop_of("vmovaps %zmm1,0x48(%rsp)", "vmovaps %zmm3,%zmm8", "vmovups (%rsi),%zmm0", "mov    %rdi,%rax")
    assert (spilled.count(loop_code.STACK), spilled.count(loop_code.MOVE)) == (1, 1)
    neon = loop_of("fmla v0.4s, v1.4s, v2.s[0]", "cmp x1, x2", "b.ne 10", machine="aarch64")
    assert (neon.fmas, neon.bits, neon.slots) == (1, 128, 3)


def test_repairs_change_what_they_say_and_nothing_else():
    loop = loop_of("vbroadcastss (%rsi),%zmm0", "vmovups (%rdi),%zmm1", "vfmadd231ps (%rsi){1to16},%zmm0,%zmm2")
    assert loop_mca.narrow_broadcasts(loop).instructions == ("vbroadcastss (%rsi),%ymm0", *loop.instructions[1:])
    assert loop_mca.narrow_all(loop).instructions == (
        "vbroadcastss (%rsi),%ymm0",
        "vmovups (%rdi),%ymm1",
        "vfmadd231ps (%rsi){1to8},%ymm0,%ymm2",
    )


def test_a_loop_that_has_no_whole_terms_is_refused():
    with pytest.raises(loop_code.Failure, match="1 multiply-adds are no whole terms of 2"):
        _ = loop_of("vfmadd231ps %zmm4,%zmm5,%zmm6").terms


def test_a_loop_that_is_alike_in_two_builds_is_one():
    one = loop_of("vfmadd231ps %zmm4,%zmm5,%zmm6", "jne    30", label="a")
    moved = loop_of("vfmadd231ps %zmm4,%zmm5,%zmm6", "jne    50", label="b")
    changed = loop_of("vfmadd231ps %zmm4,%zmm5,%zmm7", "jne    30", label="c")
    merged = loop_code.merged([one, moved, changed])
    assert [(loop.label, loop.instructions) for loop in merged] == [
        ("a, b", one.instructions),
        ("c", changed.instructions),
    ]


def test_what_ran_is_put_beside_loops_unrolled_alike():
    rows = loop_bounds.measured()
    assert list(rows[0]) == ["processor", "loop", "taps", "terms", "share"]
    assert len({row["processor"] for row in rows}) == 1  # the report names one
    alike = [loop_of(*["vfmadd231ps %zmm4,%zmm5,%zmm6"] * 2 * terms) for terms in (1, 4)]
    ran = [{"loop": "2x1 of 512 bits", "taps": "2x2", "terms": terms, "share": share} for terms, share in RAN]
    assert loop_bounds.ran_columns({alike[0].title: alike}, ran) == {"ran, 2x2": ["0.90 / 0.80"]}
    assert loop_bounds.ran_columns({alike[0].title: alike}, ran[:2]) == {}  # not of both


RAN = [("1", "0.9"), ("2", "0.7"), ("4", "0.8")]


def test_processors_without_rates_are_refused():
    with pytest.raises(loop_code.Failure, match="no rates of i386"):
        loop_mca.known(["znver3", "i386"])


@pytest.fixture(scope="module")
def mca():
    if shutil.which("llvm-mca") is None:
        pytest.skip("no llvm-mca")
    return loop_mca.Mca("llvm-mca", 200)


def test_multiply_adds_alone_take_what_the_processor_has_ports_for(mca):
    loop = loop_mca.probe(PROCESSORS["znver3"], 256, load=False)
    bound = loop_mca.bound(mca, loop, PROCESSORS["znver3"])
    assert bound.fma == loop.fmas / 2
    assert bound.simulated >= bound.fma
    assert bound.share <= 1


def test_what_binds_is_named(mca):
    skylake = PROCESSORS["skylake-avx512"]
    loads = loop_of("vfmadd231ps %zmm0,%zmm1,%zmm2", *["vmovups (%rdi),%zmm3"] * 12)
    assert loop_mca.bound(mca, loads, skylake).binds.startswith("load ports 6.")
    independent = [f"vfmadd231ps %zmm0,%zmm1,%zmm{at}" for at in range(2, 14)]
    assert loop_mca.bound(mca, loop_of(*independent), skylake).binds.startswith("FMA ports 6.")
    assert loop_mca.bound(mca, loop_of(*independent[:1]), skylake).binds.startswith("waiting")
    many = loop_of(independent[0], *["nop"] * 31)  # dispatched by the model in 5.3 cycles, renamed in 8
    assert loop_mca.bound(mca, many, skylake).binds == "front end 8.0"


def test_missing_processors_are_named_and_never_guessed(mca):
    unknown = loop_mca.Processor("znver99", "Zn99", "x86_64", {256: 2}, 6)
    assert mca.missing(unknown) == "not known"
    lent = loop_mca.Processor("cascadelake", "CLX", "x86_64", {512: 2}, 4)
    assert mca.missing(lent).startswith("known by another processor's model (SKX")
    loop = loop_of(*loop_code.innermost_loop(NESTED))
    page = loop_bounds.report(mca, [loop], [unknown], ["build"], {"gcc 12"})
    assert "- znver99: not known" in page


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Objects with a microkernel for AVX2, by how often its loop is unrolled."""
    compiler = shutil.which("cc")
    if compiler is None or shutil.which("objdump") is None or platform.machine() != "x86_64":
        pytest.skip("no compiler and objdump for x86-64")
    source, built = tmp_path_factory.mktemp("loops"), {}
    for unroll in (1, 4):
        text = source / f"u{unroll}.c"
        text.write_text(KERNEL.format(unroll=unroll))
        built[unroll] = source / f"u{unroll}.o"
        command = [compiler, "-O2", "-mavx2", "-mfma", "-ffp-contract=fast", "-c", str(text), "-o", str(built[unroll])]
        subprocess.run(command, check=True)
    return built


# As the library's: a loop over segments around an unrolled one and one for the terms that are left.
KERNEL = """
typedef float vector __attribute__((vector_size(32), aligned(4)));
enum {{ UNROLL = {unroll} }};
static inline __attribute__((always_inline)) void add_term(vector *a, const float *strip, const float *weights)
{{
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        a[i] += weights[i / 2] * *(const vector *)(strip + i % 2 * 8);
}}
static __attribute__((noinline)) void microkernel_6x2_float(vector *sums, const float *strip, const float *weights,
                                                            long segments, long n)
{{
    for (long s = 0; s < segments; s++, sums += 12) {{
        vector a[12] = {{{{0}}}};
        long k = 0;
        for (; k + UNROLL <= n; k += UNROLL)
#pragma GCC unroll 4
            for (int t = 0; t < UNROLL; t++, strip += 16, weights += 6)
                add_term(a, strip, weights);
        for (; k < n; k++, strip += 16, weights += 6)
            add_term(a, strip, weights);
        for (int i = 0; i < 12; i++)
            sums[i] = a[i];
    }}
}}
void run(vector *sums, const float *strip, const float *weights, long segments, long n)
{{
    microkernel_6x2_float(sums, strip, weights, segments, n);
}}
"""


def test_the_unrolled_loop_is_found_between_the_segments_and_the_terms_left(built):
    for unroll, path in built.items():
        assert [loop.terms for loop in loop_code.loops_of("build", path, ["6x2"])] == [unroll]


def test_builds_are_put_beside_each_other(mca, built, tmp_path):
    page = tmp_path / "page.md"
    objects = [f"u{unroll}={path}" for unroll, path in built.items()]
    command = [sys.executable, BENCH / "loop_bounds.py", "--cpus", "znver3,icelake-server", "--iterations", "100"]
    subprocess.run([*map(str, command), "--loops", "6x2", "--out", str(page), *objects], check=True)
    text = page.read_text()
    assert "u1 / u4; one figure" in text and "| loop | znver3 | icelake-server |\n" in text
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| 6x2 of 256 bits | u")]
    assert [line[1:4] for line in lines[:2]] == [["u1", "1", "12"], ["u4", "4", "48"]]  # terms, multiply-adds
    assert [line[1:3] for line in lines[2:4]] == [["u1", "6.0"], ["u4", "24.0"]]  # their cycles on znver3


def test_an_object_without_loops_is_a_plain_failure(built):
    command = [sys.executable, str(BENCH / "loop_bounds.py"), "--loops", "9x9", str(built[1])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "no loop found" in done.stderr and "Traceback" not in done.stderr
    done = subprocess.run([*command[:2], str(BENCH / "loop_bounds.py")], capture_output=True, text=True)
    assert done.returncode == 1 and "is no object" in done.stderr
