/* The plan of a layer: the products as a layer of their own, the chunks that they come in, how outputs are gathered
 * from them. */
#ifndef TCONV_CUDA_GEMM_COL2IM_PLAN_H
#define TCONV_CUDA_GEMM_COL2IM_PLAN_H

#include "../inner/inner.h"
#include "direct.h"
#include "gather.h"

/* What is multiplied and gathered at a time. The last chunk of each kind begins so that it ends with the layer: it
 * multiplies some of the chunk before once more instead of having another shape. */
typedef struct chunk_shape {
    int64_t images;
    int64_t channels;  /* output channels of a group */
    int64_t positions; /* of src along the axis that is cut, those that reach back included */
    int64_t quotients; /* of padded outputs along that axis, by the stride; all of them where it is not cut */
} chunk_shape;

/* How the products are computed: as a layer, by an implementation; as a layer with operands exchanged, whose src is the
 * weights as they lie and whose weights src is, which execute packs; by the kernels for few pixels (direct.c), which
 * read weights as they lie. */
typedef enum product_mode { STRAIGHT, EXCHANGED, DIRECT } product_mode;

/* A layer's plan. */
typedef struct gemm_col2im_plan {
    chunk_shape chunk;
    int64_t image_chunks, channel_chunks, position_chunks;
    bool cuts_rows; /* the axis that is cut into positions: rows, or columns of a layer of one row */
    bool widens;    /* src and weights are 16-bit, and are multiplied as TF32, which holds them exactly */
    product_mode mode;
    bool copies; /* src is put densely first: in f32, direct as it is */
    dense_order order;
    gather_shape out;    /* without addresses and what differs between chunks */
    direct_shape direct; /* without addresses and what differs between chunks */

    /* The products, but direct ones: a layer with a 1 x 1 kernel, whose output channels are output channels and taps;
     * exchanged, a layer of one row of those, whose output channels are pixels. */
    tconv_inner_plan products;
    tconv_phase row_phase, column_phase; /* of the phase tables of that layer */
    int64_t products_bytes, src_bytes;   /* of a chunk: the products; src, where it is copied */
    int64_t weights_bytes;               /* of all weights, where they are widened, or copied to be held */
    _Alignas(16) unsigned char inner_bytes[TCONV_CUDA_MAX_INNER_PLAN];
} gemm_col2im_plan;

/* Returns the chunks of all kinds. */
static inline int64_t count_chunks(const gemm_col2im_plan *plan)
{
    return plan->image_chunks * plan->channel_chunks * plan->position_chunks;
}

/* Returns the scratch of a chunk before that of the implementation that computes the products: products, src, and
 * exchanged what is packed. */
static inline int64_t scratch_before(const gemm_col2im_plan *plan)
{
    return plan->products_bytes + plan->src_bytes +
           (plan->mode == EXCHANGED ? tconv_inner_packed_bytes(&plan->products) : 0);
}

/* Plans a layer into what is all zero. Returns the reason why it is not taken, else NULL. */
const char *tconv_gemm_col2im_make_plan(const tconv_layer *layer, double limit, gemm_col2im_plan *plan,
                                        tconv_cuda_work *work);

#endif
