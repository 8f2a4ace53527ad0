/* The families of pieces, one file each. */
#ifndef TCONV_CHECK_CUDA_FAMILIES_H
#define TCONV_CHECK_CUDA_FAMILIES_H

namespace tconv::check
{

void check_numeric();
void check_ptx_memory();
void check_ptx_tma();
void check_ptx_mma();
void check_ptx_wgmma();
void check_pack_boxes();
void check_pack_cells();
void check_pack_fragments();
void check_transform_igemm();
void check_transforms();
void check_mainloop_wgmma();
void check_mainloop_igemm();
void check_mainloop_cells();
void check_rows();
void check_epilogues();
void check_posts();
void check_filling();
void check_whole();
void check_activations();

} // namespace tconv::check

#endif
