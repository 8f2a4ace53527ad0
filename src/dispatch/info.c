/* tconv_system_info: one walk over the facts feeds one of two writers, plain lines or JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/config.h"
#include "../core/status.h"
#include "../core/text.h"
#include "../cpu/cpu_backend.h"
#include "../cpu/cpu_target.h"
#include "../cpu/machine/tuning.h"
#include "../cuda/cuda_backend.h"
#include "impl_list.h"
#include "writer.h"

static void write_build(tconv_writer *writer)
{
    tconv_write_text(writer, "version", TCONV_VERSION_STRING);
    tconv_write_open_group(writer, "build", '{');
#if defined(__clang__)
    tconv_write_text(writer, "compiler", "clang " __clang_version__);
#elif defined(__GNUC__)
    tconv_write_text(writer, "compiler", "gcc " __VERSION__);
#else
    tconv_write_text(writer, "compiler", "unknown");
#endif
    tconv_write_text(writer, "cuda_toolkit", tconv_cuda_toolkit()[0] != '\0' ? tconv_cuda_toolkit() : "none");
    tconv_write_text(writer, "topology", tconv_cpu_get_topology()->source);
    tconv_write_open_group(writer, "implementations", '[');
    const char *name;
    for (size_t i = 0; (name = tconv_implementation_name_at(i)) != NULL; i++)
        tconv_write_text(writer, NULL, name);
    tconv_write_close_group(writer, ']');
    tconv_write_close_group(writer, '}');
}

static void write_isa(tconv_writer *writer)
{
    tconv_issue issue;
    tconv_config config;
    tconv_target target;
    tconv_write_open_group(writer, "isa_levels", '[');
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_NEON; isa++)
        if (tconv_cpu_has_isa((tconv_cpu_isa)isa))
            tconv_write_text(writer, NULL, tconv_cpu_isa_name((tconv_cpu_isa)isa));
    tconv_write_close_group(writer, ']');
    /* a bad variable is shown among the environment variables below */
    if (tconv_config_get(&config, &issue) == TCONV_SUCCESS &&
        tconv_cpu_resolve(config.threads, config.cpu_isa, config.cpu_tuning, &target, &issue) == TCONV_SUCCESS) {
        const tconv_cpu_target cpu = tconv_cpu_target_of(&target);
        tconv_write_text(writer, "isa_used", tconv_cpu_isa_name(cpu.cpu_isa));
        tconv_write_text(writer, "tuning_used", tconv_cpu_find_traits(cpu.tuning)->name);
        tconv_write_number(writer, "threads_used", cpu.threads);
    } else {
        tconv_write_text(writer, "error", issue.message);
    }
}

static void write_cpu(tconv_writer *writer)
{
    const tconv_cpu_topology *topology = tconv_cpu_get_topology();
    tconv_write_open_group(writer, "cpu", '{');
    tconv_write_truth(writer, "available", true);
    tconv_write_text(writer, "model", topology->model);
    write_isa(writer);
    tconv_write_number(writer, "packages", topology->packages);
    tconv_write_number(writer, "cores", topology->cores);
    tconv_write_number(writer, "processing_units", topology->processing_units);
    tconv_write_number(writer, "allowed_cores", topology->allowed_cores);
    tconv_write_number(writer, "numa_nodes", topology->numa_nodes);
    if (topology->quota > 0) {
        char quota[32];
        /* in whole numbers, because "%f" would write a comma in some locales */
        const int64_t hundredths = (int64_t)(topology->quota * 100 + 0.5);
        snprintf(quota, sizeof quota, "%" PRId64 ".%02d cores", hundredths / 100, (int)(hundredths % 100));
        tconv_write_text(writer, "cgroup_quota", quota);
    }
    tconv_write_number(writer, "l1_bytes", (int64_t)topology->l1_bytes);
    tconv_write_number(writer, "l2_bytes", (int64_t)topology->l2_bytes);
    tconv_write_number(writer, "l3_bytes", (int64_t)topology->l3_bytes);
    tconv_write_close_group(writer, '}');
}

static void write_device(tconv_writer *writer, int device)
{
    tconv_cuda_device_info info;
    tconv_issue issue;
    tconv_write_open_group(writer, NULL, '{');
    tconv_write_number(writer, "device", device);
    if (tconv_cuda_describe_device(device, &info, &issue) == TCONV_SUCCESS) {
        char capability[16];
        snprintf(capability, sizeof capability, "%d.%d", info.compute_capability / 10, info.compute_capability % 10);
        tconv_write_text(writer, "name", info.name);
        tconv_write_text(writer, "compute_capability", capability);
        tconv_write_number(writer, "multiprocessors", info.multiprocessors);
        tconv_write_number(writer, "memory_bytes", (int64_t)info.memory_bytes);
        tconv_write_number(writer, "l2_bytes", (int64_t)info.l2_bytes);
    } else {
        tconv_write_text(writer, "error", issue.message);
    }
    tconv_write_close_group(writer, '}');
}

static void write_cuda(tconv_writer *writer)
{
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    bool available = tconv_cuda_available(&issue) == TCONV_SUCCESS;
    tconv_write_open_group(writer, "cuda", '{');
    tconv_write_truth(writer, "available", available);
    if (!available)
        tconv_write_text(writer, "reason", issue.message);
    tconv_write_open_group(writer, "devices", '[');
    for (int device = 0; device < tconv_cuda_device_count(); device++)
        write_device(writer, device);
    tconv_write_close_group(writer, ']');
    tconv_write_close_group(writer, '}');
}

static void write_environment(tconv_writer *writer)
{
    tconv_config config;
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    tconv_write_open_group(writer, "environment", '{');
    const char *name;
    char value[TCONV_CONFIG_VALUE_SIZE];
    for (size_t i = 0; tconv_config_variable(i, &name, value); i++)
        if (value[0] != '\0')
            tconv_write_text(writer, name, value);
    if (tconv_config_get(&config, &issue) != TCONV_SUCCESS)
        tconv_write_text(writer, "error", issue.message);
    tconv_write_close_group(writer, '}');
}

tconv_status tconv_system_info(tconv_text_format format, char *text, size_t capacity, size_t *length)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    tconv_writer writer;
    if (tconv_writer_begin(&writer, format, text, capacity, &found) != TCONV_SUCCESS)
        return tconv_report(&found, NULL);
    write_build(&writer);
    write_cpu(&writer);
    write_cuda(&writer);
    write_environment(&writer);
    tconv_writer_end(&writer, length);
    return TCONV_SUCCESS;
}
