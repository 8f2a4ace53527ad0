/* The instances of the weight-stationary kernel. */
#include "kernel_stationary.cuh"

namespace tconv::cells
{

stationary_function *find_stationary(int cell_columns)
{
    return cell_columns == 1 ? stationary_gemm<1> : cell_columns == 2 ? stationary_gemm<2> : stationary_gemm<4>;
}

} // namespace tconv::cells
