/*
 * Reads the topology as Linux shows it in /sys and /proc, by bare system calls: not a byte is allocated, so that the
 * first plan of a process is made without memory too.
 */
#if defined(__linux__)
#define _GNU_SOURCE /* sched_getaffinity, O_CLOEXEC */
#endif

#include "topology.h"
#include "units.h"

#if defined(__linux__)
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --------------------------------------------------------------------------------------------------------- files */

/* Bytes of a cgroup's directory; a longer one counts as one without a limit. It is chosen, not measured. */
enum { MAX_PATH_BYTES = 1024 };

struct reader {
    int file; /* -1: the file could not be opened */
    int at, length;
    char bytes[256];
};

static struct reader open_file(const char *path)
{
    struct reader reader = {.file = open(path, O_RDONLY | O_CLOEXEC), .at = 0, .length = 0};
    return reader;
}

static void close_file(const struct reader *reader)
{
    if (reader->file >= 0)
        close(reader->file);
}

/* Returns the next byte, or -1 at the end. */
static int next_byte(struct reader *reader)
{
    if (reader->at == reader->length && reader->file >= 0) {
        ssize_t length;
        do
            length = read(reader->file, reader->bytes, sizeof reader->bytes);
        while (length < 0 && errno == EINTR);
        reader->at = 0;
        reader->length = length > 0 ? (int)length : 0;
    }
    return reader->at < reader->length ? (unsigned char)reader->bytes[reader->at++] : -1;
}

/* Reads the next line without its end, cut to the room of text; false at the end of the file. */
static bool next_line(struct reader *reader, char *text, int capacity)
{
    int byte = next_byte(reader), length = 0;
    if (byte < 0)
        return false;
    for (; byte >= 0 && byte != '\n'; byte = next_byte(reader))
        if (length < capacity - 1)
            text[length++] = (char)byte;
    text[length] = '\0';
    return true;
}

/* Reads the first line of a file; false, with an empty text, where there is none. */
static bool read_line(const char *path, char *text, int capacity)
{
    struct reader reader = open_file(path);
    text[0] = '\0';
    bool read = next_line(&reader, text, capacity);
    close_file(&reader);
    return read;
}

/* --------------------------------------------------------------------------------------------------------- units */

/* Processing units that Linux can be built for at most (CONFIG_NR_CPUS). */
enum { MAX_UNITS = 8192 };

/* Bits of a word of a set. */
enum { WORD_BITS = 8 * sizeof(unsigned long) };

struct unit_set {
    unsigned long words[MAX_UNITS / WORD_BITS];
};

static bool has_unit(const struct unit_set *set, int unit)
{
    return unit >= 0 && unit < MAX_UNITS && (set->words[unit / WORD_BITS] >> unit % WORD_BITS & 1) != 0;
}

/* Adds a unit; false where it was in the set already, or cannot be. */
static bool add_unit(struct unit_set *set, int unit)
{
    if (unit < 0 || unit >= MAX_UNITS || has_unit(set, unit))
        return false;
    set->words[unit / WORD_BITS] |= 1UL << unit % WORD_BITS;
    return true;
}

static int count_units(const struct unit_set *set)
{
    int count = 0;
    for (size_t i = 0; i < sizeof set->words / sizeof set->words[0]; i++)
        count += __builtin_popcountl(set->words[i]);
    return count;
}

/* Reads a file with a list such as "0-3,8,10-11"; an empty set where there is no file. */
static struct unit_set read_list(const char *path)
{
    struct unit_set set = {{0}};
    struct reader reader = open_file(path);
    int byte;
    do {
        int first = -1, last = -1;
        for (byte = next_byte(&reader); (byte >= '0' && byte <= '9') || byte == '-'; byte = next_byte(&reader)) {
            if (byte == '-') {
                first = last;
                last = 0;
            } else if (last < MAX_UNITS) {
                last = (last < 0 ? 0 : last) * 10 + byte - '0';
            }
        }
        for (int unit = first < 0 ? last : first; unit <= last && unit < MAX_UNITS; unit++)
            add_unit(&set, unit);
    } while (byte == ',');
    close_file(&reader);
    return set;
}

