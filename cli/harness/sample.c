/* Picks single elements of a case that tell most about a layer too large to be judged whole. */
#include <math.h>

#include "case.h"
#include "element.h"

/* Rows and columns of a phase: its first, one between and its last. Which plane they are of is drawn. */
#define PLACES        3
#define PHASE_SAMPLES (PLACES * PLACES)
/* The most phases of an axis that are sampled, evenly spaced. */
#define MOST_PHASES 8

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns how many phases of an axis are sampled. */
static int64_t phases_seen(int64_t stride, int64_t out)
{
    return smaller(smaller(stride, out), MOST_PHASES);
}

/* The strides of planes, rows and columns whose phases are told apart. */
typedef struct strides {
    int64_t d, h, w;
} strides;

static strides strides_of(const harness_case *test, harness_role role)
{
    const tconv_desc *desc = &test->layer.desc;
    return role == HARNESS_DST ? (strides){desc->stride_d, desc->stride_h, desc->stride_w} : (strides){1, 1, 1};
}

/* Returns how many samples are ends: the first and the last of each axis, in all combinations. */
static int64_t ends_of(const harness_view *view)
{
    return view->planes > 1 ? 32 : 16;
}

int64_t harness_placed_samples(const harness_case *test, harness_role role)
{
    const strides stride = strides_of(test, role);
    const harness_view *view = &test->views[role];
    return ends_of(view) + phases_seen(stride.d, view->planes) * phases_seen(stride.h, harness_view_rows(view)) *
                               phases_seen(stride.w, view->shape[3]) * PHASE_SAMPLES;
}

/* Returns the first, a middle or the last output of one of the sampled phases. */
static int64_t output_of_phase(int64_t stride, int64_t out, int64_t phase, int64_t place)
{
    const int64_t phases = smaller(stride, out);
    const int64_t first = phase * phases / phases_seen(stride, out);
    const int64_t count = (out - 1 - first) / stride + 1;
    return first + place * (count - 1) / (PLACES - 1) * stride;
}

/* Draws an index: the first and the last more often than others. */
static int64_t draw_index(harness_random *random, int64_t extent)
{
    switch (harness_random_integer(random, 0, 5)) {
    case 0: return 0;
    case 1: return extent - 1;
    default: return harness_random_integer(random, 0, extent - 1);
    }
}

void harness_pick_sample(const harness_case *test, harness_role role, int64_t index, harness_random *random,
                         int64_t at[4])
{
    const strides stride = strides_of(test, role);
    const harness_view *view = &test->views[role];
    const int64_t *shape = view->shape, rows = harness_view_rows(view), ends = ends_of(view);
    if (index < ends) {
        const int64_t plane = (index >> 4 & 1) * (view->planes - 1), row = (index >> 2 & 1) * (rows - 1);
        for (int axis = 0; axis < 4; ++axis)
            at[axis] = (index >> axis & 1) * (shape[axis] - 1);
        at[2] = harness_view_row(view, plane, row);
    } else if (index < harness_placed_samples(test, role)) {
        const int64_t columns = phases_seen(stride.w, shape[3]), in_plane = columns * phases_seen(stride.h, rows);
        const int64_t place = (index - ends) % PHASE_SAMPLES, phase = (index - ends) / PHASE_SAMPLES;
        at[0] = draw_index(random, shape[0]);
        at[1] = draw_index(random, shape[1]);
        const int64_t plane = view->planes == 1 ? 0
                                                : output_of_phase(stride.d, view->planes, phase / in_plane,
                                                                  harness_random_integer(random, 0, PLACES - 1));
        const int64_t row = output_of_phase(stride.h, rows, phase % in_plane / columns, place / PLACES);
        at[2] = harness_view_row(view, plane, row);
        at[3] = output_of_phase(stride.w, shape[3], phase % columns, place % PLACES);
    } else {
        for (int axis = 0; axis < 4; ++axis)
            at[axis] = harness_random_integer(random, 0, shape[axis] - 1);
    }
}

void harness_element_answer(const harness_case *test, harness_role role, const int64_t at[4], double *value,
                            double *bound)
{
    harness_operation_of(test->layer.desc.op)->formula(test, role, at, value, bound);
    if (harness_case_adds_to(test, role)) {
        const int64_t index = harness_view_index(&test->views[role], at[0], at[1], at[2], at[3]);
        const double held = harness_element_get(test->layer.desc.dtype, test->tensors[role].data, index);
        *value += held;
        *bound += fabs(held);
    }
}
