/* The kernels by octets for bf16. */
#include "octet_kernel.cuh"

namespace tconv::outer
{

const kernel_choice octet_kernels_bf16[OCTET_KERNELS] = {octets<MODE_BF16, false, 128, 2>(), octets<MODE_BF16, true, 96, 3>(), octets<MODE_BF16, true, 128, 2>()};

} // namespace tconv::outer
