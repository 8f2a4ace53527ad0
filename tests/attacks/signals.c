/*
 * A storm of signals: a timer that fires a thousand times a second, its handler without SA_RESTART, so that system calls
 * are broken off (EINTR). Plans are made, in a cold process too, weights packed and layers executed under it; every result
 * has the right bits, and nothing fails.
 */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "attack_layer.h"

#define PERIOD_US 1000
#define ROUNDS    60
#define SECONDS   30

static atomic_long signals;

static void count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&signals, 1);
}

static void set_timer(long microseconds)
{
    const struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static int storm(void *threads)
{
    static attack_layer layer;
    static char text[1 << 16];
    struct sigaction action;
    tconv_options options;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_signal;
    sigaction(SIGALRM, &action, NULL);
    attack_layer_init(&layer, ATTACK_LARGE);
    set_timer(PERIOD_US);
    tconv_options_init(&options);
    options.threads = *(const int *)threads;
    for (int i = 0; i < ROUNDS; i++) {
        attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, &options, "in a storm of signals");
        EXPECT(tconv_system_info(TCONV_TEXT_JSON, text, sizeof text, NULL) == TCONV_SUCCESS, "system_info fails");
    }
    set_timer(0);
    EXPECT(atomic_load(&signals) > 0, "no signal came");
    return attack_end();
}

int main(void)
{
    int one = 1, three = 3;
    attack_expect_success(attack_fork(storm, &one, SECONDS), "a storm of signals, one thread");
    attack_expect_success(attack_fork(storm, &three, SECONDS), "a storm of signals, three threads");
    return attack_end();
}
