/*
 * The kernels of one instruction set: microkernels, and the functions on rows around them (loading a strip, storing
 * results), for every dtype. The same source text, kernels.inc.h, is compiled once for each level of instructions; each
 * file then exports one table.
 *
 * "Real" is the type of the sums: double for f64, float for every other dtype. Strides and offsets count elements.
 * "Streamed" outputs are written with streaming (non-temporal) stores, which go past the caches.
 */
#ifndef TCONV_CPU_KERNELS_KERNELS_H
#define TCONV_CPU_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../core/dtype.h"
#include "finish.h"

/* Output channels of the largest micro-tile of any level: AVX-512 has 24 sums in 32 registers, 12 channels x 2
 * vectors. */
enum { TCONV_CPU_MAX_CHANNELS = 12 };

/* Vectors of positions of the largest micro-tile of any level: those of one channel. 8 independent sums cover the
 * latency of multiply-adds, 4 cycles at two a cycle. */
enum { TCONV_CPU_MAX_VECTORS = 8 };

/* The most residues of an output row that a level interleaves; rows of a larger stride are scattered. It is chosen,
 * not measured. */
enum { TCONV_CPU_MAX_INTERLEAVE = 16 };

/* Terms by which microkernels unroll their loops. A loop of a segment is then short enough for the processor to foresee
 * its end: unrolled by one, AVX-512 took 5 % longer in NCHW over 28 layers, up to 26 % (two cores of an Emerald Rapids,
 * docs/log/2026-11-26-cpu-intel.md). */
enum { TCONV_CPU_UNROLL = 4 };

/* A piece of memory that is prefetched during one segment (see below): with every TCONV_CPU_UNROLL terms, the cache line
 * at first + the next of line_offsets. */
typedef struct tconv_cpu_prefetch_piece {
    const char *first;
    int64_t more; /* 1: the next segment has a piece of its own; 0: all segments that follow repeat this one */
} tconv_cpu_prefetch_piece;

/*
 * One call of a microkernel: it sums a micro-tile of channels x vectors over terms. What the terms read of the strip
 * repeats with a period,
 *
 *     sums[m][v][lane] = sum over t of weights[t][m] *
 *                        strip[vectors[v] + t / period * period_stride + offsets[t % period] + lane]
 *
 * Rounding errors grow with the terms of a running sum, so sums go through a cascade: pairwise summation of segments. A
 * segment of so many terms is summed from zero in registers; none goes beyond the end of its period. Level k of the
 * cascade holds a sum of 2^k segments, as a digit of a binary counter. At the end of segment s, its sum is added to the
 * levels that s has ones of, and kept at the next level; the last segment's sum is added to all levels that are left.
 * So sums of like numbers are added, which is exact where the numbers are equal, and else one rounding for each
 * doubling. A call may go on where others stopped: the sums of calls go through a cascade of their own, whose levels
 * are in sums. Only the last call adds all of its levels, and the bias, to level 0.
 */
typedef struct tconv_cpu_microtile {
    const void *strip;
    const int32_t *vectors; /* where each vector of positions begins in the strip */
    const int32_t *offsets; /* [period] */
    int64_t terms, period, period_stride;
    int64_t segment; /* at least 1 */
    const void *weights;
    void *levels; /* this call's cascade: aligned, [level][channels][vectors * lanes] */
    void *sums;   /* level 0 of the calls' cascade: aligned, [channels][sums_stride], vectors one after another */
    int64_t sums_stride;
    int64_t sums_level; /* from one level of the calls' cascade to the next */
    int64_t calls_done; /* calls before this one */
    bool last;          /* no call follows */
    const void *bias;   /* [channels] */
    const tconv_cpu_prefetch_piece *pieces;
    const int32_t *line_offsets; /* [segment] */
} tconv_cpu_microtile;

typedef void tconv_cpu_microkernel(const tconv_cpu_microtile *microtile);

/* A row of the strip with its zero padding: [left zeros][count elements][right zeros]. */
typedef struct tconv_cpu_padded_row {
    int64_t src, strip; /* where it begins in each, in elements from the first channel's begin */
    int64_t left, count, right;
} tconv_cpu_padded_row;

