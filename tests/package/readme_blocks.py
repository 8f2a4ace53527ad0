#!/usr/bin/env python3
"""Runs what README.md and docs/ show: every code block and every inline `cc program.c ...`, in a scratch directory for each page.

A ```c block is compiled, linked and run; the ```text block after it is its output. The commands of a ```console block are
run as far as a test may: `tconv` is the program just built, files that it reads are made, an installation goes to a scratch
directory, and of a script or a preset that would run this test again only its existence is checked. A ```cmake block
builds the program of the ```c block against the installed package. A ```python block is compiled alone; a ```sh block is not
looked at. A block of any other language fails the test.
"""
import argparse
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

LIMIT_SECONDS = 240


def run(command, **more):
    """Runs a command and returns its output; its failure is the test's."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_SECONDS,
                            shell=isinstance(command, str), check=False, **more)
    if result.returncode != 0:
        sys.exit(f"{command}: exit code {result.returncode}\n{result.stdout}")
    return result.stdout


def write_npy(path, shape):
    """Small integers as float32."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    count = 1
    for extent in shape:
        count *= extent
    data = struct.pack(f"<{count}f", *(i % 7 - 3 for i in range(count)))
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


class Page:
    def __init__(self, path, arguments, scratch):
        self.path = path
        self.arguments = arguments
        self.scratch = scratch
        self.prefix = scratch / "prefix"
        self.program = None  # of the last c block
        self.output = None  # what it printed, until a text block has been compared
        self.counts = {}

    def block_c(self, text):
        self.program = self.scratch / "program.c"
        self.program.write_text(text)
        binary = self.scratch / "program"
        library = pathlib.Path(self.arguments.library)
        run([self.arguments.compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *self.flags(),
             f"-I{self.arguments.source}/include", str(self.program), "-o", str(binary), str(library),
             f"-Wl,-rpath,{library.parent}"])
        self.output = run([str(binary)])

    def block_text(self, text):
        if self.output is None:
            sys.exit(f"no program prints this:\n{text}")
        if self.output != text:
            sys.exit(f"the program prints\n{self.output}but {self.path} says\n{text}")
        self.output = None

    def block_cmake(self, text):
        project = self.scratch / "project"
        project.mkdir()
        (project / "program.c").write_text(self.program.read_text())
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(readme LANGUAGES C)\n"
                                                "add_executable(program program.c)\n" + text)
        run(["cmake", "-S", str(project), "-B", str(project / "build"), f"-DCMAKE_PREFIX_PATH={self.prefix}",
             f"-DCMAKE_C_COMPILER={self.arguments.compiler}", f"-DCMAKE_C_FLAGS={' '.join(self.flags())}"])
        run(["cmake", "--build", str(project / "build")])
        run([str(project / "build" / "program")])

    def block_console(self, text):
        for line in text.splitlines():
            if not line.startswith("$ "):
                sys.exit(f"a console block holds commands alone: {line}")
            self.command(shlex.split(line[2:], comments=True))

    def block_python(self, text):
        """The tests of the Python package run it, which may not be installed here."""
        compile(text, self.path, "exec")

    def block_sh(self, text):
        """What a test cannot run."""

    def block_cpp(self, text):
        """A program with PyTorch's C++ library, as python/tests/test_torch_operators_alone.py compiles one."""

    def block_cc(self, text):
        """An inline command with pkg-config."""
        library = next(self.prefix.rglob("tconv.pc")).parent.parent
        environment = dict(os.environ, PKG_CONFIG_PATH=str(library / "pkgconfig"), LD_LIBRARY_PATH=str(library))
        command = re.sub(r"^cc ", shlex.join([self.arguments.compiler, *self.flags()]) + " ", " ".join(text.split()))
        run(command, cwd=self.scratch, env=environment)
        run([str(self.scratch / "a.out")], env=environment)

    def flags(self):
        return [f"-fsanitize={self.arguments.sanitize}"] if self.arguments.sanitize else []

    def command(self, words):
        if words[0].startswith("scripts/"):
            script = pathlib.Path(self.arguments.source) / words[0]
            if not os.access(script, os.X_OK):
                sys.exit(f"{words[0]} is not a program")
            run(["bash", "-n", str(script)])
        elif words[:3] == ["cmake", "--workflow", "--preset"]:
            presets = run(["cmake", "--list-presets=workflow"], cwd=self.arguments.source)
            if f'"{words[3]}"' not in presets:
                sys.exit(f"there is no workflow preset {words[3]}")
        elif words[:2] == ["cmake", "--install"]:
            run(["cmake", "--install", self.arguments.build, "--prefix", str(self.prefix)])
        elif words[:2] == ["pip", "install"]:  # the tests of the Python package build and install it
            if not (pathlib.Path(self.arguments.source) / words[2] / "pyproject.toml").is_file():
                sys.exit(f"{words[2]} is no Python package")
        elif words[0] == "tconv":
            self.tconv(words[1:])
        else:
            sys.exit(f"no way to test this command: {shlex.join(words)}")

    def tconv(self, words):
        # A layer of stride 2 and padding 1, and its output.
        shapes = {
            "--input": (2, 3, 5, 6), "--weight": (3, 4, 3, 3), "--bias": (4,), "--diff-output": (2, 4, 9, 11)
        }
        for option, shape in shapes.items():
            if option in words:
                write_npy(self.scratch / words[words.index(option) + 1], shape)
        run([self.arguments.program, *words], cwd=self.scratch)
        for option in ("--output", "--bias-output"):
            if option in words and not (self.scratch / words[words.index(option) + 1]).exists():
                sys.exit(f"tconv {shlex.join(words)} did not write what {option} names")

    def check(self):
        text = pathlib.Path(self.path).read_text()
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$|`(cc program\.c [^`]*)`", text, re.M | re.S):
            language, block, inline = match.groups()
            if inline:
                language, block = "cc", inline
            handler = getattr(self, f"block_{language}", None)
            if handler is None:
                sys.exit(f"no way to test a block of '{language}':\n{block}")
            if language in ("cmake", "cc") and not self.prefix.exists():
                sys.exit(f"{self.path} uses the installed package before it installs it")
            handler(block)
            self.counts[language] = self.counts.get(language, 0) + 1
        for command in re.findall(r"^\| `tconv (\w+)` \|", text, re.M):
            run([self.arguments.program, command, "--help"])
        print(f"{self.path}: " + ", ".join(f"{count} {language}" for language, count in self.counts.items()))
        return self.counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="+")
    for name in ("source", "build", "library", "program", "compiler"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--sanitize", default="")
    arguments, found = parser.parse_args(), set()
    for path in arguments.pages:
        with tempfile.TemporaryDirectory() as scratch:
            found |= set(Page(path, arguments, pathlib.Path(scratch)).check())
    for needed in ("c", "text", "console", "cmake", "cc", "python"):
        if needed not in found:
            sys.exit(f"no page has a {needed} block any more: this test has nothing to test")


if __name__ == "__main__":
    main()
