/* The choice of a kernel for a layer, and how the layer is cut into blocks for it. */
#ifndef TCONV_CUDA_COL2IM_PLAN_H
#define TCONV_CUDA_COL2IM_PLAN_H

#include "parameters.h"

namespace tconv::col2im
{

constexpr int64_t ACCESS = 16;     /* bytes that a thread copies at once */
constexpr int64_t RESERVED = 1024; /* bytes of shared memory that each block takes beside its own (CUDA) */

/* Additions of like terms may be off by a quarter of their number, so that strict f32 stays within the bound of 16 for
 * so many: of a sum's segments of channels, and of the partials of its taps. */
constexpr int64_t MAX_ADDITIONS = 48;

/* A layer's choice is MMA_KERNEL, the kernel for any device, or 1 and the config of Hopper's. */
constexpr int64_t MMA_KERNEL = 0;

struct planned_launch {
    const void *kernel;
    int64_t blocks;
    int64_t shared_bytes;
    int threads;
};

/* Bytes of shared memory that a block may ask for. */
int64_t max_shared(int compute_capability);

bool is_strict(const tconv_layer *layer);

/* K steps of an MMA instruction along the channels of a group. */
int64_t steps_of(const tconv_problem *problem);

/* N tiles of the kernel for any device. */
int n_tiles_of(const tconv_problem *problem);

/* Quotients of all output rows. */
int64_t row_quotients(const tconv_axis *h);

/* The reason why no kernel takes the layer, NULL where one may; fills in how columns are cut into tiles. */
const char *refusal(const tconv_layer *layer, parameters *made);

/* The reason why the kernel for any device does not take a layer that refusal lets pass; fills in its own
 * parameters. */
const char *mma_refusal(const tconv_layer *layer, parameters *made);

/* Bytes of the weights that are packed for the kernel for any device. */
int64_t mma_packed_bytes(const tconv_problem *problem);

/* Cuts so many quotients of rows into strips, so that `places` blocks at a time work them off in a few whole waves and
 * the least time. others: blocks of each strip; step: rows of src at a time. */
void cut_rows(const tconv_problem *problem, int64_t quotients, int64_t places, int64_t others, int64_t step,
              parameters *made);

/* Completes the parameters of the kernel for any device, and says what to launch. */
planned_launch mma_launch(const tconv_layer *layer, int multiprocessors, parameters *made);

namespace row_sums
{

/* The choice of kernel for a layer that refusal lets pass. */
int64_t choose(const tconv_layer *layer);

/* Bytes of the weights that are packed for Hopper's kernel. */
int64_t packed_bytes(const tconv_layer *layer);

/* Completes the parameters of Hopper's kernel, and the tensor map of src where it comes by TMA, and says what to
 * launch. */
planned_launch plan_launch(const tconv_layer *layer, int multiprocessors, parameters *made, CUtensorMap *map);

} // namespace row_sums

} // namespace tconv::col2im

#endif
