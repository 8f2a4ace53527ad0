/*
 * A parallel loop on XLA's pool of threads.
 *
 * The calling thread may be one of the pool's, and all others may be busy or wait for loops of their own. So the calling
 * thread takes shares of its loop itself until none is left, and waits only for shares that another thread has begun;
 * these wait for nobody. What is scheduled takes shares too, or comes late, finds none and only frees its part of the
 * loop's memory.
 */
#include "jax_shim.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct loop {
    void (*task)(void *argument, int32_t index);
    void *argument;
    int32_t count;
    atomic_int next;   /* share to be taken */
    atomic_int done;   /* shares that have returned */
    atomic_int owners; /* the calling thread and what is scheduled: whoever comes last frees the loop */
    pthread_mutex_t mutex;
    pthread_cond_t all_done;
} loop;

/* Looks at whether a loop is done before its thread sleeps: shares are about equal, so that the last one ends soon. About
 * 20 us, which is what waking a thread takes. */
enum { LOOKS = 1000 };

static _Thread_local const XLA_FFI_Api *pool_api;
static _Thread_local XLA_FFI_ExecutionContext *pool_context;

void use_pool(const XLA_FFI_Api *api, XLA_FFI_ExecutionContext *context)
{
    pool_api = api;
    pool_context = context;
}

static inline void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void leave(loop *work)
{
    if (atomic_fetch_sub(&work->owners, 1) > 1)
        return;
    pthread_cond_destroy(&work->all_done);
    pthread_mutex_destroy(&work->mutex);
    free(work);
}

static void take_shares(loop *work)
{
    for (int32_t i = atomic_fetch_add(&work->next, 1); i < work->count; i = atomic_fetch_add(&work->next, 1)) {
        work->task(work->argument, i);
        if (atomic_fetch_add(&work->done, 1) + 1 == work->count) {
            pthread_mutex_lock(&work->mutex);
            pthread_cond_signal(&work->all_done);
            pthread_mutex_unlock(&work->mutex);
        }
    }
}

static void help(void *data)
{
    take_shares(data);
    leave(data);
}

static void wait_for_shares(loop *work)
{
    for (int look = 0; look < LOOKS; look++) {
        if (atomic_load(&work->done) == work->count)
            return;
        pause_core();
    }
    pthread_mutex_lock(&work->mutex);
    while (atomic_load(&work->done) < work->count)
        pthread_cond_wait(&work->all_done, &work->mutex);
    pthread_mutex_unlock(&work->mutex);
}

/* Asks the pool for one more thread. Without a pool the calling thread is left alone. */
static bool schedule(loop *work)
{
    XLA_FFI_ThreadPool_Schedule_Args arguments = {
        .struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, .ctx = pool_context, .task = help, .data = work};
    atomic_fetch_add(&work->owners, 1);
    XLA_FFI_Error *error = pool_api->XLA_FFI_ThreadPool_Schedule(&arguments);
    if (error == NULL)
        return true;
    XLA_FFI_Error_Destroy_Args destroy = {.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, .error = error};
    pool_api->XLA_FFI_Error_Destroy(&destroy);
    atomic_fetch_sub(&work->owners, 1);
    return false;
}

static loop *new_loop(int32_t count, void (*task)(void *, int32_t), void *argument)
{
    loop *work = calloc(1, sizeof *work);
    if (work == NULL)
        return NULL;
    if (pthread_mutex_init(&work->mutex, NULL) != 0) {
        free(work);
        return NULL;
    }
    if (pthread_cond_init(&work->all_done, NULL) != 0) {
        pthread_mutex_destroy(&work->mutex);
        free(work);
        return NULL;
    }
    work->task = task;
    work->argument = argument;
    work->count = count;
    atomic_init(&work->owners, 1);
    return work;
}

void run_on_pool(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    (void)context;
    loop *work = pool_api != NULL && count > 1 ? new_loop(count, task, argument) : NULL;
    if (work == NULL) {
        for (int32_t i = 0; i < count; i++)
            task(argument, i);
        return;
    }
    for (int32_t helpers = 1; helpers < count && schedule(work); helpers++)
        ;
    take_shares(work);
    wait_for_shares(work);
    leave(work);
}
