/*
 * The machine: cores that this process may use, its share of them, caches. Read once, only looked at, never changed: no
 * thread is bound anywhere. hwloc where it is built in, else sched_getaffinity, sysconf and sysfs.
 */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity, CPU_COUNT */
#endif

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#endif

#if defined(TCONV_HAVE_HWLOC)
#include <hwloc.h>
#endif

#ifdef _OPENMP
#include <omp.h>
#endif

#include "cpu_backend.h"

static int at_least_one(long count)
{
    return count < 1 ? 1 : (int)count;
}

/* Processing units that the process may use. OpenMP looked before it may have bound the calling thread to one of them
 * (OMP_PROC_BIND), which is why it is asked as well. */
static int allowed_units(int by_affinity)
{
#ifdef _OPENMP
    int by_openmp = omp_get_num_procs();
    return by_openmp > by_affinity ? by_openmp : by_affinity;
#else
    return by_affinity;
#endif
}

/* ------------------------------------------------------------------------------------------------- cgroup quota */

/* The quota of one directory in cores; 0 where there is none. v2 has "max 100000" or "150000 100000" in cpu.max, v1 has
 * two files and -1 for none. */
static double read_quota(const char *directory)
{
    char path[4096 + 64];
    double quota = 0, period = 0;
    FILE *file;
    snprintf(path, sizeof path, "%s/cpu.max", directory);
    if ((file = fopen(path, "re")) != NULL) {
        if (fscanf(file, "%lf %lf", &quota, &period) != 2)
            quota = period = 0;
        fclose(file);
        return quota > 0 && period > 0 ? quota / period : 0;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
    if ((file = fopen(path, "re")) != NULL) {
        if (fscanf(file, "%lf", &quota) != 1)
            quota = 0;
        fclose(file);
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
    if ((file = fopen(path, "re")) != NULL) {
        if (fscanf(file, "%lf", &period) != 1)
            period = 0;
        fclose(file);
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The least quota of group and of all groups above it, under root. group is "/a/b" and is cut to nothing. */
static double least_quota(const char *root, char *group)
{
    double least = 0;
    for (;;) {
        char directory[4096];
        int length = snprintf(directory, sizeof directory, "%s%s", root, group);
        double quota = length > 0 && (size_t)length < sizeof directory ? read_quota(directory) : 0;
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
        char *slash = strrchr(group, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* The process's quota: lines of /proc/self/cgroup are "id:controllers:group", v2's "0::group". */
static double process_quota(void)
{
    static const char *const v1_roots[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    double least = 0;
    char line[4096];
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        controllers++;
        bool is_v2 = controllers[0] == '\0';
        bool is_cpu = strcmp(controllers, "cpu") == 0 || strncmp(controllers, "cpu,", 4) == 0 ||
                      strstr(controllers, ",cpu,") != NULL ||
                      (strlen(controllers) > 4 && strcmp(controllers + strlen(controllers) - 4, ",cpu") == 0);
        double quota = 0;
        if (is_v2)
            quota = least_quota("/sys/fs/cgroup", group);
        for (size_t i = 0; is_cpu && quota <= 0 && i < sizeof v1_roots / sizeof v1_roots[0]; i++) {
            char copy[sizeof line];
            snprintf(copy, sizeof copy, "%s", group);
            quota = least_quota(v1_roots[i], copy);
        }
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
    }
    fclose(file);
    return least;
}

/* -------------------------------------------------------------------------------------------------------- hwloc */

#if defined(TCONV_HAVE_HWLOC)
static size_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache != NULL && cache->attr != NULL ? (size_t)cache->attr->cache.size : 0;
}

static int count_objects(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    return at_least_one(hwloc_get_nbobjs_by_type(topology, type));
}

/* Cores of which at least one processing unit is in set. */
static int count_cores(hwloc_topology_t topology, hwloc_const_cpuset_t set)
{
    int cores = 0;
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL;)
        cores += hwloc_bitmap_intersects(core->cpuset, set) != 0;
    return cores > 0 ? cores : at_least_one(hwloc_bitmap_weight(set)); /* some virtual machines show no cores */
}

static bool read_hwloc(tconv_cpu_topology *found)
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
    int units = at_least_one(hwloc_bitmap_weight(bound));
    if (allowed_units(units) > units) {
        int allowed = count_cores(topology, hwloc_topology_get_allowed_cpuset(topology));
        found->allowed_cores = allowed < allowed_units(units) ? allowed : allowed_units(units);
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
static bool read_hwloc(tconv_cpu_topology *found)
{
    (void)found;
    return false;
}
#endif

/* --------------------------------------------------------------------------------------------------------- libc */

/* The first line of a file of the C library's or the kernel's; false where there is none. */
static bool read_line(const char *path, char *text, int capacity)
{
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(text, capacity, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (read)
        text[strcspn(text, "\n")] = '\0';
    return read;
}

#if defined(__linux__)
/* Whether processor number unit is the first of its core's. */
static bool leads_core(int unit)
{
    char path[96], text[64];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", unit);
    return !read_line(path, text, sizeof text) || atoi(text) == unit;
}

static void count_linux_cores(tconv_cpu_topology *found)
{
    cpu_set_t set;
    int units = 0, cores = 0, all_cores = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        CPU_ZERO(&set);
    for (int unit = 0; unit < CPU_SETSIZE; unit++) {
        bool leads = unit < found->processing_units && leads_core(unit);
        all_cores += leads;
        bool allowed = CPU_ISSET((size_t)unit, &set) != 0;
        cores += leads && allowed;
        units += allowed;
    }
    found->cores = at_least_one(all_cores);
    /* Where only second threads of cores are allowed, none leads; where OpenMP bound this thread, it knows better. */
    found->allowed_cores = at_least_one(cores > 0 ? cores : units);
    if (units < 1 || allowed_units(units) > units)
        found->allowed_cores = found->cores < allowed_units(1) ? found->cores : allowed_units(1);
}

static void read_linux_caches(tconv_cpu_topology *found)
{
    for (int index = 0; index < 8; index++) {
        char path[96], text[32];
        size_t *const levels[] = {NULL, &found->l1_bytes, &found->l2_bytes, &found->l3_bytes};
        int level;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
        if (!read_line(path, text, sizeof text) || (level = atoi(text)) < 1 || level > 3)
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", index);
        if (!read_line(path, text, sizeof text) || strcmp(text, "Instruction") == 0)
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        if (!read_line(path, text, sizeof text))
            continue;
        char *unit;
        size_t size = (size_t)strtoul(text, &unit, 10);
        *levels[level] = size << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : 0);
    }
}
#endif

static void read_model(char *model, size_t capacity)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *value = strchr(line, ':');
        if (value == NULL || strncmp(line, "model name", 10) != 0)
            continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(model, capacity, "%.*s", (int)capacity - 1, value);
        break;
    }
    if (file != NULL)
        fclose(file);
}

static void read_libc(tconv_cpu_topology *found)
{
    found->source = "libc";
    found->packages = 1;
    found->numa_nodes = 1;
    found->processing_units = at_least_one(sysconf(_SC_NPROCESSORS_ONLN));
    found->cores = found->processing_units;
    found->allowed_cores = allowed_units(found->processing_units);
#if defined(__linux__)
    count_linux_cores(found);
    read_linux_caches(found);
#endif
    read_model(found->model, sizeof found->model);
}

/* ------------------------------------------------------------------------------------------------------- public */

static tconv_cpu_topology machine;
static pthread_once_t machine_once = PTHREAD_ONCE_INIT;

static void read_machine(void)
{
    memset(&machine, 0, sizeof machine);
    if (!read_hwloc(&machine)) {
        memset(&machine, 0, sizeof machine);
        read_libc(&machine);
    }
    machine.quota = process_quota();
}

const tconv_cpu_topology *tconv_cpu_get_topology(void)
{
    pthread_once(&machine_once, read_machine);
    return &machine;
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
    return at_least_one(threads);
}
