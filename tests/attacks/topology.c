/*
 * Plays other machines: their caches and cores come from HWLOC_SYNTHETIC where the library asks hwloc, and, where it
 * reads /sys, from a /sys of our own mounted over the kernel's in a mount namespace (as root alone). On each, layers
 * from one channel to a hundred, with integers: every bit is right. Some of the machines must lead to other tilings
 * than this one's, as the workspace of a plan shows, or the test proves nothing.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attack.h"
#include "harness.h"

#define SECONDS    60
#define MOST_CACHE (1L << 32) /* bytes; no machine has more */
#define SYS_CPU    "/sys/devices/system/cpu"

/* ------------------------------------------------------------------------------------------------------------ layers */

/* Layers whose rows, planes or weights are larger than some cache, or smaller than all caches. */
static const char *const layers[] = {
    "n=1 ci=80 h=9 w=11 co=48 k=3 s=2 p=1 b=1", "n=1 ci=20 h=6 w=700 co=6 k=4x5 s=2 p=1 d=1x2 b=1",
    "n=1 ci=8 h=60 w=64 co=3 k=5 s=3 g=1",      "n=2 ci=40 h=17 w=19 co=40 k=3 s=1 p=1 g=40 b=1",
    "n=3 ci=130 h=5 w=5 co=66 k=2 s=2 g=2",
};

/* Runs one layer in both layouts; adds up the plans' workspaces in *workspace. */
static void run_layer(const char *text, int32_t threads, size_t *workspace)
{
    for (int layout = TCONV_NCHW; layout <= TCONV_NHWC; layout++) {
        harness_layer layer;
        harness_case test;
        harness_output output;
        harness_failure failure = {""};
        tconv_options options;
        tconv_issue issue = {TCONV_SUCCESS, "", ""};
        char message[256] = "";
        tconv_options_init(&options);
        options.threads = threads;
        EXPECT(harness_problem_parse(text, &layer, message, sizeof message), "%s: %s", text, message);
        layer.desc.layout = (tconv_layout)layout;
        if (harness_case_create(&test, &layer, HARNESS_INTEGERS, 1, &issue) != TCONV_SUCCESS) {
            EXPECT(false, "%s: no case: %s", text, issue.message);
            continue;
        }
        tconv_status status = harness_run(&test, &options, false, &output, &issue);
        EXPECT(status == TCONV_SUCCESS, "%s: %s", text, issue.message);
        if (status == TCONV_SUCCESS) {
            EXPECT(harness_compare(&test, &output, &failure), "%s", failure.text);
            *workspace += output.workspace_bytes;
            harness_output_release(&output);
        }
        harness_case_destroy(&test);
    }
}

/* Prints the machine as the library sees it and the workspace that it takes, with two threads and then with the
 * library's choice, which on a machine of a thousand cores is many. */
static int child(void)
{
    static char info[1 << 16];
    size_t workspace = 0;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        run_layer(layers[i], 2, &workspace);
        run_layer(layers[i], 0, &workspace);
    }
    EXPECT(tconv_system_info(TCONV_TEXT_PLAIN, info, sizeof info, NULL) == TCONV_SUCCESS, "system_info fails");
    const char *cores = strstr(info, "cores: "), *caches = strstr(info, "l1_bytes: ");
    long sizes[3] = {0};
    if (caches != NULL)
        sscanf(caches, "l1_bytes: %ld l2_bytes: %ld l3_bytes: %ld", &sizes[0], &sizes[1], &sizes[2]);
    for (int i = 0; i < 3; i++)
        EXPECT(sizes[i] >= 0 && sizes[i] <= MOST_CACHE, "a cache of %ld bytes", sizes[i]);
    printf("workspace %zu, cores %d, caches %ld, %ld, %ld\n", workspace, cores != NULL ? atoi(cores + 7) : 0, sizes[0],
           sizes[1], sizes[2]);
    return attack_end();
}

/* ---------------------------------------------------------------------------------------------------------- machines */

static char *program_path;

/* Runs the child on a machine; its output goes to output. */
static void run_machine(const char *name, const char *setting, void (*prepare)(void *), void *argument, char *output,
                        size_t capacity)
{
    const char *arguments[] = {program_path, "child", NULL};
    const char *settings[] = {setting, NULL};
    attack_program program = {.arguments = arguments,
                              .settings = setting != NULL ? settings : NULL,
                              .prepare = prepare,
                              .argument = argument,
                              .seconds = SECONDS};
    attack_outcome outcome = attack_run(&program, output, capacity);
    attack_expect_success(outcome, name);
    EXPECT(output[0] == '\0' || strncmp(output, "workspace", strlen("workspace")) == 0,
           "%s: something but the child prints: %s", name, output);
    printf("%s: %s%s", name, output, output[0] == '\0' ? "\n" : "");
    fflush(stdout);
}

