/* tconv_system_info: one walk over the facts feeds one of two writers, plain lines or JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/config.h"
#include "../core/status.h"
#include "../core/text.h"
#include "../cpu/cpu_backend.h"
#include "../cuda/cuda_backend.h"
#include "impl_list.h"

#define MAX_DEPTH 4

struct writer {
    tconv_text_format format;
    tconv_text out;
    int depth;
    bool empty[MAX_DEPTH]; /* whether nothing is written yet at this depth */
};

static void append_json_string(struct writer *writer, const char *value)
{
    tconv_text_append(&writer->out, "\"");
    for (; *value != '\0'; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\')
            tconv_text_append(&writer->out, "\\%c", c);
        else if (c < 0x20)
            tconv_text_append(&writer->out, "\\u%04x", c);
        else
            tconv_text_append(&writer->out, "%c", c);
    }
    tconv_text_append(&writer->out, "\"");
}

/* Writes what precedes every value: separator, indentation and key (NULL inside a list). */
static void key(struct writer *writer, const char *name)
{
    if (writer->format == TCONV_TEXT_JSON) {
        tconv_text_append(&writer->out, writer->empty[writer->depth] ? "\n%*s" : ",\n%*s", 2 * (writer->depth + 1), "");
        if (name != NULL) {
            append_json_string(writer, name);
            tconv_text_append(&writer->out, ": ");
        }
    } else {
        tconv_text_append(&writer->out, "%*s%s", 2 * writer->depth, "", name != NULL ? name : "-");
        tconv_text_append(&writer->out, name != NULL ? ":" : "");
    }
    writer->empty[writer->depth] = false;
}

static void open_group(struct writer *writer, const char *name, char bracket)
{
    key(writer, name);
    tconv_text_append(&writer->out, writer->format == TCONV_TEXT_JSON ? "%c" : "\n", bracket);
    writer->empty[++writer->depth] = true;
}

static void close_group(struct writer *writer, char bracket)
{
    bool empty = writer->empty[writer->depth--];
    if (writer->format != TCONV_TEXT_JSON)
        return;
    if (!empty)
        tconv_text_append(&writer->out, "\n%*s", 2 * (writer->depth + 1), "");
    tconv_text_append(&writer->out, "%c", bracket);
}

static void text(struct writer *writer, const char *name, const char *value)
{
    key(writer, name);
    if (writer->format == TCONV_TEXT_JSON)
        append_json_string(writer, value);
    else
        tconv_text_append(&writer->out, " %s\n", value);
}

static void number(struct writer *writer, const char *name, int64_t value)
{
    key(writer, name);
    tconv_text_append(&writer->out, writer->format == TCONV_TEXT_JSON ? "%" PRId64 : " %" PRId64 "\n", value);
}

static void truth(struct writer *writer, const char *name, bool value)
{
    key(writer, name);
    tconv_text_append(&writer->out, writer->format == TCONV_TEXT_JSON ? "%s" : " %s\n", value ? "true" : "false");
}

static void write_build(struct writer *writer)
{
    text(writer, "version", TCONV_VERSION_STRING);
    open_group(writer, "build", '{');
#if defined(__clang__)
    text(writer, "compiler", "clang " __clang_version__);
#elif defined(__GNUC__)
    text(writer, "compiler", "gcc " __VERSION__);
#else
    text(writer, "compiler", "unknown");
#endif
    text(writer, "cuda_toolkit", tconv_cuda_toolkit()[0] != '\0' ? tconv_cuda_toolkit() : "none");
    text(writer, "topology", tconv_cpu_get_topology()->source);
    open_group(writer, "implementations", '[');
    const char *name;
    for (size_t i = 0; (name = tconv_implementation_name_at(i)) != NULL; i++)
        text(writer, NULL, name);
    close_group(writer, ']');
    close_group(writer, '}');
}

static void write_isa(struct writer *writer)
{
    tconv_issue issue;
    tconv_config config;
    tconv_target target;
    open_group(writer, "isa_levels", '[');
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_NEON; isa++)
        if (tconv_cpu_has_isa((tconv_cpu_isa)isa))
            text(writer, NULL, tconv_cpu_isa_name((tconv_cpu_isa)isa));
    close_group(writer, ']');
    /* a bad variable is shown among the environment variables below */
    if (tconv_config_get(&config, &issue) == TCONV_SUCCESS &&
        tconv_cpu_resolve(config.threads, config.cpu_isa, &target, &issue) == TCONV_SUCCESS) {
        text(writer, "isa_used", tconv_cpu_isa_name(target.cpu_isa));
        number(writer, "threads_used", target.threads);
    } else {
        text(writer, "error", issue.message);
    }
}

