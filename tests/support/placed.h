/* A case on a CUDA device with a plan that forces a way, for a test to execute; and the layers for such tests. */
#ifndef TCONV_TESTS_PLACED_H
#define TCONV_TESTS_PLACED_H

#include "ways.h"

struct placed {
    harness_case test; /* the way's case; its memory belongs to the case that was placed */
    const struct way *way;
    tconv_plan *plan, *packed; /* plans of the same layer, without and with packed weights */
    unsigned char *memory[6];  /* src, weights, bias (or NULL), dst, workspace, src once more: on the device, owned */
    harness_output first;      /* the output of the first run */
};

/* Puts the case on a device, runs it there and checks some of its pixels, the current device being left as it is. False
 * where the way does not take the layer. */
bool place_way(struct placed *placed, const harness_case *test, const struct way *way, int device);
void placed_release(struct placed *placed);

/* Executes on stream, with packed weights or without; anything but success fails the test. */
void placed_execute(const struct placed *placed, bool packed, void *stream);

/* Makes all of dst and of the workspace NaN, on stream. */
void placed_clear(const struct placed *placed, void *stream);

/* Makes all of src NaN on stream, or restores it. */
void placed_spoil_src(const struct placed *placed, void *stream);
void placed_mend_src(const struct placed *placed, void *stream);

/* Waits for stream; the test fails unless dst has the bits of the first run. */
void placed_expect_same_bits(const struct placed *placed, void *stream, const char *what);

/* Layers of every kind that implementations are made for, each in eight forms: four dtypes, two layouts. */
#define PLACED_LAYERS 8
#define PLACED_FORMS  8
harness_case make_placed_case(size_t index, int form);

/* Prints on stderr how many layers each way took: one that took none has not been tested. */
void say_taken(const struct way *ways, const size_t *taken, size_t way_count);

#endif
