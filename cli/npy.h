/*
 * NumPy's .npy files (numpy.lib.format): versions 1.0 and 2.0 are read, 1.0 is written; C order, little-endian f2, f4
 * and f8, up to five axes. The reader is strict: anything else is an error with a message of its own.
 */
#ifndef TCONV_CLI_NPY_H
#define TCONV_CLI_NPY_H

#include <stdbool.h>
#include <stdio.h>

#include "tconv/tconv.h"

#define NPY_MAX_RANK 5

typedef struct npy_array {
    int rank;
    int64_t shape[NPY_MAX_RANK];
    int64_t elements; /* the product of shape */
    tconv_dtype dtype;
    void *data; /* owned */
} npy_array;

/* Reads the file. Returns CLI_SUCCESS, or another exit code with the reason in message and nothing to release. */
int npy_read(const char *path, npy_array *array, char *message, size_t capacity);

void npy_release(npy_array *array);

/* Writes an array. dtype is F16, F32 or F64. On false, errno says why. */
bool npy_write(FILE *file, tconv_dtype dtype, const int64_t *shape, int rank, const void *data);

/* Writes a shape as NumPy does, "(16, 3, 224, 224)", cut at capacity. */
void npy_format_shape(const int64_t *shape, int rank, char *text, size_t capacity);

#endif
