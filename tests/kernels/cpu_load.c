/*
 * These kernels bring src into the strips of cpu_phases: rows of planes, rows of pixels, masked images. Rows have
 * every length up to some vectors, are read from right behind or before a page that may not be touched, and have gaps
 * around them in the strip that may not be written. The values are all that a dtype has.
 */
#include <math.h>

#include "cpu.h"
#include "families.h"
#include "harness.h"

/* Rows of more vectors than this have nothing new. */
enum { MOST_VECTORS = 3 };

/* So many elements between rows may not be written. */
enum { GAP = 3 };

/* What is timed lies in the first-level cache together with the strip. */
enum { BENCH_COUNT = 224, BENCH_CHANNELS = 4 };

/* -------------------------------------------------------------------------------------------------- rows of pixels */

/* A case is two rows of count pixels of each channel, with zeros beside them. */
typedef struct row_case {
    tconv_cpu_load_function *function;
    tconv_cpu_padded_row rows[2];
    tconv_cpu_load load;
} row_case;

static void call_rows(const void *argument)
{
    const row_case *rows = argument;
    rows->function(&rows->load);
}

static void make_rows(row_case *rows, const cpu_kernel *kernel, bool pixels, int64_t channels, int64_t count,
                      enum guard_side side, check_fill fill)
{
    const int64_t left = count % 3, right = count % 5, room = left + count + right + GAP, strip_channel = 2 * room;
    const int64_t pixel = pixels ? channels + GAP : 1, plane = pixels ? 1 : 2 * count + GAP;
    const int64_t last = (channels - 1) * plane + (count > 0 ? (2 * count - 1) * pixel : 0);
    check_buffer *src = check_input("src", kernel->dtype, last + 1, side, fill);
    check_buffer *strip = check_output("strip", kernel->real, channels * strip_channel, GUARD_AFTER);
    rows->function =
        pixels ? kernel->kernels->dtype[kernel->dtype].load_pixels : kernel->kernels->dtype[kernel->dtype].load_planes;
    rows->rows[0] = (tconv_cpu_padded_row){0, 0, left, count, right};
    rows->rows[1] = (tconv_cpu_padded_row){count * pixel, room, left, count, right};
    rows->load = (tconv_cpu_load){.src = src->data,
                                  .strip = strip->data,
                                  .src_channel = plane,
                                  .strip_channel = strip_channel,
                                  .src_pixel = pixel,
                                  .channels = channels,
                                  .row_count = 2,
                                  .rows = rows->rows};
    for (int64_t c = 0; c < channels; c++)
        for (int64_t row = 0; row < 2; row++)
            for (int64_t i = 0; i < left + count + right; i++) {
                const bool inside = i >= left && i < left + count;
                const int64_t from = c * plane + (row * count + i - left) * pixel;
                check_want(strip, c * strip_channel + row * room + i, inside ? check_get(src, from) : 0, 0);
            }
}

static void check_rows(const cpu_kernel *kernel, bool pixels, int64_t channels, int64_t count, enum guard_side side)
{
    row_case rows;
    check_case("%d channels, %d pixels%s", (int)channels, (int)count, side == GUARD_BEFORE ? ", behind a page" : "");
    make_rows(&rows, kernel, pixels, channels, count, side, CHECK_BITS);
    call_rows(&rows);
    check_outputs();
}

static void check_load_planes(const void *argument)
{
    const cpu_kernel *kernel = argument;
    for (int64_t count = 0; count < (MOST_VECTORS + 1) * kernel->lanes; count++)
        for (int side = GUARD_BEFORE; side <= GUARD_AFTER; side++)
            check_rows(kernel, false, 2, count, (enum guard_side)side);
    check_rows(kernel, false, BENCH_CHANNELS, 4001, GUARD_AFTER);
}

/* Blocks of vectors are transposed, so that channels have tails as pixels have. */
static void check_load_pixels(const void *argument)
{
    const cpu_kernel *kernel = argument;
    for (int64_t channels = 1; channels <= 2 * kernel->lanes + 1; channels++)
        for (int64_t count = 0; count <= MOST_VECTORS * kernel->lanes + 1; count++)
            check_rows(kernel, true, channels, count, channels % 2 ? GUARD_AFTER : GUARD_BEFORE);
    check_rows(kernel, true, 131, 301, GUARD_AFTER);
}

