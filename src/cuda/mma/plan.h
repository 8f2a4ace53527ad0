/* Between the host side's files: what a plan holds, the search for a layer's tiling, and its steps. */
#ifndef TCONV_CUDA_MMA_PLAN_H
#define TCONV_CUDA_MMA_PLAN_H

#include "../../core/checked.h"
#include "../model/work.h"
#include "parameters.h"

namespace tconv::mma
{

constexpr int64_t MAX_EXTENT = (int64_t)1 << 29; /* images, channels, rows or columns: coordinates are 32-bit ones */
constexpr int SHARED_RESERVED = 1024;            /* bytes of shared memory that a block takes beside what it asks for */
constexpr int SHARED_BARRIERS = 128;             /* bytes of SHARED_RESERVED that count towards a block's limit */

/* What a plan holds. */
struct planned_layer {
    /* Without addresses; vectors are as wide as they may be where addresses are multiples of 16 bytes. */
    parameters params;
    const kernel_config *config;
};

struct search {
    const tconv_layer *layer;
    int shared_bytes;                    /* that a block may ask for */
    int element_size;                    /* bytes */
    int row_halo, column_halo;           /* pixels of a patch beyond those of its tile */
    int position_rows, position_columns; /* of an image */
    int most_row_taps;                   /* of any set of row phases, with the tiling's phase_warps */

    /* What the work of all tilings has in common. */
    tconv_cuda_machine machine;
    tconv_cuda_work begun; /* what is the layer's own, the rest 0 */
    bool strict;
    int64_t row_vector, src_row_vector; /* elements, see model/planned.h */

    planned_layer *best; /* its config is NULL: none yet */
    tconv_cuda_work best_work;
    double best_seconds;
};

/* Bytes of shared memory that a block may ask for beside its barriers. */
inline int shared_limit(const tconv_layer *layer)
{
    return layer->target.shared_bytes - SHARED_BARRIERS;
}

inline int block_warps(const parameters *params)
{
    return params->m_warps * params->phase_warps * params->n_warps;
}

inline int round_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

inline int ceil_div(int value, int by)
{
    return (value + by - 1) / by;
}

/* plan.cu: chooses the kernel and the tiling of a layer, and counts its work. Returns why there is none, or NULL. */
const char *choose(const tconv_layer *layer, planned_layer *made, tconv_cuda_work *work);

mode mode_of(const tconv_layer *layer);

/* layer.cu: fills in what the layer itself says. Returns why the kernels cannot take it, or NULL. */
const char *fill_layer(const tconv_layer *layer, parameters *params);

/* tile.cu: row taps of the phases of a set; -1: the most of any set. */
int set_taps(const parameters *params, int set);

/* Fills in how a block's warps are shared out. */
void share_warps(parameters *params, int phase_warps, int m_warps, int n_warps);

/* Fills in the tile for the warps' positions, in rows of so many columns. Returns false where there is none. */
bool lay_out_tile(const search *in, parameters *params, const kernel_config *config, int columns);

/* Fills in K-blocks of so many words, pipeline stages, and where all lies in shared memory. Returns false where that is
 * more than a block may ask for. */
bool lay_out_shared(const search *in, parameters *params, int block_k_words, int stages);

/* Fills in what a thread loads and stores at once, as far as strides allow: all tilings' alike. */
void fill_vectors(const tconv_problem *problem, parameters *params);

/* work.cu: begins what the work of all tilings has in common. */
void begin_works(search *in);

/* Counts what a tiling does. */
tconv_cuda_work work_of(const search *in, const parameters *params, const kernel_config *config);

} // namespace tconv::mma

#endif