/* Loads rows of each of some channels, converted to Real, into a strip. */
typedef struct tconv_cpu_load {
    const void *src;
    void *strip;
    int64_t src_channel, strip_channel; /* from channel to channel */
    int64_t src_pixel;                  /* from pixel to pixel */
    int64_t second;                     /* load_pairs: from the first number of a word to the second; 0: that is zero */
    int64_t channels, row_count;
    const tconv_cpu_padded_row *rows;
} tconv_cpu_load;

typedef void tconv_cpu_load_function(const tconv_cpu_load *load);

/* Elements of a row of which each is a stride from the one before, and where they begin in the strip, one after another. */
typedef struct tconv_cpu_split_run {
    int64_t residue;      /* below the stride */
    int64_t first, count; /* element i is element stride * (first + i) + residue of the row, zero outside of it */
    int64_t strip;        /* from where the row's strip begins */
} tconv_cpu_split_run;

/* Splits rows of each of some channels, converted to Real, into runs, by ascending residues. */
typedef struct tconv_cpu_split_load {
    const void *src;
    void *strip;
    int64_t src_channel, strip_channel; /* from channel to channel */
    int64_t channels, row_count, run_count;
    int64_t stride, length;           /* length: elements of a row */
    int64_t second;                   /* split_pairs: see tconv_cpu_load */
    const tconv_cpu_padded_row *rows; /* count: not 0, or all are zeros */
    const tconv_cpu_split_run *runs;
} tconv_cpu_split_load;

typedef void tconv_cpu_split_load_function(const tconv_cpu_split_load *load);

/* Loads contiguous elements of each of some channels and images, converted to Real, into a strip: element i where
 * bit i % 8 of mask[i / 8] is set, zero where it is not; an element without its bit is not read. Zeros follow the
 * last image. */
typedef struct tconv_cpu_masked_load {
    const void *src;
    void *strip;
    int64_t src_channel, strip_channel, src_image, strip_image; /* from one to the next */
    int64_t channels, images, count, zeros;
    const uint8_t *mask; /* whole vectors of bits, none set from count on */
} tconv_cpu_masked_load;

typedef void tconv_cpu_masked_load_function(const tconv_cpu_masked_load *load);

/* A tap of weights that are packed: where it lies in a filter; where the first channel's row goes in what is packed, and from
 * one channel's to the next one's. */
typedef struct tconv_cpu_packed_tap {
    int64_t from, to, pitch;
} tconv_cpu_packed_tap;

/*
 * Packs weights, converted to Real, from any layout. A row of what is packed has the weights of one tap and one channel for
 * `count` channels of the other side, and zeros behind them up to `width`: packed[to + c * pitch + m] =
 * weights[places[m] + c * step + from]. Returns whether all of them are finite.
 */
typedef struct tconv_cpu_pack {
    const void *weights;
    void *packed;
    const int64_t *places; /* the first is 0 */
    int64_t count, width;
    int64_t channels, step;
    int64_t tap_count;
    const tconv_cpu_packed_tap *taps;
} tconv_cpu_pack;

typedef bool tconv_cpu_pack_function(const tconv_cpu_pack *pack);

/* Taps that callers list for one call: those of a kernel, unless it is large. The number is chosen, not measured. */
enum { TCONV_CPU_LISTED_TAPS = 64 };

/* Stores sums[row][position] as dtype; the rows of one phase lie channel_stride apart. */
typedef struct tconv_cpu_store {
    const void *sums;
    int64_t channel_stride;
    int64_t channels;
    int64_t count;        /* interleaved: outputs; else positions */
    int64_t residues;     /* interleaved: outputs per position, at most TCONV_CPU_MAX_INTERLEAVE */
    const int32_t *rows;  /* interleaved: [residues], where the residue's sums begin; -1 - c: the bias of channel c */
    void *dst;            /* the first output */
    int64_t dst_channel;  /* from channel to channel */
    int64_t dst_position; /* not interleaved: from position to position */
    /* interleaved: a staging buffer of count outputs and a vector for each residue, from which the outputs are
     * streamed, if the finish is plain; NULL: they are not. */
    void *stage;
    tconv_cpu_finish finish; /* interleaved: bias-only rows take their bias from it, whatever the sums have */
} tconv_cpu_store;

