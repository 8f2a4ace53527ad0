/* The environment variables, parsed in one place. */
#ifndef TCONV_CORE_CONFIG_H
#define TCONV_CORE_CONFIG_H

#include <stdbool.h>

#include "tconv/tconv.h"

/* What the blocking of the CPU's algorithms is tuned for, beside caches and vectors (cpu/machine/tuning.h). */
typedef enum tconv_cpu_tuning {
    TCONV_CPU_TUNING_DETECTED, /* as the processor is */
    TCONV_CPU_TUNING_COMMON,
    TCONV_CPU_TUNING_XEON
} tconv_cpu_tuning;

typedef struct tconv_config {
    tconv_backend backend;       /* AUTO where TCONV_BACKEND is not set */
    tconv_cpu_isa cpu_isa;       /* DEFAULT where TCONV_CPU_ISA is not set */
    tconv_cpu_tuning cpu_tuning; /* DETECTED where TCONV_CPU_TUNING is not set */
    int32_t threads;             /* 0 where TCONV_NUM_THREADS is not set */
    tconv_math math;             /* DEFAULT where TCONV_MATH is not set */
    int32_t verbose;             /* 0 where TCONV_VERBOSE is not set */
} tconv_config;

#define TCONV_MAX_THREADS 65536 /* the most threads that TCONV_NUM_THREADS and options.threads accept */

/* Bytes of a variable's value as text, with the closing 0. A longer value, which is never good, is cut. */
#define TCONV_CONFIG_VALUE_SIZE 64

/* Gets the configuration that the environment asks for. The environment is read by the first call and by
 * tconv_environment_reload. A bad value of any variable is an error. An empty value counts as none. */
tconv_status tconv_config_get(tconv_config *config, tconv_issue *issue);

/* Gets the name of the index-th variable and its value as it was read, for tconv_system_info; returns false past the
 * end. */
bool tconv_config_variable(size_t index, const char **name, char value[TCONV_CONFIG_VALUE_SIZE]);

#endif
