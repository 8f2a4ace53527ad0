#!/usr/bin/env python3
"""Checks that the Markdown of the repository can be read in a terminal: no line is longer than 160 characters, and no
cell of a table has more than 40 words.

    markdown.py                  # checks all pages
    markdown.py --wrap PAGE...   # wraps the paragraphs that have a line which is too long, and no table or code

Tables of measurements (bench/results and docs/log) may be wider: their rows are figures, which are looked up.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["*.md", "docs/**/*.md", "bench/**/*.md", "examples/**/*.md", "python/**/*.md", "tests/**/*.md"]
MEASUREMENTS = ["bench/results", "docs/log"]
LONGEST, WRAPPED = 160, 120
MOST_WORDS = 40
# Fewer pages or tables than these, and it is this script that no longer finds them.
LEAST = {"pages": 50, "cells": 1000}

FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"(\s*)((?:[-*+]|\d+[.)])\s+)?")
# What would be a list, a heading, a quotation, a table or a rule at the beginning of a line.
NOT_FIRST = re.compile(r"([-+*>|#=].{0,2}|[>|#].*|\d+[.)])$")


def cells(line):
    """The cells of a row of a table; a bar within code does not end a cell if it is escaped."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def lines_of(text):
    """(number, line, whether it is code, whether it is a row of a table)"""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
            yield number, line, True, False
        else:
            yield number, line, fence is not None, fence is None and line.startswith("|")


def faults(page, counts):
    name = page.relative_to(ROOT).as_posix()
    of_measurements = any(name.startswith(folder + "/") for folder in MEASUREMENTS)
    for number, line, _, is_row in lines_of(page.read_text()):
        if len(line) > LONGEST and not (is_row and of_measurements):
            yield f"{name}:{number}: {len(line)} characters, more than {LONGEST}"
        for cell in cells(line) if is_row else []:
            counts["cells"] += 1
            words = len(cell.split())
            if words > MOST_WORDS and not name.startswith("docs/log/"):
                yield f"{name}:{number}: a cell of {words} words, more than {MOST_WORDS}: {cell[:40]}..."


def check():
    pages = sorted({page for pattern in PAGES for page in ROOT.glob(pattern)})
    counts = {"pages": len(pages), "cells": 0}
    wrong = [fault for page in pages for fault in faults(page, counts)]
    wrong += [f"only {counts[what]} {what} found" for what, least in LEAST.items() if counts[what] < least]
    print("\n".join(wrong) or ", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if wrong else 0


def wrapped(lines):
    """A paragraph or an item of a list, filled."""
    match = ITEM.match(lines[0])
    first = match[0]
    rest = " " * len(first)
    words = " ".join([lines[0][len(first) :], *(line.strip() for line in lines[1:])]).split()
    filled, line = [], first + words[0]
    for word in words[1:]:
        if len(line) + 1 + len(word) > WRAPPED and not NOT_FIRST.match(word):
            filled.append(line)
            line = rest + word
        else:
            line += " " + word
    return [*filled, line]


def wrap(text):
    """The text with every paragraph that has a line which is too long filled again."""
    done, paragraph = [], []

    def end():
        done.extend(wrapped(paragraph) if any(len(line) > LONGEST for line in paragraph) else paragraph)
        paragraph.clear()

    for _, line, is_code, is_row in lines_of(text):
        begins = (
            ITEM.match(line)[2] or (not paragraph and line.startswith("    ")) or line.lstrip().startswith(("#", "<"))
        )
        if is_code or is_row or not line.strip() or begins:
            end()
        if is_code or is_row or not line.strip() or line.lstrip().startswith(("#", "<")):
            done.append(line)
        elif not paragraph and line.startswith("    ") and not (done and done[-1].strip()):
            done.append(line)  # an indented block is code
        else:
            paragraph.append(line)
    end()
    return "\n".join(done) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wrap", nargs="+", type=pathlib.Path, metavar="PAGE")
    pages = parser.parse_args().wrap
    for page in pages or []:
        page.write_text(wrap(page.read_text()))
    return 0 if pages else check()


if __name__ == "__main__":
    sys.exit(main())
