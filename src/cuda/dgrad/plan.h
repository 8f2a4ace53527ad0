/* The plan of a layer: the inner forward layer, what computes it, the chunks that it comes in, and how its operands are
 * made. */
#ifndef TCONV_CUDA_DGRAD_PLAN_H
#define TCONV_CUDA_DGRAD_PLAN_H

#include "../../core/impl.h"
#include "../hardware.h"
#include "../igemm/transpose_src.h"
#include "../inner/inner.h"
#include "parameters.h"

/* What the inner layer's src is. In a description: src=as_it_lies; in_place, for STRIDED and STRIDED_BY_CHUNKS;
 * transposed; planes. */
typedef enum dgrad_source {
    NATIVE,            /* the gradient of dst itself, as one plane */
    STRIDED,           /* the same, whose planes are the phases of the inner layer's src */
    STRIDED_BY_CHUNKS, /* likewise, a chunk of images at a time, so that cuda_igemm may transpose it */
    TRANSPOSED,        /* likewise, of images larger than a chunk, whose rows and columns are transposed before */
    REARRANGED         /* planes that were made of it, as channels: space-to-depth */
} dgrad_source;

enum { MAX_PHASES = 16 }; /* of an axis whose planes are phases: as many as cuda_igemm takes */

typedef struct dgrad_plan {
    dgrad_source source;
    tconv_cuda_planes rows, columns;
    bool one_pixel; /* STRIDED: all outputs of an image are channels of one pixel, as are their weights */
    bool
        to_depth; /* STRIDED: columns a stride apart are pixels, those between are their channels, as are their weights */

    /* What is computed at a time. The last chunk of each kind begins so that it ends with the layer: it computes some
     * elements once more instead of having another shape. */
    int64_t images, chunk_rows, chunk_columns; /* rows and columns of the gradient of src */
    int64_t image_chunks, row_chunks, column_chunks;

    /* The channels that are summed may come in parts, or strided the planes and the taps of one, which are channel groups
     * of the inner layer: more tiles for few outputs. Their sums lie in the workspace and are added. */
    int64_t parts;
    bool of_planes; /* parts are of planes */

    depth_shape depth;       /* without addresses and what differs between chunks; REARRANGED alone */
    weight_shape weights;    /* without addresses */
    sum_shape sums;          /* without addresses; of several parts alone */
    src_transpose transpose; /* without addresses and what differs between chunks; TRANSPOSED alone */

    tconv_phase row_phases[MAX_PHASES], column_phases[MAX_PHASES]; /* the inner layer's phase tables have these */
    /* The inner layer's weights are the layer's own, read from the last tap backwards: this many elements behind the first. */
    bool reads_backwards;
    int64_t last_tap;
    /* How many bytes the inner layer's weights take where they are derived; they lie behind what is packed of them. Else 0. */
    int64_t weights_bytes;
    int64_t depth_bytes; /* of a chunk's planes, where the scratch begins */
    int64_t sums_bytes;  /* of a chunk's partial sums, behind the planes; the inner layer's scratch follows */
    tconv_inner_plan inner;
    _Alignas(16) unsigned char inner_bytes[TCONV_CUDA_MAX_INNER_PLAN];
} dgrad_plan;

static inline bool is_strided(const dgrad_plan *plan)
{
    return plan->source == STRIDED || plan->source == STRIDED_BY_CHUNKS || plan->source == TRANSPOSED;
}

/* Returns whether the inner layer has weights that are derived before they are packed. */
static inline bool derives_weights(const dgrad_plan *plan)
{
    return !is_strided(plan) && !plan->reads_backwards;
}

static inline int64_t chunks_of(const dgrad_plan *plan)
{
    return plan->image_chunks * plan->row_chunks * plan->column_chunks;
}

/* Returns the scratch of a chunk before the inner layer's. */
static inline int64_t scratch_before(const dgrad_plan *plan)
{
    return plan->depth_bytes + plan->sums_bytes;
}

/* Returns the elements of a vector. */
static inline int64_t vector_of(const tconv_problem *problem)
{
    return VECTOR_BYTES / (int64_t)problem->element_size;
}

/* Returns the outputs that so many inputs of an axis reach, and those between. */
static inline int64_t window_of(const tconv_cuda_planes *planes, int64_t inputs)
{
    return (inputs - 1) * planes->stride + (planes->kernel - 1) * planes->dilation + 1;
}

/* Returns the elements of a row of planes: where taps are neighbours each row begins at a vector; else planes are read
 * as one row, and those begin at one (derived.c). */
int64_t tconv_dgrad_row_elements(const tconv_problem *problem, const dgrad_plan *plan);

/* Describes the inner layer of a chunk of so many channels, and how its operands are made; false where that is too much
 * (derived.c). */
bool tconv_dgrad_describe_inner(const tconv_layer *layer, int64_t channels, dgrad_plan *plan);

/* Has the chosen implementation read the layer's weights backwards, instead of derived ones, where it can or has one tap
 * (derived.c). */
void tconv_dgrad_read_backwards(const tconv_problem *problem, dgrad_plan *plan);

/* Makes pixels of columns a stride apart, on each of several planes; false where those between are no channels, or some are
 * outside (depth.c). */
bool tconv_dgrad_columns_to_depth(const tconv_layer *layer, tconv_layer *deep);

/* Returns whether TMA brings pixels of no more than 64 bytes, half of what it does at a time (depth.c). */
bool tconv_dgrad_has_short_pixels(const tconv_problem *problem);

/* Plans a layer. Returns the reason why it is not taken, else NULL (plan.c). */
const char *tconv_dgrad_make_plan(const tconv_layer *layer, double limit, dgrad_plan *plan, tconv_cuda_work *work);

#endif
