/*
 * These kernels write the rows of dst in cpu_phases: storing sums, interleaved, scattered or as pixels; stencils, which
 * sum and store; filling. Rows have every length up to some vectors, end or begin at a page that may not be touched,
 * and have gaps between them that may not be written.
 */
#include <math.h>

#include "cpu.h"
#include "families.h"
#include "harness.h"

/* Rows of more vectors than this have nothing new. */
enum { MOST_VECTORS = 3 };

/* So many elements between rows may not be written. */
enum { GAP = 3 };

/* So many channels are stored in one call where their number makes no difference. */
enum { CHANNELS = 2 };

/* A row that is timed has so many outputs. */
enum { BENCH_COUNT = 1024 };

static enum guard_side side_of(int64_t count)
{
    return count % 2 ? GUARD_AFTER : GUARD_BEFORE;
}

/* Every short count of outputs is worth it, those around whole vectors of each residue, and some between. */
static bool is_worth_a_check(int64_t count, int64_t residues, int lanes)
{
    return count <= 2 * lanes + 1 || (count + 2) % (residues * lanes) <= 4 || count % 37 == 0;
}

static double bytes_of(const cpu_kernel *kernel, int64_t read, int64_t written)
{
    return (double)(read * (int64_t)harness_element_size(kernel->real) +
                    written * (int64_t)harness_element_size(kernel->dtype));
}

/* ---------------------------------------------------------------------------------------------------------- storing */

typedef struct store_case {
    tconv_cpu_store_function *function;
    int32_t rows[TCONV_CPU_MAX_INTERLEAVE];
    tconv_cpu_store store;
} store_case;

static void call_store(const void *argument)
{
    const store_case *store = argument;
    store->function(&store->store);
}

/* What a store does beside rounding. */
enum manner { PLAIN, STREAMED, ACCUMULATED, BIASED, MANNERS };
static const char *const manners[] = {"", ", streamed", ", accumulated", ", the bias added"};

/* Count outputs of each channel, from rows of sums that are whole vectors; of each position, every third residue is no
 * sum but a bias, of this channel and the next in turn. */
static void make_interleaved(store_case *store, const cpu_kernel *kernel, int64_t residues, int64_t count,
                             enum manner manner, check_fill fill)
{
    const int64_t positions = (count + residues - 1) / residues, pitch = cpu_whole_vectors(kernel, positions);
    const int64_t dst_channel = count + GAP;
    check_buffer *sums = check_input("sums", kernel->real, residues * CHANNELS * pitch, GUARD_AFTER, fill);
    check_buffer *bias = check_input("bias", kernel->real, CHANNELS + 1, GUARD_AFTER, fill);
    check_buffer *dst = check_output("dst", kernel->dtype, CHANNELS * dst_channel, side_of(count));
    for (int64_t r = 0; r < residues; r++)
        store->rows[r] = r % 3 == 1 ? (int32_t)(-1 - r / 3 % 2) : (int32_t)(r * CHANNELS * pitch);
    for (int64_t c = 0; c < CHANNELS; c++)
        for (int64_t i = 0; i < count; i++) {
            const int32_t row = store->rows[i % residues];
            double sum = row < 0 ? check_get(bias, c - 1 - row) : check_get(sums, row + c * pitch + i / residues);
            if (manner == BIASED)
                sum = harness_element_round(kernel->real, (row < 0 ? 0 : sum) + check_get(bias, c));
            cpu_want_stored(kernel, dst, c * dst_channel + i, sum, manner == ACCUMULATED);
        }
    store->function = kernel->kernels->dtype[kernel->dtype].store_interleaved;
    store->store = (tconv_cpu_store){.sums = sums->data,
                                     .channel_stride = pitch,
                                     .channels = CHANNELS,
                                     .count = count,
                                     .residues = residues,
                                     .rows = store->rows,
                                     .dst = dst->data,
                                     .dst_channel = dst_channel,
                                     .finish = {.bias = bias->data,
                                                .row_channels = 1,
                                                .steps = manner == BIASED        ? TCONV_CPU_ADD_BIAS
                                                         : manner == ACCUMULATED ? TCONV_CPU_ADD_HELD
                                                                                 : 0}};
    if (manner == STREAMED)
        store->store.stage = check_scratch("stage", kernel->dtype, count + residues * kernel->lanes, GUARD_AFTER)->data;
}

