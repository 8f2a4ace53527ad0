/* Layers for calling an implementation directly, below the API, on a machine that the test describes: its caches and its
 * tuning are never those of the machine at hand, so that a choice is the same everywhere. */
#ifndef TCONV_TESTS_BARE_LAYER_H
#define TCONV_TESTS_BARE_LAYER_H

#include "../../src/core/impl.h"

/* The target of a plan: an instruction set (a cap; DEFAULT is the best that runs here, for tests of which it decides nothing), a
 * second-level cache of this many bytes (0: BARE_L2_BYTES), this many threads (at least 1), and the layout of the weights. The
 * other caches are BARE_L1_BYTES and BARE_L3_BYTES, and the tuning is COMMON; a test that judges what they decide sets them in
 * layer->target, and the instruction set too where it judges plans that do not run. */
struct bare_target {
    tconv_cpu_isa isa;
    size_t cache;
    int threads;
    tconv_weight_layout weights;
};

/* The caches of a core of a Zen 4. */
enum { BARE_L1_BYTES = 32 << 10, BARE_L2_BYTES = 1 << 20, BARE_L3_BYTES = 32 << 20 };

/* Makes the layer of a problem as `tconv bench` takes it; the test fails where there is none. Returns whether it has a
 * bias. */
bool bare_layer_make(tconv_layer *layer, const char *problem, tconv_dtype dtype, tconv_layout layout,
                     const struct bare_target *target);
void bare_layer_release(tconv_layer *layer);

/* Has the implementation plan the layer, as tconv_plan_create does where options name it. *made is to be freed by `free`;
 * NULL on failure. */
tconv_status bare_layer_plan(const tconv_layer *layer, const tconv_implementation *implementation, void **made,
                             tconv_memory_sizes *sizes, tconv_issue *issue);

/* Whether the implementation takes the layer; if not, issue (may be NULL) has why. */
bool bare_layer_is_taken(const tconv_layer *layer, const tconv_implementation *implementation, tconv_issue *issue);

/* The tensors of one run; bias may be NULL. */
struct bare_tensors {
    void *src, *weights, *bias, *dst;
};

/* Packs, where the implementation reads weights, and executes; packed weights and scratch hold NaN before. */
void bare_layer_run(const tconv_layer *layer, const tconv_implementation *implementation,
                    const struct bare_tensors *tensors);

#endif
