/*
 * The machine: cores that this process may use, its share of them, caches. Read once, only looked at, never changed: no
 * thread is bound anywhere. On Linux the kernel's files tell all of it; hwloc is asked on other systems, and where the
 * environment gives it a machine of its own (HWLOC_SYNTHETIC and its like), because it does not survive without memory.
 */
#include "topology.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>

#include "team.h"
#endif

#include "../core/checked.h"

enum { MOST_VARIABLES = 5 };

static bool is_any_set(const char *const variables[MOST_VARIABLES])
{
    for (size_t i = 0; i < MOST_VARIABLES && variables[i] != NULL; i++) {
        const char *value = getenv(variables[i]);
        if (value != NULL && value[0] != '\0')
            return true;
    }
    return false;
}

/* Another machine than this one is described to hwloc. */
static const char *const hwloc_variables[MOST_VARIABLES] = {"HWLOC_SYNTHETIC", "HWLOC_XMLFILE", "HWLOC_FSROOT"};

/* OpenMP may bind threads, the calling one too. */
static const char *const binding_variables[MOST_VARIABLES] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                                              "KMP_AFFINITY", "KMP_HW_SUBSET"};

/* Whether one of them is set, asked once: plans may be made beside setenv. */
static bool openmp_may_bind;

#ifdef _OPENMP
/* Out of line, because clang moves such calls up, before what they depend on. */
__attribute__((noinline)) static int units_of_openmp(void)
{
    return omp_get_num_procs();
}
#endif

int tconv_cpu_allowed_units(int by_affinity)
{
#ifdef _OPENMP
    if (openmp_may_bind) { /* only then, because LLVM's run-time sets itself up, which takes memory */
        int by_openmp = units_of_openmp();
        by_affinity = by_openmp > by_affinity ? by_openmp : by_affinity;
    }
#endif
    return tconv_cpu_at_least_one(by_affinity);
}

/* What every system of POSIX's says. */
static void read_libc(tconv_cpu_topology *found)
{
    found->source = "libc";
    found->packages = 1;
    found->numa_nodes = 1;
    found->processing_units = tconv_cpu_at_least_one(sysconf(_SC_NPROCESSORS_ONLN));
    found->cores = found->processing_units;
    found->allowed_cores = tconv_cpu_allowed_units(found->processing_units);
}

/* ------------------------------------------------------------------------------------------------------- public */

static tconv_cpu_topology machine;
static pthread_once_t machine_once = PTHREAD_ONCE_INIT;

static void read_machine(void)
{
    openmp_may_bind = is_any_set(binding_variables);
#ifdef _OPENMP
    tconv_cpu_team_init();
#endif
#if defined(__linux__)
    const bool asks_hwloc = is_any_set(hwloc_variables);
#else
    const bool asks_hwloc = true;
#endif
    memset(&machine, 0, sizeof machine);
    bool read = asks_hwloc && tconv_cpu_read_hwloc(&machine);
    if (!read) {
        memset(&machine, 0, sizeof machine);
        read = tconv_cpu_read_linux(&machine);
    }
    if (!read)
        read_libc(&machine);
    machine.allowed_units =
        tconv_cpu_allowed_units(tconv_cpu_affinity() > 0 ? tconv_cpu_affinity() : machine.processing_units);
    machine.quota = tconv_cpu_read_quota();
}

const tconv_cpu_topology *tconv_cpu_get_topology(void)
{
    pthread_once(&machine_once, read_machine);
    return &machine;
}

int tconv_cpu_limit_threads(int threads)
{
    int units = tconv_cpu_get_topology()->allowed_units;
    if (threads > units) /* there may be more by now */
        units = (int)tconv_max(units, tconv_cpu_allowed_units(tconv_cpu_affinity()));
    return (int)tconv_min(threads, tconv_min(units, TCONV_CPU_MAX_THREADS));
}

int tconv_cpu_default_threads(void)
{
    const tconv_cpu_topology *topology = tconv_cpu_get_topology();
    int threads = topology->allowed_cores;
    if (topology->quota > 0 && topology->quota < threads) /* rounded up */
        threads = (int)topology->quota + (topology->quota > (int)topology->quota);
#ifdef _OPENMP
    if (omp_get_max_threads() < threads) /* OMP_NUM_THREADS, or what the program set since */
        threads = omp_get_max_threads();
#endif
    return tconv_cpu_at_least_one(threads);
}
