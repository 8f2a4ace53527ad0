/* Children forked before and after the parent executed; libgomp would wait for ever for threads that stayed behind. */
#include "attack_case.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 30 };

static void *run_in_thread(void *test)
{
    attack_run(test, 2);
    return NULL;
}

/* Runs the case twice in a child, and in a thread of it. */
/* NOLINTNEXTLINE(misc-no-recursion): a child's child too */
static void run_in_child(harness_case *test, const char *when, int depth)
{
    pthread_t thread;
    int status = 0;
    pid_t child = fork();
    require(child >= 0, "no process");
    if (child == 0) {
        alarm(SECONDS);
        attack_run(test, 2);
        attack_run(test, 2);
        require(pthread_create(&thread, NULL, run_in_thread, test) == 0, "no thread");
        require(pthread_join(thread, NULL) == 0, "not joined");
        if (depth > 0)
            run_in_child(test, when, depth - 1);
        _exit(0);
    }
    require(waitpid(child, &status, 0) == child, "not waited for");
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: status %#x", when, (unsigned)status);
}

int main(void)
{
    harness_case test = attack_case(ATTACK_PROBLEM);
    run_in_child(&test, "forked before", 1);
    attack_run(&test, 2);
    run_in_child(&test, "forked after", 1);
    attack_run(&test, 2);
    harness_case_destroy(&test);
    return 0;
}
