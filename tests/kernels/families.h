/* The families of kernels, one file each. */
#ifndef TCONV_CHECK_FAMILIES_H
#define TCONV_CHECK_FAMILIES_H

#include "check.h"

check_family check_cpu_microtile;
check_family check_cpu_load;
check_family check_cpu_pack;
check_family check_cpu_store;
check_family check_cpu_pixel_microtile;
check_family check_cpu_pixel_rows;
check_family check_cpu_activate;

#endif
