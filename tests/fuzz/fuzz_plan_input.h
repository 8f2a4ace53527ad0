/* What fuzz_plan makes of bytes: a layer, options, and how it is run. */
#ifndef TCONV_TESTS_FUZZ_PLAN_INPUT_H
#define TCONV_TESTS_FUZZ_PLAN_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tconv/tconv.h"

struct input {
    tconv_desc desc;
    tconv_options options;
    bool has_bias, packs, by_callback;
    int offset; /* bytes of the workspace from an aligned address */
};

/* Every number of bytes is an input: those that are missing are 0. */
struct input input_read(const uint8_t *data, size_t size);

/* Writes the input as text, cut at capacity. */
void input_write(const struct input *input, char *text, size_t capacity);

#endif
