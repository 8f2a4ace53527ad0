/* .npy files for the tests of the program, written and read by hand, not by the code that they test. */
#ifndef TCONV_TESTS_NPY_FILE_H
#define TCONV_TESTS_NPY_FILE_H

#include <stddef.h>

/* The numbers that the files below hold, from the first on. */
extern const float npy_numbers[1024];

/* Writes a .npy file with this header text, version major.0, and these bytes of data. */
void write_npy(const char *path, int major, const char *header, const void *data, size_t bytes);

/* Writes a file of floats with this shape, "(1, 2, 3, 4)". */
void write_f4(const char *path, const char *shape, size_t elements);

/* Writes the layer of most tests: x.npy (1, 2, 3, 4), w.npy (2, 3, 2, 2), b.npy (3,). */
void write_layer(void);

/* Returns the *bytes of data of a .npy file of version 1.0, whose header must contain text. The caller frees them. */
char *read_npy(const char *path, const char *text, size_t *bytes);

#endif
