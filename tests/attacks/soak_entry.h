/* One plan of the soak: a random layer, bound in a random way, with the bits of its first execution. */
#ifndef TCONV_ATTACKS_SOAK_ENTRY_H
#define TCONV_ATTACKS_SOAK_ENTRY_H

#include <stdatomic.h>

#include "harness.h"

/* Counts what the library takes from the caller's allocator. */
typedef struct soak_allocator {
    atomic_long live, calls; /* blocks not given back; calls of allocate */
    tconv_allocator functions;
} soak_allocator;
void soak_allocator_init(soak_allocator *allocator);

/* A tensor where the plan runs. */
typedef struct soak_place {
    void *memory; /* on the device, owned; NULL on the host */
    tconv_tensor tensor;
} soak_place;

typedef struct soak_entry {
    harness_case test;
    tconv_options options;
    tconv_plan *plan;  /* the plan that executes, with packed weights or without */
    bool packed, cuda; /* packed: execute takes no weights */
    soak_place src, weights, bias;
    size_t workspace_size;
    uint64_t hash; /* hash of dst after the first execution */
} soak_entry;

/* The memory that one thread executes with; made once for each thread, grown as needed. */
typedef struct soak_room {
    void *stream;              /* NULL on the host */
    harness_buffer dst;        /* dst of the current entry */
    unsigned char *workspace;  /* on the host */
    size_t workspace_capacity; /* bytes of workspace */
} soak_room;
bool soak_room_init(soak_room *room, bool cuda);
void soak_room_empty(soak_room *room); /* frees the memory, which grew with the largest layer so far */
void soak_room_release(soak_room *room);

/* Draws a layer and a way to run it, makes the plan, executes it once, and compares that with the reference. On false,
 * failure says why; everything is released then. */
bool soak_entry_make(soak_entry *entry, bool cuda, harness_random *random, soak_allocator *allocator, soak_room *room,
                     harness_failure *failure);
void soak_entry_release(soak_entry *entry);

/* Executes the plan again, or the layer in one call, and compares the bits with those of the first time. */
bool soak_entry_repeat(const soak_entry *entry, bool one_call, soak_room *room, harness_failure *failure);

#endif
