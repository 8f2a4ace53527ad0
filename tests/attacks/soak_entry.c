/* dst and the workspace are filled with 0xff before each execution, so that an element that is not written, or is read
 * too early, shows. */
#include "soak_entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CORNER_FLOPS 4e7 /* larger corners take the reference too long */
#define MOST_THREADS      4
#define OFFSET_BASIS      UINT64_C(14695981039346656037) /* of the FNV-1a hash */
#define PRIME             UINT64_C(1099511628211)

/* ----------------------------------------------------------------------------------------------------------- allocator */

static void *allocate(void *context, size_t size)
{
    soak_allocator *allocator = context;
    void *memory = malloc(size);
    atomic_fetch_add(&allocator->calls, 1);
    if (memory != NULL)
        atomic_fetch_add(&allocator->live, 1);
    return memory;
}

static void release(void *context, void *memory)
{
    soak_allocator *allocator = context;
    atomic_fetch_sub(&allocator->live, 1);
    free(memory);
}

void soak_allocator_init(soak_allocator *allocator)
{
    atomic_init(&allocator->live, 0);
    atomic_init(&allocator->calls, 0);
    allocator->functions = (tconv_allocator){allocate, release, allocator};
}

/* A pool of the caller's that is as unlike OpenMP as can be: one thread, backwards. */
static void backwards(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument)
{
    (void)context;
    while (count-- > 0)
        task(argument, count);
}

/* ---------------------------------------------------------------------------------------------------------------- room */

bool soak_room_init(soak_room *room, bool cuda)
{
    *room = (soak_room){0};
    return !cuda || (room->stream = harness_stream_create()) != NULL;
}

void soak_room_empty(soak_room *room)
{
    harness_buffer_release(&room->dst);
    free(room->workspace);
    room->workspace = NULL;
    room->workspace_capacity = 0;
}

void soak_room_release(soak_room *room)
{
    soak_room_empty(room);
    harness_stream_destroy(room->stream);
}

static bool say(harness_failure *failure, const soak_entry *entry, const char *what, const char *why)
{
    char layer[HARNESS_LAYER_TEXT];
    harness_layer_format(&entry->test.layer, layer, sizeof layer);
    snprintf(failure->text, sizeof failure->text, "%s: %.200s: %s", what, why, layer);
    return false;
}

static bool make_room(const soak_entry *entry, soak_room *room)
{
    if (room->workspace_capacity < entry->workspace_size) {
        free(room->workspace);
        room->workspace = malloc(entry->workspace_size);
        room->workspace_capacity = room->workspace != NULL ? entry->workspace_size : 0;
    }
    harness_buffer_release(&room->dst);
    room->dst =
        harness_buffer_create(entry->test.dst_view.extent, harness_element_size(entry->test.layer.desc.dtype), 0);
    return room->dst.memory != NULL && room->workspace_capacity >= entry->workspace_size;
}

/* Returns a hash of the whole buffer, so that a byte written beside the tensor changes it too. */
static uint64_t hash(const harness_buffer *buffer)
{
    uint64_t value = OFFSET_BASIS;
    for (size_t i = 0; i < buffer->bytes; i++)
        value = (value ^ buffer->memory[i]) * PRIME;
    return value;
}

/* ----------------------------------------------------------------------------------------------------------- executing */

static bool place(soak_place *where, const harness_buffer *host, const soak_entry *entry, void *stream)
{
    where->tensor = (tconv_tensor){host->data, entry->test.layer.desc.dtype,
                                   entry->cuda ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST};
    if (!entry->cuda || host->memory == NULL)
        return true;
    where->memory = harness_device_allocate(host->bytes);
    where->tensor.data = (unsigned char *)where->memory + host->offset;
    return where->memory != NULL && harness_device_copy(where->memory, host->memory, host->bytes, stream);
}

