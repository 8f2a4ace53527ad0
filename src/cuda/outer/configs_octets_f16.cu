/* The kernels by octets for f16. */
#include "octet_kernel.cuh"

namespace tconv::outer
{

const kernel_choice octet_kernels_f16[OCTET_KERNELS] = {};

} // namespace tconv::outer