static const char *const synthetic[] = {
    "HWLOC_SYNTHETIC=package:1 l3:1(size=4194304) l2:2(size=262144) l1d:1(size=16384) core:1 pu:1",
    "HWLOC_SYNTHETIC=package:1 l2:4(size=8192) l1d:1(size=1024) core:1 pu:1",
    "HWLOC_SYNTHETIC=package:2 l3:1(size=1073741824) l2:4(size=67108864) l1d:1(size=1048576) core:1 pu:2",
    "HWLOC_SYNTHETIC=package:4 l3:16(size=33554432) l2:16(size=1048576) l1d:1(size=32768) core:1 pu:1",
    "HWLOC_SYNTHETIC=package:1 core:2 pu:1",
    "HWLOC_SYNTHETIC=nonsense",
    "HWLOC_XMLFILE=/nonexistent",
    "HWLOC_COMPONENTS=-all",
};

/* A processor as sysfs shows it: sizes as text, "" for a cache that is not there, NULL for no file at all. */
struct machine {
    const char *name, *level1, *level2, *level3;
    int cores;
};

static const struct machine machines[] = {
    {"sysfs: tiny caches", "1K", "8K", "", 2},
    {"sysfs: huge caches", "1M", "64M", "1G", 2},
    {"sysfs: no third cache", "32K", "1M", "", 2},
    {"sysfs: a thousand cores", "32K", "1M", "33M", 1024},
    {"sysfs: sizes of nothing", "0K", "0", "0K", 2},
    {"sysfs: sizes that are no numbers", "lots", "-5K", "99999999999999999999K", 2},
    {"sysfs: no caches", "", "", "", 2},
    {"sysfs: empty", NULL, NULL, NULL, 0},
};

static void write_file(const char *directory, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        _exit(EXIT_FAILURE);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static void write_cache(const char *core, int index, int level, const char *type, const char *size)
{
    char directory[256], number[16];
    if (size[0] == '\0')
        return;
    snprintf(directory, sizeof directory, "%s/cache/index%d", core, index);
    snprintf(number, sizeof number, "%d", level);
    mkdir(directory, 0755);
    write_file(directory, "level", number);
    write_file(directory, "type", type);
    write_file(directory, "size", size);
    write_file(directory, "shared_cpu_list", "0");
    write_file(directory, "shared_cpu_map", "1");
}

static void write_core(const struct machine *machine, int core)
{
    char directory[128], topology[160], number[16];
    snprintf(directory, sizeof directory, SYS_CPU "/cpu%d", core);
    snprintf(topology, sizeof topology, "%s/cache", directory);
    snprintf(number, sizeof number, "%d", core);
    mkdir(directory, 0755);
    mkdir(topology, 0755);
    snprintf(topology, sizeof topology, "%s/topology", directory);
    mkdir(topology, 0755);
    write_file(topology, "thread_siblings_list", number);
    write_file(topology, "core_cpus_list", number);
    write_file(topology, "core_id", number);
    write_file(topology, "physical_package_id", "0");
    write_cache(directory, 0, 1, "Data", machine->level1);
    write_cache(directory, 1, 1, "Instruction", machine->level1);
    write_cache(directory, 2, 2, "Unified", machine->level2);
    write_cache(directory, 3, 3, "Unified", machine->level3);
}

/* Mounts the machine's /sys in the child, before exec. Where that fails the child ends with ATTACK_SKIPPED. */
static void mount_machine(void *argument)
{
    const struct machine *machine = argument;
    char list[32];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", SYS_CPU, "tmpfs", 0, NULL) != 0)
        _exit(ATTACK_SKIPPED);
    if (machine->cores == 0)
        return;
    snprintf(list, sizeof list, "0-%d", machine->cores - 1);
    write_file(SYS_CPU, "online", list);
    write_file(SYS_CPU, "possible", list);
    write_file(SYS_CPU, "present", list);
    for (int i = 0; i < machine->cores; i++)
        write_core(machine, i);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "child") == 0)
        return child();
    static char here[4096], output[4096];
    int differ = 0;
    program_path = argv[0];
    run_machine("this machine", NULL, NULL, NULL, here, sizeof here);
    for (size_t i = 0; i < sizeof synthetic / sizeof synthetic[0]; i++) {
        run_machine(synthetic[i], synthetic[i], NULL, NULL, output, sizeof output);
        differ += strcmp(output, here) != 0;
    }
    if (geteuid() == 0) {
        for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
            run_machine(machines[i].name, "HWLOC_COMPONENTS=", mount_machine, (void *)(size_t)&machines[i], output,
                        sizeof output);
            differ += strcmp(output, here) != 0 && output[0] != '\0';
        }
        EXPECT(differ > 0, "no machine led to another plan");
    } else {
        attack_skip("a /sys of our own: this needs root");
    }
    return attack_end();
}