static bool execute_on_host(const soak_entry *entry, soak_room *room)
{
    tconv_tensor dst = {room->dst.data, entry->test.layer.desc.dtype, TCONV_LOCATION_HOST};
    if (entry->workspace_size > 0)
        memset(room->workspace, 0xff, entry->workspace_size);
    return tconv_plan_execute(entry->plan, &entry->src.tensor, entry->packed ? NULL : &entry->weights.tensor,
                              entry->test.layer.has_bias ? &entry->bias.tensor : NULL, &dst, room->workspace,
                              entry->workspace_size, NULL) == TCONV_SUCCESS;
}

static bool execute_on_device(const soak_entry *entry, soak_room *room)
{
    soak_place dst = {0};
    void *workspace = harness_device_allocate(entry->workspace_size);
    bool done = workspace != NULL && place(&dst, &room->dst, entry, room->stream) &&
                harness_device_fill(workspace, 0xff, entry->workspace_size, room->stream) &&
                tconv_plan_execute(entry->plan, &entry->src.tensor, entry->packed ? NULL : &entry->weights.tensor,
                                   entry->test.layer.has_bias ? &entry->bias.tensor : NULL, &dst.tensor, workspace,
                                   entry->workspace_size, room->stream) == TCONV_SUCCESS &&
                harness_device_copy(room->dst.memory, dst.memory, room->dst.bytes, room->stream);
    done = harness_stream_synchronize(room->stream) && done;
    harness_device_release(dst.memory);
    harness_device_release(workspace);
    return done;
}

static bool execute(const soak_entry *entry, soak_room *room, harness_failure *failure)
{
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    if (!make_room(entry, room))
        return say(failure, entry, "room", "no memory");
    if (entry->cuda ? execute_on_device(entry, room) : execute_on_host(entry, room))
        return true;
    tconv_last_issue(&issue);
    return say(failure, entry, "execute", issue.message[0] != '\0' ? issue.message : harness_device_error());
}

/* Executes a one-shot call on host tensors, which a layer that runs on CUDA stages. */
static bool execute_at_once(const soak_entry *entry, soak_room *room, harness_failure *failure)
{
    const harness_case *test = &entry->test;
    const tconv_dtype dtype = test->layer.desc.dtype;
    const tconv_tensor src = {test->src.data, dtype, TCONV_LOCATION_HOST};
    const tconv_tensor weights = {test->weights.data, dtype, TCONV_LOCATION_HOST};
    const tconv_tensor bias = {test->bias.data, dtype, TCONV_LOCATION_HOST};
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    if (!make_room(entry, room))
        return say(failure, entry, "room", "no memory");
    const tconv_tensor dst = {room->dst.data, dtype, TCONV_LOCATION_HOST};
    tconv_status status = tconv_conv_transpose2d(&test->layer.desc, &entry->options, &src, &weights,
                                                 test->layer.has_bias ? &bias : NULL, &dst, &issue);
    return status == TCONV_SUCCESS || say(failure, entry, "one call", issue.message);
}

static bool compare(const soak_entry *entry, soak_room *room, harness_failure *failure)
{
    harness_output output = {.dst = room->dst, .implementation = tconv_plan_implementation(entry->plan)};
    return harness_compare(&entry->test, &output, failure);
}

bool soak_entry_repeat(const soak_entry *entry, bool one_call, soak_room *room, harness_failure *failure)
{
    if (!(one_call ? execute_at_once(entry, room, failure) : execute(entry, room, failure)))
        return false;
    /* Staged tensors may have other alignments than ours; packed weights another implementation. */
    if (one_call && (entry->cuda || entry->packed))
        return compare(entry, room, failure);
    if (hash(&room->dst) == entry->hash)
        return true;
    return say(failure, entry, one_call ? "one call" : "execute", "other bits than the first time");
}

/* -------------------------------------------------------------------------------------------------------------- making */

static void draw_layer(harness_random *random, harness_layer *layer)
{
    if (harness_random_chance(random, 10)) {
        harness_corner((size_t)harness_random_integer(random, 0, (int64_t)harness_corner_count() - 1), layer);
        if (harness_layer_flops(&layer->desc) <= MOST_CORNER_FLOPS)
            return;
    }
    harness_random_layer(random, layer);
}

