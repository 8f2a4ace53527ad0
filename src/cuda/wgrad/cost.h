/* The time that a K-tile takes a block of cuda_wgrad, by a model that is fitted to measurements. */
#ifndef TCONV_CUDA_WGRAD_COST_H
#define TCONV_CUDA_WGRAD_COST_H

#include "plan.h"

/* Return the cycles that a K-tile of all blocks of a multiprocessor takes, of a kernel by mma.sync, of one by wgmma,
 * and of one by boxes. slots: outputs of a K-tile in the shared memory of a block. */
double tconv_wgrad_mma_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots);
double tconv_wgrad_wgmma_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots);
double tconv_wgrad_box_cycles(const planned_layer *plan, int64_t slots);

/* Returns how many times as many bytes move as are used: memory moves whole sectors, and single elements that are `apart`
 * elements apart may use a part of a sector. */
double tconv_wgrad_sector_part(const tconv_layer *layer, const planned_layer *plan, int apart);

/* Returns how often a shared-memory bank is read for one pixel of lines: with a stride, lanes meet in banks, unless they have
 * taps of neighbouring columns. */
double tconv_wgrad_line_loads(const parameters *params, bool half);

enum { WGRAD_STRICT_PRODUCTS = 3 }; /* of a product in strict f32 */

/* How often the elements of a K-tile of a kernel by wgmma pass through shared memory, beside the products. */
typedef struct shared_passes {
    double src, dst;
} shared_passes;

shared_passes tconv_wgrad_shared_passes(const planned_layer *plan);

#endif
