# What .ci/run and scripts/nightly share: the compiler cache, steps with their times, and the checks that both make. Sourced by
# bash after scripts/setup.sh.

SOURCES=(include src cli tests examples python/native adapters)
PYTHON_SOURCES=(python adapters packaging scripts/tidy.py bench/kernelbench bench/end_to_end.py bench/networks.py bench/eager_timing.py
    bench/call_overhead.py bench/compare_builds.py bench/compare_onnxruntime.py bench/cpu_runs.py bench/first_calls.py bench/fit_activations.py bench/fit_cost_model.py bench/freeze_gain.py bench/headline.py bench/jax_calls.py bench/jax_layers.py
    bench/loop_bounds.py bench/loop_code.py bench/loop_mca.py bench/network_layers.py bench/operations.py bench/processor.py bench/run_files.py bench/side_by_side.py
    bench/speedups.py bench/sweep_tiles.py bench/tests bench/ablation.py bench/weight.py bench/winners.py docs/site)

# ------------------------------------------------------------------------------------------------- what is kept between runs

# checks_cache KIND: sets where compiled objects and verdicts are kept. KIND is `kept`, outside the tree, for the next run in this
# or another checkout, or `cold`, empty, in build/, where what was built goes too (what fuzzers have learned stays). Paths count from the root, so that another checkout finds the same objects.
#     nvcc has another launcher than C. ccache looks at what a file is preprocessed to, and for code of several architectures at
# one of them only: a change under __CUDA_ARCH__ was answered with the object from before it. Depend mode, which goes by the files that were
# read, sees every change. For C it would give away what presets share. tests/package/compiler_cache.sh tries both.
#     The compiler is named, because ccache tells cc from gcc.
checks_cache() {
    local root=${XDG_CACHE_HOME:-$HOME/.cache}/tconv
    CHECKS_CACHE=$root/checks
    export CCACHE_DIR=${TCONV_CCACHE:-$root/ccache}
    if [ "$1" = cold ]; then
        CHECKS_CACHE=$TCONV_ROOT/build/cold/checks
        CCACHE_DIR=$TCONV_ROOT/build/cold/ccache
        rm -rf build/cold build/{release,cpu-only,asan,tsan,coverage,aarch64,clang,clang-optimised,deb,package,sdist,wheel*}
        rm -rf build/fuzz/{CMakeCache.txt,CMakeFiles,build.ninja,.ninja_*,tests,cli,src,lib*}
    fi
    export CC=gcc CCACHE_BASEDIR=$TCONV_ROOT CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=10G
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER="env;CCACHE_DEPEND=1;ccache"
    mkdir -p "$CHECKS_CACHE/cppcheck" "$CCACHE_DIR"
}

# ------------------------------------------------------------------------------------------------------------------- steps

declare -A CHECKS_COMMANDS
CHECKS_NAMES=()
CHECKS_ASIDE=" "

# check NAME COMMAND...: enters a step. aside NAME COMMAND...: one that has one thread and needs none of the others: it runs beside them.
check() {
    CHECKS_NAMES+=("$1")
    CHECKS_COMMANDS[$1]=${*:2}
}
aside() {
    check "$@"
    CHECKS_ASIDE+="$1 "
}

# step NAME: runs a step, and prints its name and how long it took.
step() {
    local start=$SECONDS
    echo
    echo "=== $1"
    ${CHECKS_COMMANDS[$1]} || tconv_die "$1 failed after $((SECONDS - start)) s"
    echo "=== $1: ok, $((SECONDS - start)) s"
    printf '%6d s  %s\n' $((SECONDS - start)) "$1" >>build/checks/steps.txt
}

# The steps of the names given, one after another; those to be had aside in a second lane, whose output comes at the end, or
# when one of them has failed.
run_steps() {
    local name lane
    (
        for name in "$@"; do
            [[ $CHECKS_ASIDE != *" $name "* ]] || step "$name"
        done
        touch build/checks/aside-passed
    ) >build/checks/aside.log 2>&1 &
    lane=$!
    trap 'kill "$(cat build/checks/aside.pid)" 2>/dev/null || true' EXIT
    echo "$lane" >build/checks/aside.pid
    for name in "$@"; do
        [[ $CHECKS_ASIDE == *" $name "* ]] || step "$name"
        kill -0 "$lane" 2>/dev/null || [ -e build/checks/aside-passed ] || break
    done
    wait "$lane" || {
        cat build/checks/aside.log
        tconv_die "a step that ran aside failed"
    }
    trap - EXIT
    cat build/checks/aside.log
}

