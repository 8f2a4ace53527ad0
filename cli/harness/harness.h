/*
 * The test harness on tconv's public API: what `tconv verify`, `tconv bench` and the tests share.
 *
 *     harness_random random;
 *     harness_random_seed(&random, 1);
 *     harness_layer layer;                    // layer.h: random layers, corners, layers as text
 *     harness_random_layer(&random, &layer);
 *     harness_case test;                      // case.h: tensors and the right answer
 *     harness_case_create(&test, &layer, HARNESS_INTEGERS, 1, &issue);
 *     harness_output output;
 *     harness_run(&test, &options, false, &output, &issue);
 *     if (!harness_compare(&test, &output, &failure))
 *         puts(failure.text);
 *     harness_output_release(&output);
 *     harness_case_destroy(&test);
 */
#ifndef TCONV_HARNESS_HARNESS_H
#define TCONV_HARNESS_HARNESS_H

#include "case.h"    /* IWYU pragma: export */
#include "clock.h"   /* IWYU pragma: export */
#include "device.h"  /* IWYU pragma: export */
#include "element.h" /* IWYU pragma: export */
#include "layer.h"   /* IWYU pragma: export */
#include "pool.h"    /* IWYU pragma: export */
#include "random.h"  /* IWYU pragma: export */

#endif
