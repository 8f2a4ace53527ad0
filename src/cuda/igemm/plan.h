/* How the implicit matrix product cuts a layer into tiles. */
#ifndef TCONV_CUDA_IGEMM_PLAN_H
#define TCONV_CUDA_IGEMM_PLAN_H

#include "parameters.h"

namespace tconv::igemm
{

constexpr int TCONV_IGEMM_SHARED_MEMORY = 227 * 1024 - 5 * 1024; /* what a block may have, less barriers and records */

/* What is chosen; everything else follows from it and the layer. */
struct tconv_igemm_choice {
    int shape; /* of the mode's */
    int tile_blocks;
    bool turned, per_tap;
    int across;                /* see tconv_igemm_parameters */
    int images, rows, columns; /* of a tile */
};

struct tconv_igemm_plan {
    tconv_igemm_mode mode;
    tconv_igemm_shape shape;
    tconv_igemm_parameters parameters; /* without addresses */
    double cycles;                     /* estimated, of the fullest multiprocessor */
};

/* Cycles from a buffer of slots to the next where sums are handed over, however little is multiplied. */
constexpr int TCONV_IGEMM_SLOT_PERIOD = 670;

/* The cycles that a plan is estimated to take. */
double tconv_igemm_estimate(const tconv_layer *layer, const tconv_igemm_plan *plan, int multiprocessors);

/* Whether all that the products read comes by the copy engine, as it is: no warp touches it on the way. */
bool tconv_igemm_is_fed(const tconv_igemm_plan *plan);

/* Takes the choice with the least estimated time; false where none fits. */
bool tconv_igemm_choose(const tconv_layer *layer, int multiprocessors, tconv_igemm_choice *best,
                        tconv_igemm_plan *best_plan);

/* Blocks of threads that take the tiles in turn. */
int tconv_igemm_thread_blocks(const tconv_igemm_plan *plan, int multiprocessors);

/* Describes the layer in tiles of this choice; false where that does not fit. */
bool tconv_igemm_describe(const tconv_layer *layer, const tconv_igemm_choice *choice, int multiprocessors,
                          tconv_igemm_plan *plan);

/* A choice as the number that the layer keeps, and back. */
int64_t tconv_igemm_number_of(const tconv_igemm_choice *choice);
tconv_igemm_choice tconv_igemm_choice_of(int64_t number);

/* The kernel of a mode that is there in every build that has any. */
const tconv_igemm_shape *tconv_igemm_shapes_of(tconv_igemm_mode mode);
tconv_igemm_mode tconv_igemm_mode_of(const tconv_layer *layer);

} // namespace tconv::igemm

#endif
