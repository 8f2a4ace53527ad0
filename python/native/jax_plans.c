/*
 * The plans of the layers that a process has seen, by their words and places. Nothing falls out but by tconv_jax_forget: XLA keeps a
 * compiled program for each such layer, which is larger by far.
 */
#include "jax_shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256 };

tconv_jax_library tconv_jax;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static planned *buckets[BUCKETS];

/* FNV-1a over the words; the places of a layer share a bucket. */
static planned **bucket_of(const int64_t layer[LAYER_WORDS])
{
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < LAYER_WORDS; i++)
        hash = (hash ^ (uint64_t)layer[i]) * 1099511628211u;
    return &buckets[(hash >> 32) % BUCKETS];
}

static bool is_same(place a, place b)
{
    return a.backend == b.backend && a.device == b.device && a.ordinal == b.ordinal;
}

/* The plan of a layer with one more user, or NULL. The caller holds the mutex. */
static planned *find(const int64_t layer[LAYER_WORDS], place where)
{
    for (planned *entry = *bucket_of(layer); entry != NULL; entry = entry->next)
        if (is_same(entry->where, where) && memcmp(entry->layer, layer, sizeof entry->layer) == 0) {
            entry->users++;
            return entry;
        }
    return NULL;
}

bool read_words(const int64_t *words, int64_t count, int64_t layer[LAYER_WORDS])
{
    if (count != LAYER_WORDS && count != WORDS_OF_TWO_AXES)
        return false;
    for (int i = 0; i < LAYER_WORDS; i++)
        layer[i] = i < count ? words[i] : i <= WORD_DILATION_D;
    return true;
}

static void fill_desc(const int64_t layer[LAYER_WORDS], tconv_desc *desc)
{
    desc->op = (tconv_op)layer[WORD_OP];
    desc->dtype = (tconv_dtype)layer[WORD_DTYPE];
    desc->layout = (tconv_layout)layer[WORD_LAYOUT];
    desc->weight_layout = (tconv_weight_layout)layer[WORD_WEIGHT_LAYOUT];
    desc->batch = layer[WORD_BATCH];
    desc->in_channels = layer[WORD_IN_CHANNELS];
    desc->in_h = layer[WORD_IN_H];
    desc->in_w = layer[WORD_IN_W];
    desc->out_channels = layer[WORD_OUT_CHANNELS];
    desc->kernel_h = layer[WORD_KERNEL_H];
    desc->kernel_w = layer[WORD_KERNEL_W];
    desc->stride_h = layer[WORD_STRIDE_H];
    desc->stride_w = layer[WORD_STRIDE_W];
    desc->pad_top = layer[WORD_PAD_TOP];
    desc->pad_left = layer[WORD_PAD_LEFT];
    desc->pad_bottom = layer[WORD_PAD_BOTTOM];
    desc->pad_right = layer[WORD_PAD_RIGHT];
    desc->output_padding_h = layer[WORD_OUTPUT_PADDING_H];
    desc->output_padding_w = layer[WORD_OUTPUT_PADDING_W];
    desc->dilation_h = layer[WORD_DILATION_H];
    desc->dilation_w = layer[WORD_DILATION_W];
    desc->in_d = layer[WORD_IN_D];
    desc->kernel_d = layer[WORD_KERNEL_D];
    desc->stride_d = layer[WORD_STRIDE_D];
    desc->dilation_d = layer[WORD_DILATION_D];
    desc->pad_front = layer[WORD_PAD_FRONT];
    desc->pad_back = layer[WORD_PAD_BACK];
    desc->output_padding_d = layer[WORD_OUTPUT_PADDING_D];
    desc->groups = layer[WORD_GROUPS];
    desc->math = (tconv_math)layer[WORD_MATH];
}

