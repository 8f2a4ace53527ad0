/*
 * Finds tensors that share memory. src and dst are sets of runs, contiguous bytes: all planes of a channel in NCHW, the channels
 * of a pixel in NHWC. Runs lie at equal distances in an image, images at equal distances in the tensor, and neither
 * overlap among themselves (tconv_desc's rules for strides). Two such sets whose ranges of addresses meet are compared
 * level by level. Where both have the same distance t and begin d apart, run i of the one and run j of the other are
 * d + (j - i) * t apart, and only the two of these numbers next to zero can be an overlap.
 */
#include "overlap.h"

#include <inttypes.h>

#include "../core/checked.h"
#include "../core/post.h"
#include "../core/status.h"

/* A set of runs, in bytes. A stride is 0 where its count is 1, and nowhere else. */
struct runs {
    int64_t images, image_stride;
    int64_t count, stride; /* the runs of an image */
    int64_t bytes;         /* length of a run */
};

/* Makes a set of runs in which contiguous images and runs are merged into one, so that there are as few to compare as
 * possible. */
static struct runs make_runs(int64_t images, int64_t image_stride, int64_t count, int64_t stride, int64_t bytes)
{
    struct runs made = {images, image_stride, count, stride, bytes};
    if (made.stride == made.bytes) {
        made.bytes *= made.count;
        made.count = 1, made.stride = 0;
    }
    if (made.count == 1 && made.image_stride == made.bytes) {
        made.bytes *= made.images;
        made.images = 1, made.image_stride = 0;
    }
    return made;
}

