/*
 * The kernel that packs weights, from each layout for forward and for the gradient of src: kernels of one tap and of many, taps in
 * any order and some left out, channels of every number up to some vectors, zeros beside them. No weight beyond the tensor is
 * read, and nothing but rows of what is packed is written. The values are all that a dtype has.
 */
#include <inttypes.h>
#include <math.h>

#include "cpu.h"
#include "families.h"
#include "harness.h"

/* The most taps of a case. More elements of a filter than the kernel takes whole are among them. */
enum { MOST_TAPS = 260, MOST_SIDE = 64 };

/* Channels that lie side by side in what is packed are outputs in forward and inputs in the gradient of src. */
enum layout { IOHW_OUTPUTS, IOHW_INPUTS, IHWO_OUTPUTS, IHWO_INPUTS, HWOI_OUTPUTS, HWOI_INPUTS, LAYOUTS };
static const char *const layout_names[] = {"iohw outputs", "iohw inputs",  "ihwo outputs",
                                           "ihwo inputs",  "hwoi outputs", "hwoi inputs"};

typedef struct pack_case {
    tconv_cpu_pack_function *function;
    tconv_cpu_pack pack;
    tconv_cpu_packed_tap taps[MOST_TAPS];
    int64_t places[MOST_SIDE];
    bool finite; /* what the kernel said */
} pack_case;

/* A case has filters of `kernel` elements, of which taps take all, or every second one. */
typedef struct pack_shape {
    enum layout layout;
    int64_t count, width, channels, kernel;
    bool half, backwards, by_taps; /* by_taps: rows of a tap follow one another, not those of a channel */
} pack_shape;

static void call_pack(const void *argument)
{
    pack_case *pack = (pack_case *)argument;
    pack->finite = pack->function(&pack->pack);
}

/* The strides of a tensor that has more channels of both kinds than are packed. */
static void find_strides(const pack_shape *shape, int64_t *side, int64_t *other, int64_t *tap)
{
    const int64_t sides = shape->count + 2, others = shape->channels + 1, kernel = shape->kernel;
    switch (shape->layout) {
    case IOHW_OUTPUTS: *tap = 1, *side = kernel, *other = kernel * sides; break;
    case IOHW_INPUTS: *tap = 1, *other = kernel, *side = kernel * others; break;
    case IHWO_OUTPUTS: *side = 1, *tap = sides, *other = kernel * sides; break;
    case IHWO_INPUTS: *other = 1, *tap = others, *side = kernel * others; break;
    case HWOI_OUTPUTS: *other = 1, *side = others, *tap = others * sides; break;
    default: *side = 1, *other = sides, *tap = others * sides; break;
    }
}

static void list_taps(pack_case *made, const pack_shape *shape, int64_t stride)
{
    const int64_t taps = shape->half ? (shape->kernel + 1) / 2 : shape->kernel;
    for (int64_t t = 0; t < taps; t++)
        made->taps[t] = (tconv_cpu_packed_tap){.from = stride * (shape->half ? 2 * t : t),
                                               .to = (shape->backwards ? taps - 1 - t : t) * shape->width *
                                                     (shape->by_taps ? shape->channels : 1),
                                               .pitch = shape->width * (shape->by_taps ? 1 : taps)};
    made->pack.tap_count = taps;
}

