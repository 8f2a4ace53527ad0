/* The worker sleeps until there is a loop; the worker and the caller take indices until none is left. */
#include "caller_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

static struct {
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping, busy; /* busy: the worker has a loop that it has not finished */
    long calls;
    void (*task)(void *argument, int32_t index);
    void *argument;
    int32_t count;
    atomic_int next;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void take_indices(void)
{
    int index;
    while ((index = atomic_fetch_add(&pool.next, 1)) < pool.count)
        pool.task(pool.argument, index);
}

static void *work(void *unused)
{
    pthread_mutex_lock(&pool.lock);
    while (!pool.stopping) {
        if (!pool.busy) {
            pthread_cond_wait(&pool.changed, &pool.lock);
            continue;
        }
        pthread_mutex_unlock(&pool.lock);
        take_indices();
        pthread_mutex_lock(&pool.lock);
        pool.busy = false;
        pthread_cond_broadcast(&pool.changed);
    }
    pthread_mutex_unlock(&pool.lock);
    return unused;
}

static void parallel_for(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    (void)context;
    pthread_mutex_lock(&pool.lock);
    pool.task = task, pool.argument = argument, pool.count = count;
    atomic_store(&pool.next, 0);
    pool.busy = true;
    pool.calls++;
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.lock);
    take_indices();
    pthread_mutex_lock(&pool.lock);
    while (pool.busy)
        pthread_cond_wait(&pool.changed, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

bool caller_pool_start(void)
{
    pool.stopping = pool.busy = false;
    return pthread_create(&pool.worker, NULL, work, NULL) == 0;
}

void caller_pool_stop(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.stopping = true;
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.lock);
    pthread_join(pool.worker, NULL);
}

tconv_parallel caller_pool_functions(void)
{
    return (tconv_parallel){parallel_for, NULL};
}

long caller_pool_calls(void)
{
    return pool.calls;
}
