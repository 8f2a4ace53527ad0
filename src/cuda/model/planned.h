/* What implementations share to tell the work of their plans (work.c of each): counts that follow from the layer, and
 * the prediction that the cost model makes of them. */
#ifndef TCONV_CUDA_MODEL_PLANNED_H
#define TCONV_CUDA_MODEL_PLANNED_H

#include "../hardware.h"
#include "work.h"

TCONV_ROOM_BEGIN(tconv)

/* Begins a work: all zero but what every layer has. */
tconv_cuda_work tconv_cuda_begin_work(const tconv_layer *layer);

bool tconv_cuda_is_strict(const tconv_layer *layer);

/* Whether all strides but those of single elements, so all rows of a tensor (in NHWC all pixels), are multiples of so
 * many elements. */
bool tconv_cuda_begins_at_multiples(const tconv_problem *problem, const tconv_strides *strides, int64_t elements);

/* Elements, a power of two of at most a vector, at whose multiples all rows (in NHWC all pixels) begin: of dst,
 * of src. */
int64_t tconv_cuda_row_vector(const tconv_layer *layer);
int64_t tconv_cuda_src_row_vector(const tconv_layer *layer);

/* Whether TMA, or 16-byte copies, can read rows of src. */
bool tconv_cuda_reads_vectors(const tconv_layer *layer);

/* The first of a chunk's, of so many of all: the last chunk ends where all end. */
static inline int64_t tconv_cuda_chunk_begin(int64_t number, int64_t chunk, int64_t all)
{
    return number * chunk < all - chunk ? number * chunk : all - chunk;
}

/* Outputs that have a tap, of an image's channel; the mean taps of one of them. */
double tconv_cuda_tapped_outputs(const tconv_layer *layer);
double tconv_cuda_mean_taps(const tconv_layer *layer);

/* Adds the launch that fills outputs without a tap, where there are such. */
void tconv_cuda_add_fill(const tconv_layer *layer, tconv_cuda_work *work);

/* The share of pieces of so many bytes, from starts a multiple of step apart, whose ends are parts of sectors: 0 to
 * 2. */
double tconv_cuda_part_ends(int64_t piece, int64_t step);

/* Returns the rows of a strip, so that `places` blocks at a time work all strips off in a few whole waves and the least
 * time. A strip reads so many rows `back`, and `step` rows at a time; each strip has so many `others` beside it. */
int64_t tconv_cuda_strip_rows(int64_t rows, int64_t back, int64_t step, int64_t others, int64_t places);

/* Returns the rates of the layer's target. */
tconv_cuda_machine tconv_cuda_machine_of(const tconv_layer *layer);

/* Returns the predicted time of work: what tiles are chosen by. */
double tconv_cuda_seconds_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work);

/* Returns the seconds of a work whose tile costs are known: for planners that compare numbers of tiles. */
double tconv_cuda_seconds_with(const tconv_cuda_machine *machine, const tconv_cuda_work *work,
                               const tconv_cuda_tile *tile);

/* Returns the predicted time of packing the weights in a call, a pass that reads and writes them; 0 where they are
 * packed before. */
double tconv_cuda_packing_seconds(const tconv_layer *layer);

/* Finishes a plan whose sizes are known: has the cost model predict its time on the layer's target, and leaves the work
 * to the caller if it wants it. */
void tconv_cuda_predict(const tconv_layer *layer, const tconv_cuda_work *work, tconv_planned *planned);

TCONV_ROOM_END

#endif
