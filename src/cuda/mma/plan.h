/* Between the files of the plan: the search for a layer's tiling, and its steps. */
#ifndef TCONV_CUDA_MMA_PLAN_H
#define TCONV_CUDA_MMA_PLAN_H

#include "../../core/checked.h"
#include "parameters.h"

#include <cstdio>

namespace tconv::mma
{

constexpr int64_t MAX_EXTENT = (int64_t)1 << 29; /* images, channels, rows or columns: coordinates are 32-bit ones */
constexpr int SHARED_RESERVED = 1024;            /* bytes of shared memory that a block takes beside what it asks for */

struct search {
    const tconv_layer *layer;
    device_limits limits;
    int element_size;                    /* bytes */
    int mmas_per_product;                /* 3 for 3xTF32, else 1 */
    int row_halo, column_halo;           /* pixels of a patch beyond those of its tile */
    int position_rows, position_columns; /* of an image */
    const kernel_config *best_config;    /* NULL: none yet */
    parameters best;
    double best_cycles;
};

inline bool refuse(char reason[TCONV_REASON_SIZE], const char *text)
{
    snprintf(reason, TCONV_REASON_SIZE, "%s", text);
    return false;
}

inline int round_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

inline int ceil_div(int value, int by)
{
    return (value + by - 1) / by;
}

/* layer.cu: fills in what the layer itself says. False with a reason where the kernels cannot take it. */
bool fill_layer(const tconv_layer *layer, parameters *params, char reason[TCONV_REASON_SIZE]);

/* tile.cu: row taps of the phases of a set; -1: the most of any set. */
int set_taps(const parameters *params, int set);

/* Fills in how a block's warps are shared out. */
void share_warps(parameters *params, int phase_warps, int m_warps, int n_warps);

/* Fills in the tile for the warps' positions, in rows of so many columns. Returns false where there is none. */
bool lay_out_tile(const search *in, parameters *params, const kernel_config *config, int columns);

/* Fills in K-blocks of so many words, pipeline stages, and where all lies in shared memory. */
void lay_out_shared(const search *in, parameters *params, int block_k_words, int stages);

/* Fills in what a thread loads and stores at once; arguments may be NULL. */
void fill_vectors(const tconv_problem *problem, const tconv_arguments *arguments, const kernel_config *config,
                  parameters *params);

/* cost.cu: the time of a tiling in cycles of the device. */
double cycles_of(const search *in, const parameters *params, const kernel_config *config);

} // namespace tconv::mma

#endif
