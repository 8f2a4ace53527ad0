/* Runs tasks of layers with one input channel a group. */
#ifndef TCONV_CPU_PHASES_STENCIL_H
#define TCONV_CPU_PHASES_STENCIL_H

#include "task.h"

/* Runs a task of a plan with stencil, all but its bias-only outputs. next: see tconv_cpu_begin_prefetch. */
void tconv_cpu_run_stencil(tconv_cpu_task *task, const tconv_cpu_task *next);

#endif
