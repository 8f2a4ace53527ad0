"""Pages can be read in a terminal (docs/site/markdown.py), and what checks that finds what it should."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def markdown():
    spec = importlib.util.spec_from_file_location("markdown_check", ROOT / "docs" / "site" / "markdown.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def faults(markdown, monkeypatch, tmp_path, name, text):
    page = tmp_path / name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text)
    monkeypatch.setattr(markdown, "ROOT", tmp_path)
    return list(markdown.faults(page, {"cells": 0}))


def test_pages_have_no_long_lines_or_cells(markdown, capsys):
    assert markdown.check() == 0, capsys.readouterr().out


def test_long_lines_and_cells_are_found(markdown, monkeypatch, tmp_path):
    lines = ["x" * 160, "x" * 161, f"| {'y ' * 41}|", f"| {'y ' * 40}|", "```", "z" * 161, "```"]
    found = faults(markdown, monkeypatch, tmp_path, "docs/page.md", "\n".join(lines))
    assert [fault.split(":")[1] for fault in found] == ["2", "3", "6"]
    wide = f"| {'y' * 200} |\n{'x' * 161}\n"
    for folder in markdown.MEASUREMENTS:
        found = faults(markdown, monkeypatch, tmp_path, f"{folder}/page.md", wide)
        assert [fault.split(":")[1] for fault in found] == ["2"]


def test_wrapping_keeps_words_tables_and_code(markdown):
    """No word becomes the mark of a list, and what is no paragraph stays as it was."""
    long = " ".join(["word - 3. # | + > =="] * 20)
    kept = ["# Title", "| a | b |", "```", "x" * 200, "```", "", "    " + "code " * 50, "", "short", "lines"]
    text = "\n".join([*kept, "", long, "", f"- {long}", f"- {long}", "1. item", f"   {long}", ""])
    wrapped = markdown.wrap(text)
    lines = wrapped.splitlines()
    assert wrapped.split() == text.split() and lines[: len(kept)] == kept
    assert all(len(line) < markdown.WRAPPED + 20 for line in lines[len(kept) :])
    assert sum(markdown.ITEM.match(line)[2] is not None for line in lines) == 3
    assert not any(line.lstrip().startswith(("#", "|", "+", ">", "=")) for line in lines[len(kept) :])
    assert markdown.wrap(wrapped) == wrapped
