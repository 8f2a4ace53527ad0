/*
 * What moves rows between tensors and strips or sums: loading, storing, stencils, filling, for every dtype at every
 * instruction set that this machine has, called by themselves, against plain loops. Rows have every length up to some
 * vectors, read from right behind or before a page that may not be touched; what is written has marks around each row.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "support/levels.h"

/* Rows of more vectors than this have nothing new. */
#define MOST_VECTORS 3

/* Elements between rows that nothing may write. */
#define GAP 3

static const tconv_dtype dtypes[] = {TCONV_F32, TCONV_F64, TCONV_F16, TCONV_BF16};

/* One dtype of one level. */
typedef struct row_kernels {
    const struct level *level;
    tconv_dtype dtype, real;
    int lanes;
} row_kernels;

typedef void row_test(const row_kernels *kernels);

static void test_rows(row_test *test)
{
    struct level levels[MAX_LEVELS];
    int count = list_levels(levels);
    cr_assert_gt(count, 0);
    for (int l = 0; l < count; l++)
        for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
            row_kernels kernels = {&levels[l], dtypes[d], level_real(dtypes[d]), level_lanes(&levels[l], dtypes[d])};
            test(&kernels);
        }
}

/* Fails unless the elements of data are expected, which it frees. */
static void expect_elements(tconv_dtype dtype, const void *data, double *expected, int64_t count,
                            const row_kernels *kernels, const char *what)
{
    for (int64_t i = 0; i < count; i++) {
        double got = harness_element_get(dtype, data, i);
        if (got != expected[i])
            cr_assert_fail("%s %s %s: element %d is %g, not %g", kernels->level->name,
                           harness_dtype_name(kernels->dtype), what, (int)i, got, expected[i]);
    }
    free(expected);
}

static double *make_marks(int64_t count)
{
    double *marks = malloc((size_t)(count + 1) * sizeof *marks);
    cr_assert_neq(marks, NULL);
    for (int64_t i = 0; i < count; i++)
        marks[i] = LEVEL_MARK;
    return marks;
}

/* Small ones, up to a page that may not be touched. */
static struct guarded make_integers(tconv_dtype dtype, int64_t count, harness_random *random)
{
    struct guarded made = guard_allocate((size_t)count * harness_element_size(dtype), GUARD_AFTER);
    for (int64_t i = 0; i < count; i++)
        harness_element_set(dtype, made.data, i, (double)harness_random_integer(random, -4, 4));
    return made;
}

/* ------------------------------------------------------------------------------------------------------------- loading */

/* Loads two rows of count pixels of each channel, with zeros beside them. pixels: NHWC. */
static void load_rows(const row_kernels *kernels, bool pixels, int64_t channels, int64_t count, enum guard_side side)
{
    const int64_t left = count % 3, right = count % 5, room = left + count + right + GAP, strip_channel = 2 * room;
    const int64_t pixel = pixels ? channels + GAP : 1, plane = pixels ? 1 : 2 * count + GAP;
    const int64_t last = (channels - 1) * plane + (count > 0 ? (2 * count - 1) * pixel : 0);
    struct guarded src = level_make_random(kernels->dtype, last + 1, side, (uint64_t)count);
    struct guarded strip = level_make_elements(kernels->real, channels * strip_channel, LEVEL_MARK, GUARD_AFTER);
    const tconv_cpu_padded_row rows[2] = {{0, 0, left, count, right}, {count * pixel, room, left, count, right}};
    const tconv_cpu_load load = {.src = src.data,
                                 .strip = strip.data,
                                 .src_channel = plane,
                                 .strip_channel = strip_channel,
                                 .src_pixel = pixel,
                                 .channels = channels,
                                 .row_count = 2,
                                 .rows = rows};
    double *expected = make_marks(channels * strip_channel);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t row = 0; row < 2; row++)
            for (int64_t i = 0; i < left + count + right; i++) {
                bool inside = i >= left && i < left + count;
                int64_t from = c * plane + (row * count + i - left) * pixel;
                expected[c * strip_channel + row * room + i] =
                    inside ? harness_element_get(kernels->dtype, src.data, from) : 0;
            }
    guard_protect(&src);
    if (pixels)
        kernels->level->kernels->dtype[kernels->dtype].load_pixels(&load);
    else
        kernels->level->kernels->dtype[kernels->dtype].load_planes(&load);
    char what[96];
    snprintf(what, sizeof what, "%s, %d channels, %d pixels", pixels ? "load_pixels" : "load_planes", (int)channels,
             (int)count);
    expect_elements(kernels->real, strip.data, expected, channels * strip_channel, kernels, what);
    guard_release(&src);
    guard_release(&strip);
}