static void draw_options(soak_entry *entry, harness_random *random, soak_allocator *allocator)
{
    static const tconv_cpu_isa isas[] = {TCONV_CPU_ISA_DEFAULT, TCONV_CPU_ISA_DEFAULT, TCONV_CPU_ISA_GENERIC};
    size_t count = 0, chosen;
    tconv_options *options = &entry->options;
    tconv_options_init(options);
    options->backend = entry->cuda ? TCONV_BACKEND_CUDA : TCONV_BACKEND_CPU;
    options->threads = (int32_t)harness_random_integer(random, 1, MOST_THREADS);
    options->cpu_isa = isas[harness_random_integer(random, 0, 2)];
    options->allocator = allocator->functions;
    if (harness_random_chance(random, 25))
        options->parallel.parallel_for = backwards;
    while (tconv_implementation_name(count) != NULL)
        count++;
    chosen = (size_t)harness_random_integer(random, 0, (int64_t)count - 1);
    if (harness_random_chance(random, 40))
        options->implementation = tconv_implementation_name(chosen);
}

/* Makes the plan with the implementation that was drawn or, where that does not take the layer, with any. */
static bool make_plan(soak_entry *entry, harness_failure *failure)
{
    const tconv_desc *desc = &entry->test.layer.desc;
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    tconv_status status = tconv_plan_create(desc, &entry->options, &entry->plan, &issue);
    if (status != TCONV_SUCCESS && entry->options.implementation != NULL) {
        entry->options.implementation = NULL;
        status = tconv_plan_create(desc, &entry->options, &entry->plan, &issue);
    }
    return status == TCONV_SUCCESS || say(failure, entry, "plan_create", issue.message);
}

static bool pack(soak_entry *entry, soak_room *room, harness_failure *failure)
{
    tconv_plan *packed = NULL;
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    tconv_status status = tconv_plan_pack_weights(entry->plan, &entry->weights.tensor, room->stream, &packed, &issue);
    if (status != TCONV_SUCCESS || (entry->cuda && !harness_stream_synchronize(room->stream)))
        return say(failure, entry, "plan_pack_weights", issue.message);
    tconv_plan_destroy(entry->plan);
    entry->plan = packed;
    return true;
}

static bool make(soak_entry *entry, soak_room *room, harness_failure *failure)
{
    const harness_case *test = &entry->test;
    if (!make_plan(entry, failure))
        return false;
    if (!place(&entry->src, &test->src, entry, room->stream) ||
        !place(&entry->weights, &test->weights, entry, room->stream) ||
        !place(&entry->bias, &test->bias, entry, room->stream))
        return say(failure, entry, "tensors", harness_device_error());
    if (entry->packed && !pack(entry, room, failure))
        return false;
    if (tconv_plan_workspace_size(entry->plan, &entry->workspace_size) != TCONV_SUCCESS)
        return say(failure, entry, "plan_workspace_size", "fails");
    if (!execute(entry, room, failure))
        return false;
    entry->hash = hash(&room->dst);
    return compare(entry, room, failure);
}

bool soak_entry_make(soak_entry *entry, bool cuda, harness_random *random, soak_allocator *allocator, soak_room *room,
                     harness_failure *failure)
{
    harness_layer layer;
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    memset(entry, 0, sizeof *entry);
    draw_layer(random, &layer);
    entry->cuda = cuda;
    draw_options(entry, random, allocator);
    entry->packed = harness_random_chance(random, 50);
    harness_fill fill = harness_random_chance(random, 50) ? HARNESS_INTEGERS : HARNESS_REALS;
    uint64_t seed = harness_random_bits(random);
    if (harness_case_create(&entry->test, &layer, fill, seed, &issue) != TCONV_SUCCESS) {
        entry->test.layer = layer;
        return say(failure, entry, "case", issue.message);
    }
    if (make(entry, room, failure))
        return true;
    soak_entry_release(entry);
    return false;
}

void soak_entry_release(soak_entry *entry)
{
    tconv_plan_destroy(entry->plan);
    harness_device_release(entry->src.memory);
    harness_device_release(entry->weights.memory);
    harness_device_release(entry->bias.memory);
    harness_case_destroy(&entry->test);
    memset(entry, 0, sizeof *entry);
}
