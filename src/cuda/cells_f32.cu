/* The cells kernels of f32. */
#include "cells_kernel.cuh"

using tconv_cells::cells_layer;

#define SHAPE(block, steps)                                                                                            \
    {                                                                                                                  \
        block, steps, cells_layer<TCONV_CELLS_N, block, steps>                                                         \
    }
const tconv_cells_shape tconv_cells_tf32_shapes[TCONV_CELLS_SHAPES] = {
    SHAPE(128, 4), SHAPE(128, 2), SHAPE(64, 4), SHAPE(64, 2), SHAPE(32, 4), SHAPE(32, 2), SHAPE(256, 4), SHAPE(256, 2)};
