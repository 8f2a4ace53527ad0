/*
 * Reads the topology of the machine: cores that this process may use, its quota of them, caches. It is read once and
 * never changed: no thread is bound anywhere. On Linux the kernel's files have all of it; hwloc is asked on other
 * systems, and where the environment gives it a machine of its own (HWLOC_SYNTHETIC and its like), because it does not
 * survive without memory.
 */
#include "topology.h"

#include "units.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>

#include "../threads/team.h"
#endif

#include "../../core/checked.h"

/* Environment variables that describe another machine than this one to hwloc. */
static const char *const hwloc_variables[TCONV_CPU_MAX_VARIABLES] = {"HWLOC_SYNTHETIC", "HWLOC_XMLFILE",
                                                                     "HWLOC_FSROOT"};

/* Reads what every POSIX system says. */
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
    tconv_cpu_units_init();
#ifdef _OPENMP
    tconv_cpu_team_init();
#endif
#if defined(__linux__)
    const bool asks_hwloc = tconv_cpu_is_any_set(hwloc_variables);
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
    if (threads > units) /* the affinity may be wider by now */
        units = (int)tconv_max(units, tconv_cpu_allowed_units(tconv_cpu_affinity()));
    return (int)tconv_min(threads, tconv_min(units, TCONV_CPU_MAX_THREADS));
}

int tconv_cpu_default_threads(void)
{
    const tconv_cpu_topology *topology = tconv_cpu_get_topology();
    int threads = topology->allowed_cores;
    if (topology->quota > 0 && topology->quota < threads) /* the quota is rounded up */
        threads = (int)topology->quota + (topology->quota > (int)topology->quota);
#ifdef _OPENMP
    if (omp_get_max_threads() < threads) /* OMP_NUM_THREADS, or the number that the program set since */
        threads = omp_get_max_threads();
#endif
    return tconv_cpu_at_least_one(threads);
}
