/* Launches copies of axes of a tensor. */
#include "planes.h"

#include "../../core/checked.h"
#include "../cuda_backend.h"
#include "../runtime/guard.h"
#include "../runtime/launch.h"

enum {
    LAST = TCONV_COPY_AXES - 1,
    MOST_WORDS = 1 << 29, /* of a launch, so that numbers of 32 bits count them */
};

/* Returns the most bytes that a word can have. */
static int word_of(const tconv_plane_copy *copy, const void *from, const void *to)
{
    const int64_t size = (int64_t)copy->element_size;
    int64_t all = (int64_t)(((uintptr_t)from | (uintptr_t)to) & 15) | copy->extents[LAST] * size;
    if (copy->planes > 1)
        all |= copy->plane_stride * size;
    for (int axis = 0; axis < LAST; axis++)
        if (copy->extents[axis] > 1)
            all |= (copy->from[axis] | copy->to[axis]) * size;
    int word = 16;
    while (all % word != 0)
        word /= 2;
    return word;
}

static tconv_status launch(const tconv_plane_copy *copy, int word, const void *from, void *to, void *stream,
                           tconv_issue *issue)
{
    const int64_t size = (int64_t)copy->element_size;
    plane_copy of = {.from = from,
                     .to = to,
                     .plane_stride = copy->plane_stride * size,
                     .plane = copy->plane,
                     .step = copy->step,
                     .tap = copy->tap,
                     .planes = copy->planes};
    int64_t words = copy->extents[LAST] * size / word;
    for (int axis = 0; axis < LAST; axis++) {
        words *= copy->extents[axis];
        of.from_strides[axis] = copy->from[axis] * size;
        of.to_strides[axis] = copy->to[axis] * size;
        of.extents[axis] = divisor_of((int)copy->extents[axis]);
    }
    of.words = (int)words;
    of.from_strides[LAST] = of.to_strides[LAST] = word;
    of.extents[LAST] = divisor_of((int)(copy->extents[LAST] * size / word));
    void *arguments[] = {&of};
    return tconv_launch_blocks(tconv_plane_copy_kernel(word), tconv_ceil_div(words, PLANE_COPY_THREADS),
                               PLANE_COPY_THREADS, arguments, stream, issue, false);
}

/* Returns the elements of all axes behind one. */
static int64_t elements_behind(const tconv_plane_copy *copy, int axis)
{
    int64_t elements = 1;
    for (int behind = axis + 1; behind < TCONV_COPY_AXES; behind++)
        elements *= copy->extents[behind];
    return elements;
}

/* Copies in as many launches as words of 32 bits' numbers ask for: pieces of the first axis that has several. */
/* NOLINTNEXTLINE(misc-no-recursion): at most once for each axis */
static tconv_status copy_pieces(const tconv_plane_copy *copy, int word, const void *from, void *to, void *stream,
                                tconv_issue *issue)
{
    const int64_t size = (int64_t)copy->element_size, most = (int64_t)MOST_WORDS * word / size;
    int axis = 0;
    while (axis < LAST && copy->extents[axis] == 1)
        axis++;
    if (elements_behind(copy, axis) * copy->extents[axis] <= most)
        return launch(copy, word, from, to, stream, issue);
    const int64_t piece = tconv_max(1, most / elements_behind(copy, axis)), all = copy->extents[axis];
    for (int64_t first = 0; first < all; first += piece) {
        tconv_plane_copy some = *copy;
        some.extents[axis] = tconv_min(piece, all - first);
        some.plane += first * (axis == 1 ? copy->step : axis == 2 ? copy->tap : 0);
        const int64_t behind = first * (axis == LAST ? 1 : copy->from[axis]);
        const tconv_status status =
            copy_pieces(&some, word, from == NULL ? NULL : (const char *)from + behind * size,
                        (char *)to + first * (axis == LAST ? 1 : copy->to[axis]) * size, stream, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

tconv_status tconv_cuda_copy_planes(int device, const tconv_plane_copy *copy, const void *from, void *to, void *stream,
                                    tconv_issue *issue)
{
    tconv_device_guard guard;
    tconv_status status = tconv_device_enter(&guard, device, issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = copy_pieces(copy, word_of(copy, from, to), from, to, stream, issue);
    return tconv_device_leave(&guard, status, issue);
}
