"""tconv for Conan 2: both libraries and the headers, for the CPU or with CUDA.

    conan create packaging/conan

The package has the files for find_package(tconv) and pkg-config that every installation of tconv has (docs/linking.md).
"""

import pathlib
import re
import typing

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy

TREE = ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*")


class Tconv(ConanFile):
    name = "tconv"
    license = "Apache-2.0"
    description = "2-D transposed convolution (ConvTranspose2d) on the CPU and on CUDA"
    topics = ("convolution", "deep-learning", "cuda", "simd")
    settings = "os", "compiler", "build_type", "arch"
    options: typing.ClassVar = {"cuda": [True, False], "openmp": [True, False]}
    default_options: typing.ClassVar = {"cuda": False, "openmp": True}

    def set_version(self):
        text = (self._tree / "include" / "tconv" / "version.h").read_text()
        self.version = re.search(r'TCONV_VERSION_STRING "([0-9.]+)"', text)[1]

    @property
    def _tree(self):
        return pathlib.Path(self.recipe_folder).parents[1]

    def export_sources(self):
        for pattern in TREE:
            copy(self, pattern, self._tree, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["TCONV_CUDA"] = "ON" if self.options.cuda else "OFF"
        toolchain.cache_variables["TCONV_OPENMP"] = bool(self.options.openmp)
        toolchain.cache_variables["TCONV_HWLOC"] = "OFF"
        for part in ("TESTS", "CLI", "EXAMPLES", "TORCH"):
            toolchain.cache_variables[f"TCONV_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder) / "licenses")
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # the package brings its own tconv-config.cmake
        self.cpp_info.builddirs = ["lib/cmake/tconv"]
        self.cpp_info.libs = ["tconv"]
        self.cpp_info.system_libs = ["m", "pthread"]