static void test_load_planes(const row_kernels *kernels)
{
    for (int64_t count = 0; count < (MOST_VECTORS + 1) * kernels->lanes; count++)
        for (int side = GUARD_BEFORE; side <= GUARD_AFTER; side++)
            load_rows(kernels, false, 2, count, (enum guard_side)side);
}

/* Blocks of vectors are transposed, so that channels have tails as pixels have. */
static void test_load_pixels(const row_kernels *kernels)
{
    for (int64_t channels = 1; channels <= 2 * kernels->lanes + 1; channels++)
        for (int64_t count = 0; count <= MOST_VECTORS * kernels->lanes + 1; count++)
            load_rows(kernels, true, channels, count, channels % 2 ? GUARD_AFTER : GUARD_BEFORE);
}

Test(kernel_rows, load_planes_at_every_length)
{
    test_rows(test_load_planes);
}

/* Loads two images of two channels, with zeros where the mask says so: every third element, and all from count on, which
 * lie behind the page for the last image. */
static void load_masked(const row_kernels *kernels, int64_t count)
{
    enum { BEHIND = 5 };
    const int64_t all = count + BEHIND, room = all + GAP;
    harness_random random;
    harness_random_seed(&random, (uint64_t)count);
    struct guarded src = make_integers(kernels->dtype, 4 * count, &random);
    void *strip = calloc((size_t)(4 * room), harness_element_size(kernels->real));
    uint8_t *mask = calloc((size_t)all / 8 + 16, 1);
    double *expected = make_marks(4 * room);
    cr_assert(strip != NULL && mask != NULL);
    for (int64_t i = 0; i < 4 * room; i++)
        harness_element_set(kernels->real, strip, i, LEVEL_MARK);
    for (int64_t i = 0; i < count; i++)
        mask[i / 8] = (uint8_t)(mask[i / 8] | (i % 3 != 0 ? 1 << i % 8 : 0));
    for (int64_t row = 0; row < 4; row++)
        for (int64_t i = 0; i < all; i++)
            expected[row * room + i] =
                i < count && i % 3 != 0 ? harness_element_get(kernels->dtype, src.data, row * count + i) : 0;
    kernels->level->kernels->dtype[kernels->dtype].load_masked(&(tconv_cpu_masked_load){
        .src = src.data,
        .strip = strip,
        .src_channel = 2 * count,
        .strip_channel = 2 * room,
        .src_image = count,
        .strip_image = room,
        .channels = 2,
        .images = 2,
        .count = all,
        .mask = mask,
    });
    expect_elements(kernels->real, strip, expected, 4 * room, kernels, "load_masked");
    guard_release(&src);
    free(strip);
    free(mask);
}

static void test_load_masked(const row_kernels *kernels)
{
    if (kernels->level->kernels->dtype[kernels->dtype].load_masked == NULL)
        return;
    for (int64_t count = 1; count <= MOST_VECTORS * kernels->lanes; count++)
        load_masked(kernels, count);
}

Test(kernel_rows, load_masked_at_every_length)
{
    test_rows(test_load_masked);
}

Test(kernel_rows, load_pixels_at_every_length_and_count_of_channels)
{
    test_rows(test_load_pixels);
}

/* ------------------------------------------------------------------------------------------------------------- storing */

/* Channels that are stored in one call where their number makes no difference. */
enum { STORED_CHANNELS = 2 };

