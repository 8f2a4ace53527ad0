/* Layers whose times were recorded on an H200 (bench/results), planned here for such a GPU, which need not be there. */
#ifndef TCONV_TESTS_SUPPORT_RECORDED_H
#define TCONV_TESTS_SUPPORT_RECORDED_H

#include "../src/core/impl.h"

enum { RECORDED_EXTENTS = 16, RECORDED_NAME = 32 };

/* Passes each line of a compressed file of bench/results to a function, but the first, which names the columns. */
void recorded_read(const char *path, void (*take)(void *context, char *line), void *context);

/* Returns the next field of a line, whose rest is *rest. */
char *recorded_field(char **rest);

/* Reads the extents of a layer, which are fields: N, Cin, H, W, Cout, kh, kw, sh, sw, ph, pw, oph, opw, dh, dw, g. */
void recorded_read_extents(char **rest, int64_t extents[RECORDED_EXTENTS]);

/* Makes the layer of such extents in a precision (tf32, f32, f16, bf16) and a layout (nchw, nhwc), with weights that are packed
 * before; recorded_release_layer releases what the layer owns. */
void recorded_make_layer(tconv_layer *layer, tconv_op op, const char *precision, const char *layout,
                         const int64_t extents[RECORDED_EXTENTS]);
void recorded_release_layer(tconv_layer *layer);

/* Plans a layer by an implementation, whose plan is dropped; returns whether the implementation takes the layer. */
bool recorded_plan(const tconv_implementation *implementation, const tconv_layer *layer, tconv_planned *planned,
                   tconv_issue *issue);

/* Returns the index of the least number. */
int recorded_least(const double *numbers, int count);

#endif
