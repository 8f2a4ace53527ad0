#!/usr/bin/env python3
"""Runs clang-tidy over the C files of a build's compile commands, and keeps what has passed.

    tidy.py --build DIRECTORY --stamps DIRECTORY [--since COMMIT] [-j JOBS] [--all]

A file that passed is not read again as long as everything that its verdict came from is the same: the version of
clang-tidy, its settings, the file's compile command, and every byte of every file that it includes. With --since, files
of which nothing has changed since that commit, at which all were checked, are left out too. --all: read every file,
whatever has passed.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("include", "src", "cli", "tests", "examples", "python/native", "adapters")


@functools.cache
def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def portable(text):
    """The text as it is in a checkout that lies anywhere."""
    return text.replace(str(ROOT), ".")


def dependencies(entry):
    """Every file that is read as the entry's file is compiled."""
    words = shlex.split(entry["command"])
    words = [word for word in words if word not in ("-MD", "-c")]
    for option in ("-MT", "-MF", "-o"):
        while option in words:
            at = words.index(option)
            del words[at : at + 2]
    made = subprocess.run([*words, "-M"], cwd=entry["directory"], check=True, capture_output=True, text=True).stdout
    return [str((pathlib.Path(entry["directory"]) / name).resolve()) for name in made.replace("\\\n", " ").split()[1:]]


def compiler(words):
    """The compiler's own words of a command, without the launcher before them."""
    at = next(i for i, word in enumerate(words) if pathlib.Path(word).name.startswith("clang"))
    return words[at:]


def changed_since(commit):
    names = subprocess.run(["git", "diff", "--name-only", commit], cwd=ROOT, check=True, capture_output=True, text=True)
    return {str(ROOT / name) for name in names.stdout.split("\n") if name}


class Tidy:
    def __init__(self, arguments):
        version = subprocess.run(["clang-tidy", "--version"], check=True, capture_output=True, text=True).stdout
        self.base = version + digest(ROOT / ".clang-tidy")
        self.build, self.stamps, self.all = arguments.build, arguments.stamps, arguments.all
        self.changed = changed_since(arguments.since) if arguments.since else None
        if self.changed is not None and {str(ROOT / ".clang-tidy"), str(ROOT / "CMakeLists.txt")} & self.changed:
            self.changed = None

    def check(self, entry):
        """Returns how the file was judged, and what clang-tidy said where it found something."""
        read = dependencies(entry)
        key = hashlib.sha256(self.base.encode())
        key.update(portable(entry["command"]).encode())
        for path in read:
            key.update(f"{portable(path)} {digest(path)}\n".encode())
        stamp = self.stamps / key.hexdigest()
        if not self.all:
            if stamp.exists():
                return "passed before", ""
            if self.changed is not None and not self.changed.intersection(read):
                return "unchanged", ""
        # One file a call: clang-tidy 14 mistakes the va_list of all but the first. What it finds goes to stdout; stderr
        # counts what it was told to leave out.
        result = subprocess.run(
            ["clang-tidy", "-p", str(self.build), "--quiet", entry["file"]], capture_output=True, text=True, cwd=ROOT
        )
        if result.returncode != 0:
            return "found", result.stdout + (result.stderr if not result.stdout else "")
        stamp.touch()
        return "read", ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--stamps", type=pathlib.Path, required=True)
    parser.add_argument("--since", default="")
    parser.add_argument("-j", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    arguments.stamps.mkdir(parents=True, exist_ok=True)
    folders = tuple(f"{ROOT / folder}/" for folder in FOLDERS)
    entries = {}
    for entry in json.loads((arguments.build / "compile_commands.json").read_text()):
        if entry["file"].startswith(folders) and entry["file"].endswith(".c"):
            entry["command"] = shlex.join(compiler(shlex.split(entry["command"])))
            entries.setdefault(entry["file"], entry)
    tidy = Tidy(arguments)
    counts = {"read": 0, "passed before": 0, "unchanged": 0, "found": 0}
    with concurrent.futures.ThreadPoolExecutor(arguments.j) as pool:
        for verdict, text in pool.map(tidy.check, entries.values()):
            counts[verdict] += 1
            if text:
                print(text, flush=True)
    print(f"{len(entries)} files: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["found"] or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