static void bench_rows(const cpu_kernel *kernel, bool pixels, int64_t channels, int64_t count)
{
    const double element = (double)(harness_element_size(kernel->dtype) + harness_element_size(kernel->real));
    const double bytes = 2.0 * (double)(channels * count) * element;
    row_case rows;
    make_rows(&rows, kernel, pixels, channels, count, GUARD_AFTER, CHECK_REALS);
    check_rate(call_rows, &rows, bytes, "GB/s", cpu_copy_bytes(bytes));
}

static void bench_load_planes(const void *kernel)
{
    bench_rows(kernel, false, BENCH_CHANNELS, BENCH_COUNT);
}

static void bench_load_pixels(const void *kernel)
{
    bench_rows(kernel, true, 64, BENCH_COUNT * BENCH_CHANNELS / 64);
}

/* ---------------------------------------------------------------------------------------------------- masked images */

enum { CHANNELS = 2, IMAGES = 2, ROWS = CHANNELS * IMAGES };

typedef struct masked_case {
    tconv_cpu_masked_load_function *function;
    tconv_cpu_masked_load load;
} masked_case;

static void call_masked(const void *argument)
{
    const masked_case *masked = argument;
    masked->function(&masked->load);
}

/* Images of count elements and some behind them, zero where the mask says so: every third element, and all from count
 * on, which lie behind the page for the last image. The zeros that follow the last image do so in each channel. */
static void make_masked(masked_case *masked, const cpu_kernel *kernel, int64_t count, int64_t zeros, check_fill fill)
{
    enum { BEHIND = 5 };
    static uint8_t mask[1024];
    const int64_t all = count + BEHIND, strip_image = all, strip_channel = IMAGES * all + zeros + GAP;
    check_buffer *src = check_input("src", kernel->dtype, ROWS * count, GUARD_AFTER, fill);
    check_buffer *strip = check_output("strip", kernel->real, CHANNELS * strip_channel - GAP, GUARD_AFTER);
    for (size_t i = 0; i < sizeof mask; i++)
        mask[i] = 0;
    for (int64_t i = 0; i < count; i++)
        mask[i / 8] = (uint8_t)(mask[i / 8] | (i % 3 != 0 ? 1 << i % 8 : 0));
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t i = 0; i < all + (row % IMAGES == IMAGES - 1 ? zeros : 0); i++)
            check_want(strip, row / IMAGES * strip_channel + row % IMAGES * strip_image + i,
                       i < count && i % 3 != 0 ? check_get(src, row * count + i) : 0, 0);
    masked->function = kernel->kernels->dtype[kernel->dtype].load_masked;
    masked->load = (tconv_cpu_masked_load){.src = src->data,
                                           .strip = strip->data,
                                           .src_channel = IMAGES * count,
                                           .strip_channel = strip_channel,
                                           .src_image = count,
                                           .strip_image = strip_image,
                                           .channels = CHANNELS,
                                           .images = IMAGES,
                                           .count = all,
                                           .zeros = zeros,
                                           .mask = mask};
}

/* Callers ask for as many zeros as round the images up to vectors. */
static void check_load_masked(const void *argument)
{
    const cpu_kernel *kernel = argument;
    for (int64_t count = 1; count <= MOST_VECTORS * kernel->lanes; count++)
        for (int64_t zeros = 0; zeros < kernel->lanes; zeros++) {
            masked_case masked;
            check_case("images of %d elements, %d zeros", (int)count, (int)zeros);
            make_masked(&masked, kernel, count, zeros, CHECK_BITS);
            call_masked(&masked);
            check_outputs();
        }
}

static void bench_load_masked(const void *argument)
{
    const cpu_kernel *kernel = argument;
    const double bytes =
        ROWS * BENCH_COUNT * (double)(harness_element_size(kernel->dtype) + harness_element_size(kernel->real));
    masked_case masked;
    make_masked(&masked, kernel, BENCH_COUNT, 0, CHECK_REALS);
    check_rate(call_masked, &masked, bytes, "GB/s", cpu_copy_bytes(bytes));
}

/* ----------------------------------------------------------------------------------------------------------- family */

static void visit(const cpu_kernel *kernel)
{
    static const check_entry rows[] = {{"load_planes", check_load_planes, bench_load_planes},
                                       {"load_pixels", check_load_pixels, bench_load_pixels}};
    static const check_entry masked[] = {{"load_masked", check_load_masked, bench_load_masked}};
    cpu_check_entries(rows, 2, kernel);
    if (kernel->kernels->dtype[kernel->dtype].load_masked != NULL)
        cpu_check_entries(masked, 1, kernel);
}

void check_cpu_load(void)
{
    cpu_each_dtype(visit);
}