static void check_interleaved(const cpu_kernel *kernel, int64_t residues, int64_t count, enum manner manner)
{
    store_case store;
    check_case("%d residues, %d outputs%s", (int)residues, (int)count, manners[manner]);
    make_interleaved(&store, kernel, residues, count, manner, CHECK_BITS);
    call_store(&store);
    kernel->kernels->order_stores();
    check_outputs();
}

static void check_store_interleaved(const void *argument)
{
    const cpu_kernel *kernel = argument;
    for (int64_t residues = 1; residues <= TCONV_CPU_MAX_INTERLEAVE; residues++) {
        for (int64_t count = 0; count <= MOST_VECTORS * residues * kernel->lanes + 2; count++)
            for (int manner = 0; manner < MANNERS && is_worth_a_check(count, residues, kernel->lanes); manner++)
                check_interleaved(kernel, residues, count, (enum manner)manner);
        check_interleaved(kernel, residues, 4001, STREAMED);
    }
}

static void bench_store_interleaved(const void *argument)
{
    const cpu_kernel *kernel = argument;
    const double bytes = bytes_of(kernel, CHANNELS * BENCH_COUNT, CHANNELS * BENCH_COUNT);
    store_case store;
    make_interleaved(&store, kernel, 2, BENCH_COUNT, PLAIN, CHECK_REALS);
    store.rows[1] = (int32_t)(CHANNELS * store.store.channel_stride); /* both residues are sums */
    check_rate(call_store, &store, bytes, "GB/s", cpu_copy_bytes(bytes));
}

/* Positions of a row, or pixels, are stored one by one. */
static void make_positions(store_case *store, const cpu_kernel *kernel, bool pixels, int64_t channels,
                           int64_t positions, enum manner manner, check_fill fill)
{
    const int64_t pitch = cpu_whole_vectors(kernel, positions), position = pixels ? channels + GAP : GAP;
    const int64_t channel = pixels ? 1 : positions * position + GAP;
    const int64_t last = (channels - 1) * channel + (positions > 0 ? (positions - 1) * position : 0);
    check_buffer *sums = check_input("sums", kernel->real, channels * pitch, GUARD_AFTER, fill);
    check_buffer *bias = check_input("bias", kernel->real, channels, GUARD_AFTER, fill);
    check_buffer *dst = check_output("dst", kernel->dtype, last + 1, side_of(positions));
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < positions; i++) {
            double sum = check_get(sums, c * pitch + i);
            if (manner == BIASED)
                sum = harness_element_round(kernel->real, sum + check_get(bias, c));
            cpu_want_stored(kernel, dst, c * channel + i * position, sum, manner == ACCUMULATED);
        }
    store->function = pixels ? kernel->kernels->dtype[kernel->dtype].store_pixels
                             : kernel->kernels->dtype[kernel->dtype].store_scattered;
    store->store = (tconv_cpu_store){.sums = sums->data,
                                     .channel_stride = pitch,
                                     .channels = channels,
                                     .count = positions,
                                     .dst = dst->data,
                                     .dst_channel = channel,
                                     .dst_position = position,
                                     .finish = {.bias = bias->data,
                                                .row_channels = pixels ? channels : 1,
                                                .steps = manner == BIASED        ? TCONV_CPU_ADD_BIAS
                                                         : manner == ACCUMULATED ? TCONV_CPU_ADD_HELD
                                                                                 : 0}};
}

static void check_positions(const cpu_kernel *kernel, bool pixels, int64_t channels, int64_t positions)
{
    for (int manner = PLAIN; manner < MANNERS; manner++) {
        if (manner == STREAMED)
            continue;
        store_case store;
        check_case("%d channels, %d positions%s", (int)channels, (int)positions, manners[manner]);
        make_positions(&store, kernel, pixels, channels, positions, (enum manner)manner, CHECK_BITS);
        call_store(&store);
        kernel->kernels->order_stores();
        check_outputs();
    }
}

static void check_store_scattered(const void *argument)
{
    const cpu_kernel *kernel = argument;
    for (int64_t positions = 0; positions < (MOST_VECTORS + 1) * kernel->lanes; positions++)
        check_positions(kernel, false, CHANNELS, positions);
    check_positions(kernel, false, CHANNELS, 1001);
}

static void check_store_pixels(const void *argument)
{
    const cpu_kernel *kernel = argument;
    for (int64_t channels = 1; channels <= TCONV_CPU_MAX_CHANNELS; channels++) {
        for (int64_t positions = 0; positions <= MOST_VECTORS * kernel->lanes + 1; positions++)
            check_positions(kernel, true, channels, positions);
        check_positions(kernel, true, channels, 1001);
    }
}

