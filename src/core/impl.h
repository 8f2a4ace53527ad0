/*
 * The interface of an implementation. Each backend has a list of its implementations, best first
 * (src/dispatch/impl_list.c finds them); adding one is a struct of this kind and a line of the list.
 *
 * A tconv_plan has each implementation of its operation and backend plan the layer, takes one of them, and keeps what
 * that one decided; pack and execute are then called any number of times with it. Every function may be called from
 * several threads at once and keeps no state but what was planned.
 */
#ifndef TCONV_CORE_IMPL_H
#define TCONV_CORE_IMPL_H

#include <stdint.h>

#include "config.h"
#include "dtype.h"
#include "phases.h"
#include "problem.h"
#include "status.h"
#include "tconv/tconv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes that a target has for what a backend knows of its machine. Each backend asserts that they are enough. */
enum { TCONV_MACHINE_BYTES = 64 };

/* The machine as a plan may use it, resolved once from options, environment and hardware. */
typedef struct tconv_target {
    tconv_backend backend; /* CPU or CUDA */
    tconv_math math;       /* STRICT or TF32 */
    /* The machine as the backend knows it: bytes that only the backend's own functions write and read. They may be
     * copied with the target. */
    uint64_t machine[TCONV_MACHINE_BYTES / sizeof(uint64_t)];
} tconv_target;

/* Everything that an implementation may read while it works. */
typedef struct tconv_layer {
    tconv_problem problem;
    tconv_phase_table rows, columns; /* phase tables of problem.h and problem.w */
    tconv_target target;
    bool packed_before; /* the plan is to hold the weights packed; else each call packs them */
    /* The layer is the gradient of src, seen as another layer: the phases are those of src, not of dst. Tap t of a
     * phase adds src[stride * (q + first_shift - t * shift_step) + residue] to dst[q], and dst is the sum over all
     * phases. */
    bool phases_of_src;
    /* The rows of dst are those of several planes, one under the other, and the kernel rows those of several kernel planes
     * (core/volume.h): the phases of rows are those of each plane, whose residues go on from plane to plane. Each has one tap,
     * which reads the row of the output's number. */
    bool stacked_rows;
    int64_t group_weights; /* with phases_of_src, elements from the weights of a channel group to those of the next */
} tconv_layer;

/* The memory that execute needs beside the tensors. Both blocks lie where the plan runs, aligned to TCONV_ALIGNMENT
 * or to more, where the backend says so. */
typedef struct tconv_memory_sizes {
    size_t packed;  /* the packed weights */
    size_t scratch; /* everything else, all threads together */
    /* Whether execute packs the weights itself, while it prepares other data, where the plan does not hold them
     * packed. */
    bool execute_packs;
    /* With that, whether it then packs nothing, and reads the weights where they lie: no workspace is for them. */
    bool reads_unpacked;
} tconv_memory_sizes;

/* What a call of a stream's plan has beside its tensors (stream.h). The arrays lie where the plan runs; NULL stands for what
 * tconv_step says. On the CPU slots are checked before; on CUDA they are not, and an image whose slot is none of the carry's
 * has no part. */
typedef struct tconv_step_arguments {
    /* The layer of this call: its batch, the length of its chunk (the streamed axis' `in`; with `flushes` there is no
     * input), its strides. The plan's own layer has the largest of each. */
    const tconv_problem *problem;
    void *carry;        /* [slots][out_channels][rows][columns], problem->carry_dtype; NULL where there is no tail */
    int64_t slot_count; /* slots of the carry */
    const int32_t *slots;
    const uint8_t *reset, *active;
} tconv_step_arguments;

/* The pointers of one execute. The tensors have the names of their roles in every operation (operation.h): a gradient has
 * its tensor's. What the operation reads is not written. They are checked before: none that it needs is NULL, and dtype
 * and location are the plan's; one without a part in the operation is NULL. */
typedef struct tconv_arguments {
    void *src;
    const void *packed; /* the weights, made by pack, in this execute's workspace or once for the plan */
    void *bias;         /* NULL: there is none */
    void *dst;
    void *scratch;
    void *stream; /* the caller's stream, where the backend has streams; else NULL */
    /* Whether the same call just had pack write packed on the stream, with nothing queued since. */
    bool packs;
    /* Where the operation writes them, the gradient of the weights. Where it reads them, NULL: packed holds them; but with
     * execute_packs the weights for execute to pack into packed, or to read. */
    void *weights;
    const void *post[TCONV_MAX_POST_OPS]; /* operands of the layer's post-ops; NULL where a kind has none */
    const tconv_step_arguments *step;     /* of a stream; else NULL */
} tconv_arguments;

/* What one execute is predicted to take. The parts are seconds as if nothing else took time; they overlap, so that the
 * total is less than their sum. All 0: there is no prediction. */
typedef struct tconv_prediction {
    double seconds; /* the total */
    double launch;  /* launches, and passes before the kernel */
    double dram;
    double l2;
    double shared;
    double products;
    double issue; /* the longer chain of instructions: of warps that multiply, of warps that load */
    double wait;  /* for buffers */
    double store;
    /* Not a part: what plans are compared less, for packing the weights in each call, which this one does not. */
    double saved;
} tconv_prediction;

