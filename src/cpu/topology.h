/* The parts of what the machine is: topology.c asks, topology_linux.c and topology_hwloc.c know. */
#ifndef TCONV_CPU_TOPOLOGY_H
#define TCONV_CPU_TOPOLOGY_H

#include "cpu_backend.h"

/* Processing units of the calling thread's affinity; 0 where the system does not say. */
int tconv_cpu_affinity(void);

/* From files of the kernel's alone, without any allocation. False where the system is none or has no such files. */
bool tconv_cpu_read_linux(tconv_cpu_topology *found);

/* Cores by the cgroup's limit of time; 0 where there is none. */
double tconv_cpu_read_quota(void);

/* By hwloc, which needs memory and does not survive where it gets none. False where it is not built in, or fails. */
bool tconv_cpu_read_hwloc(tconv_cpu_topology *found);

#endif
