/*
 * Plans made beside a thread that changes the environment: a program that calls setenv while another thread of its own
 * makes plans is wrong only if the library reads the environment then, and reading it once, early, is what it promises.
 * Here the plans begin after the first one, as in a program that made one before it started its threads.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "attack_layer.h"

#define ROUNDS  20000
#define SECONDS 30

static atomic_bool done;

/* Adds variables without end, so that the environment moves and old copies are freed. */
static void *change_environment(void *unused)
{
    char name[32];
    for (long i = 0; !atomic_load(&done); i++) {
        snprintf(name, sizeof name, "ATTACK_%ld", i % 500);
        if (i / 500 % 2 == 0)
            setenv(name, "a value that is somewhat longer than the last", 1);
        else
            unsetenv(name);
    }
    return unused;
}

static int make_plans(void *unused)
{
    (void)unused;
    static attack_layer layer;
    pthread_t thread;
    attack_layer_init(&layer, ATTACK_SMALL);
    attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, NULL, "before");
    if (pthread_create(&thread, NULL, change_environment, NULL) != 0)
        return EXIT_FAILURE;
    for (int i = 0; i < ROUNDS; i++) {
        tconv_plan *plan = NULL;
        tconv_issue issue = {TCONV_SUCCESS, "", ""};
        tconv_status status = tconv_plan_create(&layer.desc, NULL, &plan, &issue);
        EXPECT(status == TCONV_SUCCESS, "beside setenv: %s", issue.message);
        tconv_plan_destroy(plan);
    }
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    return attack_end();
}

int main(void)
{
    attack_expect_success(attack_fork(make_plans, NULL, SECONDS), "plans beside setenv");
    return attack_end();
}