/* What plans are compared by: the least is taken. */
static inline double tconv_compared_seconds(const tconv_prediction *prediction)
{
    return prediction->seconds - prediction->saved;
}

/* What planning a layer found, beside the plan itself. */
typedef struct tconv_planned {
    tconv_memory_sizes sizes;
    /* Of the implementations with a prediction the fastest is taken (tconv_compared_seconds); one without, where it comes
     * first in the list. */
    tconv_prediction prediction;
    /* The backend's cost model leaves here what the prediction is made of, in the cost model's own type; NULL:
     * nowhere. Set by the caller. */
    void *work;
    /* Seconds: a plan that is compared by no less is of no use, and the implementation may decline (TCONV_NO_FASTER). 0:
     * there is no such limit. Set by the caller. */
    double limit;
    /* The caller names this implementation: it is to take every layer that it can, also those which others are for. Set by
     * the caller. */
    bool named;
} tconv_planned;

#define TCONV_NO_FASTER "another is predicted to take no longer"

typedef struct tconv_implementation {
    const char *name; /* "cpu_phases": backend, underscore, algorithm */
    tconv_backend backend;
    /* The accepted dtypes, as a set of TCONV_DTYPE_BIT. The functions below are never called with another one. */
    unsigned dtypes;
    size_t plan_bytes; /* of what plan writes, at least 1; aligned as malloc aligns */
    /*
     * Decides how to compute the layer: writes that to made, plan_bytes of zeros that keep their place until the plan
     * dies, and the rest to planned, zeros but for `work`. What it decides may depend on nothing but the layer: on no
     * device and on no address. Fails with UNSUPPORTED, and why as the issue's message (tconv_decline), where it does
     * not take the layer; with OVERFLOW where a size overflows. What it accepts it never refuses later.
     */
    tconv_status (*plan)(const tconv_layer *layer, void *made, tconv_planned *planned, tconv_issue *issue);
    /* Packs the weights into packed (sizes.packed bytes), on stream where the backend has streams. */
    tconv_status (*pack)(const tconv_layer *layer, const void *made, const void *weights, void *packed, void *stream,
                         tconv_issue *issue);
    /* Computes what the operation writes (operation.h), or with desc.accumulate adds it, before rounding. The batch is at
     * least 1 where that is src or dst. Searches nothing, asks the machine nothing and allocates nothing. Where the
     * backend has streams, the work is queued on arguments->stream, and execute does not wait for it. */
    tconv_status (*execute)(const tconv_layer *layer, const void *made, const tconv_arguments *arguments,
                            tconv_issue *issue);
    /* Writes what was decided as "key=value key=value", for people: tiles, stages and kernels in the words of the
     * implementation's headers; cut to capacity bytes with the closing 0. NULL: there is nothing to say. */
    void (*describe)(const tconv_layer *layer, const void *made, char *text, size_t capacity);
    /* Whether it can add to what the outputs hold (desc.accumulate). Where not, the functions above are never called with
     * a layer that does. */
    bool accumulates;
    /* Whether it takes outputs through the layer's post-ops (desc.post). Where not, the same. */
    bool applies_posts;
    /* Whether it takes layers with channels of several planes (tconv_plane_taps), or with depth. Where not, the same. */
    bool sums_planes;
    /* Whether it takes layers whose images are of several volumes (tconv_image_volumes). Where not, the same. */
    bool takes_volumes;
    /* Whether it takes layers whose rows are those of several planes (tconv_layer.stacked_rows). Where not, the same. */
    bool stacks_rows;
    /* Whether it computes streams (stream.h), whose execute is given arguments->step. An implementation that takes no
       other layers declines those. */
    bool streams;
    /* Of a stream: whether its bits do not depend on chunks, batch and slots. NULL: they may. */
    bool (*chunk_invariant)(const tconv_layer *layer, const void *made);
    /* Whether each image gets the bits that this implementation's plan of that image alone gives it. NULL: it may not. */
    bool (*batch_invariant)(const tconv_layer *layer, const void *made);
} tconv_implementation;

/* Whether a plan says so. */
static inline bool tconv_is_batch_invariant(const tconv_implementation *implementation, const tconv_layer *layer,
                                            const void *made)
{
    return implementation->batch_invariant != NULL && implementation->batch_invariant(layer, made);
}

/* The batch_invariant of implementations whose order of summation never depends on the number of images. */
static inline bool tconv_always_batch_invariant(const tconv_layer *layer, const void *made)
{
    (void)layer, (void)made;
    return true;
}

/* Returns what is said of a stream's bits, with a space before; "" where the layer is none. */
static inline const char *tconv_chunk_invariance(const tconv_implementation *implementation, const tconv_layer *layer,
                                                 const void *made)
{
    if (layer->problem.desc.stream_axis == 0)
        return "";
    return implementation->chunk_invariant != NULL && implementation->chunk_invariant(layer, made)
               ? " chunk_invariant=yes"
               : " chunk_invariant=no";
}

/* Returns the layer of one image of a layer, whose phases it shares. Extents of tensors are those of all images. */
static inline tconv_layer tconv_layer_of_one_image(const tconv_layer *layer)
{
    tconv_layer one = *layer;
    one.problem.batch = one.problem.desc.batch = 1;
    return one;
}

/* Fails a plan: the layer is none that the implementation takes, and why. */
#define tconv_decline(issue, ...) tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "implementation", __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
