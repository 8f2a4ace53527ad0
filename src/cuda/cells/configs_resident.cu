/* The kernels of the cells algorithm whose weights stay in shared memory. */
#include "kernel_resident.cuh"

namespace tconv::cells
{

tconv_cells_resident_kernel *tconv_cells_find_resident(int cell_columns)
{
    return cell_columns == 1 ? cells_resident<1> : cell_columns == 2 ? cells_resident<2> : cells_resident<4>;
}

} // namespace tconv::cells