static void write_cpu(struct writer *writer)
{
    const tconv_cpu_topology *topology = tconv_cpu_get_topology();
    open_group(writer, "cpu", '{');
    truth(writer, "available", true);
    text(writer, "model", topology->model);
    write_isa(writer);
    number(writer, "packages", topology->packages);
    number(writer, "cores", topology->cores);
    number(writer, "processing_units", topology->processing_units);
    number(writer, "allowed_cores", topology->allowed_cores);
    number(writer, "numa_nodes", topology->numa_nodes);
    if (topology->quota > 0) {
        char quota[32];
        /* in whole numbers, because "%f" would write a comma in some locales */
        const int64_t hundredths = (int64_t)(topology->quota * 100 + 0.5);
        snprintf(quota, sizeof quota, "%" PRId64 ".%02d cores", hundredths / 100, (int)(hundredths % 100));
        text(writer, "cgroup_quota", quota);
    }
    number(writer, "l1_bytes", (int64_t)topology->l1_bytes);
    number(writer, "l2_bytes", (int64_t)topology->l2_bytes);
    number(writer, "l3_bytes", (int64_t)topology->l3_bytes);
    close_group(writer, '}');
}

static void write_device(struct writer *writer, int device)
{
    tconv_cuda_device_info info;
    tconv_issue issue;
    open_group(writer, NULL, '{');
    number(writer, "device", device);
    if (tconv_cuda_describe_device(device, &info, &issue) == TCONV_SUCCESS) {
        char capability[16];
        snprintf(capability, sizeof capability, "%d.%d", info.compute_capability / 10, info.compute_capability % 10);
        text(writer, "name", info.name);
        text(writer, "compute_capability", capability);
        number(writer, "multiprocessors", info.multiprocessors);
        number(writer, "memory_bytes", (int64_t)info.memory_bytes);
        number(writer, "l2_bytes", (int64_t)info.l2_bytes);
    } else {
        text(writer, "error", issue.message);
    }
    close_group(writer, '}');
}

static void write_cuda(struct writer *writer)
{
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    bool available = tconv_cuda_available(&issue) == TCONV_SUCCESS;
    open_group(writer, "cuda", '{');
    truth(writer, "available", available);
    if (!available)
        text(writer, "reason", issue.message);
    open_group(writer, "devices", '[');
    for (int device = 0; device < tconv_cuda_device_count(); device++)
        write_device(writer, device);
    close_group(writer, ']');
    close_group(writer, '}');
}

static void write_environment(struct writer *writer)
{
    tconv_config config;
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    open_group(writer, "environment", '{');
    const char *name;
    char value[TCONV_CONFIG_VALUE_SIZE];
    for (size_t i = 0; tconv_config_variable(i, &name, value); i++)
        if (value[0] != '\0')
            text(writer, name, value);
    if (tconv_config_get(&config, &issue) != TCONV_SUCCESS)
        text(writer, "error", issue.message);
    close_group(writer, '}');
}

tconv_status tconv_system_info(tconv_text_format format, char *text_out, size_t capacity, size_t *length)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    struct writer writer = {format, {text_out, capacity, 0}, 0, {true}};
    if (format != TCONV_TEXT_PLAIN && format != TCONV_TEXT_JSON) {
        tconv_fail(&found, TCONV_ERROR_INVALID_ARGUMENT, "format", "format = %d: must be plain (0) or json (1)",
                   (int)format);
        return tconv_report(&found, NULL);
    }
    if (text_out == NULL && capacity > 0) {
        tconv_fail(&found, TCONV_ERROR_INVALID_ARGUMENT, "text", "text = NULL: must point to %zu bytes", capacity);
        return tconv_report(&found, NULL);
    }
    if (capacity > 0)
        text_out[0] = '\0';
    if (format == TCONV_TEXT_JSON)
        tconv_text_append(&writer.out, "{");
    write_build(&writer);
    write_cpu(&writer);
    write_cuda(&writer);
    write_environment(&writer);
    if (format == TCONV_TEXT_JSON)
        tconv_text_append(&writer.out, "\n}\n");
    if (length != NULL)
        *length = writer.out.length;
    return TCONV_SUCCESS;
}
