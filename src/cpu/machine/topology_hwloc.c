/* Reads the topology as hwloc sees it, or as the environment describes it to hwloc. */
#include "topology.h"
#include "units.h"

#if defined(TCONV_HAVE_HWLOC)
#include <hwloc.h>
#include <stdio.h>

static size_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache != NULL && cache->attr != NULL ? (size_t)cache->attr->cache.size : 0;
}

static int count_objects(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    return tconv_cpu_at_least_one(hwloc_get_nbobjs_by_type(topology, type));
}

/* Counts the cores that have a processing unit in set. */
static int count_cores(hwloc_topology_t topology, hwloc_const_cpuset_t set)
{
    int cores = 0;
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL;)
        cores += hwloc_bitmap_intersects(core->cpuset, set) != 0;
    /* some virtual machines show no cores */
    return cores > 0 ? cores : tconv_cpu_at_least_one(hwloc_bitmap_weight(set));
}

bool tconv_cpu_read_hwloc(tconv_cpu_topology *found)
{
    static char source[32];
    hwloc_topology_t topology;
    hwloc_bitmap_t bound = NULL;
    bool loaded = false;
    if (hwloc_topology_init(&topology) != 0)
        return false;
#if HWLOC_API_VERSION >= 0x00020500
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
#endif
    if (hwloc_topology_load(topology) != 0 || (bound = hwloc_bitmap_alloc()) == NULL)
        goto cleanup;
    if (hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_PROCESS) != 0 &&
        hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_THREAD) != 0)
        hwloc_bitmap_copy(bound, hwloc_topology_get_allowed_cpuset(topology));
    hwloc_bitmap_and(bound, bound, hwloc_topology_get_allowed_cpuset(topology));

    found->packages = count_objects(topology, HWLOC_OBJ_PACKAGE);
    found->processing_units = count_objects(topology, HWLOC_OBJ_PU);
    found->cores = count_cores(topology, hwloc_topology_get_topology_cpuset(topology));
    found->numa_nodes = count_objects(topology, HWLOC_OBJ_NUMANODE);
    found->allowed_cores = count_cores(topology, bound);
    int units = tconv_cpu_at_least_one(hwloc_bitmap_weight(bound));
    if (tconv_cpu_allowed_units(units) > units) {
        int allowed = count_cores(topology, hwloc_topology_get_allowed_cpuset(topology));
        found->allowed_cores = allowed < tconv_cpu_allowed_units(units) ? allowed : tconv_cpu_allowed_units(units);
    }
    found->l1_bytes = cache_bytes(topology, HWLOC_OBJ_L1CACHE);
    found->l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE);
    found->l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE);
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char *model = package != NULL ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    snprintf(found->model, sizeof found->model, "%s", model != NULL ? model : "");
    unsigned version = hwloc_get_api_version();
    snprintf(source, sizeof source, "hwloc (API %u.%u)", version >> 16, version >> 8 & 0xff);
    found->source = source;
    loaded = true;
cleanup:
    hwloc_bitmap_free(bound);
    hwloc_topology_destroy(topology);
    return loaded;
}
#else
bool tconv_cpu_read_hwloc(tconv_cpu_topology *found)
{
    (void)found;
    return false;
}
#endif
