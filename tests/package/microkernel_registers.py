#!/usr/bin/env python3
"""The sums of the CPU's microkernels stay in registers, whatever the compiler: no loop over terms of a level of 16
registers has a vector on the stack.

    microkernel_registers.py OBJECT...     reads kernels_avx2.c.o of the objects

Micro-tiles of one channel, or of one pixel, are left out: they have sums to spare, and clang keeps a copy of their
sums on the stack. Without objdump or such an object it says "skipped: this needs ...".
"""

import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import loop_code

FUNCTION = re.compile(r"^[0-9a-f]+ <((?:microkernel|dense)_(\d+)x(\d+)_\w+)>:$", re.MULTILINE)
# A vector register, and an address on the stack.
ON_STACK = re.compile(r"(?=.*%[xyz]mm)(?=.*\(%rsp)")
MOST_SUMS = 12


def loops(path):
    """(name, instructions of the loop over terms) of each microkernel that has several channels or pixels."""
    listing = loop_code.run(["objdump", "-d", "--no-show-raw-insn", str(path)])
    parts = FUNCTION.split(listing)[1:]
    for name, first, second, text in zip(*(parts[i::4] for i in range(4)), strict=True):
        rows = int(second if name.startswith("dense") else first)
        if rows > 1:
            code = loop_code.instructions(text.split("\n\n")[0])
            yield name, int(first) * int(second), loop_code.innermost_loop(code)


def main():
    objects = [pathlib.Path(name) for name in sys.argv[1:] if name.endswith("kernels_avx2.c.o")]
    if not objects or not shutil.which("objdump"):
        print("skipped: this needs objdump, and kernels for AVX2")
        return
    checked, most, bad = 0, 0, []
    for path in objects:
        for name, sums, loop in loops(path):
            fmas = sum(bool(loop_code.FMA.match(text)) for text in loop)
            stack = sum(bool(ON_STACK.match(text)) for text in loop)
            checked += 1
            most = max(most, sums)
            if stack or fmas == 0 or fmas % sums:
                bad.append(f"{name}: {fmas} multiply-adds of {sums} sums, {stack} vectors on the stack")
    print(*bad, f"{checked} loops, {len(bad)} that are not as they should be", sep="\n")
    if bad or most != MOST_SUMS:
        raise SystemExit(1)


if __name__ == "__main__":
    try:
        main()
    except (loop_code.Failure, subprocess.SubprocessError) as failure:
        raise SystemExit(str(failure)) from failure
