/* What the instructions of Hopper's GEMMs fix, for the host and the kernels. */
#ifndef TCONV_CUDA_GEMM_SHAPE_H
#define TCONV_CUDA_GEMM_SHAPE_H

namespace tconv
{

constexpr int MMA_M = 64;                             /* rows: M of every wgmma (PTX ISA) */
constexpr int MMA_K_BYTES = 32;                       /* bytes: K of every wgmma (PTX ISA) */
constexpr unsigned MMA_A_BYTES = MMA_M * MMA_K_BYTES; /* of the A operand of one wgmma, in one plane */
constexpr int CORE_ROWS = 8;       /* rows of a core matrix (PTX ISA): pixels that are neighbours in any operand */
constexpr int CORE_ROW_BYTES = 16; /* bytes of a row of a core matrix (PTX ISA): 4 channels of f32, 8 of 16 bits */
constexpr int WARP_M = 16;         /* rows of M whose accumulators a warp has (PTX ISA) */
constexpr int WARP = 32;           /* lanes (PTX ISA) */
constexpr int WARPGROUP_WARPS = 4; /* PTX ISA */
constexpr int WARPGROUPS = 2;      /* consumer warpgroups: those that multiply a block tile */
constexpr int MAX_STAGES = 8;      /* of one pipeline: no more was of use */

} // namespace tconv

#endif
