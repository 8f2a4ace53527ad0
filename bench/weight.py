#!/usr/bin/env python3
"""What each room of src/cuda costs: lines, seconds to compile, and bytes of machine code, from a finished build.

    weight.py BUILD_DIR [--out FILE.csv]

Seconds are those of ninja's log, of the last time that each object was compiled: they mean something where that build
was made without a compiler cache, and by as many processes as there are cores. Bytes are those of the objects' sections
of machine code for GPUs, of all architectures together, compressed where the build compresses them.
"""

import argparse
import collections
import csv
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = "src/cuda/"
SOURCES = {".c", ".h", ".cu", ".cuh"}


def seconds_of(build):
    """Seconds by object, from ninja's log."""
    lines = (build / ".ninja_log").read_text().splitlines()[1:]
    return {line.split("\t")[3]: (int(line.split("\t")[1]) - int(line.split("\t")[0])) / 1e3 for line in lines}


def code_bytes(path):
    """Bytes of the sections that hold code for GPUs."""
    text = subprocess.run(["objdump", "-h", path], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in text.splitlines()]
    return sum(int(w[2], 16) for w in words if len(w) > 3 and w[1].startswith((".nv_fatbin", "__nv_")))


def rooms(build):
    found = collections.defaultdict(lambda: {"lines": 0, "host_lines": 0, "seconds": 0.0, "bytes": 0})
    for path in (ROOT / ROOMS).rglob("*"):
        if path.suffix in SOURCES:
            room = path.relative_to(ROOT / ROOMS).parts[0] if path.parent != ROOT / ROOMS else "."
            lines = len(path.read_text().splitlines())
            found[room]["lines"] += lines
            found[room]["host_lines"] += lines if path.suffix in (".c", ".h") else 0
    for name, seconds in seconds_of(build).items():
        at = name.find(ROOMS)
        if at >= 0 and "tconv_objects" in name and (build / name).exists():
            inside = name[at + len(ROOMS) :].split("/")
            room = inside[0] if len(inside) > 1 else "."
            found[room]["seconds"] += seconds
            found[room]["bytes"] += code_bytes(build / name)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    asked = parser.parse_args()
    found = rooms(asked.build)
    writer = csv.writer(asked.out, lineterminator="\n")
    writer.writerow(["room", "lines", "lines_of_c", "seconds", "bytes"])
    for room, figures in sorted(found.items()):
        writer.writerow([room, figures["lines"], figures["host_lines"], f"{figures['seconds']:.0f}", figures["bytes"]])
    total = [sum(figures[key] for figures in found.values()) for key in ("lines", "host_lines", "seconds", "bytes")]
    writer.writerow(["all", total[0], total[1], f"{total[2]:.0f}", total[3]])


if __name__ == "__main__":
    main()
