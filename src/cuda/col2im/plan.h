/* The plan of a layer: the kernel for it, and how the layer is cut into blocks. */
#ifndef TCONV_CUDA_COL2IM_PLAN_H
#define TCONV_CUDA_COL2IM_PLAN_H

#include "../model/work.h"
#include "../runtime/tensor_map.h"
#include "parameters.h"

namespace tconv::col2im
{

constexpr int64_t ACCESS = 16;     /* bytes that a thread copies at once */
constexpr int64_t RESERVED = 1024; /* bytes of shared memory that each block takes beside its own (CUDA) */

/* Additions of like terms may be off by a quarter of their number, so that strict f32 stays within the bound of 16 for
 * so many: of a sum's segments of channels, and of the partials of its taps. */
constexpr int64_t MAX_ADDITIONS = 48;

constexpr int MMA_KERNEL = -1; /* the kernel for any device, in place of a config of Hopper's */

/* How the output rows are cut into strips. */
struct row_cut {
    int64_t quotients; /* of the rows that are cut */
    int64_t others;    /* blocks of each strip */
    int64_t step;      /* rows of src at a time */
};

struct planned_launch {
    const void *kernel;
    int64_t blocks;
    int64_t shared_bytes;
    int threads;
    col2im::parameters parameters; /* without addresses, and as if these were multiples of all that is asked for */
};

/* A layer's plan. */
struct plan {
    int config;             /* of Hopper's kernels, or MMA_KERNEL */
    int n_tiles;            /* of the packed weights */
    row_cut cut;            /* the same for both launches */
    planned_launch any_src; /* of the kernel that copies src as it lies */
    planned_launch by_tma;  /* taken instead where the tensor map of src can be made; kernel NULL: never */
    tensor_map_recipe src;  /* without the address; for by_tma */
};

/* K steps of an MMA instruction along the channels of a group. */
int64_t steps_of(const tconv_problem *problem);

/* Quotients of all output rows. */
int64_t row_quotients(const tconv_axis *h);

/* The reason why no kernel takes the layer, NULL where one may; fills in how columns are cut into tiles. */
const char *refusal(const tconv_layer *layer, parameters *made);

/* Fills in the strips, so that `places` blocks at a time work them off in a few whole waves and the least time. */
void cut_rows(const tconv_problem *problem, const row_cut *cut, int64_t places, parameters *made);

/* Plans the kernel for any device; begun: the parameters but for its own. Returns the reason why it does not take a
 * layer that refusal lets pass, else NULL. */
const char *plan_mma(const tconv_layer *layer, const parameters *begun, plan *made);

/* Bytes of the weights that are packed for the kernel for any device. */
int64_t mma_packed_bytes(const tconv_problem *problem);

namespace row_sums
{

/* Plans Hopper's kernels in the same way; false where they do not take a layer that refusal lets pass. */
bool plan_hopper(const tconv_layer *layer, const parameters *begun, plan *made);

/* Bytes of the weights that are packed for Hopper's kernels. */
int64_t packed_bytes(const tconv_layer *layer, int config);

} // namespace row_sums

/* Counts the work of a plan. */
tconv_cuda_work work_of(const tconv_layer *layer, const plan *made);

} // namespace tconv::col2im

#endif
