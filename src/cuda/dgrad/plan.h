/* The plan of a layer: the derived forward layer, what computes it, the chunks that it comes in, and how its operands are
 * made. */
#ifndef TCONV_CUDA_DGRAD_PLAN_H
#define TCONV_CUDA_DGRAD_PLAN_H

#include "../../core/impl.h"
#include "../igemm/transpose_src.h"
#include "../implementations.h"
#include "../model/work.h"
#include "parameters.h"

namespace tconv::dgrad
{

/* What the derived layer's src is: the gradient of dst itself, as one plane; or with planes that are the phases of the
 * derived layer's src, also a chunk at a time, so that it can be transposed; likewise, but of images that are larger
 * than a chunk, whose rows and columns are transposed before; or planes that were made of it. */
enum source { AS_IT_LIES, IN_PLACE, IN_PLACE_BY_CHUNKS, TRANSPOSED, SPLIT };

constexpr int MAX_PHASES = 16; /* of an axis, IN_PLACE: as many as cuda_igemm takes */
constexpr tconv_axis ONE_PIXEL = {1, 1, 1, 1, 1, 0, 0};
constexpr int64_t ALIGNMENT = 256; /* bytes, of each part of the memory */

struct plan {
    dgrad::source source;
    tconv_cuda_planes rows, columns;
    bool one_pixel; /* IN_PLACE: all outputs of an image are channels of one pixel, as are their weights */

    /* What is computed at a time. The last chunk of each kind begins so that it ends with the layer: it computes some
     * elements once more instead of having another shape. */
    int64_t images, chunk_rows, chunk_columns; /* rows and columns of the gradient of src */
    int64_t image_chunks, row_chunks, column_chunks;

    /* The channels that are summed may come in parts, which are channel groups of the derived layer: more tiles for few
     * outputs. Their sums lie in the workspace and are added. */
    int64_t parts;

    depth_shape depth;              /* without addresses and what differs between chunks; SPLIT alone */
    weight_shape weights;           /* without addresses */
    sum_shape sums;                 /* without addresses; of several parts alone */
    igemm::src_transpose transpose; /* without addresses and what differs between chunks; TRANSPOSED alone */

    tconv_layer derived;                                           /* of a chunk */
    tconv_phase row_phases[MAX_PHASES], column_phases[MAX_PHASES]; /* its phase tables' */
    const tconv_implementation *by;                                /* what computes it */
    tconv_memory_sizes sizes;                                      /* that this needs */
    int64_t packed_bytes;                                      /* of what it packs; the derived weights lie behind */
    int64_t weights_bytes;                                     /* of these */
    int64_t depth_bytes;                                       /* of a chunk's planes */
    int64_t sums_bytes;                                        /* of a chunk's partial sums */
    alignas(16) unsigned char made[TCONV_CUDA_MAX_INNER_PLAN]; /* the plan of `by` */
};

inline bool is_in_place(const plan *made)
{
    return made->source == IN_PLACE || made->source == IN_PLACE_BY_CHUNKS || made->source == TRANSPOSED;
}

inline int64_t chunks_of(const plan *made)
{
    return made->image_chunks * made->row_chunks * made->column_chunks;
}

/* The scratch of a chunk before that of `by`. */
inline int64_t scratch_before(const plan *made)
{
    return made->depth_bytes + made->sums_bytes;
}

/* derived.cu. The elements of a vector; of a row of planes: where taps are neighbours each row begins at a vector; else
 * planes are read as one row, and those begin at one. */
int64_t vector_of(const tconv_problem *problem);
int64_t row_elements_of(const tconv_problem *problem, const plan *made);

/* Outputs that so many inputs of an axis reach, and those between. */
inline int64_t window_of(const tconv_cuda_planes *of, int64_t inputs)
{
    return (inputs - 1) * of->stride + (of->kernel - 1) * of->dilation + 1;
}

/* derived.cu. Describes the derived layer of a chunk of so many channels, and how its operands are made; false where that
 * is too much. */
bool describe_derived(const tconv_layer *layer, int64_t channels, plan *made);

/* Plans a layer. Returns the reason why it is not taken, else NULL. */
const char *make_plan(const tconv_layer *layer, double limit, plan *made, tconv_cuda_work *work);

} // namespace tconv::dgrad

#endif
