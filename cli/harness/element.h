/* Elements of a tensor as float64, whatever the dtype. Conversions round to nearest, ties to even. */
#ifndef TCONV_HARNESS_ELEMENT_H
#define TCONV_HARNESS_ELEMENT_H

#include "tconv/tconv.h"

/* Returns the bytes of one element; 0 for a value that is no dtype. */
size_t harness_element_size(tconv_dtype dtype);

/* Returns data[index] as float64, exactly. */
double harness_element_get(tconv_dtype dtype, const void *data, int64_t index);

/* Rounds value once to dtype and writes it to data[index]. */
void harness_element_set(tconv_dtype dtype, void *data, int64_t index, double value);

/* Returns value rounded once to dtype, as an implementation that sums exactly would. */
double harness_element_round(tconv_dtype dtype, double value);

/* Returns half the distance from |value| to the next larger number of dtype: the error of one rounding near value. */
double harness_element_half_ulp(tconv_dtype dtype, double value);

#endif
