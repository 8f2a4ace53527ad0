/*
 * The table of machines, and what the library is told of the one that is played. tests/CMakeLists.txt links every test with
 * --wrap for each function that has a __wrap_ here; __real_ is the library's own.
 */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/cpu/cpu_backend.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static const struct machine machines[] = {
    {"desktop", 4, 32 * KIB, 256 * KIB, 6 * MIB, TCONV_CPU_ISA_AVX2, TCONV_CPU_TUNING_COMMON},
    {"zen3", 24, 32 * KIB, 512 * KIB, 32 * MIB, TCONV_CPU_ISA_AVX2, TCONV_CPU_TUNING_COMMON},
    {"zen4", 24, 32 * KIB, MIB, 32 * MIB, TCONV_CPU_ISA_AVX512_BF16, TCONV_CPU_TUNING_COMMON},
    {"cascade_lake", 16, 32 * KIB, MIB, 22 * MIB, TCONV_CPU_ISA_AVX512, TCONV_CPU_TUNING_XEON},
    {"one_core", 1, 32 * KIB, 256 * KIB, 2 * MIB, TCONV_CPU_ISA_AVX2, TCONV_CPU_TUNING_COMMON},
    {"96_cores", 96, 48 * KIB, 2 * MIB, 480 * MIB, TCONV_CPU_ISA_AMX, TCONV_CPU_TUNING_XEON},
    /* A container that shows no caches, on a processor with nothing but the compiler's instructions. */
    {"unknown", 2, 0, 0, 0, TCONV_CPU_ISA_GENERIC, TCONV_CPU_TUNING_COMMON},
};

enum { MACHINES = sizeof machines / sizeof machines[0] };

static const struct machine *played;

/* Reads the variable before the program has threads: getenv beside setenv is no good, and tests of the environment make plans
 * beside it. */
__attribute__((constructor)) static void read_name(void)
{
    const char *name = getenv("TCONV_TESTS_MACHINE");
    if (name == NULL || name[0] == '\0')
        return;
    for (size_t i = 0; i < MACHINES && played == NULL; i++)
        if (strcmp(machines[i].name, name) == 0)
            played = &machines[i];
    if (played != NULL)
        return;
    fprintf(stderr, "TCONV_TESTS_MACHINE=%s: there is no such machine; there are", name);
    for (size_t i = 0; i < MACHINES; i++)
        fprintf(stderr, " %s", machines[i].name);
    fprintf(stderr, "\n");
    _Exit(2);
}

const struct machine *machine_played(void)
{
    return played;
}

/* ---------------------------------------------------------------------------------------- what the library looks at */

int __real_tconv_cpu_affinity(void);
int __wrap_tconv_cpu_affinity(void);
bool __real_tconv_cpu_read_linux(tconv_cpu_topology *found);
bool __wrap_tconv_cpu_read_linux(tconv_cpu_topology *found);
double __real_tconv_cpu_read_quota(void);
double __wrap_tconv_cpu_read_quota(void);
bool __real_tconv_cpu_has_isa(tconv_cpu_isa isa);
bool __wrap_tconv_cpu_has_isa(tconv_cpu_isa isa);
tconv_status __real_tconv_cpu_resolve(int threads, tconv_cpu_isa isa, tconv_cpu_tuning tuning, tconv_target *target,
                                      tconv_issue *issue);
tconv_status __wrap_tconv_cpu_resolve(int threads, tconv_cpu_isa isa, tconv_cpu_tuning tuning, tconv_target *target,
                                      tconv_issue *issue);

int __wrap_tconv_cpu_affinity(void)
{
    const struct machine *machine = machine_played();
    return machine != NULL ? machine->cores : __real_tconv_cpu_affinity();
}

bool __wrap_tconv_cpu_read_linux(tconv_cpu_topology *found)
{
    const struct machine *machine = machine_played();
    if (machine == NULL)
        return __real_tconv_cpu_read_linux(found);
    *found = (tconv_cpu_topology){
        .packages = 1,
        .cores = machine->cores,
        .processing_units = machine->cores,
        .allowed_cores = machine->cores,
        .numa_nodes = 1,
        .l1_bytes = machine->l1_bytes,
        .l2_bytes = machine->l2_bytes,
        .l3_bytes = machine->l3_bytes,
        .source = "Linux",
    };
    snprintf(found->model, sizeof found->model, "%s", machine->name);
    return true;
}

double __wrap_tconv_cpu_read_quota(void)
{
    return machine_played() != NULL ? 0 : __real_tconv_cpu_read_quota();
}

bool __wrap_tconv_cpu_has_isa(tconv_cpu_isa isa)
{
    const struct machine *machine = machine_played();
    return (machine == NULL || isa <= machine->isa) && __real_tconv_cpu_has_isa(isa);
}

tconv_status __wrap_tconv_cpu_resolve(int threads, tconv_cpu_isa isa, tconv_cpu_tuning tuning, tconv_target *target,
                                      tconv_issue *issue)
{
    const struct machine *machine = machine_played();
    if (machine != NULL && (isa == TCONV_CPU_ISA_DEFAULT || isa > machine->isa) && isa != TCONV_CPU_ISA_NEON)
        isa = machine->isa;
    if (machine != NULL && tuning == TCONV_CPU_TUNING_DETECTED)
        tuning = machine->tuning;
    return __real_tconv_cpu_resolve(threads, isa, tuning, target, issue);
}
