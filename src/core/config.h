/* The environment variables, parsed in one place. */
#ifndef TCONV_CORE_CONFIG_H
#define TCONV_CORE_CONFIG_H

#include "tconv/tconv.h"

typedef struct tconv_config {
    tconv_backend backend; /* AUTO where TCONV_BACKEND is not set */
    tconv_cpu_isa cpu_isa; /* DEFAULT where TCONV_CPU_ISA is not set */
    int32_t threads;       /* 0 where TCONV_NUM_THREADS is not set */
    tconv_math math;       /* DEFAULT where TCONV_MATH is not set */
    int32_t verbose;       /* 0 where TCONV_VERBOSE is not set */
} tconv_config;

#define TCONV_MAX_THREADS 65536 /* what TCONV_NUM_THREADS and options.threads accept at most */

/* Reads all variables; a bad value of any is an error. An empty value is as good as none. */
tconv_status tconv_config_read(tconv_config *config, tconv_issue *issue);

/* The names of the variables, for tconv_system_info; NULL past the end. */
const char *tconv_config_variable(size_t index);

#endif
