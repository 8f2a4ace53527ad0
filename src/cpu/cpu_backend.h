/* The CPU backend as the dispatcher and the system description see it. */
#ifndef TCONV_CPU_CPU_BACKEND_H
#define TCONV_CPU_CPU_BACKEND_H

#include <stddef.h>

#include "../core/impl.h"
#include "../core/volume.h"

/* The CPU implementations, best first; the reference is apart, because it comes after everything else. */
extern const tconv_implementation tconv_cpu_col2im;
extern const tconv_implementation tconv_cpu_bf16;
extern const tconv_implementation tconv_cpu_pixels;
extern const tconv_implementation tconv_cpu_phases;
extern const tconv_implementation tconv_cpu_carry; /* of streams, which no other takes */
extern const tconv_implementation tconv_cpu_reference;

/* Those of the gradients of src, and of weights and bias. */
extern const tconv_implementation tconv_cpu_bf16_data;
extern const tconv_implementation tconv_cpu_dgrad;
extern const tconv_implementation tconv_cpu_wgrad;
extern const tconv_implementation tconv_cpu_reference_data;
extern const tconv_implementation tconv_cpu_reference_weights;

/* The most threads of a plan, whatever the caller asks for: each has scratch of its own in the workspace, up to 2 MiB.
 * It is chosen, not measured. */
enum { TCONV_CPU_MAX_THREADS = 1024 };

/* Resolves the CPU part of a target: OpenMP's threads (0: tconv_cpu_default_threads; never more than the process may
 * run at once), the ISA (isa is a cap; DEFAULT is none) and cache sizes. Fails with UNAVAILABLE and field "cpu_isa" for
 * an ISA of another architecture. */
tconv_status tconv_cpu_resolve(int threads, tconv_cpu_isa isa, tconv_cpu_tuning tuning, tconv_target *target,
                               tconv_issue *issue);

/* Copies axes of a tensor, by the target's threads. */
void tconv_cpu_copy_planes(const tconv_target *target, const tconv_plane_copy *copy, const void *from, void *to);

/* The best instruction set of this machine that this build has code for. */
tconv_cpu_isa tconv_cpu_best_isa(void);

/* Whether this machine has isa, and this build has code for it. */
bool tconv_cpu_has_isa(tconv_cpu_isa isa);

/* The machine as Linux shows it, or hwloc, or the C library (topology.c), read once. */
typedef struct tconv_cpu_topology {
    int packages, cores, processing_units; /* of the machine */
    int allowed_cores, allowed_units;      /* cores and processing units by affinity, at least 1 */
    int numa_nodes;
    double quota;                        /* cores by the cgroup's cpu.max; 0: no limit */
    size_t l1_bytes, l2_bytes, l3_bytes; /* data caches, one instance; 0 where unknown */
    const char *source;                  /* "Linux", "hwloc (API 2.8)" or "libc" */
    char model[64];                      /* of the processor; "" where unknown */
} tconv_cpu_topology;

const tconv_cpu_topology *tconv_cpu_get_topology(void);

/* Returns threads, or the number that this process may run at once, by its affinity of this moment, if that is less. */
int tconv_cpu_limit_threads(int threads);

/* The threads of a plan whose caller names no number: min(allowed cores, quota rounded up, OMP_NUM_THREADS if set). */
int tconv_cpu_default_threads(void);

#endif
