"""Sphinx's settings for the site that scripts/docs builds.

Its sources are the repository's own pages, copied to build/docs/source with the directories that they stand in, so that
their links hold there as in the repository. Beside them are pages that are made here: the C reference from the
sections of the headers, and the Python reference, which AutoAPI makes of the sources without importing them, PyTorch
or the library.
"""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(os.environ["TCONV_ROOT"])
sys.path.insert(0, str(ROOT / "docs" / "site"))

import doxygen_filter  # noqa: E402

SOURCE = ROOT / "build" / "docs" / "source"

project = "tconv"
author = "the authors of tconv"
copyright = author
release = re.search(r'VERSION_STRING "(.*)"', (ROOT / "include/tconv/version.h").read_text())[1]
version = release

extensions = ["myst_parser", "breathe", "autoapi.extension", "sphinx.ext.napoleon", "sphinx_copybutton"]
include_patterns = [
    "index.md",
    "reference/**",
    "docs/*.md",
    "docs/log/*.md",
    "bench/README.md",
    "bench/results/*.md",
    "examples/data/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
# Indented blocks are commands as often as code.
highlight_language = "none"
nitpicky = True
# What the references speak of and this site has no page for: the C library's and PyTorch's names.
nitpick_ignore_regex = [(r"c:identifier", r"u?int\d+_t|size_t|bool|DL\w+"), (r"py:.*", r"(?!tconv\b).*")]

myst_heading_anchors = 5
myst_enable_extensions = ["attrs_inline", "attrs_block"]

breathe_projects = {"tconv": str(ROOT / "build" / "docs" / "doxygen" / "xml")}
breathe_default_project = "tconv"
breathe_domain_by_extension = {"h": "c"}
breathe_show_include = False

autoapi_dirs = [str(ROOT / "python" / "tconv")]
autoapi_root = "reference/python"
autoapi_add_toctree_entry = False
autoapi_options = ["members", "undoc-members", "imported-members", "show-inheritance"]
autoapi_python_class_content = "class"
autoapi_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
# A docstring's sections are Google's, and Shape, as PyTorch writes them.
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shape"]
# AutoAPI makes the attributes' own entries.
napoleon_use_ivar = True
maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"tconv {release}"
html_static_path = [str(ROOT / "docs" / "site" / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def c_pages():
    """One page for each header, with a section for each of its ruled ones."""
    for header, title in (("tconv.h", "C reference"), ("dlpack.h", "DLPack in C")):
        text = (ROOT / "include" / "tconv" / header).read_text()
        lines = [title, "=" * len(title), ""]
        lines += [f"``#include <tconv/{header}>``", ""]
        described = f".. doxygenfile:: {header}"
        sections = doxygen_filter.sections(text)
        if sections:
            lines += [described, "   :sections: detaileddescription", ""]
        else:
            lines += [described, "   :sections: detaileddescription func", ""]
        for section in sections:
            name = section[0].upper() + section[1:]
            group = doxygen_filter.group_of(header, section)
            lines += [name, "-" * len(name), "", f".. doxygengroup:: {group}", "   :content-only:", "   :members:", ""]
        yield header.removesuffix(".h"), "\n".join(lines)


def write_c_pages(app):
    directory = SOURCE / "reference" / "c"
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in c_pages():
        page = directory / f"{name}.rst"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def header_as_reference(app, docname, content):
    """A link to a header, which in the repository is the manual, leads to its page."""
    content[0] = re.sub(r"\]\(((?:\.\./)*)include/tconv/(\w+)\.h\)", r"](\1reference/c/\2.rst)", content[0])


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain English with `code`, paragraphs and indented blocks: what reStructuredText would take for
    markup is escaped, and an indented block after a blank line is code. Sections ("Args:") are left to Napoleon, which
    comes after this; what follows "Examples::" is code already."""
    made, is_code, previous = [], False, ""
    for line in lines:
        indented = line.startswith("    ")
        if indented and not previous.strip() and made and not is_code:
            if not "".join(made).endswith("::"):
                made += ["::", ""]
            is_code = True
        elif line.strip() and not indented:
            is_code = False
        made.append(line if is_code else plain_line(line))
        previous = line
    lines[:] = made


def plain_line(line):
    parts = re.split(r"`([^`]+)`", line)
    parts[::2] = [re.sub(r"([*|_\\`])", r"\\\1", text) for text in parts[::2]]
    parts[1::2] = [f"``{text}``" for text in parts[1::2]]
    return "".join(parts)


# The module of the types that signatures name.
TYPES = "tconv._types"


def skip_member(app, what, name, obj, skip, options):
    """A module whose name begins with an underscore has no page: what __all__ takes out of it has its place in the
    package's. The types that signatures name have a page, though no package has them, and a __version__ is public."""
    if name == TYPES:
        return False
    name = name.rpartition(".")[2]
    if what in ("module", "package") and name.startswith("_"):
        return True
    return skip and name != "__version__"


def type_as_data(app, env, node, contnode):
    """Sphinx looks for a class wherever a signature names a type; the name of a union or a type variable is data."""
    target = node.get("reftarget", "")
    if node.get("reftype") != "class" or not target.startswith(f"{TYPES}."):
        return None
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "data", target, node, contnode)


def setup(app):
    app.connect("builder-inited", write_c_pages, priority=1)
    app.connect("source-read", header_as_reference)
    app.connect("autodoc-process-docstring", plain_docstring, priority=400)  # Napoleon's is 500
    app.connect("autoapi-skip-member", skip_member)
    app.connect("missing-reference", type_as_data)
