/*
 * Processes that fork. A child computes right where the parent has not used the library before, and, with one thread,
 * where it has. With more threads OpenMP may hang in a child whose parent has executed, as the header says; with the
 * caller's own threads, or one, it may not.
 */
#include "attack_layer.h"

#define SECONDS           10
#define SECONDS_OF_A_HANG 3 /* where one is likely */

static attack_layer layer;

static int compute(void *threads)
{
    tconv_options options;
    tconv_options_init(&options);
    options.threads = *(const int *)threads;
    attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, &options, "in the child");
    return attack_end();
}

int main(void)
{
    int one = 1, two = 2;
    attack_layer_init(&layer, ATTACK_LARGE);
    attack_expect_success(attack_fork(compute, &one, SECONDS), "fork before use, one thread");
    attack_expect_success(attack_fork(compute, &two, SECONDS), "fork before use, two threads");

    compute(&one);
    attack_expect_success(attack_fork(compute, &one, SECONDS), "fork after use with one thread, one thread");
    attack_expect_success(attack_fork(compute, &two, SECONDS), "fork after use with one thread, two threads");

    compute(&two);
    attack_expect_success(attack_fork(compute, &one, SECONDS), "fork after use with two threads, one thread");
    attack_outcome outcome = attack_fork(compute, &two, SECONDS_OF_A_HANG);
    EXPECT(outcome.timed_out || (outcome.signal == 0 && outcome.code == 0),
           "fork after use with two threads, two threads: %s", attack_outcome_text(outcome));
    attack_held(outcome.timed_out ? "two threads after a fork hang, as documented"
                                  : "two threads after a fork are right");
    attack_layer_release(&layer);
    return attack_end();
}
