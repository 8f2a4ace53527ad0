/* Runs a command once for every n, with the n-th allocation of its process failing, and reports each n whose run had a
 * bad end. */
#ifndef TCONV_ATTACKS_OOM_DRIVER_H
#define TCONV_ATTACKS_OOM_DRIVER_H

#include "attack.h"
#include "fail_malloc.h"

typedef struct oom_command {
    const char *name;             /* in reports */
    const char *const *arguments; /* the path first, NULL last */
    const char *preload;          /* the library of fail_malloc.c */
    enum fail_malloc_from from;   /* the moment from which allocations are counted */
    bool forever;                 /* every later allocation fails as well */
    bool may_keep;                /* memory that is still there at the end is no leak */
    /* Whether runs at the same time are in directories of their own, in the current one. */
    bool own_directory;
    int most_runs; /* more allocations are sampled evenly; 0: every one */
    int seconds;   /* for each run */
    /* NULL, or the reason why bad ends are reported but are no failures. */
    const char *only_report;
    /* Returns NULL where the end is a good one, else what is wrong. n is 0 for the run in which nothing fails. */
    const char *(*judge)(attack_outcome outcome, const char *output, long n);
} oom_command;

/* Expects that all runs ended well. Returns the number of allocations of the run in which nothing fails. */
long oom_attack(const oom_command *command);

#endif