typedef struct store_test {
    const row_kernels *kernels;
    tconv_cpu_store store;
    int64_t dst_elements;
    struct guarded sums, dst;
    double *expected; /* of dst */
    char what[128];
} store_test;

static int64_t whole_vectors(const row_kernels *kernels, int64_t count)
{
    return (count + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
}

/* Rows of sums are whole vectors, what is behind positions is a mark and shows where it gets into dst. */
static void make_store(store_test *test, int64_t rows, int64_t positions, int64_t dst_elements, enum guard_side side)
{
    const row_kernels *kernels = test->kernels;
    const int64_t pitch = whole_vectors(kernels, positions);
    test->sums = level_make_random(kernels->real, rows * pitch, GUARD_AFTER, (uint64_t)(rows * 1000 + positions));
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = positions; i < pitch; i++)
            harness_element_set(kernels->real, test->sums.data, row * pitch + i, LEVEL_MARK / 2);
    guard_protect(&test->sums);
    test->dst_elements = dst_elements;
    test->dst = level_make_elements(kernels->dtype, dst_elements, LEVEL_MARK, side);
    test->expected = make_marks(dst_elements);
    test->store.sums = test->sums.data;
    test->store.dst = test->dst.data;
}

static double stored(const store_test *test, int64_t sum)
{
    double value = harness_element_get(test->kernels->real, test->sums.data, sum);
    return harness_element_round(test->kernels->dtype, value);
}

static void call_store(store_test *test, tconv_cpu_store_function *function)
{
    function(&test->store);
    test->kernels->level->kernels->finish();
    expect_elements(test->kernels->dtype, test->dst.data, test->expected, test->dst_elements, test->kernels,
                    test->what);
    guard_release(&test->sums);
    guard_release(&test->dst);
}

/* Two channels of count outputs; of each position, every third residue is no sum but a bias. streamed: by way of a stage. */
static void store_interleaved(const row_kernels *kernels, int64_t residues, int64_t count, bool streamed)
{
    store_test test = {.kernels = kernels};
    const int64_t positions = (count + residues - 1) / residues, pitch = whole_vectors(kernels, positions);
    const int64_t dst_channel = count + GAP;
    int32_t rows[TCONV_CPU_MAX_INTERLEAVE];
    struct guarded bias = level_make_random(kernels->real, STORED_CHANNELS + 1, GUARD_AFTER, 7);
    struct guarded stage = {0};
    snprintf(test.what, sizeof test.what, "store_interleaved, %d residues, %d outputs%s", (int)residues, (int)count,
             streamed ? ", streamed" : "");
    make_store(&test, residues * STORED_CHANNELS, positions, STORED_CHANNELS * dst_channel,
               count % 2 ? GUARD_AFTER : GUARD_BEFORE);
    for (int64_t r = 0; r < residues; r++) /* the biases of this channel and the next take turns */
        rows[r] = r % 3 == 1 ? (int32_t)(-1 - r / 3 % 2) : (int32_t)(r * STORED_CHANNELS * pitch);
    for (int64_t c = 0; c < STORED_CHANNELS; c++)
        for (int64_t i = 0; i < count; i++) {
            int32_t row = rows[i % residues];
            double of_bias = row < 0 ? harness_element_get(kernels->real, bias.data, c - 1 - row) : 0;
            test.expected[c * dst_channel + i] = row < 0 ? harness_element_round(kernels->dtype, of_bias)
                                                         : stored(&test, row + c * pitch + i / residues);
        }
    test.store.channel_stride = pitch;
    test.store.channels = STORED_CHANNELS;
    test.store.count = count;
    test.store.residues = residues;
    test.store.rows = rows;
    test.store.bias = bias.data;
    test.store.dst_channel = dst_channel;
    if (streamed) {
        stage = level_make_elements(kernels->dtype, count + residues * kernels->lanes, LEVEL_MARK, GUARD_AFTER);
        test.store.stage = stage.data;
    }
    call_store(&test, kernels->level->kernels->dtype[kernels->dtype].store_interleaved);
    guard_release(&bias);
    if (streamed)
        guard_release(&stage);
}