/* Returns the bytes from the first of an image to one past its last. */
static int64_t image_bytes(const struct runs *runs)
{
    return (runs->count - 1) * runs->stride + runs->bytes;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Returns a modulo b, in [0, b). */
static int64_t modulo(int64_t a, int64_t b)
{
    return a % b < 0 ? a % b + b : a % b;
}

/* Whether the ranges [0, a) and [d, d + b) meet. */
static bool ranges_meet(int64_t a, int64_t b, int64_t d)
{
    return d < a && d > -b;
}

/* There are count ranges of b bytes, the first at *d, each stride behind the one before. Moves *d to the first one that
 * ends behind 0; false where all end before. If a range that begins at 0 does not meet that one, it meets none. */
static bool first_behind(int64_t b, int64_t count, int64_t stride, int64_t *d)
{
    if (*d > -b)
        return true;
    const int64_t before = -(*d + b);                   /* at least 0 */
    if (stride == 0 || before / stride + 1 > count - 1) /* stride 0: there is one range */
        return false;
    *d = stride - before % stride - b;
    return true;
}

/* Whether one run of a bytes at 0 meets any run of b, the first of which is at d. */
static bool run_meets(int64_t a, const struct runs *b, int64_t d)
{
    return first_behind(image_bytes(b), b->images, b->image_stride, &d) &&
           first_behind(b->bytes, b->count, b->stride, &d) && d < a;
}

/* Whether the runs of a and b never meet modulo the greatest common divisor of all their strides. */
static bool residues_differ(const struct runs *a, const struct runs *b, int64_t d)
{
    const int64_t common = greatest_common_divisor(greatest_common_divisor(a->image_stride, b->image_stride),
                                                   greatest_common_divisor(a->stride, b->stride));
    const int64_t rest = modulo(d, common);
    return rest >= a->bytes && common - rest >= b->bytes;
}

/* Whether an image of a at 0 and one of b at d meet. Returns true also where that is not certain. */
static bool images_meet(const struct runs *a, const struct runs *b, int64_t d)
{
    const struct runs one_a = {1, 0, a->count, a->stride, a->bytes}, one_b = {1, 0, b->count, b->stride, b->bytes};
    if (!ranges_meet(image_bytes(a), image_bytes(b), d))
        return false;
    if (a->stride == 0)
        return run_meets(a->bytes, &one_b, d);
    if (b->stride == 0)
        return run_meets(b->bytes, &one_a, -d);
    if (a->stride != b->stride)
        return !residues_differ(&one_a, &one_b, d);
    const int64_t rest = modulo(d, a->stride), steps = tconv_floor_div(d, a->stride); /* position of b relative to a */
    return (rest < a->bytes && -steps < b->count && steps < a->count) ||
           (a->stride - rest < b->bytes && -steps - 1 < b->count && steps + 1 < a->count);
}

/* Whether a at 0 and b at d meet. Returns true also where that is not certain. */
static bool runs_meet(const struct runs *a, const struct runs *b, int64_t d)
{
    if (a->image_stride == 0 && a->stride == 0)
        return run_meets(a->bytes, b, d);
    if (b->image_stride == 0 && b->stride == 0)
        return run_meets(b->bytes, a, -d);
    if (a->image_stride == 0 && b->image_stride == 0)
        return images_meet(a, b, d);
    if (a->image_stride != b->image_stride)
        return !residues_differ(a, b, d);
    const int64_t rest = modulo(d, a->image_stride), steps = tconv_floor_div(d, a->image_stride);
    return (-steps < b->images && steps < a->images && images_meet(a, b, rest)) ||
           (-steps - 1 < b->images && steps + 1 < a->images && images_meet(a, b, rest - a->image_stride));
}

/* The workspace is one more argument, behind the tensors' roles. */
enum { WORKSPACE = TCONV_ROLES, ARGUMENTS };

static const char *name_of(const tconv_problem *problem, int argument)
{
    return argument == WORKSPACE ? "workspace" : tconv_role_name(problem->desc.op, (tconv_role)argument);
}

/* The memory that the arguments occupy: bytes, fewer than 2^63, from address on. Arguments that are not there have 0
 * bytes. */
struct places {
    uintptr_t address[ARGUMENTS];
    uint64_t bytes[ARGUMENTS];
};

static struct runs runs_of(const tconv_problem *problem, const struct places *places, int which)
{
    const int64_t size = (int64_t)problem->element_size, images = problem->batch;
    const bool of_src = which == TCONV_ROLE_SRC;
    const bool of_addend = which >= TCONV_ROLE_POST && which == TCONV_ROLE_POST + tconv_post_addend(&problem->desc);
    if (!of_src && !of_addend && which != TCONV_ROLE_DST)
        return make_runs(1, 0, 1, 0, (int64_t)places->bytes[which]);
    const bool planes = problem->layout == TCONV_NCHW;
    const tconv_strides *strides = of_src ? &problem->src : of_addend ? &problem->addend : &problem->dst;
    const int64_t channels = of_src ? problem->in_channels : problem->out_channels;
    const int64_t pixels =
        of_src ? problem->d.in * problem->h.in * problem->w.in : problem->d.out * problem->h.out * problem->w.out;
    const int64_t count = planes ? channels : pixels, run = planes ? pixels : channels;
    /* only strides that address an element are sure to be below 2^63 in bytes */
    return make_runs(images, images > 1 ? strides->n * size : 0, count,
                     count > 1 ? (planes ? strides->c : strides->w) * size : 0, run * size);
}

static inline bool ends_meet(const struct places *places, int a, int b)
{
    const uintptr_t behind = places->address[b] - places->address[a];
    return (behind < places->bytes[a] && places->bytes[b] > 0) || (-behind < places->bytes[b] && places->bytes[a] > 0);
}

/* Fails where a, which is written, shares memory with b. Overlapping address ranges alone are no failure: slices may
 * interleave. */
static tconv_status compare(const tconv_problem *problem, const struct places *places, int a, int b, tconv_issue *issue)
{
    if (!ends_meet(places, a, b))
        return TCONV_SUCCESS;
    const struct runs a_runs = runs_of(problem, places, a), b_runs = runs_of(problem, places, b);
    const uintptr_t behind = places->address[b] - places->address[a];
    if (!runs_meet(&a_runs, &b_runs, behind < places->bytes[a] ? (int64_t)behind : -(int64_t)-behind))
        return TCONV_SUCCESS;
    return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name_of(problem, a),
                      "%s = 0x%" PRIxPTR ", %" PRIu64 " bytes: must not overlap %s = 0x%" PRIxPTR ", %" PRIu64 " bytes",
                      name_of(problem, a), places->address[a], places->bytes[a], name_of(problem, b),
                      places->address[b], places->bytes[b]);
}

static struct places places_of(const tconv_problem *problem, const tconv_memory_in_use *memory)
{
    struct places places = {.address[WORKSPACE] = (uintptr_t)memory->workspace,
                            .bytes[WORKSPACE] = memory->workspace != NULL ? memory->workspace_size : 0};
    for (int role = 0; role < TCONV_ROLES; role++) {
        const tconv_tensor *tensor = memory->tensors.of[role];
        if (tensor == NULL)
            continue;
        places.address[role] = (uintptr_t)tensor->data;
        places.bytes[role] = (uint64_t)tconv_role_extent(problem, (tconv_role)role) *
                             tconv_dtype_size(tconv_role_dtype(problem, (tconv_role)role));
    }
    return places;
}

tconv_status tconv_overlap_check(const tconv_problem *problem, const tconv_memory_in_use *memory, tconv_issue *issue)
{
    const unsigned writes = tconv_operation_of(problem).writes;
    const struct places places = places_of(problem, memory);
    tconv_status status;
    for (int role = 0; role < TCONV_ROLES; role++)
        for (int other = 0; tconv_is_in(writes, (tconv_role)role) && other < TCONV_ROLES; other++)
            if (other != role && (status = compare(problem, &places, role, other, issue)))
                return status;
    for (int role = 0; role < TCONV_ROLES; role++)
        if ((status = compare(problem, &places, WORKSPACE, role, issue)))
            return status;
    return TCONV_SUCCESS;
}
