#!/usr/bin/env python3
"""Checks the built site: every link and anchor inside it leads somewhere, every public name of the headers and of the
Python package has its place in the references, and every environment variable that the sources read is on its page.

    check.py HTML

What there has to be is read out of the sources, in other ways than those by which the site is made.
"""

import ast
import html.parser
import pathlib
import re
import sys
import urllib.parse

from sphinx.util.inventory import InventoryFile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pages that are read in the repository alone.
READMES = ["README.md", "python/README.md"]
ENVIRONMENT_PAGE = "docs/environment.html"
# Fewer than these, and it is this script that no longer finds them.
LEAST = {"links": 1000, "C names": 60, "Python names": 15, "variables": 15}


class Page(html.parser.HTMLParser):
    """The anchors of a page, what it links to, and its text."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.text = set(), set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)

    def handle_data(self, data):
        self.text.append(data)


def broken_links(site, pages):
    """(how many links were checked, what is wrong with some)"""
    count, wrong = 0, []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.is_file():
                wrong.append(f"{path.relative_to(site)}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                wrong.append(f"{path.relative_to(site)}: {link}: no such anchor")
    return count, wrong


def broken_readme_links(site, pages):
    """The same for the pages that the site does not have: files of the repository, with the anchors of their pages."""
    count, wrong = 0, []
    for readme in READMES:
        text = (ROOT / readme).read_text()
        links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
        for parts in (urllib.parse.urlsplit(link) for link in links):
            if parts.scheme:
                continue
            count += 1
            target = (ROOT / readme).parent / parts.path
            page = pages.get((site / target.resolve().relative_to(ROOT)).with_suffix(".html"))
            if not target.exists():
                wrong.append(f"{readme}: {parts.path}: no such file")
            elif parts.fragment and (page is None or parts.fragment not in page.anchors):
                wrong.append(f"{readme}: {parts.path}#{parts.fragment}: no such anchor")
    return count, wrong


def c_names():
    """Functions, types and enumerators of the headers, without their comments."""
    for header in sorted((ROOT / "include" / "tconv").glob("*.h")):
        text = re.sub(r"/\*.*?\*/", " ", header.read_text(), flags=re.S)
        yield from re.findall(r"^(?:TCONV_API|static inline) [^;{(]*?(\w+)\(", text, re.M)
        yield from re.findall(r"^typedef (?:enum|struct) (\w+)", text, re.M)
        for body in re.findall(r"^typedef enum \w+ \{(.*?)\}", text, re.M | re.S):
            yield from re.findall(r"\b([A-Z]\w+)\b", body)


def python_names():
    """What __all__ of each public package has, with the package's name before it."""
    for file in sorted((ROOT / "python" / "tconv").rglob("*.py")):
        parts = file.relative_to(ROOT / "python").with_suffix("").parts
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        module = ".".join(part for part in parts if part != "__init__")
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets):
                yield from (f"{module}.{name}" for name in ast.literal_eval(node.value))


def variables():
    """The environment variables that library, package and scripts read."""
    for file in sorted([*(ROOT / "src").rglob("*.c"), *(ROOT / "src").rglob("*.cu"), *(ROOT / "src").rglob("*.h")]):
        text = file.read_text()
        yield from re.findall(r'\bgetenv\("(\w+)"\)', text)
        for table in re.findall(r"variables(?:\[\w*\])? = \{(.*?)\};", text, re.S):
            yield from re.findall(r'"([A-Z]+_[A-Z_]+)"', table)
    for file in sorted((ROOT / "python" / "tconv").rglob("*.py")):
        yield from re.findall(r'environ(?:\.get\(|\[)"(\w+)"', file.read_text())
    for file in sorted((ROOT / "scripts").iterdir()):
        yield from re.findall(r"\$\{(TCONV_\w+):-", file.read_text())


def missing(names, present, where):
    return [f"{name} is not {where}" for name in sorted(set(names) - set(present))]


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    documented = {kind: set(entries) for kind, entries in inventory.data.items()}
    c_found = set().union(*(found for kind, found in documented.items() if kind.startswith("c:")))
    python_found = set().union(*(found for kind, found in documented.items() if kind.startswith("py:")))
    words = set(re.findall(r"\w+", " ".join(pages[site / ENVIRONMENT_PAGE].text)))

    links, wrong = map(sum, zip(broken_links(site, pages), broken_readme_links(site, pages), strict=True), (0, []))
    found = {"C names": set(c_names()), "Python names": set(python_names()), "variables": set(variables())}
    wrong += missing(found["C names"], c_found, "in the C reference")
    wrong += missing(found["Python names"], python_found, "in the Python reference")
    wrong += missing(found["variables"], words, f"on {ENVIRONMENT_PAGE}")
    counts = {"links": links, **{what: len(names) for what, names in found.items()}}
    wrong += [f"only {counts[what]} {what} found" for what, least in LEAST.items() if counts[what] < least]
    print("\n".join(wrong) or ", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