/* Plans a layer, for one user. */
static tconv_status make(const int64_t layer[LAYER_WORDS], place where, planned **made, tconv_issue *issue)
{
    planned *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        *issue = (tconv_issue){TCONV_ERROR_OUT_OF_MEMORY, "", "no memory for a plan"};
        return TCONV_ERROR_OUT_OF_MEMORY;
    }
    tconv_desc desc;
    tconv_options options;
    tconv_jax.desc_init_sized(&desc, sizeof desc);
    tconv_jax.options_init_sized(&options, sizeof options);
    fill_desc(layer, &desc);
    options.backend = where.backend;
    if (where.backend == TCONV_BACKEND_CUDA)
        options.device = where.device;
    else
        options.parallel.parallel_for = run_on_pool;
    tconv_status status = tconv_jax.plan_create(&desc, &options, &entry->plan, issue);
    if (status != TCONV_SUCCESS) {
        free(entry);
        return status;
    }
    int64_t dst[5];
    tconv_jax.output_shape3d(&desc, dst, NULL);
    tconv_jax.plan_workspace_size(entry->plan, &entry->workspace);
    entry->elements[0] = desc.batch * desc.in_channels * desc.in_d * desc.in_h * desc.in_w;
    entry->elements[1] =
        desc.in_channels * (desc.out_channels / desc.groups) * desc.kernel_d * desc.kernel_h * desc.kernel_w;
    entry->elements[2] = dst[0] * dst[1] * dst[2] * dst[3] * dst[4];
    memcpy(entry->layer, layer, sizeof entry->layer);
    entry->where = where;
    entry->users = 1;
    *made = entry;
    return TCONV_SUCCESS;
}

/* Takes one user away; whoever takes the last destroys. The caller holds the mutex. */
static void leave(planned *entry)
{
    if (--entry->users > 0)
        return;
    tconv_jax.plan_destroy(entry->plan);
    free(entry);
}

/* Where two threads have planned the same layer at once, both use the first thread's plan. */
tconv_status acquire_plan(const int64_t layer[LAYER_WORDS], place where, planned **found, tconv_issue *issue)
{
    pthread_mutex_lock(&mutex);
    *found = find(layer, where);
    pthread_mutex_unlock(&mutex);
    if (*found != NULL)
        return TCONV_SUCCESS;
    planned *made = NULL;
    tconv_status status = make(layer, where, &made, issue);
    if (status != TCONV_SUCCESS)
        return status;
    pthread_mutex_lock(&mutex);
    *found = find(layer, where);
    if (*found == NULL) {
        planned **bucket = bucket_of(layer);
        made->next = *bucket;
        made->users++; /* the table, beside the caller */
        *bucket = *found = made;
    } else {
        leave(made);
    }
    pthread_mutex_unlock(&mutex);
    return TCONV_SUCCESS;
}

void release_plan(planned *found)
{
    pthread_mutex_lock(&mutex);
    leave(found);
    pthread_mutex_unlock(&mutex);
}

void tconv_jax_bind(const tconv_jax_library *functions)
{
    tconv_jax = *functions;
}

tconv_status tconv_jax_workspace(const int64_t *words, int64_t count, int32_t backend, int32_t device, size_t *size,
                                 tconv_issue *issue)
{
    planned *found = NULL;
    int64_t layer[LAYER_WORDS];
    if (!read_words(words, count, layer)) {
        *issue = (tconv_issue){TCONV_ERROR_INVALID_ARGUMENT, "", "the words are those of no layer"};
        return TCONV_ERROR_INVALID_ARGUMENT;
    }
    const place where = {(tconv_backend)backend, device, 0};
    tconv_status status = acquire_plan(layer, where, &found, issue);
    if (status != TCONV_SUCCESS)
        return status;
    *size = found->workspace;
    release_plan(found);
    return TCONV_SUCCESS;
}

void tconv_jax_forget(void)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < BUCKETS; i++)
        while (buckets[i] != NULL) {
            planned *entry = buckets[i];
            buckets[i] = entry->next;
            leave(entry);
        }
    pthread_mutex_unlock(&mutex);
}
