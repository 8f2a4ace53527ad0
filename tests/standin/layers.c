/* Layers: workloads, corners and random ones. */
#include "layers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads.h"

#define SEED        20261123
#define TEXT        STANDIN_LAYER_NAME
#define MOST_STRIDE 65536 /* of a stream */

struct list {
    standin_layer *items;
    size_t count, capacity;
    bool failed;
};

static void append(struct list *list, const char *name, const harness_layer *layer)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 1024 : 2 * list->capacity;
        standin_layer *grown = realloc(list->items, capacity * sizeof *grown);
        list->failed = list->failed || grown == NULL;
        if (grown == NULL)
            return;
        list->items = grown;
        list->capacity = capacity;
    }
    standin_layer *added = &list->items[list->count++];
    snprintf(added->name, sizeof added->name, "%s", name);
    added->layer = *layer;
}

/* Appends a layer; one of f32 twice, in both maths. */
static void append_maths(struct list *list, const char *name, harness_layer layer)
{
    layer.desc.math = TCONV_MATH_STRICT;
    append(list, name, &layer);
    layer.desc.math = TCONV_MATH_TF32;
    if (layer.desc.dtype == TCONV_F32)
        append(list, name, &layer);
}

static void append_workloads(struct list *list, const workload_list *workloads)
{
    for (size_t i = 0; i < workloads->count; i++)
        for (int form = 0; form < HARNESS_CORNER_FORMS; form++) {
            harness_layer layer = workloads->items[i].layer;
            layer.desc.dtype = (tconv_dtype)(form / 2);
            layer.desc.layout = (tconv_layout)(form % 2);
            append_maths(list, workloads->items[i].name, layer);
        }
}

/* Appends the first layers of the list again, every `step` of them, for another operation or to accumulate. */
static void append_again(struct list *list, size_t count, tconv_op op, int accumulate, size_t step)
{
    for (size_t i = 0; i < count && !list->failed; i += step) {
        standin_layer again = list->items[i];
        again.layer.desc.op = op;
        again.layer.desc.accumulate = accumulate;
        append(list, again.name, &again.layer);
    }
}

/* Appends layers of the forward operation again with post-ops, with an addend and with as many as there may be in turn. */
static void append_with_posts(struct list *list, size_t count, size_t step)
{
    static const tconv_post_op posts[] = {
        {TCONV_POST_MUL_CHANNEL, 0, 0, 0}, {TCONV_POST_ADD_CHANNEL, 0, 0, 0}, {TCONV_POST_ADD_TENSOR, 0, 1, 0},
        {TCONV_POST_SNAKE, 0, 0, 0},       {TCONV_POST_LINEAR, 0, 2, 1},      {TCONV_POST_CLAMP, 0, -1, 1},
        {TCONV_POST_LEAKY_RELU, 0, 0, 0},  {TCONV_POST_GELU, 0, 0, 0},
    };
    for (size_t i = 0; i < count && !list->failed; i += step) {
        standin_layer again = list->items[i];
        tconv_desc *desc = &again.layer.desc;
        desc->post_count = 1 + (int32_t)(i / step) % TCONV_MAX_POST_OPS;
        memcpy(desc->post, posts, (size_t)desc->post_count * sizeof posts[0]);
        desc->accumulate = i / step % 3 == 2;
        append(list, again.name, &again.layer);
    }
}

/* Appends layers of the forward operation again as streams of rows or columns, a third of them with post-ops: what a
 * stream may not have is taken away. */
static void append_as_streams(struct list *list, size_t count, size_t step)
{
    for (size_t i = 0; i < count && !list->failed; i += step) {
        standin_layer again = list->items[i];
        tconv_desc *desc = &again.layer.desc;
        if (desc->stride_h > MOST_STRIDE || desc->stride_w > MOST_STRIDE)
            continue; /* a step would give terabytes */
        desc->stream_axis = 1 + (int32_t)(i / step % 2);
        if (desc->stream_axis == 1)
            desc->pad_top = desc->pad_bottom = desc->output_padding_h = 0;
        else
            desc->pad_left = desc->pad_right = desc->output_padding_w = 0;
        if (desc->dtype != TCONV_F32 && desc->dtype != TCONV_F64 && i / step % 5 == 0)
            desc->carry_dtype = desc->dtype;
        if (i / step % 3 == 0) {
            desc->post_count = 2;
            desc->post[0].kind = TCONV_POST_ADD_TENSOR, desc->post[0].alpha = 1;
            desc->post[1].kind = TCONV_POST_SNAKE;
        }
        harness_drop_depth(desc);
        harness_make_dense(desc);
        append(list, again.name, &again.layer);
    }
}

size_t standin_list_layers(const char *const *files, size_t file_count, standin_layer **layers)
{
    struct list list = {0};
    workload_list workloads = {0};
    harness_random random;
    char text[TEXT];
    if (workloads_parse(workloads_default, strlen(workloads_default), &workloads, text, sizeof text) != 0)
        list.failed = true;
    append_workloads(&list, &workloads);
    for (size_t i = 0; i < harness_corner_count(); i++) {
        harness_layer layer;
        const char *name = harness_corner(i, &layer);
        append_maths(&list, name, layer);
    }
    harness_random_seed(&random, SEED);
    for (int i = 0; i < STANDIN_RANDOM; i++) {
        harness_layer layer;
        harness_random_layer(&random, &layer);
        snprintf(text, sizeof text, "random %d", i);
        append(&list, text, &layer);
    }
    workloads_release(&workloads);
    for (size_t i = 0; i < file_count; i++) {
        workload_list more = {0};
        if (workloads_read(files[i], &more, text, sizeof text) != 0) {
            fprintf(stderr, "%s: %s\n", files[i], text);
            list.failed = true;
        }
        append_workloads(&list, &more);
        workloads_release(&more);
    }
    const size_t count = list.count;
    append_again(&list, count, TCONV_BACKWARD_DATA, 0, 1);
    append_again(&list, count, TCONV_BACKWARD_WEIGHTS, 0, 2);
    for (int op = TCONV_FORWARD; op <= TCONV_BACKWARD_WEIGHTS; op++)
        append_again(&list, count, (tconv_op)op, 1, 7);
    append_with_posts(&list, count, 7);
    append_as_streams(&list, count, 11);
    if (list.failed) {
        free(list.items);
        list.items = NULL;
        list.count = 0;
    }
    *layers = list.items;
    return list.count;
}
