/*
 * The phase table of one axis.
 *
 * Output o takes tap k from input i = (o + pad - k * dilation) / stride, where the division is exact. Outputs with the
 * same residue o mod stride take the same taps, so that they form a dense correlation of stride 1, a phase. With
 * o = stride * q + residue, the taps of a phase are an arithmetic progression:
 *
 *     tap t < taps is kernel index  first_kernel + t * kernel_step  and reads input  q + first_shift - t * shift_step
 *
 * with kernel_step = stride / c and shift_step = dilation / c, c = gcd(stride, dilation). Residues without a tap are
 * not listed: their outputs are the bias. Inputs outside [0, in) are taps that the border cuts off.
 */
#ifndef TCONV_CORE_PHASES_H
#define TCONV_CORE_PHASES_H

#include <stdbool.h>
#include <stdint.h>

#include "tconv/tconv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One spatial axis of a layer. */
typedef struct tconv_axis {
    int64_t in, out, kernel, stride, dilation, pad, output_padding; /* pad: before the first output (top or left) */
} tconv_axis;

typedef struct tconv_phase {
    int64_t residue;      /* of the outputs: o = stride * q + residue */
    int64_t outputs;      /* q < outputs; at least 1 */
    int64_t taps;         /* at least 1 */
    int64_t first_kernel; /* kernel index of tap 0 */
    int64_t first_shift;  /* input index of tap 0, less q */
} tconv_phase;

typedef struct tconv_phase_table {
    int64_t stride;
    int64_t kernel_step, shift_step; /* differences from one tap of a phase to the next; the shift falls */
    int64_t count;                   /* number of phases; 0 where no output has a tap */
    int64_t bias_only;               /* residues below min(stride, out) that are not listed */
    int64_t max_taps;                /* the most taps of a phase */
    int64_t min_shift, max_shift;    /* over all taps of all phases; 0 where there are none */
    tconv_phase *phases;             /* by ascending residue; owned */
} tconv_phase_table;

/* Makes the table of a validated axis. Its size is O(min(kernel, stride)), TCONV_MAX_PHASES at most. Fails only for
 * lack of memory. tconv_phases_release frees the table. */
tconv_status tconv_phases_create(const tconv_axis *axis, const tconv_allocator *allocator, tconv_phase_table *table,
                                 tconv_issue *issue);
void tconv_phases_release(tconv_phase_table *table, const tconv_allocator *allocator);

int64_t tconv_gcd(int64_t a, int64_t b);

#ifdef __cplusplus
}
#endif

#endif