typedef void tconv_cpu_store_function(const tconv_cpu_store *store);

/*
 * A stencil sums and stores one row of a channel that has one input channel, without a round trip through memory:
 *
 *     dst[position * residues + r] =
 *         bias + sum over terms[r] <= t < terms[r + 1] of weights[t] * strip[position + offsets[t]]
 *
 * in the order of t, from zero, the bias last.
 */
typedef struct tconv_cpu_stencil {
    const void *strip;
    int64_t residues;       /* at most TCONV_CPU_MAX_INTERLEAVE */
    const int32_t *terms;   /* [residues + 1] */
    const int32_t *offsets; /* [terms], what each adds to the position */
    const void *weights;    /* Real, [terms] */
    const void *bias;       /* one Real */
    void *dst;
    int64_t count;                /* outputs */
    void *stage;                  /* as in tconv_cpu_store, but TCONV_CPU_STENCIL_VECTORS vectors for each residue */
    const tconv_cpu_posts *posts; /* outputs go through this list without an addend; NULL: there is none */
    int64_t channel;              /* with posts: of all groups */
} tconv_cpu_stencil;

typedef void tconv_cpu_stencil_function(const tconv_cpu_stencil *stencil);

/* Vectors of positions that a stencil sums at a time; it reads whole vectors. It is chosen, not measured. */
enum { TCONV_CPU_STENCIL_VECTORS = 2 };

/* Writes count elements of size bytes, each a copy of value; with stream by streaming stores. */
typedef void tconv_cpu_fill_function(void *dst, const void *value, size_t size, int64_t count, bool stream);

/* Puts a row of f32 through an activation function, TCONV_POST_SIGMOID to TCONV_POST_SNAKE; first and second are SNAKE's
 * numbers of each element. */
typedef void tconv_cpu_activate_function(float *row, int64_t count, const tconv_post_op *post, const float *first,
                                         const float *second);

typedef struct tconv_cpu_kernels {
    int max_channels;              /* of a micro-tile */
    bool streams;                  /* whether the level has streaming stores */
    tconv_cpu_fill_function *fill; /* serves every dtype */
    tconv_cpu_activate_function *activate;
    void (*order_stores)(void); /* orders streamed stores before the thread's next ones */
    /* NCHW: loads of bf16 by words of two channels, the first in the lower half, which count as channels; NULL: none */
    tconv_cpu_load_function *load_pairs;
    tconv_cpu_split_load_function *split_pairs;
    /* By the type of the sums: [0] float, [1] double. */
    struct {
        int lanes;
        tconv_cpu_sum_rows_function *post_rows;
        int max_vectors[TCONV_CPU_MAX_CHANNELS + 1]; /* of a micro-tile, by its channels */
        tconv_cpu_microkernel *microkernels[TCONV_CPU_MAX_CHANNELS + 1][TCONV_CPU_MAX_VECTORS + 1];
    } real[2];
    /* By dtype. */
    struct {
        tconv_cpu_load_function *load_planes;        /* NCHW: src_pixel is 1 */
        tconv_cpu_load_function *load_pixels;        /* NHWC: src_channel is 1 */
        tconv_cpu_split_load_function *load_split;   /* NCHW */
        tconv_cpu_masked_load_function *load_masked; /* NCHW; NULL: the level has none */
        tconv_cpu_store_function *store_interleaved; /* residues of a position are contiguous, one phase or more */
        tconv_cpu_store_function *store_scattered;   /* one phase: NCHW where the stride is large */
        tconv_cpu_store_function *store_pixels;      /* one phase: NHWC, dst_channel is 1 */
        tconv_cpu_stencil_function *stencil;
        tconv_cpu_pack_function *pack;
    } dtype[TCONV_DTYPES];
} tconv_cpu_kernels;

extern const tconv_cpu_kernels tconv_cpu_kernels_generic;
extern const tconv_cpu_kernels tconv_cpu_kernels_avx2;
extern const tconv_cpu_kernels tconv_cpu_kernels_avx512;
extern const tconv_cpu_kernels tconv_cpu_kernels_neon;

/* Returns the table of a level that tconv_cpu_resolve gave. */
const tconv_cpu_kernels *tconv_cpu_find_kernels(tconv_cpu_isa isa);

#endif
