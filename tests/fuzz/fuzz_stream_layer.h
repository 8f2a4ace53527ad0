/* What fuzz_stream makes of bytes: the layer of streams, with its plans. */
#ifndef TCONV_TESTS_FUZZ_STREAM_LAYER_H
#define TCONV_TESTS_FUZZ_STREAM_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tconv/tconv.h"

enum { MOST_FRAMES = 64 }; /* of a stream, after which it begins anew */

struct reader {
    const uint8_t *data;
    size_t size;
};

/* Reads a byte, 0 where none is left. */
int64_t read_byte(struct reader *reader);

/* A layer, its plans, and what they read. */
struct layer {
    tconv_desc desc, whole; /* whole: of one image and all of its inputs */
    tconv_options options;
    tconv_plan *plan, *whole_plan;
    char *weights, *bias, *channels; /* bias: NULL for none; channels: operands of post-ops */
    bool packs, keeps_bits;
    int64_t offset;               /* bytes of the workspace from an aligned address */
    int64_t tail, carry_elements; /* of a slot */
    size_t size, carry_size;      /* bytes of an element */
    char text[1200];
};

/* Makes the layer and both plans; false for one that has no outputs, of which there is nothing to destroy. */
bool layer_make(struct layer *layer, struct reader *reader, uint64_t *random);
void layer_destroy(struct layer *layer);

void *exactly(size_t bytes);

/* Writes finite numbers of a dtype, none far from 1. */
void fill(uint64_t *random, tconv_dtype dtype, char *data, int64_t count);

#endif
