/* The instances of the weight-stationary kernel. */
#include "kernel_stationary.cuh"

namespace tconv::cells
{

extern "C" const void *tconv_cells_stationary_kernel(int cell_columns)
{
    return cell_columns == 1   ? (const void *)stationary_gemm<1>
           : cell_columns == 2 ? (const void *)stationary_gemm<2>
                               : (const void *)stationary_gemm<4>;
}

} // namespace tconv::cells
