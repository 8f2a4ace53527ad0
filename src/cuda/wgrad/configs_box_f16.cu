/* The kernels by boxes for f16. */
#include "box_kernel.cuh"

namespace tconv::wgrad
{

const kernel_choice box_kernels_f16[BOX_KERNELS] = {
    boxes<MODE_F16, 1, 64>(),  boxes<MODE_F16, 2, 64>(),  boxes<MODE_F16, 3, 64>(),  boxes<MODE_F16, 1, 128>(),
    boxes<MODE_F16, 2, 128>(), boxes<MODE_F16, 3, 128>(), boxes<MODE_F16, 2, 192>(), boxes<MODE_F16, 1, 256>()};

} // namespace tconv::wgrad