/* Makes a case; returns whether all weights that it packs are finite. */
static bool make_pack(pack_case *made, const cpu_kernel *kernel, const pack_shape *shape, enum guard_side guard,
                      check_fill fill)
{
    int64_t side, other, tap;
    bool finite = true;
    find_strides(shape, &side, &other, &tap);
    list_taps(made, shape, tap);
    const int64_t taps = made->pack.tap_count, last = taps > 0 ? made->taps[taps - 1].from : 0;
    check_buffer *weights = check_input(
        "weights", kernel->dtype, (shape->count - 1) * side + (shape->channels - 1) * other + last + 1, guard, fill);
    check_buffer *packed =
        check_output("packed", kernel->real, (taps > 0 ? taps : 1) * shape->channels * shape->width, guard);
    for (int64_t m = 0; m < shape->count; m++)
        made->places[m] = m * side;
    for (int64_t t = 0; t < made->pack.tap_count; t++)
        for (int64_t c = 0; c < shape->channels; c++)
            for (int64_t m = 0; m < shape->width; m++) {
                const double weight =
                    m < shape->count ? check_get(weights, m * side + c * other + made->taps[t].from) : 0;
                finite &= isfinite(weight) != 0;
                check_want(packed, made->taps[t].to + c * made->taps[t].pitch + m, weight, 0);
            }
    made->function = kernel->kernels->dtype[kernel->dtype].pack;
    made->pack.weights = weights->data;
    made->pack.packed = packed->data;
    made->pack.places = made->places;
    made->pack.count = shape->count;
    made->pack.width = shape->width;
    made->pack.channels = shape->channels;
    made->pack.step = other;
    made->pack.taps = made->taps;
    return finite;
}

static void check_shape(const cpu_kernel *kernel, const pack_shape *shape, enum guard_side guard, check_fill fill)
{
    static pack_case made;
    check_case("%s: %" PRId64 " of %" PRId64 " side by side, %" PRId64 " channels, %" PRId64 " elements%s%s%s",
               layout_names[shape->layout], shape->count, shape->width, shape->channels, shape->kernel,
               shape->half ? ", every second one" : "", shape->backwards ? ", backwards" : "",
               shape->by_taps ? ", by taps" : "");
    const bool finite = make_pack(&made, kernel, shape, guard, fill);
    call_pack(&made);
    check_outputs();
    if (made.finite != finite)
        check_fail("it says that weights are %s", made.finite ? "finite" : "not finite");
}

static void check_pack(const void *argument)
{
    static const int64_t kernels[] = {0, 1, 2, 3, 4, 5, 9, 16, 25, 70, 200, MOST_TAPS},
                         counts[] = {1, 2, 7, 12, 16, 17, 33, 48};
    const cpu_kernel *kernel = argument;
    int number = 0;
    for (int layout = 0; layout < LAYOUTS; layout++)
        for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
            for (size_t m = 0; m < sizeof counts / sizeof counts[0]; m++)
                for (int64_t channels = 1; channels <= kernel->lanes + 1; channels += channels < 4 ? 1 : 5) {
                    number++;
                    const pack_shape shape = {.layout = (enum layout)layout,
                                              .count = counts[m],
                                              .width =
                                                  number % 3 == 0 ? cpu_whole_vectors(kernel, counts[m]) : counts[m],
                                              .channels = channels,
                                              .kernel = kernels[k],
                                              .half = number % 5 == 0,
                                              .backwards = number % 7 == 0,
                                              .by_taps = number % 2 == 0};
                    check_shape(kernel, &shape, number % 4 == 0 ? GUARD_BEFORE : GUARD_AFTER,
                                number % 11 < 6 ? CHECK_BITS : CHECK_INTEGERS);
                }
}

/* A kernel of 4 x 4 by blocks of 12 outputs. */
static void bench_pack(const void *argument)
{
    static pack_case made;
    const cpu_kernel *kernel = argument;
    const pack_shape shape = {.layout = IOHW_OUTPUTS, .count = 12, .width = 12, .channels = 16, .kernel = 16};
    const double bytes =
        12.0 * 16 * 16 * (double)(harness_element_size(kernel->dtype) + harness_element_size(kernel->real));
    make_pack(&made, kernel, &shape, GUARD_AFTER, CHECK_REALS);
    check_rate(call_pack, &made, bytes, "GB/s", cpu_copy_bytes(bytes));
}

static void visit(const cpu_kernel *kernel)
{
    static const check_entry entries[] = {{"pack", check_pack, bench_pack}};
    cpu_check_entries(entries, 1, kernel);
}

void check_cpu_pack(void)
{
    cpu_each_dtype(visit);
}
