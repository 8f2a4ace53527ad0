/* The files that embed.cmake puts into the tests at build time. */
#ifndef TCONV_TESTS_EMBEDDED_H
#define TCONV_TESTS_EMBEDDED_H

#include <stddef.h>

extern const unsigned char goldens_csv[], goldens_bin[], gradients_bin[];
extern const size_t goldens_csv_size, goldens_bin_size, gradients_bin_size;

#endif
