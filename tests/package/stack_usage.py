#!/usr/bin/env python3
"""No function of the library takes more of a thread's stack than LIMIT bytes, and none an amount that the compiler cannot
bound: callers run it on threads whose stacks they chose.

    stack_usage.py OBJECT...     reads what -fstack-usage wrote beside each object
"""
import pathlib
import sys

LIMIT = 8192  # half of what tconv.h says that a thread needs: callers of a large frame and what it calls have the rest
BOUNDED = ("static", "dynamic,bounded")


def functions(report):
    """(function, bytes, kind) of each line: file:line:column:name, bytes, kind, with tabs between."""
    for line in report.splitlines():
        place, size, kind = line.split("\t")
        yield place, int(size), kind


def main():
    checked, bad, largest = 0, [], (0, "")
    for path in (pathlib.Path(name).with_suffix(".su") for name in sys.argv[1:] if name.endswith(".c.o")):
        if not path.exists():
            raise SystemExit(f"{path}: no report; rebuild the object")
        for place, size, kind in functions(path.read_text()):
            checked += 1
            largest = max(largest, (size, place))
            if size > LIMIT or kind not in BOUNDED:
                bad.append(f"{place}: {size} bytes, {kind}")
    if not checked:
        raise SystemExit("no function was found")
    print(*bad, f"{checked} functions, {len(bad)} with more than {LIMIT} bytes or no bound, the largest {largest[0]}: {largest[1]}",
          sep="\n")
    if bad:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
