#!/usr/bin/env python3
"""Doxygen's input filter: the headers with their comments marked as Doxygen wants them.

The headers are written to be read as they are, without marks. Here the comment above a declaration becomes its
description, one behind a field or an enumerator that member's, and a ruled line ("---- plan") begins a group. What
Doxygen would take for markup in plain English is escaped; blocks that are indented are code.
"""

import pathlib
import re
import sys
import textwrap

# A comment at the margin, with its ruled form, or whatever it stands in.
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
RULED = re.compile(r"^/\* -{20,} ?(.+?) \*/$", re.M)
BODY = re.compile(r"^typedef (?:enum|struct) \w+ \{.*?\} \w+;", re.M | re.S)
FIELDS = re.compile(r"^( +)(\w+) (\w+(?:\[\d+\])?(?:, \w+(?:\[\d+\])?)+);( */\*.*?\*/)", re.M | re.S)
SHOUTED = re.compile(r"^([A-Z])([A-Z ]{3,})\. ")
MARKUP = re.compile(r"([\\<>@#*&])")


HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "tconv"


def links():
    """What Doxygen takes for a link to each function and enumerator of the headers; types it finds by itself."""
    code = "".join(COMMENT.sub(" ", file.read_text()) for file in sorted(HEADERS.glob("*.h")))
    functions = re.findall(r"^(?:TCONV_API|static inline) [^;{(]*?(\w+)\(", code, re.M)
    enumerators = re.findall(r"\b(TCONV_\w+) = ", code)
    return {**{name: f"{name}()" for name in functions}, **{name: f"#{name}" for name in enumerators}}


def group_of(header, section):
    """The identifier of the group that a ruled line begins."""
    return re.sub(r"\W+", "_", f"section {header} {section}")


def sections(text):
    """The titles of the ruled lines, in their order."""
    return RULED.findall(text)


def plain(text):
    """A comment without its stars: blocks of code marked as such, and all else escaped."""
    made, code, previous = [], [], ""
    for line in [*text.strip().splitlines(), ""]:
        line = re.sub(r"^\s*\* ?", "", line).rstrip()
        indented = line.startswith("    ")
        # An indented line behind a blank one, or behind a colon, is code; behind a sentence it begins a paragraph.
        if indented and (code or not previous or previous.endswith(":")):
            code.append(line)
        elif line and code:
            made += marked_code(code)
            code = []
        elif code:
            code.append("")
        if not code:
            made += ["", prose(line)] if indented and previous else [prose(line)]
        previous = line.strip()
    return "\n".join(made + (marked_code(code) if code else [])).rstrip()


def marked_code(lines):
    """C, or what only looks like it: formulas and tables."""
    text = textwrap.dedent("\n".join(lines)).rstrip()
    kind = ("code{.c}", "endcode") if re.search(r";( *//.*)?$", text, re.M) else ("verbatim", "endverbatim")
    return ["", f"\\{kind[0]}", text, f"\\{kind[1]}", ""]


def prose(line):
    """A line of plain English, the first word of a section (THREADS.) in bold, names of this library as links."""
    line = MARKUP.sub(r"\\\1", line.strip())
    line = re.sub(r"\b[Tt]\w+\b(?!\()", lambda match: LINKS.get(match[0], match[0]), line)
    return SHOUTED.sub(lambda match: f"<b>{match[1]}{match[2].lower()}.</b> ", line)


def marked_body(text):
    """A struct or an enum: what stands behind a member is its description, that of each where several are declared.
    Type and tag have one name, and would be described twice."""

    def split(match):
        indent, kind, names, comment = match.groups()
        return "\n".join(f"{indent}{kind} {name};{comment}" for name in names.split(", "))

    def described(match):
        begins_line = not match.string[: match.start()].rpartition("\n")[2].strip()
        return f"/**{'' if begins_line else '<'} {prose(' '.join(match[1].split()))} */"

    text = re.sub(r"^typedef (.*\}) \w+;$", r"\1;", text, flags=re.S)
    return COMMENT.sub(described, FIELDS.sub(split, text))


LINKS = links()


def marked(text, header):
    """The header for Doxygen."""
    opened = False

    def ruled(match):
        nonlocal opened
        closing = "/** \\} */\n" if opened else ""
        opened = True
        return f"{closing}/** \\defgroup {group_of(header, match[1])} {match[1]}\n\\{{ */"

    bodies = [match.span() for match in BODY.finditer(text)]
    made, end = [], 0
    for match in COMMENT.finditer(text):
        start = match.start()
        if any(first <= start < last for first, last in bodies):
            continue
        made.append(marked_bodies(text[end:start]))
        if RULED.fullmatch(match[0]):
            made.append(ruled(RULED.fullmatch(match[0])))
        elif start == 0:
            made.append(f"/** \\file {header}\n\n{plain(match[1])}\n*/")
        elif text[start - 1] == "\n":
            made.append(f"/** {plain(match[1])} */")
        else:
            made.append(match[0])
        end = match.end()
    rest = marked_bodies(text[end:])
    if opened:  # before what closes extern "C"
        head, closing, tail = rest.rpartition("#ifdef __cplusplus")
        rest = f"{head}/** \\}} */\n{closing}{tail}"
    return "".join(made) + rest


def marked_bodies(text):
    return BODY.sub(lambda match: marked_body(match[0]), text)


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    sys.stdout.write(marked(path.read_text(), path.name))
