/* The plan of a layer: the products as a layer of their own, the chunks that they come in, how outputs are gathered
 * from them. */
#ifndef TCONV_CUDA_GEMM_COL2IM_PLAN_H
#define TCONV_CUDA_GEMM_COL2IM_PLAN_H

#include "../../core/impl.h"
#include "../implementations.h"
#include "../model/work.h"
#include "direct.h"
#include "gather.h"

namespace tconv::gemm_col2im
{

/* What is multiplied and gathered at a time. The last chunk of each kind begins so that it ends with the layer: it
 * computes some outputs once more instead of having another shape. */
struct chunk_shape {
    int64_t images;
    int64_t channels;  /* output channels of a group */
    int64_t positions; /* of src along the axis that is cut, those that reach back included */
    int64_t quotients; /* of padded outputs along that axis, by the stride; all of them where it is not cut */
};

/* How the products are made: as a layer, by an implementation; as a layer with operands exchanged, whose src is the
 * weights as they lie and whose weights src is, which execute packs; by the kernel for few pixels (direct.cu), which
 * reads weights as they lie. */
enum way { STRAIGHT, EXCHANGED, DIRECT };

/* A layer's plan. */
struct plan {
    chunk_shape chunk;
    int64_t image_chunks, channel_chunks, position_chunks;
    bool cuts_rows; /* the axis that is cut into positions: rows, or columns of a layer of one row */
    bool widens;    /* src and weights are 16-bit, and are multiplied as TF32, which holds them exactly */
    gemm_col2im::way way;
    bool copies; /* src is put densely first: in f32, direct as it is */
    dense_order order;
    gather_shape out;    /* without addresses and what differs between chunks */
    direct_shape direct; /* without addresses and what differs between chunks */

    /* The products, but direct ones: a layer with a 1 x 1 kernel, whose output channels are output channels and taps;
     * exchanged, a layer of one row of those, whose output channels are pixels. */
    tconv_layer products;
    tconv_phase row_phase, column_phase; /* its phase tables' */
    const tconv_implementation *by;      /* what computes it; NULL: direct */
    tconv_memory_sizes sizes;            /* that this needs */
    int64_t products_bytes, src_bytes;   /* of a chunk: the products; src, where it is copied */
    int64_t weights_bytes;               /* of all weights, where they are widened, or copied to be held */
    int64_t packed_chunk_bytes;          /* of what the products have packed, of a chunk */
    alignas(16) unsigned char made[TCONV_CUDA_MAX_INNER_PLAN]; /* the plan of `by` */
};

/* Chunks of all kinds. */
inline int64_t chunks_of(const plan *made)
{
    return made->image_chunks * made->channel_chunks * made->position_chunks;
}

/* The scratch of a chunk before that of `by`: products, src, and exchanged what is packed. */
inline int64_t scratch_before(const plan *made)
{
    return made->products_bytes + made->src_bytes + (made->way == EXCHANGED ? made->packed_chunk_bytes : 0);
}

/* Plans a layer into what is all zero. Returns the reason why it is not taken, else NULL. */
const char *make_plan(const tconv_layer *layer, double limit, plan *made, tconv_cuda_work *work);

} // namespace tconv::gemm_col2im

#endif
