/* The numbers of a tconv_desc as a table, and a valid layer for tests to break. */
#ifndef TCONV_TESTS_DESC_NUMBERS_H
#define TCONV_TESTS_DESC_NUMBERS_H

#include <stddef.h>

#include "tconv/tconv.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define DESC_NUMBERS 25

/* The int64_t fields in the order of the struct, which is the order of the checks. */
struct desc_number {
    const char *name;
    size_t offset;
    int64_t least;
    const char *rule;
};

extern const struct desc_number desc_numbers[DESC_NUMBERS];

int64_t *desc_number_of(tconv_desc *desc, const struct desc_number *number);

/* Returns a layer where every extent differs, so that a mix-up of two shows: src 2 x 6 x 5 x 7, dst 2 x 9 x 13 x 21. */
tconv_desc uneven_layer(void);

/* Returns the same with depth: src 2 x 6 x 4 x 5 x 7, dst 2 x 9 x 11 x 13 x 21. */
tconv_desc uneven_volume(void);

/* Returns "name = value", as issues have it; the next call overwrites it. */
const char *stated(const char *name, int64_t value);

#endif
