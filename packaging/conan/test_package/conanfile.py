"""Builds the program of tests/consumer with the package, with either library, and runs it."""

import pathlib

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class TconvTest(ConanFile):
    settings = "os", "compiler", "build_type", "arch"
    generators = "CMakeToolchain", "CMakeDeps"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        for kind in ("shared", "static") if can_run(self) else ():
            program = pathlib.Path(self.cpp.build.bindir) / "consumer" / f"consumer_{kind}"
            self.run(str(program), env="conanrun")
