/*
 * Makes plans beside a thread that changes the environment. A program may do so only if the library does not read the
 * environment then; it reads it once, early. Here the plans begin after the first one, as in a program that made one
 * before it started its threads. The library calls this program's getenv, which counts calls, because a race does not
 * show on every machine.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attack_layer.h"

#define ROUNDS    20000
#define VARIABLES 100
#define SECONDS   30

static atomic_bool done;
static atomic_long asked;

char *getenv(const char *name)
{
    size_t length = strlen(name);
    atomic_fetch_add(&asked, 1);
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=')
            return *variable + length + 1;
    return NULL;
}

/* Adds variables and clears all without end, so that the array of the environment moves and is freed, over and over. */
static void *change_environment(void *unused)
{
    char name[32];
    for (long i = 0; !atomic_load(&done); i++) {
        snprintf(name, sizeof name, "ATTACK_%ld", i % VARIABLES);
        setenv(name, "a value that is somewhat longer than the last", 1);
        if (i % VARIABLES == VARIABLES - 1)
            clearenv();
    }
    return unused;
}

static int make_plans(void *unused)
{
    (void)unused;
    static attack_layer layer, large;
    pthread_t thread;
    attack_layer_init(&layer, ATTACK_SMALL);
    attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, NULL, "before");
    EXPECT(atomic_load(&asked) > 0, "the library does not ask this program's getenv");
    atomic_store(&asked, 0);
    if (pthread_create(&thread, NULL, change_environment, NULL) != 0)
        return EXIT_FAILURE;
    for (int i = 0; i < ROUNDS; i++) {
        tconv_plan *plan = NULL;
        tconv_issue issue = {TCONV_SUCCESS, "", ""};
        tconv_options options; /* every other plan with more threads than there can be */
        tconv_options_init(&options);
        options.threads = i % 2 * 10000;
        tconv_status status = tconv_plan_create(&layer.desc, &options, &plan, &issue);
        EXPECT(status == TCONV_SUCCESS, "beside setenv: %s", issue.message);
        tconv_plan_destroy(plan);
    }
    attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, NULL, "beside setenv");
    attack_layer_init(&large, ATTACK_LARGE); /* the first layer that is worth OpenMP's threads */
    attack_layer_expect_right(&large, &ATTACK_LINKED_LIBRARY, NULL, "on several threads beside setenv");
    atomic_store(&done, true);
    pthread_join(thread, NULL);
    EXPECT(atomic_load(&asked) == 0, "the environment was read %ld times after the first plan", atomic_load(&asked));
    return attack_end();
}

int main(void)
{
    attack_expect_success(attack_fork(make_plans, NULL, SECONDS), "plans beside setenv");
    return attack_end();
}
