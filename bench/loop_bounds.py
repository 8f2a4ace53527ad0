#!/usr/bin/env python3
"""How fast the inner loops of the CPU's microkernels can run on processors that are not at hand, by llvm-mca.

    loop_bounds.py [--mca LLVM-MCA] [--loops NAME,...] [--cpus NAME,...] [--iterations N] [--out FILE.md]
                   [[LABEL=]OBJECT...]

An object is a compiled kernels_<level>.c; without one, those of build/cpu are taken. Labels tell builds apart, whose
loops are put beside each other; objects of a build have the same. loop_code.py finds the loops, loop_mca.py has the
processors and their rates, results/loop_bounds_ran.csv what was measured. Processors that the given llvm-mca
has no model of its own of are named and left out; newer versions have newer ones.
"""

import argparse
import csv
import pathlib
import sys
import textwrap
import typing

import loop_code
import loop_mca
from loop_code import Failure, Loop
from loop_mca import Bound, Mca, Processor

HERE = pathlib.Path(__file__).resolve().parent
OBJECTS = HERE.parent / "build" / "cpu" / "CMakeFiles" / "tconv_objects.dir" / "src" / "cpu"
RAN = HERE / "results" / "loop_bounds_ran.csv"
LEVELS = ("avx512", "avx2", "neon")
UNLABELLED = "build"
ITERATIONS = 500
WIDTH = 118  # of a line of text

HEADER = """# Bounds of the CPU's inner loops

What llvm-mca cannot see comes first. On an Emerald Rapids unrolling by 4 gained 5 % over 28 layers in NCHW (up to
21 %), though no throughput bound of its model (sapphirerapids) differs, nor on any other AVX-512 processor that of a
loop of two vectors or more (*evenly*, below). A segment of 43 to 48 rounds ends in a branch that is mispredicted each
time; 11 or 12 rounds are within what branch history foresees. This is an inference: mispredictions were not counted,
there are no counters on that machine.

Made by `bench/loop_bounds.py` with llvm-mca {version} from objects of {labels}, built by {compilers}. Nothing here
ran but what is said to have run. A loop is a microkernel's innermost one, in f32: `CxV` are channels and vectors of
positions of `cpu_phases`, `dense_VxP` vectors of channels and pixels of `cpu_pixels`.
"""

SHARES_TEXT = """
## Shares of the peak of multiply-adds

{labels}As simulated: ports are dealt by turns, so that some of it is chance.
{ran}
"""
RAN_TEXT = """*ran* is what an {processor} reached with loops unrolled by as many terms: 256 input channels, the
strip in L2, by the taps of a phase.
"""

EVEN_TEXT = """
The same *evenly*, if operations shared their ports so and waited for nothing:

"""

CODE_TEXT = """
## What the compiler made

*terms*: by how many the loop is unrolled. *moves*: between vector registers, which processors rename away. *stack*:
vectors kept on the stack.

"""

CYCLES_TEXT = """
## Cycles of an iteration, processor by processor

- *FMA*: the multiply-adds alone, at as many in a cycle as the processor has. *front end*: instructions, an arithmetic
  one and its load as one, a compare and its jump as one on x86, at as many as are renamed in a cycle. Both are counted.
- *simulated*: by llvm-mca, of the loop in a form that the model is right about. *even*: llvm-mca's bound for operations
  that share their ports evenly and wait for nothing (Block RThroughput). A share is FMA over the largest of FMA, front
  end and one of these.
- *binds*: what is busy longest, with its own cycles; *waiting* where an iteration takes longer than any resource.
"""

UNSEEN = """
## What else none of these figures sees

Loads that cross a cache line, which nearly all of 64 bytes of the strip do, and which take two turns of a load port;
caches and prefetches: every load is a hit in L1. Decoders and the cache of decoded instructions. Intel's processors
bind operations to ports when they are renamed, not when they are free to start, so that an addition may take a turn
from the multiply-adds. Clocks, which 64-byte instructions lower on some.
"""

CODE = ["loop", "build", "terms", "FMAs", "instructions", "moves", "stack"]
CYCLES = ["loop", "build", "FMA", "front end", "even", "simulated", "binds"]


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown; the first column is text."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def joined(shares: typing.Iterable[float | None]) -> str:
    """Of builds, nothing where a share of one is not known."""
    known = list(shares)
    return "" if None in known else " / ".join(f"{share:.2f}" for share in known)


