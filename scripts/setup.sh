# What the scripts and .ci/run set up before they work. Sourced by bash; leaves the shell in the
# repository's root, with TCONV_ROOT and TCONV_JOBS set and, after tconv_setup, the CUDA compiler, where there is one, on the
# PATH and TCONV_CUDA_OPTIONS for CMake.
#
# On Debian 12 and Ubuntu 24.04 and newer, missing packages are installed with apt-get, through sudo where the user is
# not root. Elsewhere what is missing is named.

TCONV_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TCONV_JOBS=$(nproc 2>/dev/null || echo 1)
# Suites that run at once: some have threads of their own, and memory.
TCONV_TEST_JOBS=$((TCONV_JOBS < 4 ? TCONV_JOBS : 4))
cd "$TCONV_ROOT" || exit 1

tconv_die() {
    echo "$(basename "$0"): error: $*" >&2
    exit 1
}

# "package|a command that succeeds where what it brings is there, whoever installed it".
TCONV_BUILD_PACKAGES=(
    "build-essential|command -v cc && command -v c++ && command -v make"
    "cmake|command -v cmake"
    "ninja-build|command -v ninja"
    "pkg-config|command -v pkg-config"
    "libhwloc-dev|pkg-config --exists hwloc"
    "libpng-dev|pkg-config --exists libpng"
)
TCONV_TEST_PACKAGES=(
    "libcriterion-dev|pkg-config --exists criterion"
    "python3|command -v python3"
    "python3-venv|python3 -c 'import ensurepip, venv'"
)
TCONV_WHEEL_PACKAGES=(
    "build-essential|command -v cc && command -v c++"
    "cmake|command -v cmake"
    "ninja-build|command -v ninja"
    "python3|command -v python3"
    "python3-venv|python3 -c 'import ensurepip, venv'"
)
TCONV_DEB_PACKAGES=(
    "build-essential|command -v cc && command -v c++"
    "cmake|command -v cmake"
    "ninja-build|command -v ninja"
    "dpkg-dev|command -v dpkg-shlibdeps"
)
# For tests/package/clean_debian.sh.
TCONV_CLEAN_PACKAGES=(
    "mmdebstrap|command -v mmdebstrap"
)
# For .ci/run, which compiles many files several times.
TCONV_CI_PACKAGES=(
    "ccache|command -v ccache"
)
TCONV_LINT_PACKAGES=(
    "clang|command -v clang"
    "libomp-dev|tconv_clang_has_openmp"
    "clang-format|command -v clang-format"
    "clang-tidy|command -v clang-tidy"
    "cppcheck|command -v cppcheck"
    "bindgen|command -v bindgen"
)

# libFuzzer comes with clang, in the package of its run-time libraries.
TCONV_FUZZ_PACKAGES=(
    "clang|command -v clang"
    "libomp-dev|tconv_clang_has_openmp"
    "libclang-rt-dev|tconv_clang_has_fuzzer"
)
TCONV_COVERAGE_PACKAGES=(
    "gcovr|command -v gcovr"
)
TCONV_DOCS_PACKAGES=(
    "doxygen|command -v doxygen"
    "python3|command -v python3"
    "python3-venv|python3 -c 'import ensurepip, venv'"
)

# For preset aarch64 on a machine of another architecture, and to run what it builds.
TCONV_CROSS_PACKAGES=(
    "gcc-aarch64-linux-gnu|command -v aarch64-linux-gnu-gcc"
    "libc6-dev-arm64-cross|[ -e /usr/aarch64-linux-gnu/include/stdio.h ]"
    "qemu-user|command -v qemu-aarch64"
)

tconv_clang_has_openmp() {
    echo "int main(void) { return 0; }" | clang -fopenmp -x c - -o /dev/null
}

tconv_clang_has_fuzzer() {
    echo "int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }" |
        clang -fsanitize=fuzzer,address,undefined -x c - -o /dev/null
}

# Installs what is missing of the packages given as above, saying so first.
tconv_install() {
    local entry missing=() as_root=()
    for entry in "$@"; do
        if ! dpkg-query -W -f '${Status}' "${entry%%|*}" 2>/dev/null | grep -q "ok installed" &&
            ! eval "${entry#*|}" >/dev/null 2>&1; then
            missing+=("${entry%%|*}")
        fi
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    command -v apt-get >/dev/null ||
        tconv_die "missing: ${missing[*]} (names of Debian's packages); without apt-get, please install them yourself"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            tconv_die "missing: ${missing[*]}; to install them this script needs root or sudo"
        as_root=(sudo)
    fi
    echo "== installing with apt-get: ${missing[*]}"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q ||
        tconv_die "apt-get update failed"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" ||
        tconv_die "apt-get could not install: ${missing[*]}"
}