static void bench_positions(const cpu_kernel *kernel, bool pixels, int64_t channels)
{
    const int64_t outputs = BENCH_COUNT / channels * channels;
    const double bytes = bytes_of(kernel, outputs, outputs);
    store_case store;
    make_positions(&store, kernel, pixels, channels, BENCH_COUNT / channels, PLAIN, CHECK_REALS);
    check_rate(call_store, &store, bytes, "GB/s", cpu_copy_bytes(bytes));
}

static void bench_store_scattered(const void *kernel)
{
    bench_positions(kernel, false, CHANNELS);
}

static void bench_store_pixels(const void *kernel)
{
    bench_positions(kernel, true, 4);
}

/* --------------------------------------------------------------------------------------------------------- stencils */

/* A residue has at most so many terms here, which reach so far. */
enum { STENCIL_TERMS = 4, STENCIL_REACH = 9 };

typedef struct stencil_case {
    tconv_cpu_stencil_function *function;
    int32_t terms[TCONV_CPU_MAX_INTERLEAVE + 1], offsets[TCONV_CPU_MAX_INTERLEAVE * STENCIL_TERMS];
    tconv_cpu_stencil stencil;
} stencil_case;

static void call_stencil(const void *argument)
{
    const stencil_case *stencil = argument;
    stencil->function(&stencil->stencil);
}

/* A plain sum is wanted, with the rounding of dtype in its bound. */
static void want_stencil(const stencil_case *stencil, check_buffer *dst, int64_t i, const check_buffer *strip,
                         const check_buffer *weights, const check_buffer *bias, check_fill fill)
{
    const int64_t residues = stencil->stencil.residues, position = i / residues;
    long double sum = check_get(bias, 0), magnitude = fabsl(sum);
    for (int32_t t = stencil->terms[i % residues]; t < stencil->terms[i % residues + 1]; t++) {
        const long double product =
            (long double)check_get(weights, t) * check_get(strip, position + stencil->offsets[t]);
        sum += product;
        magnitude += fabsl(product);
    }
    double bound = CHECK_SUM_ROUNDINGS * check_rounding(strip->dtype) * (double)magnitude;
    if (dst->dtype != strip->dtype)
        bound += harness_element_half_ulp(dst->dtype, (double)fabsl(sum) + bound);
    check_want(dst, i, sum, fill == CHECK_INTEGERS ? 0 : bound);
}

/* Residue r has r % 5 terms. Positions are read by whole blocks of vectors. */
static void make_stencil(stencil_case *stencil, const cpu_kernel *kernel, int64_t residues, int64_t count,
                         bool streamed, check_fill fill)
{
    const int64_t block = TCONV_CPU_STENCIL_VECTORS * kernel->lanes, step = block * residues;
    const int64_t positions = (count + step - 1) / step * block, behind = count % 2 ? GAP : 0;
    stencil->terms[0] = 0;
    for (int64_t r = 0; r < residues; r++) {
        stencil->terms[r + 1] = stencil->terms[r] + (int32_t)(r % (STENCIL_TERMS + 1));
        for (int32_t t = stencil->terms[r]; t < stencil->terms[r + 1]; t++)
            stencil->offsets[t] = (int32_t)(3 * (t % 4));
    }
    check_buffer *strip = check_input("strip", kernel->real, positions + STENCIL_REACH, GUARD_AFTER, fill);
    check_buffer *weights = check_input("weights", kernel->real, stencil->terms[residues], GUARD_AFTER, fill);
    check_buffer *bias = check_input("bias", kernel->real, 1, GUARD_AFTER, fill);
    check_buffer *dst = check_output("dst", kernel->dtype, count + behind, count % 2 ? GUARD_BEFORE : GUARD_AFTER);
    stencil->function = kernel->kernels->dtype[kernel->dtype].stencil;
    stencil->stencil = (tconv_cpu_stencil){.strip = strip->data,
                                           .residues = residues,
                                           .terms = stencil->terms,
                                           .offsets = stencil->offsets,
                                           .weights = weights->data,
                                           .bias = bias->data,
                                           .dst = dst->data,
                                           .count = count};
    for (int64_t i = 0; i < count; i++)
        want_stencil(stencil, dst, i, strip, weights, bias, fill);
    if (streamed)
        stencil->stencil.stage = check_scratch("stage", kernel->dtype, count + step, GUARD_AFTER)->data;
}

