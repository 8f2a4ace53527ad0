/* Layers: workloads, corners and random ones. */
#include "layers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads.h"

#define SEED       20261123
#define TEXT       STANDIN_LAYER_NAME
#define WILD_BITS  20 /* of the largest extents, but for now and then one */
#define WIDER_BITS 40

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
    if (list.failed) {
        free(list.items);
        list.items = NULL;
        list.count = 0;
    }
    *layers = list.items;
    return list.count;
}

/* ---------------------------------------------------------------------------------------------------------- wild
 * layers */

/* Numbers of few bits as often as those of many. */
static int64_t draw(harness_random *random, int bits)
{
    const int64_t below = (int64_t)1 << harness_random_integer(random, 0, bits);
    return harness_random_integer(random, 1, below);
}

static int64_t draw_padding(harness_random *random, int64_t kernel, int64_t dilation)
{
    const int64_t most = dilation * (kernel - 1);
    return harness_random_chance(random, 50) ? 0 : harness_random_integer(random, 0, most < 64 ? most : 64);
}

void standin_draw_wild(harness_random *random, harness_layer *layer)
{
    tconv_desc *desc = &layer->desc;
    const int bits = harness_random_chance(random, 5) ? WIDER_BITS : WILD_BITS;
    tconv_desc_init(desc);
    desc->groups = harness_random_chance(random, 70) ? 1 : draw(random, 10);
    desc->batch = draw(random, harness_random_chance(random, 80) ? 6 : bits);
    desc->in_channels = desc->groups * draw(random, harness_random_chance(random, 80) ? 10 : bits);
    desc->out_channels = desc->groups * draw(random, harness_random_chance(random, 80) ? 10 : bits);
    desc->in_h = draw(random, harness_random_chance(random, 80) ? 8 : bits);
    desc->in_w = draw(random, harness_random_chance(random, 80) ? 10 : bits);
    desc->kernel_h = draw(random, harness_random_chance(random, 90) ? 4 : 10);
    desc->kernel_w = draw(random, harness_random_chance(random, 90) ? 4 : 10);
    desc->stride_h = draw(random, harness_random_chance(random, 90) ? 3 : 10);
    desc->stride_w = draw(random, harness_random_chance(random, 90) ? 3 : 10);
    desc->dilation_h = draw(random, harness_random_chance(random, 90) ? 1 : 8);
    desc->dilation_w = draw(random, harness_random_chance(random, 90) ? 1 : 8);
    desc->pad_top = draw_padding(random, desc->kernel_h, desc->dilation_h);
    desc->pad_bottom = draw_padding(random, desc->kernel_h, desc->dilation_h);
    desc->pad_left = draw_padding(random, desc->kernel_w, desc->dilation_w);
    desc->pad_right = draw_padding(random, desc->kernel_w, desc->dilation_w);
    desc->dtype = (tconv_dtype)harness_random_integer(random, 0, 3);
    desc->layout = (tconv_layout)harness_random_integer(random, 0, 1);
    desc->weight_layout = (tconv_weight_layout)harness_random_integer(random, 0, 2);
    desc->math = harness_random_chance(random, 50) ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    layer->has_bias = harness_random_chance(random, 50);
    desc->op = harness_random_chance(random, 50) ? TCONV_FORWARD : (tconv_op)harness_random_integer(random, 1, 2);
    desc->accumulate = harness_random_chance(random, 20);
}