/* Of counts of outputs, every short one, those around whole vectors of each residue, and some between. */
static bool is_worth_a_test(int64_t count, int64_t residues, int lanes)
{
    return count <= 2 * lanes + 1 || (count + 2) % (residues * lanes) <= 4 || count % 37 == 0;
}

static void test_store_interleaved(const row_kernels *kernels)
{
    for (int64_t residues = 1; residues <= TCONV_CPU_MAX_INTERLEAVE; residues++)
        for (int64_t count = 0; count <= MOST_VECTORS * residues * kernels->lanes + 2; count++)
            for (int streamed = 0; streamed < 2 && is_worth_a_test(count, residues, kernels->lanes); streamed++)
                store_interleaved(kernels, residues, count, streamed == 1);
}

/* Positions of a row, or pixels, one by one. */
static void store_positions(const row_kernels *kernels, bool pixels, int64_t channels, int64_t positions)
{
    store_test test = {.kernels = kernels};
    const int64_t pitch = whole_vectors(kernels, positions), position = pixels ? channels + GAP : GAP;
    const int64_t channel = pixels ? 1 : positions * position + GAP;
    const int64_t last = (channels - 1) * channel + (positions > 0 ? (positions - 1) * position : 0);
    snprintf(test.what, sizeof test.what, "%s, %d channels, %d positions", pixels ? "store_pixels" : "store_scattered",
             (int)channels, (int)positions);
    make_store(&test, channels, positions, last + 1, positions % 2 ? GUARD_AFTER : GUARD_BEFORE);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < positions; i++)
            test.expected[c * channel + i * position] = stored(&test, c * pitch + i);
    test.store.channel_stride = pitch;
    test.store.channels = channels;
    test.store.count = positions;
    test.store.dst_channel = channel;
    test.store.dst_position = position;
    call_store(&test, pixels ? kernels->level->kernels->dtype[kernels->dtype].store_pixels
                             : kernels->level->kernels->dtype[kernels->dtype].store_scattered);
}

static void test_store_scattered(const row_kernels *kernels)
{
    for (int64_t positions = 0; positions < (MOST_VECTORS + 1) * kernels->lanes; positions++)
        store_positions(kernels, false, STORED_CHANNELS, positions);
}

static void test_store_pixels(const row_kernels *kernels)
{
    for (int64_t channels = 1; channels <= TCONV_CPU_MAX_CHANNELS; channels++)
        for (int64_t positions = 0; positions <= MOST_VECTORS * kernels->lanes + 1; positions++)
            store_positions(kernels, true, channels, positions);
}

Test(kernel_rows, store_interleaved_with_every_count_of_residues)
{
    test_rows(test_store_interleaved);
}

Test(kernel_rows, store_scattered_at_every_length)
{
    test_rows(test_store_scattered);
}

Test(kernel_rows, store_pixels_with_every_count_of_channels)
{
    test_rows(test_store_pixels);
}

/* ------------------------------------------------------------------------------------------------------------ stencils */

/* The most terms of a residue here. */
enum { STENCIL_TERMS = 4 };

