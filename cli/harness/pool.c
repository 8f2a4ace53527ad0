/* A pool of threads. Workers wait until the number of the call changes, run their indices and count themselves off. */
#include "pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct worker {
    struct harness_pool *pool;
    int number;
    pthread_t thread;
} worker;

struct harness_pool {
    pthread_mutex_t turn; /* held by the caller of parallel_for */
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t begins, ends;
    void (*task)(void *argument, int32_t index);
    void *argument;
    int32_t count;
    long call; /* number of the call */
    int busy;  /* number of workers that still run */
    bool over;
    int threads, made;
    worker workers[]; /* all threads but the caller's */
};

static void run_indexes(const harness_pool *pool, int number)
{
    for (int32_t index = number; index < pool->count; index += pool->threads)
        pool->task(pool->argument, index);
}

static void *work(void *argument)
{
    const worker *self = argument;
    harness_pool *pool = self->pool;
    pthread_mutex_lock(&pool->lock);
    for (long seen = 0;;) {
        while (pool->call == seen && !pool->over)
            pthread_cond_wait(&pool->begins, &pool->lock);
        if (pool->over)
            break;
        seen = pool->call;
        pthread_mutex_unlock(&pool->lock);
        run_indexes(pool, self->number);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0)
            pthread_cond_signal(&pool->ends);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void run_parallel(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    harness_pool *pool = context;
    pthread_mutex_lock(&pool->turn);
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->argument = argument;
    pool->count = count;
    pool->busy = pool->made;
    pool->call++;
    pthread_cond_broadcast(&pool->begins);
    pthread_mutex_unlock(&pool->lock);
    run_indexes(pool, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->busy > 0)
        pthread_cond_wait(&pool->ends, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->turn);
}

harness_pool *harness_pool_create(int threads)
{
    harness_pool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof pool->workers[0]);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begins, NULL);
    pthread_cond_init(&pool->ends, NULL);
    pool->threads = threads;
    while (pool->made < threads - 1) {
        worker *next = &pool->workers[pool->made];
        *next = (worker){.pool = pool, .number = pool->made + 1};
        if (pthread_create(&next->thread, NULL, work, next) != 0) {
            harness_pool_destroy(pool);
            return NULL;
        }
        pool->made++;
    }
    return pool;
}

void harness_pool_destroy(harness_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->over = true;
    pthread_cond_broadcast(&pool->begins);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->made; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->begins);
    pthread_cond_destroy(&pool->ends);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->turn);
    free(pool);
}

tconv_parallel harness_pool_parallel(harness_pool *pool)
{
    return (tconv_parallel){run_parallel, pool};
}
