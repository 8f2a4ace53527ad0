/*
 * Each environment variable is one row of a table: its name, the values it accepts and the field its value goes to.
 *
 * getenv is called once for the process, and again only when the caller asks for a reload: setenv in another thread
 * races with getenv, and the library cannot see that. (The CPU backend asks for variables of OpenMP and hwloc, once,
 * when it reads the machine.) The values are kept under a mutex. As long as all of them are good, plans read one atomic
 * word that holds the whole configuration, so that neither a reload nor a fork while another thread holds the mutex
 * blocks them.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

enum target { BACKEND, CPU_ISA, CPU_TUNING, THREADS, MATH, VERBOSE };

static const struct variable {
    const char *name;
    enum target target;
    const char *accepts; /* the accepted values as an error message lists them */
    struct {
        const char *text;
        int value;
    } values[6];  /* the accepted words; none: a number */
    int32_t most; /* the largest number, where a number is accepted; the smallest is 1 */
} variables[] = {
    {"TCONV_BACKEND",
     BACKEND,
     "auto, cpu or cuda",
     {{"auto", TCONV_BACKEND_AUTO}, {"cpu", TCONV_BACKEND_CPU}, {"cuda", TCONV_BACKEND_CUDA}},
     0},
    {"TCONV_CPU_ISA",
     CPU_ISA,
     "generic, avx2, avx512, neon, avx512_bf16 or amx",
     {{"generic", TCONV_CPU_ISA_GENERIC},
      {"avx2", TCONV_CPU_ISA_AVX2},
      {"avx512", TCONV_CPU_ISA_AVX512},
      {"neon", TCONV_CPU_ISA_NEON},
      {"avx512_bf16", TCONV_CPU_ISA_AVX512_BF16},
      {"amx", TCONV_CPU_ISA_AMX}},
     0},
    {"TCONV_CPU_TUNING",
     CPU_TUNING,
     "auto, common or xeon",
     {{"auto", TCONV_CPU_TUNING_DETECTED}, {"common", TCONV_CPU_TUNING_COMMON}, {"xeon", TCONV_CPU_TUNING_XEON}},
     0},
    {"TCONV_NUM_THREADS", THREADS, "a whole number from 1 to 65536", {{NULL, 0}}, TCONV_MAX_THREADS},
    {"TCONV_MATH", MATH, "strict or tf32", {{"strict", TCONV_MATH_STRICT}, {"tf32", TCONV_MATH_TF32}}, 0},
    {"TCONV_VERBOSE", VERBOSE, "0, 1 or 2", {{"0", 0}, {"1", 1}, {"2", 2}}, 0},
};

#define VARIABLE_COUNT (sizeof variables / sizeof variables[0])

/* Returns the value that text stands for, or -1. */
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
    case CPU_TUNING: config->cpu_tuning = (tconv_cpu_tuning)value; break;
    case THREADS: config->threads = value; break;
    case MATH: config->math = (tconv_math)value; break;
    case VERBOSE: config->verbose = value; break;
    }
}

/* The environment as it was read last. */
static struct {
    pthread_mutex_t mutex;
    bool is_read;
    tconv_config config;
    tconv_issue issue; /* a success where all values are good */
    char values[VARIABLE_COUNT][TCONV_CONFIG_VALUE_SIZE];
} environment = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The configuration packed into one word; 0 until it is read and where a value is bad. */
static _Atomic uint64_t good_config;

static uint64_t pack(const tconv_config *config)
{
    return (uint64_t)1 | (uint64_t)config->backend << 8 | (uint64_t)config->cpu_tuning << 12 |
           (uint64_t)config->cpu_isa << 16 | (uint64_t)config->math << 24 | (uint64_t)config->verbose << 28 |
           (uint64_t)config->threads << 32;
}

static tconv_config unpack(uint64_t word)
{
    return (tconv_config){
        .backend = (tconv_backend)(word >> 8 & 0xf),
        .cpu_tuning = (tconv_cpu_tuning)(word >> 12 & 0xf),
        .cpu_isa = (tconv_cpu_isa)(word >> 16 & 0xff),
        .threads = (int32_t)(word >> 32),
        .math = (tconv_math)(word >> 24 & 0xf),
        .verbose = (int32_t)(word >> 28 & 0xf),
    };
}

/* Reads all variables into environment, whose mutex is held. */
static void read_environment(void)
{
    memset(&environment.config, 0, sizeof environment.config);
    tconv_issue_clear(&environment.issue);
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        const char *text = getenv(variables[i].name);
        snprintf(environment.values[i], sizeof environment.values[i], "%s", text != NULL ? text : "");
        if (text == NULL || text[0] == '\0')
            continue;
        int value = parse(&variables[i], text);
        if (value >= 0)
            assign(&environment.config, variables[i].target, value);
        else if (environment.issue.status == TCONV_SUCCESS) /* only the first bad value is reported */
            tconv_fail(&environment.issue, TCONV_ERROR_ENVIRONMENT, variables[i].name, "%s = %.60s: must be %s",
                       variables[i].name, text, variables[i].accepts);
    }
    environment.is_read = true;
    atomic_store(&good_config, environment.issue.status == TCONV_SUCCESS ? pack(&environment.config) : 0);
}

tconv_status tconv_config_get(tconv_config *config, tconv_issue *issue)
{
    const uint64_t word = atomic_load(&good_config);
    if (word != 0) {
        *config = unpack(word);
        return TCONV_SUCCESS;
    }
    pthread_mutex_lock(&environment.mutex);
    if (!environment.is_read)
        read_environment();
    *config = environment.config;
    const tconv_status status = environment.issue.status;
    if (status != TCONV_SUCCESS)
        *issue = environment.issue;
    pthread_mutex_unlock(&environment.mutex);
    return status;
}

tconv_status tconv_environment_reload(tconv_issue *issue)
{
    pthread_mutex_lock(&environment.mutex);
    read_environment();
    const tconv_issue found = environment.issue;
    pthread_mutex_unlock(&environment.mutex);
    return tconv_report(&found, issue);
}

bool tconv_config_variable(size_t index, const char **name, char value[TCONV_CONFIG_VALUE_SIZE])
{
    if (index >= VARIABLE_COUNT)
        return false;
    *name = variables[index].name;
    pthread_mutex_lock(&environment.mutex);
    if (!environment.is_read)
        read_environment();
    memcpy(value, environment.values[index], TCONV_CONFIG_VALUE_SIZE);
    pthread_mutex_unlock(&environment.mutex);
    return true;
}
