/* The files that count a plan's work share this: the only place, beside them, that knows both the layer and the
 * model. */
#ifndef TCONV_CUDA_MODEL_PLANNED_H
#define TCONV_CUDA_MODEL_PLANNED_H

#include "work.h"

namespace tconv::model
{

constexpr int SECTOR_BYTES = 32; /* bytes, of the memory and the second-level cache */
constexpr int VECTOR_BYTES = 16; /* bytes that a thread stores or copies at once */
constexpr int WARP = 32;

/* Begins a work: all zero but what every layer has. */
tconv_cuda_work begin_work(const tconv_layer *layer);

bool is_strict(const tconv_layer *layer);

/* Elements, a power of two of at most a vector, at whose multiples all rows (in NHWC all pixels) begin: of dst,
 * of src. */
int64_t row_vector(const tconv_layer *layer);
int64_t src_row_vector(const tconv_layer *layer);

/* Whether TMA, or 16-byte copies, can read rows of src. */
bool reads_vectors(const tconv_layer *layer);

/* Outputs that have a tap, of an image's channel; the mean taps of one of them. */
double tapped_outputs(const tconv_layer *layer);
double mean_taps(const tconv_layer *layer);

/* Adds the launch that fills outputs without a tap, where there are such. */
void add_fill(const tconv_layer *layer, tconv_cuda_work *work);

/* The share of pieces of so many bytes, from starts a multiple of step apart, whose ends are parts of sectors: 0 to
 * 2. */
double part_ends(int64_t piece, int64_t step);

} // namespace tconv::model

/* The work of each implementation's plan. A definition in the implementation's namespace begins with extern "C" too. */
extern "C" {
tconv_cuda_work_function tconv_cuda_stencil_work;
tconv_cuda_work_function tconv_cuda_col2im_work;
tconv_cuda_work_function tconv_cuda_rows_work;
tconv_cuda_work_function tconv_cuda_cells_work;
tconv_cuda_work_function tconv_cuda_wgmma_work;
tconv_cuda_work_function tconv_cuda_igemm_work;
tconv_cuda_work_function tconv_cuda_mma_work;
tconv_cuda_work_function tconv_cuda_general_work;
}

#endif