# checks_start "$@": reads the arguments of .ci/run and scripts/nightly, [--cold] [--list] [--only NAME...], and sets up. Sets CHECKS_KIND
# as checks_cache has it, and CHECKS_CHOSEN to the steps that are wanted; CHECKS_WHOLE where these are all.
checks_start() {
    local name
    CHECKS_KIND=kept
    CHECKS_WHOLE=1
    CHECKS_CHOSEN=("${CHECKS_NAMES[@]}")
    while [ $# -gt 0 ]; do
        case $1 in
        --cold) CHECKS_KIND=cold ;;
        --list)
            printf '%s\n' "${CHECKS_NAMES[@]}"
            exit
            ;;
        --only)
            [ $# -gt 1 ] || tconv_die "--only needs names of steps; --list has them"
            for name in "${@:2}"; do
                [ -n "${CHECKS_COMMANDS[$name]:-}" ] || tconv_die "there is no step $name; --list has those that are"
            done
            CHECKS_WHOLE=
            CHECKS_CHOSEN=("${@:2}")
            shift $(($# - 1))
            ;;
        *) tconv_die "unknown option $1; the first lines of $0 say which there are" ;;
        esac
        shift
    done
    exec </dev/null
    export CI=true # which programs look at; Inductor does
    rm -rf build/checks
    mkdir -p build/checks
    checks_cache "$CHECKS_KIND"
    export CCACHE_STATSLOG=$TCONV_ROOT/build/checks/ccache.log
    CHECKS_COMMANDS[set-up]=set_up
    step set-up
}

# What has passed and how long it took.
checks_summary() {
    echo
    echo "=== passed, of $SECONDS s:"
    cat build/checks/steps.txt
    echo "=== compiled, and taken from the cache ($CHECKS_KIND):"
    ccache --show-log-stats 2>/dev/null | grep -E "^ *(Hits|Misses)" | head -n 2 || true
}

# ------------------------------------------------------------------------------------------------------------------ checks

# strictly COMMAND...: with compilers' warnings as errors. Not under sanitizers, where gcc takes the checks for accesses. Every
# other build by gcc has it, as it has reports of frames: a kept object that was made without either would be none.
strictly() {
    TCONV_WARNINGS_ARE_ERRORS=1 "$@"
}

set_up() {
    tconv_find_jax
    tconv_setup "${TCONV_BUILD_PACKAGES[@]}" "${TCONV_TEST_PACKAGES[@]}" "${TCONV_LINT_PACKAGES[@]}" \
        "${TCONV_CROSS_PACKAGES[@]}" "${TCONV_FUZZ_PACKAGES[@]}" "${TCONV_COVERAGE_PACKAGES[@]}" \
        "${TCONV_DOCS_PACKAGES[@]}" "${TCONV_DEB_PACKAGES[@]}" "${TCONV_CLEAN_PACKAGES[@]}" "${TCONV_CI_PACKAGES[@]}"
}

# That the cache never answers with what another compilation made: needed because it outlives the tree.
compiler_cache() {
    tconv_find_cuda >/dev/null
    tests/package/compiler_cache.sh build/compiler-cache
}

# Every test that docs/promises.md names is there.
promises() {
    python3 tests/package/promises.py docs/promises.md tests
}

format() {
    find "${SOURCES[@]}" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs clang-format --dry-run --Werror
}

# cppcheck does not know that a vector may be set lane by lane, and takes a status of ONNX Runtime's for what was passed by address.
check_c() {
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
        --cppcheck-build-dir="$CHECKS_CACHE/cppcheck" \
        --suppress=missingIncludeSystem --suppress=uninitvar:cli/floor_cpu.c "--suppress=returnDanglingLifetime:adapters/onnxruntime/*" \
        --error-exitcode=1 -Iinclude -Isrc src cli examples python/native adapters
}

check_python() {
    tconv_python_env
    "$TCONV_PYTHON" -m ruff check "${PYTHON_SOURCES[@]}" &&
        "$TCONV_PYTHON" -m ruff format --check "${PYTHON_SOURCES[@]}" &&
        "$TCONV_PYTHON" -m mypy --cache-dir "$CHECKS_CACHE/mypy" python/tconv adapters/onnxruntime/python/onnxruntime_ep_tconv
}

# clang_build DIRECTORY OPTIONS...: clang's warnings are errors; nothing of it runs. CUDA has its own compiler.
clang_build() {
    local directory=$1
    shift
    cmake --preset dev -B "$directory" -DCMAKE_C_COMPILER=clang -DTCONV_CUDA=OFF "${TCONV_JAX_OPTIONS[@]}" "$@" >"$directory.log" || {
        cat "$directory.log"
        return 1
    }
    cmake --build "$directory" -j "$TCONV_JOBS"
}

# tidy OPTIONS...: the compile commands are those of the clang build, so that clang-tidy knows every flag.
tidy() {
    python3 scripts/tidy.py --build build/clang --stamps "$CHECKS_CACHE/tidy" -j "$TCONV_JOBS" "$@"
}

# preset_tests PRESET OPTIONS...: its build and its tests; the options go to ctest.
preset_tests() {
    tconv_build "$1"
    ctest --preset "$1" -j "$TCONV_TEST_JOBS" "${@:2}"
}

# turn NUMBER: whose turn it is of so many, which goes round with the commits.
turn() {
    echo $(($(git rev-list --count HEAD 2>/dev/null || echo 0) % $1))
}

# a_part PARTS COMMAND...: with one in so many layers of the longest suites.
a_part() {
    echo "== part $(turn "$1") of $1 of the longest suites"
    TCONV_TESTS_PART=$(turn "$1")/$1 "${@:2}"
}

# The one program that is made for it, and the library.
races() {
    tconv_build tsan
    ctest --preset tsan
}

# Five of the machines that the tests can play, which take turns, run the suites that make plans for a machine, each of the longest ones
# another part of the layers. Another machine runs all suites (another_machine), and in the night all run all layers.
MACHINES=5
machines() {
    local name names all number=0 status=0
    mapfile -t names < <(tconv_machines)
    all=${#names[@]}
    names=("${names[@]:$(turn "$all")}" "${names[@]}")
    tconv_build cpu-only
    for name in "${names[@]:0:MACHINES}"; do
        echo "== as $name, part $number of $all of the longest suites"
        TCONV_TESTS_MACHINE=$name TCONV_TESTS_PART=$number/$all \
            ctest --preset cpu-only -L '^machine$' -j "$TCONV_TEST_JOBS" --quiet -O build/checks/machine-"$name".log || {
            cat build/checks/machine-"$name".log
            status=1
        }
        number=$((number + 1))
    done
    return "$status"
}

# The tests of the smallest build, as a machine that this one is not: with other caches, cores and tuning. scripts/test has all layers
# of the longest suites, the night those that plans for a machine are made for.
another_machine() {
    local name=96_cores
    ! grep -qs avx512f /proc/cpuinfo || ! grep -qs GenuineIntel /proc/cpuinfo || name=zen4
    echo "== as $name"
    TCONV_TESTS_MACHINE=$name a_part 6 preset_tests cpu-only
}

# ---------------------------------------------------------------------------------------------------- AArch64 under emulation

# NEON and the plain C of AArch64: each kernel by itself, and random layers by all implementations, the gradients too. verify tries
# each instruction set that it finds and prints a line for it: one without a line was not tested.
EMULATOR=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
EMULATED=build/aarch64/cli/tconv
CROSS_LAYERS=200
CROSS_SEED=1

emulated() {
    OMP_WAIT_POLICY=passive "${EMULATOR[@]}" "$@"
}

emulated_kernels() {
    local isa
    for isa in generic neon; do
        emulated build/aarch64/tests/kernels/check_kernels --isa "$isa" || return 1
    done
}

emulated_layers() {
    local op
    for op in forward backward_data backward_weights; do
        emulated "$EMULATED" verify --op "$op" --backend cpu --no-corners --layers "$CROSS_LAYERS" --seed "$CROSS_SEED" || return 1
    done
}

aarch64() {
    local log=build/aarch64/verify.log isa kernels status=0
    tconv_build aarch64
    emulated "$EMULATED" info || return 1
    emulated_kernels >build/aarch64/kernels.log & # verify has one thread for most layers: two at once
    kernels=$!
    emulated_layers >"$log" || status=1
    wait "$kernels" || status=1
    cat "$log" build/aarch64/kernels.log
    for isa in generic neon; do
        grep -qE "^cpu_phases +$isa " "$log" || {
            echo "tconv verify did not test $isa"
            return 1
        }
        TCONV_CPU_ISA=$isa emulated "$EMULATED" info | grep -q "isa_used: $isa" || {
            echo "TCONV_CPU_ISA=$isa is not what is used"
            return 1
        }
    done
    return "$status"
}
