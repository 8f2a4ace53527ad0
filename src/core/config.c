/* Each variable is one row of a table: what it is called, what it accepts, where its value goes. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

enum target { BACKEND, CPU_ISA, THREADS, MATH, VERBOSE };

static const struct variable {
    const char *name;
    enum target target;
    const char *accepts; /* for people */
    struct {
        const char *text;
        int value;
    } values[5];  /* the words that it accepts; none: a number */
    int32_t most; /* of a number, which is at least 1 */
} variables[] = {
    {"TCONV_BACKEND",
     BACKEND,
     "auto, cpu or cuda",
     {{"auto", TCONV_BACKEND_AUTO}, {"cpu", TCONV_BACKEND_CPU}, {"cuda", TCONV_BACKEND_CUDA}},
     0},
    {"TCONV_CPU_ISA",
     CPU_ISA,
     "generic, avx2, avx512 or neon",
     {{"generic", TCONV_CPU_ISA_GENERIC},
      {"avx2", TCONV_CPU_ISA_AVX2},
      {"avx512", TCONV_CPU_ISA_AVX512},
      {"neon", TCONV_CPU_ISA_NEON}},
     0},
    {"TCONV_NUM_THREADS", THREADS, "a whole number from 1 to 65536", {{NULL, 0}}, TCONV_MAX_THREADS},
    {"TCONV_MATH", MATH, "strict or tf32", {{"strict", TCONV_MATH_STRICT}, {"tf32", TCONV_MATH_TF32}}, 0},
    {"TCONV_VERBOSE", VERBOSE, "0, 1 or 2", {{"0", 0}, {"1", 1}, {"2", 2}}, 0},
};

#define VARIABLE_COUNT (sizeof variables / sizeof variables[0])

const char *tconv_config_variable(size_t index)
{
    return index < VARIABLE_COUNT ? variables[index].name : NULL;
}

/* The value that text stands for, or -1. */
static int parse(const struct variable *variable, const char *text)
{
    char *end;
    long number;
    if (variable->most == 0) {
        for (size_t i = 0; i < sizeof variable->values / sizeof variable->values[0]; i++)
            if (variable->values[i].text != NULL && strcmp(text, variable->values[i].text) == 0)
                return variable->values[i].value;
        return -1;
    }
    if (text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    number = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && number >= 1 && number <= variable->most ? (int)number : -1;
}

static void assign(tconv_config *config, enum target target, int value)
{
    switch (target) {
    case BACKEND: config->backend = (tconv_backend)value; break;
    case CPU_ISA: config->cpu_isa = (tconv_cpu_isa)value; break;
    case THREADS: config->threads = value; break;
    case MATH: config->math = (tconv_math)value; break;
    case VERBOSE: config->verbose = value; break;
    }
}

tconv_status tconv_config_read(tconv_config *config, tconv_issue *issue)
{
    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        const char *text = getenv(variables[i].name);
        if (text == NULL || text[0] == '\0')
            continue;
        int value = parse(&variables[i], text);
        if (value < 0)
            return tconv_fail(issue, TCONV_ERROR_ENVIRONMENT, variables[i].name, "%s = %.60s: must be %s",
                              variables[i].name, text, variables[i].accepts);
        assign(config, variables[i].target, value);
    }
    return TCONV_SUCCESS;
}
