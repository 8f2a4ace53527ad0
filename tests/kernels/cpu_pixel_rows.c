/* These kernels load and store rows of pixels in cpu_pixels. Rows have every length up to some cache lines at every
 * place in one, lie at pages that may not be touched, and have gaps between them that may not be written. The values
 * are all that a dtype has. */
#include "cpu.h"
#include "families.h"
#include "harness.h"

/* So many elements between rows may not be written; a case has so many rows, and what is timed. */
enum { GAP = 3, ROWS = 3, BENCH_ROWS = 8, BENCH_COUNT = 128, FEW_CHANNELS = 5 };

/* Rows of more cache lines than this have nothing new. */
enum { LINE_BYTES = 64, MOST_LINES = 3 };

typedef struct load_case {
    tconv_cpu_pixel_load_function *function;
    tconv_cpu_pixel_load load;
} load_case;

static void call_load(const void *argument)
{
    const load_case *load = argument;
    load->function(&load->load);
}

static void make_load(load_case *load, const cpu_kernel *kernel, int64_t rows, int64_t count, enum guard_side side,
                      check_fill fill)
{
    const int64_t src_pitch = count + GAP, strip_pitch = count + GAP + 1;
    check_buffer *src = check_input("src", kernel->dtype, (rows - 1) * src_pitch + count, side, fill);
    check_buffer *strip = check_output("strip", kernel->real, (rows - 1) * strip_pitch + count, side);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < count; i++)
            check_want(strip, row * strip_pitch + i, check_get(src, row * src_pitch + i), 0);
    load->function = kernel->pixel_kernels->dtype[kernel->dtype].load;
    load->load = (tconv_cpu_pixel_load){.src = src->data,
                                        .strip = strip->data,
                                        .rows = rows,
                                        .count = count,
                                        .src_pitch = src_pitch,
                                        .strip_pitch = strip_pitch};
}

static void check_load(const void *argument)
{
    const cpu_kernel *kernel = argument;
    for (int side = GUARD_BEFORE; side <= GUARD_AFTER; side++)
        for (int64_t count = 1; count <= 1000; count += count < (MOST_LINES + 1) * kernel->lanes ? 1 : 333) {
            load_case load;
            check_case("%d rows of %d%s", ROWS, (int)count, side == GUARD_BEFORE ? ", behind a page" : "");
            make_load(&load, kernel, ROWS, count, (enum guard_side)side, CHECK_BITS);
            call_load(&load);
            check_outputs();
        }
}

static double bench_bytes(const cpu_kernel *kernel)
{
    return BENCH_ROWS * BENCH_COUNT *
           (double)(harness_element_size(kernel->dtype) + harness_element_size(kernel->real));
}

static void bench_load(const void *argument)
{
    const cpu_kernel *kernel = argument;
    load_case load;
    make_load(&load, kernel, BENCH_ROWS, BENCH_COUNT, GUARD_AFTER, CHECK_REALS);
    check_rate(call_load, &load, bench_bytes(kernel), "GB/s", cpu_copy_bytes(bench_bytes(kernel)));
}

typedef struct store_case {
    tconv_cpu_pixel_store_function *function;
    int64_t to[BENCH_ROWS];
    tconv_cpu_pixel_store store;
} store_case;

static void call_store(const void *argument)
{
    const store_case *store = argument;
    store->function(&store->store);
}

/* What a store does beside rounding. */
enum manner { PLAIN, STREAMED, ACCUMULATED, ONE_BIAS, BIASES, BIASES_ACCUMULATED, MANNERS };

/* Channels that a row goes through where their bias is added. */
static int64_t row_channels(enum manner manner, int64_t count)
{
    if (manner < BIASES)
        return 1;
    return manner == BIASES ? count : FEW_CHANNELS;
}

/* Rows lie in dst the other way round, the last one so many elements behind the beginning. */
static void make_store(store_case *store, const cpu_kernel *kernel, int64_t rows, int64_t count, int64_t place,
                       enum manner manner, check_fill fill)
{
    const int64_t sums_pitch = count + GAP, dst_pitch = count + GAP + 1, end = place + (rows - 1) * dst_pitch + count;
    const enum guard_side side = place > 0 ? GUARD_BEFORE : GUARD_AFTER;
    check_buffer *sums = check_input("sums", kernel->real, (rows - 1) * sums_pitch + count, side, fill);
    const bool biased = manner >= ONE_BIAS, accumulate = manner == ACCUMULATED || manner == BIASES_ACCUMULATED;
    const int64_t channels = row_channels(manner, count);
    check_buffer *bias = check_input("bias", kernel->real, channels, side, fill);
    check_buffer *dst = check_output("dst", kernel->dtype, end, side);
    for (int64_t row = 0; row < rows; row++) {
        store->to[row] = place + (rows - 1 - row) * dst_pitch;
        for (int64_t i = 0; i < count; i++) {
            double sum = check_get(sums, row * sums_pitch + i);
            if (biased)
                sum = harness_element_round(kernel->real, sum + check_get(bias, i % channels));
            cpu_want_stored(kernel, dst, store->to[row] + i, sum, accumulate);
        }
    }
    store->function = kernel->pixel_kernels->dtype[kernel->dtype].store;
    store->store = (tconv_cpu_pixel_store){
        .sums = sums->data,
        .rows = rows,
        .count = count,
        .sums_pitch = sums_pitch,
        .dst = dst->data,
        .to = store->to,
        .stream = manner == STREAMED,
        .finish = {.bias = bias->data,
                   .row_channels = channels,
                   .steps = (biased ? TCONV_CPU_ADD_BIAS : 0) | (accumulate ? TCONV_CPU_ADD_HELD : 0)}};
}

static void check_store(const void *argument)
{
    const cpu_kernel *kernel = argument;
    const int64_t line = LINE_BYTES / (int64_t)harness_element_size(kernel->dtype);
    for (int64_t place = 0; place < line; place++)
        for (int64_t count = 1; count <= 1000; count += count <= MOST_LINES * line ? 1 : 333)
            for (int manner = 0; manner < MANNERS; manner++) {
                static const char *const texts[] = {"",
                                                    ", streamed",
                                                    ", accumulated",
                                                    ", a bias added",
                                                    ", biases added",
                                                    ", biases added, accumulated"};
                store_case store;
                check_case("%d rows of %d after %d%s", ROWS, (int)count, (int)place, texts[manner]);
                make_store(&store, kernel, ROWS, count, place, (enum manner)manner, CHECK_BITS);
                call_store(&store);
                kernel->kernels->order_stores();
                check_outputs();
            }
}

static void bench_store(const void *argument)
{
    const cpu_kernel *kernel = argument;
    store_case store;
    make_store(&store, kernel, BENCH_ROWS, BENCH_COUNT, 0, PLAIN, CHECK_REALS);
    check_rate(call_store, &store, bench_bytes(kernel), "GB/s", cpu_copy_bytes(bench_bytes(kernel)));
}

static void visit(const cpu_kernel *kernel)
{
    static const check_entry entries[] = {{"load_pixel_rows", check_load, bench_load},
                                          {"store_pixel_rows", check_store, bench_store}};
    cpu_check_entries(entries, sizeof entries / sizeof entries[0], kernel);
}

void check_cpu_pixel_rows(void)
{
    cpu_each_dtype(visit);
}
