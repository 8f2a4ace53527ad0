/* The sources of the topology: topology.c asks, machine/topology_linux.c and machine/topology_hwloc.c answer. */
#ifndef TCONV_CPU_MACHINE_TOPOLOGY_H
#define TCONV_CPU_MACHINE_TOPOLOGY_H

#include "../cpu_backend.h"

/* Returns the processing units of the calling thread's affinity; 0 where the system does not say. */
int tconv_cpu_affinity(void);

/* Reads the topology from Linux's own files, without any allocation; false on other systems, and where there are no
 * such files. */
bool tconv_cpu_read_linux(tconv_cpu_topology *found);

/* Returns the cores of the cgroup's CPU quota; 0 where there is none. */
double tconv_cpu_read_quota(void);

/* Reads the topology by hwloc, which needs memory and does not survive without. False where hwloc is not built in, or
 * fails. */
bool tconv_cpu_read_hwloc(tconv_cpu_topology *found);

#endif
