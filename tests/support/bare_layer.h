/* Layers given to an implementation itself, below the API, so that a test says how large the machine's caches are. */
#ifndef TCONV_TESTS_BARE_LAYER_H
#define TCONV_TESTS_BARE_LAYER_H

#include "../../src/core/impl.h"

/* How a layer is to be planned: with a second-level cache of so many bytes (0: the machine's), up to so many threads, for
 * weights that lie so. */
struct bare_target {
    tconv_cpu_isa isa;
    size_t cache;
    int threads;
    tconv_weight_layout weights;
};

/* The layer of a problem as `tconv bench` takes it; the test fails where there is none. Whether it has a bias. */
bool bare_layer_make(tconv_layer *layer, const char *problem, tconv_dtype dtype, tconv_layout layout,
                     const struct bare_target *target);
void bare_layer_release(tconv_layer *layer);

/* What tconv_plan_create asks of an implementation before its memory; decisions made before go. */
tconv_status bare_layer_decide(tconv_layer *layer, const tconv_implementation *implementation, tconv_issue *issue);

/* The elements of one run; bias may be NULL. */
struct bare_tensors {
    const void *src, *weights, *bias;
    void *dst;
};

/* Packs and executes; packed weights and scratch hold NaN before. */
void bare_layer_run(tconv_layer *layer, const tconv_implementation *implementation, const struct bare_tensors *tensors);

#endif
