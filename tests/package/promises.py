#!/usr/bin/env python3
"""Checks that every test that docs/promises.md names is there.

    promises.py PROMISES TEST_DIRECTORY

`suite/test` must be a Test(suite, test) in a source of the directory. Names without a slash are not looked at.
"""
import pathlib
import re
import sys

FORM = re.compile(r"Test\((\w+),\s*(\w+)[,)]")
# A macro of test_mistakes.c and of test_gradient_mistakes.c makes each of these in the suites where it has Test(suite, name).
BOTH_FORM = re.compile(r"^MISTAKE_TEST\((\w+),", re.M)


def main():
    promises, directory = (pathlib.Path(argument) for argument in sys.argv[1:])
    tests, suites = set(), set()
    for source in directory.glob("test_*.c"):
        text = source.read_text()
        tests |= {f"{suite}/{name}" for suite, name in FORM.findall(text)}
        made_in = [suite for suite, name in FORM.findall(text) if name == "name"]
        tests |= {f"{suite}/{name}" for suite in made_in for name in BOTH_FORM.findall(text)}
    suites = {test.split("/")[0] for test in tests}
    named = set(re.findall(r"`(\w+/\w+)`", promises.read_text()))
    named = {name for name in named if name.split("/")[0] not in ("docs", "src", "tests", "include", "bench", "build")}
    missing = sorted(named - tests)
    if missing:
        sys.exit("docs/promises.md names tests that are not there:\n" + "\n".join(missing))
    if len(named) < 20:
        sys.exit(f"docs/promises.md names {len(named)} tests: too few to be the list of them")
    print(f"{len(named)} tests of {len(suites)} suites")


if __name__ == "__main__":
    main()