static bool read_affinity(struct unit_set *set)
{
    memset(set, 0, sizeof *set);
    return sched_getaffinity(0, sizeof set->words, (cpu_set_t *)(void *)set->words) == 0;
}

int tconv_cpu_affinity(void)
{
    struct unit_set set;
    return read_affinity(&set) ? count_units(&set) : 0;
}

/* --------------------------------------------------------------------------------------------------------- cores */

/* Reads a number from a file of a processing unit; -1 where there is none. */
static int unit_number(int unit, const char *name)
{
    char path[96], text[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", unit, name);
    return read_line(path, text, sizeof text) && text[0] >= '0' && text[0] <= '9' ? atoi(text) : -1;
}

struct packages {
    int count, ids[64];
};

static void add_package(struct packages *packages, int id)
{
    for (int i = 0; i < packages->count; i++)
        if (packages->ids[i] == id)
            return;
    if (packages->count < (int)(sizeof packages->ids / sizeof packages->ids[0]))
        packages->ids[packages->count++] = id;
}

/* Counts cores, each by the first of its processing units, and packages. */
static void count_cores(tconv_cpu_topology *found, const struct unit_set *online)
{
    struct unit_set leaders = {{0}}, allowed_leaders = {{0}}, affinity;
    struct packages packages = {0};
    int units = 0;
    if (!read_affinity(&affinity))
        affinity = *online;
    for (int unit = 0; unit < MAX_UNITS; unit++) {
        if (!has_unit(online, unit))
            continue;
        int leader = unit_number(unit, "thread_siblings_list"); /* the list begins with it */
        leader = leader < 0 ? unit : leader;
        found->cores += add_unit(&leaders, leader);
        add_package(&packages, unit_number(unit, "physical_package_id"));
        if (!has_unit(&affinity, unit))
            continue;
        found->allowed_cores += add_unit(&allowed_leaders, leader);
        units++;
    }
    found->packages = packages.count;
    found->allowed_cores = tconv_cpu_at_least_one(found->allowed_cores);
    units = tconv_cpu_at_least_one(units);
    if (tconv_cpu_allowed_units(units) > units) /* OpenMP bound this thread */
        found->allowed_cores =
            found->cores < tconv_cpu_allowed_units(units) ? found->cores : tconv_cpu_allowed_units(units);
}

/* --------------------------------------------------------------------------------------------------------- caches */

static bool read_cache_line(int unit, int index, const char *name, char *text, int capacity)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", unit, index, name);
    return read_line(path, text, capacity);
}

/* Bytes of the largest cache that is believed: no cache is as large, and larger sizes could wrap. */
static const unsigned long MAX_CACHE_BYTES = 1UL << 40;

/* Parses a size in bytes such as "48K"; 0 for any other text. */
static size_t parse_size(const char *text)
{
    if (text[0] < '0' || text[0] > '9')
        return 0;
    char *prefix;
    const unsigned long number = strtoul(text, &prefix, 10); /* ULONG_MAX where it does not fit */
    const int shift = *prefix == 'K' ? 10 : *prefix == 'M' ? 20 : *prefix == 'G' ? 30 : 0;
    return number <= MAX_CACHE_BYTES >> shift ? (size_t)number << shift : 0;
}

/* Reads the size of a cache from the C library, which asks the processor. */
static void read_cache(size_t *bytes, int name)
{
    long size = *bytes == 0 ? sysconf(name) : -1;
    if (size > 0)
        *bytes = (size_t)size;
}

static void read_caches(tconv_cpu_topology *found, int unit)
{
    size_t *const levels[] = {NULL, &found->l1_bytes, &found->l2_bytes, &found->l3_bytes};
    char text[32];
    for (int index = 0; index < 8; index++) {
        if (!read_cache_line(unit, index, "level", text, sizeof text))
            break;
        int level = atoi(text);
        if (level < 1 || level > 3 || !read_cache_line(unit, index, "type", text, sizeof text) ||
            strcmp(text, "Instruction") == 0 || !read_cache_line(unit, index, "size", text, sizeof text))
            continue;
        *levels[level] = parse_size(text);
    }
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    read_cache(levels[1], _SC_LEVEL1_DCACHE_SIZE);
    read_cache(levels[2], _SC_LEVEL2_CACHE_SIZE);
    read_cache(levels[3], _SC_LEVEL3_CACHE_SIZE);
#endif
}

