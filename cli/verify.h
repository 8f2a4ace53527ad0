/* What the ways of `tconv verify` share: the request, and what this machine and the library take. */
#ifndef TCONV_CLI_VERIFY_H
#define TCONV_CLI_VERIFY_H

#include "harness.h"
#include "options.h"

#define VERIFY_MAX_FAILURES 10 /* verify stops after that many */

/* The values of --backend. */
enum { VERIFY_WHAT_IS_HERE, VERIFY_ONLY_CPU, VERIFY_ONLY_CUDA, VERIFY_ALL_BACKENDS };

/* The values of --op: those of tconv_op, and all of them. */
enum { VERIFY_ALL_OPERATIONS = TCONV_BACKWARD_WEIGHTS + 1 };

typedef struct verify_request {
    int backend;
    int op; /* a tconv_op or VERIFY_ALL_OPERATIONS */
    bool no_corners, by_class;
    cli_posts posts;
    int64_t layers;  /* negative: no limit */
    int64_t seconds; /* 0: no limit */
    uint64_t seed;
    cli_execution execution;
    cli_option *options;
    size_t option_count;
    bool cpu, cuda; /* the backends that are asked for and here: verify_find_backends sets them */
} verify_request;

/* Makes a plan of the smallest layer on the CPU, to see whether op, isa and implementation (NULL: any) are accepted. */
tconv_status verify_probe(tconv_op op, tconv_cpu_isa isa, const char *implementation, tconv_plan **plan,
                          tconv_issue *issue);

/* Whether a CPU plan capped at isa uses isa: false where the machine lacks it or is of another architecture. */
bool verify_machine_has(tconv_cpu_isa isa);

bool verify_is_cuda(const char *implementation);

/* Whether the operation has the implementation. */
bool verify_has_operation(tconv_op op, const char *implementation);

/* Finds the backends; says why CUDA is not tried. Returns -1 to go on, else the exit code. */
int verify_find_backends(verify_request *asked);

/* Says which instruction sets of this architecture were not tried, because the machine has none of them. */
void verify_print_isas_left_out(void);

/* Gives a forward layer the post-ops of --post; without that option, one random layer in VERIFY_POST_EVERY a random list.
 * An addend is a slice in half of the layers. */
#define VERIFY_POST_EVERY 4
void verify_give_posts(const verify_request *asked, bool is_random_layer, harness_random *random, tconv_desc *desc);

/* Prints " --post LIST" where that option was given, for a command that replays a layer. */
void verify_print_posts(const verify_request *asked);

/* Verifies layers that are drawn by class. Returns the exit code. */
int verify_by_class(const verify_request *asked);

#endif