def measured(path: pathlib.Path = RAN) -> list[dict[str, str]]:
    """What ran: processor, loop, taps of a phase, terms by which the loop was unrolled, share of the peak."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def ran_columns(loops: dict[str, list[Loop]], ran: list[dict[str, str]]) -> dict[str, list[str]]:
    """A column for each taps, of what ran with loops unrolled as these are."""
    shares = {(row["loop"], row["taps"], row["terms"]): float(row["share"]) for row in ran}
    columns = {}
    for taps in dict.fromkeys(row["taps"] for row in ran):
        cells = [joined(shares.get((title, taps, str(one.terms))) for one in alike) for title, alike in loops.items()]
        if any(cells):
            columns[f"ran, {taps}"] = cells
    return columns


def shares_part(loops: dict[str, list[Loop]], bounds: list[Bound], labels: list[str]) -> str:
    """Builds side by side."""
    processors = list(dict.fromkeys(one.processor.name for one in bounds))
    of_cell: dict[tuple[str, str], list[Bound]] = {}
    for one in bounds:
        of_cell.setdefault((one.loop.title, one.processor.name), []).append(one)
    ran = measured()
    simulated, even, columns = [], [], ran_columns(loops, ran)
    for at, title in enumerate(loops):
        cells = [of_cell.get((title, name), []) for name in processors]
        simulated.append([title, *(joined(one.share for one in ones) for ones in cells)])
        simulated[-1] += [column[at] for column in columns.values()]
        even.append([title, *(joined(one.even_share for one in ones) for ones in cells)])
    ran_text = RAN_TEXT.format(processor=ran[0]["processor"]) if columns else ""
    builds = f"{' / '.join(labels)}; one figure where the loops are alike. " if len(labels) > 1 else ""
    text = SHARES_TEXT.format(labels=builds, ran=ran_text)
    return text + table(["loop", *processors, *columns], simulated) + EVEN_TEXT + table(["loop", *processors], even)


def code_part(loops: list[Loop]) -> str:
    """What the compiler made of each loop."""
    rows = []
    for loop in loops:
        counts = loop.terms, loop.fmas, len(loop.instructions), loop.count(loop_code.MOVE), loop.count(loop_code.STACK)
        rows.append([loop.title, loop.label, *(str(count) for count in counts)])
    return CODE_TEXT + table(CODE, rows)


def processor_part(processor: Processor, bounds: list[Bound]) -> str:
    """All loops on one processor."""
    rates = ", ".join(f"{count} of {bits} bits" for bits, count in processor.fmas.items())
    rows = []
    for one in bounds:
        cycles = (f"{figure:.1f}" for figure in (one.fma, one.front, one.even, one.simulated))
        rows.append([one.loop.title, one.loop.label, *cycles, one.binds])
    why = " ".join(processor.why.split())
    text = f"Multiply-adds in a cycle: {rates}. Renamed in a cycle: {processor.width}. {why}"
    return f"\n### {processor.name}\n\n{textwrap.fill(text, WIDTH, break_on_hyphens=False)}\n\n{table(CYCLES, rows)}"


def report(mca: Mca, loops: list[Loop], processors: list[Processor], labels: list[str], compilers: set[str]) -> str:
    """The whole page."""
    absent = {processor.name: why for processor in processors if (why := mca.missing(processor))}
    bounds, parts = [], []
    for processor in processors:
        fit = [loop for loop in loops if loop.machine == processor.machine and loop.bits in processor.fmas]
        if fit and processor.name not in absent:
            of_processor = [loop_mca.bound(mca, loop, processor) for loop in fit]
            bounds += of_processor
            parts.append(processor_part(processor, of_processor))
    if absent:
        parts.append("\n### Processors that this llvm-mca has no model of\n\n")
        parts += [f"- {name}: {why}\n" for name, why in absent.items()]
    by_title: dict[str, list[Loop]] = {}
    for loop in loops:
        by_title.setdefault(loop.title, []).append(loop)
    head = HEADER.format(version=mca.version, labels=" and ".join(labels), compilers=" and ".join(sorted(compilers)))
    return head + shares_part(by_title, bounds, labels) + code_part(loops) + CYCLES_TEXT + "".join(parts) + UNSEEN


def objects_of(arguments: list[str]) -> list[tuple[str, pathlib.Path]]:
    """Labels and files."""
    if not arguments:
        paths = (OBJECTS / f"kernels_{level}.c.o" for level in LEVELS)
        return [(UNLABELLED, path) for path in paths if path.exists()]
    pairs = (argument.rpartition("=") for argument in arguments)
    return [(label or UNLABELLED, pathlib.Path(path)) for label, _, path in pairs]


def page_of(options: argparse.Namespace) -> str:
    objects = objects_of(options.objects)
    names = options.loops.split(",") if options.loops else None
    loops = loop_code.merged([loop for label, path in objects for loop in loop_code.loops_of(label, path, names)])
    if not loops:
        raise Failure("no loop found: build build/cpu, or name an object and loops that it has")
    processors = loop_mca.known(options.cpus.split(",")) if options.cpus else loop_mca.PROCESSORS
    labels = list(dict.fromkeys(label for label, _ in objects))
    compilers = {loop_code.compiler_of(path) for _, path in objects}
    return report(Mca(options.mca, options.iterations), loops, processors, labels, compilers)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="*", metavar="[LABEL=]OBJECT")
    parser.add_argument("--mca", default="llvm-mca", help="the program; by default llvm-mca")
    parser.add_argument("--loops", help="names of loops; by default those of loop_code.LOOPS")
    parser.add_argument("--cpus", help="names of processors; by default all that there are rates of")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help=f"simulated; by default {ITERATIONS}")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the page; by default it is printed")
    options = parser.parse_args()
    try:
        page = page_of(options)
    except (Failure, OSError) as failure:
        print(f"loop_bounds.py: {failure}", file=sys.stderr)
        return 1
    if options.out:
        options.out.write_text(page)
    else:
        print(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