/* Reads the model of the first processor that is listed. */
static void read_model(char *model, size_t capacity)
{
    struct reader reader = open_file("/proc/cpuinfo");
    char line[128];
    while (next_line(&reader, line, sizeof line) && line[0] != '\0') {
        const char *value = strchr(line, ':');
        if (value == NULL || strncmp(line, "model name", 10) != 0)
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(model, capacity, "%.*s", (int)capacity - 1, value);
        break;
    }
    close_file(&reader);
}

bool tconv_cpu_read_linux(tconv_cpu_topology *found)
{
    const struct unit_set online = read_list("/sys/devices/system/cpu/online");
    const struct unit_set nodes = read_list("/sys/devices/system/node/online");
    int first = 0;
    if (count_units(&online) == 0)
        return false;
    while (!has_unit(&online, first))
        first++;
    found->source = "Linux";
    found->processing_units = count_units(&online);
    found->numa_nodes = tconv_cpu_at_least_one(count_units(&nodes));
    count_cores(found, &online);
    read_caches(found, first);
    read_model(found->model, sizeof found->model);
    return true;
}

/* ------------------------------------------------------------------------------------------------- cgroup quota */

/* Parses a number; -1 where there is none ("max"), or where it is negative. */
static double parse_count(const char *text, const char **end)
{
    char *after;
    long long value = strtoll(text, &after, 10);
    if (end != NULL)
        *end = after;
    return after == text || value < 0 ? -1 : (double)value;
}

/* Reads the quota of one directory, in cores; 0 where there is none. v2 has "max 100000" or "150000 100000" in cpu.max;
 * v1 has two files, and -1 for no quota. */
static double read_quota(const char *directory)
{
    char path[MAX_PATH_BYTES + 32], text[64];
    double quota, period;
    const char *rest;
    snprintf(path, sizeof path, "%s/cpu.max", directory);
    if (read_line(path, text, sizeof text)) {
        quota = parse_count(text, &rest);
        period = parse_count(rest, NULL);
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
        quota = read_line(path, text, sizeof text) ? parse_count(text, NULL) : -1;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory);
        period = read_line(path, text, sizeof text) ? parse_count(text, NULL) : -1;
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* Returns the least quota of group, such as "/a/b", and of all groups above it, under root. */
static double least_quota(const char *root, const char *group)
{
    char directory[MAX_PATH_BYTES];
    double least = 0;
    int length = snprintf(directory, sizeof directory, "%s%s", root, group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return 0;
    for (;;) {
        double quota = read_quota(directory);
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
        char *slash = strrchr(directory + strlen(root), '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* Whether "cpu" is one of controllers, a list such as "cpuset,cpu,cpuacct". */
static bool names_cpu(const char *controllers)
{
    for (const char *at = controllers; at != NULL; at = (at = strchr(at, ',')) != NULL ? at + 1 : NULL)
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == '\0' || at[3] == ','))
            return true;
    return false;
}

/* Returns the least quota of the process's cgroups. Lines of /proc/self/cgroup are "id:controllers:group", v2's are
 * "0::group". */
double tconv_cpu_read_quota(void)
{
    static const char *const v1_roots[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    double least = 0;
    char line[MAX_PATH_BYTES];
    struct reader reader = open_file("/proc/self/cgroup");
    while (next_line(&reader, line, sizeof line)) {
        char *controllers = strchr(line, ':'), *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        controllers++;
        double quota = 0;
        if (controllers[0] == '\0')
            quota = least_quota("/sys/fs/cgroup", group);
        for (size_t i = 0; names_cpu(controllers) && quota <= 0 && i < sizeof v1_roots / sizeof v1_roots[0]; i++)
            quota = least_quota(v1_roots[i], group);
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
    }
    close_file(&reader);
    return least;
}

#else

int tconv_cpu_affinity(void)
{
    return 0;
}

bool tconv_cpu_read_linux(tconv_cpu_topology *found)
{
    (void)found;
    return false;
}

double tconv_cpu_read_quota(void)
{
    return 0;
}

#endif