static void check_stencil(const void *argument)
{
    const cpu_kernel *kernel = argument;
    for (int64_t residues = 1; residues <= TCONV_CPU_MAX_INTERLEAVE; residues++)
        for (int64_t count = 0; count <= 2 * TCONV_CPU_STENCIL_VECTORS * kernel->lanes * residues + 2; count++)
            for (int way = 0; way < 4 && is_worth_a_check(count, residues, kernel->lanes); way++) {
                stencil_case stencil;
                const bool streamed = way % 2 == 1;
                const check_fill fill = way < 2 ? CHECK_INTEGERS : CHECK_REALS;
                check_case("%d residues, %d outputs, %s%s", (int)residues, (int)count, way < 2 ? "integers" : "reals",
                           streamed ? ", streamed" : "");
                make_stencil(&stencil, kernel, residues, count, streamed, fill);
                call_stencil(&stencil);
                kernel->kernels->order_stores();
                check_outputs();
            }
}

/* The four residues have 0, 1, 2 and 3 terms. */
static void bench_stencil(const void *argument)
{
    const cpu_kernel *kernel = argument;
    stencil_case stencil;
    make_stencil(&stencil, kernel, 4, BENCH_COUNT, false, CHECK_REALS);
    check_rate(call_stencil, &stencil, 2.0 * 6 * BENCH_COUNT / 4, "GFLOP/s", cpu_flops(kernel));
}

/* ---------------------------------------------------------------------------------------------------------- filling */

typedef struct fill_case {
    tconv_cpu_fill_function *function;
    char value[sizeof(double)];
    void *dst;
    size_t size;
    int64_t count;
    bool stream;
} fill_case;

static void call_fill(const void *argument)
{
    const fill_case *fill = argument;
    fill->function(fill->dst, fill->value, fill->size, fill->count, fill->stream);
}

/* Count elements from so many behind a cache line's beginning; only their end is at the end of a page, or before a
 * gap. */
static void make_fill(fill_case *fill, const cpu_kernel *kernel, int64_t place, int64_t count, bool stream)
{
    const int64_t behind = count % 2 ? GAP : 0;
    check_buffer *dst =
        check_output("dst", kernel->dtype, place + count + behind, count % 2 ? GUARD_BEFORE : GUARD_AFTER);
    *fill = (fill_case){.function = kernel->kernels->fill,
                        .size = harness_element_size(kernel->dtype),
                        .count = count,
                        .stream = stream};
    fill->dst = (char *)dst->data + (size_t)place * fill->size;
    harness_element_set(kernel->dtype, fill->value, 0, 1.5);
    for (int64_t i = place; i < place + count; i++)
        check_want(dst, i, 1.5, 0);
}

/* A row may begin at each place within a cache line that an element can have. */
static void check_fill_rows(const void *argument)
{
    const cpu_kernel *kernel = argument;
    const int64_t places = 64 / (int64_t)harness_element_size(kernel->dtype);
    for (int64_t place = 0; place < places; place++)
        for (int64_t count = 0; count <= 3 * places + 1; count++)
            for (int stream = 0; stream < 2; stream++) {
                fill_case fill;
                check_case("%d elements after %d%s", (int)count, (int)place, stream ? ", streamed" : "");
                make_fill(&fill, kernel, place, count, stream == 1);
                call_fill(&fill);
                kernel->kernels->order_stores();
                check_outputs();
            }
}

static void bench_fill_rows(const void *argument)
{
    const cpu_kernel *kernel = argument;
    const double bytes = bytes_of(kernel, 0, 4 * BENCH_COUNT);
    fill_case fill;
    make_fill(&fill, kernel, 0, 4 * BENCH_COUNT, false);
    check_rate(call_fill, &fill, bytes, "GB/s", cpu_copy_bytes(bytes));
}

/* ----------------------------------------------------------------------------------------------------------- family */

static void visit(const cpu_kernel *kernel)
{
    static const check_entry entries[] = {{"store_interleaved", check_store_interleaved, bench_store_interleaved},
                                          {"store_scattered", check_store_scattered, bench_store_scattered},
                                          {"store_pixels", check_store_pixels, bench_store_pixels},
                                          {"stencil", check_stencil, bench_stencil},
                                          {"fill", check_fill_rows, bench_fill_rows}};
    cpu_check_entries(entries, sizeof entries / sizeof entries[0], kernel);
}

void check_cpu_store(void)
{
    cpu_each_dtype(visit);
}