# A configuration needs CMake 3.25 (Debian 12 has it).
tconv_check_cmake() {
    local version
    version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')
    [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" = 3.25 ] ||
        tconv_die "CMake $version is too old: 3.25 or newer is needed"
}

# What --cuda builds for where TCONV_CUDA_ARCHITECTURES does not say: as CMakeLists.txt does for itself.
TCONV_EVERY_ARCHITECTURE="80-real;90a-real;90-virtual"

# The CUDA toolkit is used where it lies and never installed, and for the GPUs that are there: code for all takes two cores
# a quarter of an hour. Sets TCONV_CUDA_OPTIONS for CMake. TCONV_CUDA_ARCHITECTURES names others, with or without a GPU.
tconv_find_cuda() {
    local wanted=${TCONV_CUDA_ARCHITECTURES:-}
    TCONV_CUDA_OPTIONS=(-DTCONV_CUDA=OFF)
    if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
        PATH=$PATH:/usr/local/cuda/bin
    fi
    if ! command -v nvcc >/dev/null; then
        [ -z "$wanted" ] || tconv_die "CUDA is asked for, but there is no nvcc on the PATH or in /usr/local/cuda"
        echo "== CUDA toolkit: none, building for the CPU alone"
        return
    fi
    if [ -z "$wanted" ]; then
        wanted=$(cmake -P cmake/TconvGpus.cmake)
    fi
    if [ -z "$wanted" ]; then
        echo "== CUDA toolkit: $(command -v nvcc), but no GPU that it serves: building for the CPU alone"
        echo "   $(basename "$0") --cuda builds for CUDA all the same, which takes minutes"
        return
    fi
    echo "== CUDA toolkit: $(command -v nvcc), building for $wanted"
    TCONV_CUDA_OPTIONS=(-DTCONV_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$wanted")
}

# tconv_find_portable_cuda ASKED: the same for what is made for other machines, which has CUDA where ASKED is 1, and not because
# of the GPU that is here.
tconv_find_portable_cuda() {
    TCONV_CUDA_OPTIONS=(-DTCONV_CUDA=OFF)
    if [ "$1" = 1 ]; then
        TCONV_CUDA_ARCHITECTURES=${TCONV_CUDA_ARCHITECTURES:-$TCONV_EVERY_ARCHITECTURE} tconv_find_cuda
    fi
}

# tconv_setup PACKAGES... makes the machine ready to build.
tconv_setup() {
    tconv_install "$@"
    tconv_check_cmake
    tconv_find_cuda
}

# tconv_machines prints the names of the machines that the tests can play, a line for each.
tconv_machines() {
    sed -n 's/^    {"\([a-z0-9_]*\)", [0-9].*/\1/p' "$TCONV_ROOT/tests/support/machine.c"
}

# tconv_build PRESET [CMAKE OPTIONS...] configures and builds build/PRESET. The configuration is shown if it fails. Warnings are
# errors where TCONV_WARNINGS_ARE_ERRORS is set, and frames are reported in every build, so that all have the same objects.
tconv_build() {
    local preset=$1 log strict=()
    shift
    [ -z "${TCONV_WARNINGS_ARE_ERRORS:-}" ] || strict=(-DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DTCONV_STACK_USAGE=ON)
    mkdir -p "build/$preset"
    log=build/$preset/configure.log
    echo "== building preset $preset in build/$preset"
    cmake --preset "$preset" "${strict[@]}" "$@" >"$log" 2>&1 || {
        cat "$log"
        tconv_die "preset $preset does not configure"
    }
    grep -E "^-- tconv " "$log" || true
    cmake --build --preset "$preset" -j "$TCONV_JOBS" || tconv_die "preset $preset does not build"
}

# tconv_venv DIRECTORY NEEDS makes a virtual environment with what the file NEEDS names, once for each such list. Sets
# TCONV_PYTHON to its interpreter. Whoever wants the same one meanwhile waits.
tconv_venv() {
    local directory=$1 needs=$2 lock
    TCONV_PYTHON=$directory/bin/python
    mkdir -p "$(dirname "$directory")"
    exec {lock}>"$directory.lock"
    flock "$lock"
    if ! [ -x "$TCONV_PYTHON" ] || ! cmp -s "$needs" "$directory/requirements.txt"; then
        echo "== installing what $needs names into $directory"
        python3 -m venv --clear "$directory" || tconv_die "no virtual environment could be made in $directory"
        "$TCONV_PYTHON" -m pip install -q --disable-pip-version-check -r "$needs" ||
            tconv_die "pip could not install what $needs names"
        cp "$needs" "$directory/requirements.txt"
    fi
    exec {lock}>&-
}

# Outside the tree: PyTorch with the CUDA libraries is several gigabytes.
tconv_python_env() {
    tconv_venv "${TCONV_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/tconv/venv}" python/tests/requirements.txt
}

tconv_wheel_env() {
    tconv_venv "${XDG_CACHE_HOME:-$HOME/.cache}/tconv/venv-wheel" scripts/wheel-requirements.txt
}

# tconv_find_jax sets TCONV_JAX_OPTIONS for CMake: the header that tconv.jax is compiled with, of the oldest jaxlib that it serves,
# so that it serves all newer ones. The header comes from PyPI, once, out of a wheel of any Python's.
TCONV_JAXLIB=0.6.1
TCONV_JAX_OPTIONS=()
tconv_find_jax() {
    local directory=${XDG_CACHE_HOME:-$HOME/.cache}/tconv/jaxlib-$TCONV_JAXLIB
    if ! [ -d "$directory" ]; then
        tconv_wheel_env
        echo "== fetching the header of jaxlib $TCONV_JAXLIB into $directory"
        tconv_fetch_jaxlib "$directory" || echo "== tconv.jax is left out: the header could not be had"
    fi
    [ ! -d "$directory" ] || TCONV_JAX_OPTIONS=("-DTCONV_JAXLIB_INCLUDE=$directory/include")
}

tconv_fetch_jaxlib() {
    local download status=0
    download=$(mktemp -d)
    "$TCONV_PYTHON" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.12 \
        --platform manylinux2014_x86_64 -d "$download" "jaxlib==$TCONV_JAXLIB" &&
        "$TCONV_PYTHON" -m zipfile -e "$download"/*.whl "$download" &&
        mkdir -p "$1.$$/include/xla/ffi" && cp -r "$download/jaxlib/include/xla/ffi/api" "$1.$$/include/xla/ffi" &&
        mv -T "$1.$$" "$1" || status=1
    rm -r "$download"
    return $status
}

# tconv_pytorch_limits prints the setting with which PyTorch survives its own bf16 layers of stride 2: where the processor has AMX,
# some versions of its oneDNN multiply tiles that they have not configured, which is an illegal instruction.
tconv_pytorch_limits() {
    "$TCONV_PYTHON" - >/dev/null 2>&1 <<'END' || echo ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16
import torch
x, weight = torch.ones(2, 8, 7, 9, dtype=torch.bfloat16), torch.ones(8, 8, 3, 3, dtype=torch.bfloat16)
torch.nn.functional.conv_transpose2d(x, weight, stride=2)
END
}

# tconv_python_tests [ARGUMENTS...] runs the tests of the Python packages on the libraries of build/release. Arguments go to
# pytest. What the user has set for the library is not the tests'.
tconv_python_tests() {
    local limits
    limits=$(tconv_pytorch_limits)
    [ -z "$limits" ] || echo "== PyTorch's own bf16 layers end the process on this machine: with $limits"
    env -u TCONV_BACKEND -u TCONV_CPU_ISA -u TCONV_CPU_TUNING -u TCONV_NUM_THREADS -u TCONV_MATH -u TCONV_VERBOSE \
        ${limits:+"$limits"} OMP_WAIT_POLICY=passive TCONV_LIBRARY="$TCONV_ROOT/build/release/libtconv.so" \
        TCONV_ONNXRUNTIME_LIBRARY="$TCONV_ROOT/build/release/libtconv_onnxruntime.so" PYTHONPATH="$TCONV_ROOT/python" \
        "$TCONV_PYTHON" -m pytest -q -rs -p no:cacheprovider python bench/tests adapters "$@"
}
