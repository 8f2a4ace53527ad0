/* The cells kernels of f32. */
#include "kernel.cuh"

namespace tconv::cells
{

#define SHAPE(strict, block, steps)                                                                                    \
    {                                                                                                                  \
        block, steps, cells_layer<strict, block, steps>                                                                \
    }
const tconv_cells_shape tconv_cells_tf32_shapes[TCONV_CELLS_SHAPES] = {
    SHAPE(false, 256, 4), SHAPE(false, 256, 2), SHAPE(false, 128, 4), SHAPE(false, 128, 2),
    SHAPE(false, 64, 4),  SHAPE(false, 64, 2),  SHAPE(false, 32, 4),  SHAPE(false, 32, 2)};
const tconv_cells_shape tconv_cells_strict_shapes[TCONV_CELLS_SHAPES] = {SHAPE(true, 128, 4), SHAPE(true, 64, 4),
                                                                         SHAPE(true, 32, 4)};

} // namespace tconv::cells
