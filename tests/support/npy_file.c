/* Reads and writes the format by hand: magic, version, length of the header, header, data. */
#include "npy_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

void write_npy(const char *path, int major, const char *header, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    size_t length = strlen(header);
    cr_assert_not_null(file);
    fwrite("\x93NUMPY", 1, 6, file);
    fputc(major, file);
    fputc(0, file);
    for (int i = 0; i < (major == 1 ? 2 : 4); i++)
        fputc((int)(length >> 8 * i & 0xff), file);
    fwrite(header, 1, length, file);
    fwrite(data, 1, bytes, file);
    cr_assert_eq(fclose(file), 0);
}

const float npy_numbers[1024] = {1, -2, 3, 5, -8, 13, 21, -34, 55, 89, 0.5f, -0.25f, 7, 11, -17, 19};

void write_f4(const char *path, const char *shape, size_t elements)
{
    char header[128];
    snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }\n", shape);
    write_npy(path, 1, header, npy_numbers, elements * sizeof(float));
}

void write_layer(void)
{
    write_f4("x.npy", "(1, 2, 3, 4)", 24);
    write_f4("w.npy", "(2, 3, 2, 2)", 24);
    write_f4("b.npy", "(3,)", 3);
}

char *read_npy(const char *path, const char *text, size_t *bytes)
{
    size_t size;
    char *file = read_whole(path, &size);
    cr_assert(size > 10 && memcmp(file, "\x93NUMPY\x01", 7) == 0, "%s is no .npy file of version 1", path);
    size_t start = 10 + (size_t)(unsigned char)file[8] + 256 * (size_t)(unsigned char)file[9];
    cr_assert_eq(start % 64, 0, "data start at %zu", start);
    cr_assert_leq(start, size);
    file[start - 1] = '\0';
    expect_text(file + 10, text, path);
    *bytes = size - start;
    char *data = malloc(*bytes + 1);
    memcpy(data, file + start, *bytes);
    free(file);
    return data;
}
