#!/usr/bin/env python3
"""Compares the library's binary interface with the list that is committed: exported symbols, prototypes, the values of
enumerators, and the size, alignment and fields of each public struct.

    abi.py --list LIST --header tconv.h --library libtconv.so --compiler CC [--update [--break]]

What is new needs an edit of the list, which --update makes. What has changed or is gone would break programs that are
compiled already: --update makes that edit only with --break, which goes with a new SOVERSION. A struct that begins with
struct_size may grow at its end.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HEADER = """# The binary interface of libtconv, which tests/package/abi.py compares with the build. New lines are for
# abi.py --update; a line that changes or goes breaks programs that are compiled already.
"""


def parse_arguments():
    parser = argparse.ArgumentParser()
    for name in ("--list", "--header", "--library"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--break", dest="breaks", action="store_true")
    return parser.parse_args()


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return re.sub(r"^\s*#.*$", "", text, flags=re.M)


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def enumerators(text):
    for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        for item in body.split(","):
            if item.strip():
                yield name, item.split("=")[0].strip()


def declared(declaration):
    """The names that a member's declaration declares, each with its type."""
    pointer = re.search(r"\(\*(\w+)\)", declaration)
    if pointer:
        yield pointer.group(1), squeeze(declaration.replace(pointer.group(1), "", 1))
        return
    first, *others = declaration.split(",")
    base, name = re.fullmatch(r"(.*?[\s*])(\w+(?:\[\w+\])?)", squeeze(first)).groups()
    for name in [name, *map(squeeze, others)]:
        word = re.match(r"\w+", name).group()
        yield word, squeeze(base + name[len(word) :])


def structs(text):
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        yield name, [field for part in body.split(";") if part.strip() for field in declared(squeeze(part))]


def prototypes(text):
    for result, name, parameters in re.findall(r"TCONV_API ([^(;]*?)(\w+)\(([^)]*)\);", text):
        types = [re.sub(r"(?<=[\s*])\w+(\[\w*\])?$", r"\1", squeeze(one)) for one in parameters.split(",")]
        yield name, squeeze(f"{result} ({', '.join(map(squeeze, types))})")


def layout(text, compiler, include):
    """What the compiler says of enumerators and structs: lines of "key = value"."""
    lines = []
    for enum, name in enumerators(text):
        lines.append(f'printf("enum {enum} {name} = %d\\n", (int){name});')
    for struct, fields in structs(text):
        lines.append(f'printf("struct {struct} = %zu bytes, aligned to %zu\\n", sizeof({struct}), _Alignof({struct}));')
        for field, kind in fields:
            at = f"offsetof({struct}, {field}), sizeof((({struct} *)0)->{field})"
            lines.append(f'printf("struct {struct} . {field} = at %zu, %zu bytes: {kind}\\n", {at});')
    program = "#include <stddef.h>\n#include <stdio.h>\n#include <tconv/tconv.h>\nint main(void)\n{\n"
    program += "\n".join(lines) + "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as directory:
        source, built = pathlib.Path(directory, "abi.c"), pathlib.Path(directory, "abi")
        source.write_text(program)
        subprocess.run([compiler, "-std=c11", f"-I{include}", source, "-o", built], check=True)
        return subprocess.run([built], check=True, capture_output=True, text=True).stdout.splitlines()


def symbols(library):
    listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        _, kind, name = line.split()
        if kind != "A":
            yield f"symbol {name.replace('@@', ' = ')}"


def by_key(lines):
    return dict(line.split(" = ", 1) for line in lines if line and not line.startswith("#"))


def has_grown(key, before, after, known):
    """Whether this is the size of a versioned struct, larger than it was."""
    size, versioned = re.compile(r"(\d+) bytes, aligned to (\d+)"), f"{key} . struct_size" in known
    old, new = size.fullmatch(before), size.fullmatch(after or "")
    return bool(versioned and old and new and int(new[1]) > int(old[1]) and old[2] == new[2])


def main():
    arguments = parse_arguments()
    text = without_comments(arguments.header.read_text())
    lines = layout(text, arguments.compiler, arguments.header.parent.parent)
    lines += [f"function {name} = {prototype}" for name, prototype in prototypes(text)]
    lines += sorted(symbols(arguments.library))
    found = by_key(lines)
    listed = by_key(arguments.list.read_text().splitlines()) if arguments.list.exists() else {}
    changed = {key for key in listed if listed[key] != found.get(key)}
    grown = {key for key in changed if has_grown(key, listed[key], found.get(key), listed)}
    broken, new = changed - grown, (found.keys() - listed.keys()) | grown
    if arguments.update and (arguments.breaks or not broken):
        arguments.list.write_text(HEADER + "\n".join(f"{key} = {value}" for key, value in found.items()) + "\n")
        return
    for key in sorted(broken):
        print(f"changed: {key} = {listed[key]}\n     now: {found.get(key, 'not there')}")
    for key in sorted(new):
        print(f"    new: {key} = {found[key]}")
    if broken:
        sys.exit("What has changed breaks programs that are compiled already: undo it, or raise SOVERSION and give --break.")
    if new:
        sys.exit(f"What is new has to be in {arguments.list}: run this again with --update, and commit the list.")
    if len(found) < 100:
        sys.exit(f"{len(found)} entries are too few to be the whole interface")
    print(f"{len(found)} entries, as listed")


if __name__ == "__main__":
    main()