/* Residue r has r % 5 terms, of small integers: every sum is exact. Positions are read by whole blocks of vectors. */
static void run_stencil(const row_kernels *kernels, int64_t residues, int64_t count, bool streamed)
{
    const int64_t block = TCONV_CPU_STENCIL_VECTORS * kernels->lanes, step = block * residues;
    const int64_t positions = (count + step - 1) / step * block, behind = count % 2 ? GAP : 0;
    int32_t terms[TCONV_CPU_MAX_INTERLEAVE + 1] = {0}, offsets[TCONV_CPU_MAX_INTERLEAVE * STENCIL_TERMS];
    for (int64_t r = 0; r < residues; r++) {
        terms[r + 1] = terms[r] + (int32_t)(r % (STENCIL_TERMS + 1));
        for (int32_t t = terms[r]; t < terms[r + 1]; t++)
            offsets[t] = (int32_t)(3 * (t % 4));
    }
    harness_random random;
    harness_random_seed(&random, (uint64_t)count);
    struct guarded strip = make_integers(kernels->real, positions + 9, &random);
    struct guarded weights = make_integers(kernels->real, terms[residues], &random);
    struct guarded bias = make_integers(kernels->real, 1, &random), stage = {0};
    struct guarded dst =
        level_make_elements(kernels->dtype, count + behind, LEVEL_MARK, count % 2 ? GUARD_BEFORE : GUARD_AFTER);
    double *expected = make_marks(count + behind);
    for (int64_t i = 0; i < count; i++) {
        double sum = harness_element_get(kernels->real, bias.data, 0);
        for (int32_t t = terms[i % residues]; t < terms[i % residues + 1]; t++)
            sum += harness_element_get(kernels->real, weights.data, t) *
                   harness_element_get(kernels->real, strip.data, i / residues + offsets[t]);
        expected[i] = sum;
    }
    if (streamed)
        stage = level_make_elements(kernels->dtype, count + step, LEVEL_MARK, GUARD_AFTER);
    const tconv_cpu_stencil stencil = {.strip = strip.data,
                                       .residues = residues,
                                       .terms = terms,
                                       .offsets = offsets,
                                       .weights = weights.data,
                                       .bias = bias.data,
                                       .dst = dst.data,
                                       .count = count,
                                       .stage = stage.data};
    kernels->level->kernels->dtype[kernels->dtype].stencil(&stencil);
    kernels->level->kernels->finish();
    char what[96];
    snprintf(what, sizeof what, "stencil, %d residues, %d outputs%s", (int)residues, (int)count,
             streamed ? ", streamed" : "");
    expect_elements(kernels->dtype, dst.data, expected, count + behind, kernels, what);
    guard_release(&strip);
    guard_release(&weights);
    guard_release(&bias);
    guard_release(&dst);
    if (streamed)
        guard_release(&stage);
}

static void test_stencil(const row_kernels *kernels)
{
    for (int64_t residues = 1; residues <= TCONV_CPU_MAX_INTERLEAVE; residues++)
        for (int64_t count = 0; count <= 2 * TCONV_CPU_STENCIL_VECTORS * kernels->lanes * residues + 2; count++)
            for (int streamed = 0; streamed < 2 && is_worth_a_test(count, residues, kernels->lanes); streamed++)
                run_stencil(kernels, residues, count, streamed == 1);
}

Test(kernel_rows, stencil_with_every_count_of_residues)
{
    test_rows(test_stencil);
}

/* ------------------------------------------------------------------------------------------------------------- filling */

/* At each place within a cache line that an element can have. */
static void test_fill(const row_kernels *kernels)
{
    const size_t size = harness_element_size(kernels->dtype);
    const int64_t places = 64 / (int64_t)size, most = 3 * places + 1;
    char value[sizeof(double)];
    harness_element_set(kernels->dtype, value, 0, 1.5);
    for (int64_t place = 0; place < places; place++)
        for (int64_t count = 0; count <= most; count++)
            for (int streamed = 0; streamed < 2; streamed++) {
                /* Only the end of what is filled is at the end of a page, or at a mark. */
                const int64_t behind = count % 2 ? GAP : 0, elements = place + count + behind;
                struct guarded dst =
                    level_make_elements(kernels->dtype, elements, LEVEL_MARK, count % 2 ? GUARD_BEFORE : GUARD_AFTER);
                double *expected = make_marks(elements);
                char what[96];
                snprintf(what, sizeof what, "fill, %d elements after %d%s", (int)count, (int)place,
                         streamed ? ", streamed" : "");
                for (int64_t i = place; i < place + count; i++)
                    expected[i] = 1.5;
                kernels->level->kernels->fill((char *)dst.data + (size_t)place * size, value, size, count, streamed);
                kernels->level->kernels->finish();
                expect_elements(kernels->dtype, dst.data, expected, elements, kernels, what);
                guard_release(&dst);
            }
}

Test(kernel_rows, fill_at_every_place_and_length)
{
    test_rows(test_fill);
}
