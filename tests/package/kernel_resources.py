#!/usr/bin/env python3
"""No kernel for Hopper (sm_90, sm_90a) has a stack frame or spills registers: either is memory traffic within its loops. Nor
does ptxas have one wait for each wgmma, which it says (C7510 and the like) and makes nothing wrong but slow.

    kernel_resources.py OBJECT...     reads <object>.report (with_report.sh) of each CUDA object
"""
import pathlib
import re
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
PROPERTIES = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SERIALIZED = re.compile(r"wgmma.mma_async instructions are serialized")
ARCHITECTURE = "sm_90"


def kernels(report):
    """(kernel, architecture, bytes of stack frame, spill stores and spill loads, registers) of each kernel. What belongs to
    an entry follows it; a device function that was not inlined reports by itself, after its caller, and counts there."""
    found = []
    for line in report.splitlines():
        if match := ENTRY.search(line):
            found.append([match[1], match[2], (0, 0, 0), 0])
        elif found and (match := PROPERTIES.search(line)):
            found[-1][2] = tuple(map(max, found[-1][2], map(int, match.groups())))
        elif found and (match := REGISTERS.search(line)):
            found[-1][3] = int(match[1])
    return found


def main():
    checked, bad = 0, []
    for path in (pathlib.Path(name + ".report") for name in sys.argv[1:] if ".cu." in name):
        if not path.exists():
            raise SystemExit(f"{path}: no report; rebuild the object")
        report = path.read_text()
        bad += [f"{path.name}: {line}" for line in report.splitlines() if SERIALIZED.search(line)]
        for name, architecture, memory, registers in kernels(report):
            if not architecture.startswith(ARCHITECTURE):
                continue
            checked += 1
            if any(memory):
                bad.append("{}: {} for {}: {} bytes of stack frame, {} of spill stores, {} of spill loads, {} registers".format(
                    path.name, name, architecture, *memory, registers))
    if not checked:
        print(f"skipped: this needs a build for {ARCHITECTURE}")
        return
    print(*bad, f"{checked} kernels for {ARCHITECTURE}, {len(bad)} with memory of their own or waits", sep="\n")
    if bad:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
