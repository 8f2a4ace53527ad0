/* The layers that the tests and the trace plan on the stand-in, in an order that never changes within a version of
 * the tree. */
#ifndef TCONV_TESTS_STANDIN_LAYERS_H
#define TCONV_TESTS_STANDIN_LAYERS_H

#include "harness.h"

#define STANDIN_LAYER_NAME 96
#define STANDIN_RANDOM     400 /* random layers */

typedef struct standin_layer {
    char name[STANDIN_LAYER_NAME]; /* of the workload or corner, or the number of the random layer */
    harness_layer layer;
} standin_layer;

/* Lists bench/workloads.csv and the harness's corners in every dtype, both layouts and, in f32, strict and TF32;
 * then random layers, and layers of CSV files of the same columns; and all of these for the gradient of src; some that
 * accumulate, some with post-ops, and some as streams. Returns their number, 0 on failure; *layers is
 * the caller's to free. */
size_t standin_list_layers(const char *const *files, size_t file_count, standin_layer **layers);

#endif
