#include "hold.h"

#include <time.h>

static void CUDART_CB wait_for_flag(void *argument)
{
    struct hold *hold = argument;
    const struct timespec millisecond = {0, 1000000};
    for (int i = 0; i < HOLD_SECONDS * 1000; i++) {
        if (atomic_load(&hold->let_go))
            return;
        nanosleep(&millisecond, NULL);
    }
    atomic_store(&hold->gave_up, true);
}

void hold_init(struct hold *hold)
{
    atomic_init(&hold->let_go, false);
    atomic_init(&hold->gave_up, false);
}

void hold_up(struct hold *hold, cudaStream_t stream)
{
    expect_cuda(cudaLaunchHostFunc(stream, wait_for_flag, hold));
}

void let_go(struct hold *hold)
{
    atomic_store(&hold->let_go, true);
}

bool hold_gave_up(const struct hold *hold)
{
    return atomic_load(&hold->gave_up);
}
