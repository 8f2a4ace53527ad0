/* The kernels for f32 as 3xTF32: up to 64 accumulators a thread, and as many partial sums. Those for sums of any length
 * also keep what additions lost, in half as many registers: their shapes are those that the registers hold. */
#include "kernel.cuh"

namespace tconv::mma
{

const kernel_config strict_configs[] = {config_of<STRICT, 1, 4, 4>,
                                        config_of<STRICT, 1, 4, 2>,
                                        config_of<STRICT, 1, 2, 4>,
                                        config_of<STRICT, 1, 1, 4>,
                                        config_of<STRICT, 2, 2, 4>,
                                        config_of<STRICT, 2, 2, 2>,
                                        config_of<STRICT, 2, 1, 4>,
                                        config_of<STRICT, 3, 1, 4>,
                                        config_of<STRICT, 3, 1, 2>,
                                        config_of<STRICT, 4, 1, 4>,
                                        config_of<STRICT, 4, 1, 2>,
                                        config_of<STRICT, 5, 1, 2>,
                                        config_of<STRICT, 6, 1, 2>,
                                        config_of<STRICT, 7, 1, 2>,
                                        config_of<STRICT, 8, 1, 2>,
                                        config_of<STRICT, 1, 4, 2, true>,
                                        config_of<STRICT, 1, 2, 4, true>,
                                        config_of<STRICT, 1, 1, 4, true>,
                                        config_of<STRICT, 2, 2, 4, true>,
                                        config_of<STRICT, 2, 2, 2, true>,
                                        config_of<STRICT, 2, 1, 4, true>,
                                        config_of<STRICT, 3, 1, 4, true>,
                                        config_of<STRICT, 4, 1, 2, true>,
                                        config_of<STRICT, 5, 1, 2, true>,
                                        {}};

} // namespace tconv::mma
