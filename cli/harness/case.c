/* Makes the tensors of cases. */
#include "case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"

/* Bytes on both sides of a tensor: more than the widest vector that could be written by mistake. */
#define GUARD_BYTES 256
#define ALIGNMENT   64
/* Numbers that an unanswered case draws before they repeat. A prime, so that rows and channels differ. */
#define PATTERN_ELEMENTS 65537
#define LARGEST_INTEGER  8
#define LARGEST_ADDED    16
/* The largest integers of src or of weights, where the sums leave room: 11 bits of TF32 and f16, and 8 bits of bf16,
 * represent them exactly. */
#define LARGEST_WIDE      1024
#define LARGEST_WIDE_BF16 256

tconv_status harness_fail(tconv_issue *issue, tconv_status status, const char *field, const char *message)
{
    if (issue != NULL) {
        memset(issue, 0, sizeof *issue);
        issue->status = status;
        snprintf(issue->field, sizeof issue->field, "%s", field);
        snprintf(issue->message, sizeof issue->message, "%s", message);
    }
    return status;
}

harness_buffer harness_buffer_create(int64_t count, size_t element_size, unsigned skew)
{
    harness_buffer buffer = {0};
    const size_t slack = 2 * GUARD_BYTES + 2 * ALIGNMENT;
    size_t offset = GUARD_BYTES + skew * element_size % ALIGNMENT;
    if (count < 0 || (uint64_t)count > (SIZE_MAX - slack) / element_size)
        return buffer;
    buffer.bytes = ((size_t)count * element_size + slack) / ALIGNMENT * ALIGNMENT;
    buffer.memory = aligned_alloc(ALIGNMENT, buffer.bytes);
    if (buffer.memory == NULL)
        return (harness_buffer){0};
    memset(buffer.memory, 0xff, buffer.bytes);
    buffer.offset = offset;
    buffer.data = buffer.memory + offset;
    return buffer;
}

void harness_buffer_release(harness_buffer *buffer)
{
    free(buffer->memory);
    *buffer = (harness_buffer){0};
}

/* ------------------------------------------------------------------------------------------------------------ filling */

bool harness_case_reads(const harness_case *test, harness_role role)
{
    const tconv_desc *desc = &test->layer.desc;
    if (role >= HARNESS_POST)
        return role - HARNESS_POST < (harness_role)desc->post_count &&
               harness_post_has_operand(desc->post[role - HARNESS_POST].kind);
    return harness_operation_of(desc->op)->reads[role] && (role != HARNESS_BIAS || test->layer.has_bias);
}

bool harness_case_writes(const harness_case *test, harness_role role)
{
    return harness_operation_of(test->layer.desc.op)->writes[role] && (role != HARNESS_BIAS || test->layer.has_bias);
}

bool harness_case_adds_to(const harness_case *test, harness_role role)
{
    return test->layer.desc.accumulate && harness_case_writes(test, role);
}

/* The largest |values| of the two factors of a product, in the order of their roles, and of what is added to a sum of
 * products: a bias, what an output holds. 0 stands for reals. */
struct ranges {
    int64_t first, second, added;
};

/* Returns the largest integers for which every sum is exact in f32 and does not overflow f16; 0 if there are none. One
 * factor is small, and the other as large as that allows; wide_second says which. */
static struct ranges integer_ranges(const tconv_desc *desc, bool wide_second)
{
    static const double largest_sum[] = {
        [TCONV_F32] = 0x1p24, [TCONV_F64] = 0x1p24, [TCONV_F16] = 60000, [TCONV_BF16] = 0x1p24};
    const double most_added = LARGEST_ADDED * (desc->accumulate ? 2 : 1);
    const double largest =
        harness_posts_largest_sum(desc, LARGEST_ADDED, largest_sum[TCONV_F32], largest_sum[desc->dtype]);
    const double largest_product = (largest - most_added) / harness_operation_of(desc->op)->terms(desc);
    const double small = largest_product < 1 ? 0 : fmin(floor(sqrt(largest_product)), LARGEST_INTEGER);
    if (small < 1)
        return (struct ranges){0};
    const double wide =
        fmin(floor(largest_product / small), desc->dtype == TCONV_BF16 ? LARGEST_WIDE_BF16 : LARGEST_WIDE);
    return wide_second ? (struct ranges){(int64_t)small, (int64_t)wide, LARGEST_ADDED}
                       : (struct ranges){(int64_t)wide, (int64_t)small, LARGEST_ADDED};
}

bool harness_has_integers(const harness_layer *layer)
{
    return integer_ranges(&layer->desc, false).first > 0;
}

static double draw(harness_random *random, int64_t range)
{
    return range > 0 ? (double)harness_random_integer(random, -range, range) : harness_random_real(random);
}

/* Fills a view with random numbers; range 0 means reals. */
static void fill_view(const harness_view *view, tconv_dtype dtype, void *data, harness_random *random, int64_t range)
{
    const int64_t *shape = view->shape;
    for (int64_t a = 0; a < shape[0]; ++a)
        for (int64_t b = 0; b < shape[1]; ++b)
            for (int64_t c = 0; c < shape[2]; ++c)
                for (int64_t d = 0; d < shape[3]; ++d)
                    harness_element_set(dtype, data, harness_view_index(view, a, b, c, d), draw(random, range));
}

/* Fills all of data, gaps as well, with a pattern that is drawn once and then copied, because that is as fast as
 * memory. */
static void fill_pattern(int64_t extent, tconv_dtype dtype, void *data, harness_random *random, int64_t range)
{
    const size_t size = harness_element_size(dtype);
    int64_t drawn = extent < PATTERN_ELEMENTS ? extent : PATTERN_ELEMENTS;
    for (int64_t i = 0; i < drawn; ++i)
        harness_element_set(dtype, data, i, draw(random, range));
    for (int64_t done = drawn; done < extent; done += drawn) {
        int64_t count = extent - done < drawn ? extent - done : drawn;
        memcpy((char *)data + (size_t)done * size, data, (size_t)count * size);
    }
}

/* Makes buffers of bytes 0xFF for the tensors that are read or added to. */
static bool create_buffers(harness_case *test, harness_random *random)
{
    bool first = true;
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        const size_t size = harness_element_size(harness_role_dtype(&test->layer.desc, (harness_role)role));
        if (harness_case_adds_to(test, (harness_role)role)) {
            test->tensors[role] = harness_buffer_create(test->views[role].extent, size, 0);
            if (test->tensors[role].memory == NULL)
                return false;
        }
        if (!harness_case_reads(test, (harness_role)role))
            continue;
        /* Half of the first ones are at the best alignment, which has paths of its own. */
        int64_t skew = harness_random_integer(random, 0, first ? 31 : 15);
        test->tensors[role] = harness_buffer_create(test->views[role].extent, size, skew < 16 ? (unsigned)skew : 0);
        if (test->tensors[role].memory == NULL)
            return false;
        first = false;
    }
    return true;
}

static void fill_buffer(harness_case *test, harness_role role, bool pattern, harness_random *random, int64_t range)
{
    const tconv_dtype dtype = harness_role_dtype(&test->layer.desc, role);
    const harness_view *view = &test->views[role];
    if (pattern || role == HARNESS_BIAS)
        fill_pattern(view->extent, dtype, test->tensors[role].data, random, range);
    else
        fill_view(view, dtype, test->tensors[role].data, random, range);
}

/* Whether the tensor is the operand of a post-op that multiplies. */
static bool is_factor(const harness_case *test, harness_role role)
{
    return role >= HARNESS_POST && test->layer.desc.post[role - HARNESS_POST].kind == TCONV_POST_MUL_CHANNEL;
}

/* What is read is the same whether the layer accumulates or not, where its range is. */
static void fill_buffers(harness_case *test, const struct ranges *ranges, bool pattern, harness_random *random)
{
    int factors = 0;
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        if (!harness_case_reads(test, (harness_role)role))
            continue;
        int64_t range = ranges->added;
        if (role < HARNESS_POST && role != HARNESS_BIAS)
            range = factors++ == 0 ? ranges->first : ranges->second;
        else if (range > 0 && is_factor(test, (harness_role)role))
            range = HARNESS_LARGEST_FACTOR;
        fill_buffer(test, (harness_role)role, pattern, random, range);
    }
    for (int role = 0; role < HARNESS_ROLES; ++role)
        if (harness_case_adds_to(test, (harness_role)role))
            fill_buffer(test, (harness_role)role, pattern, random, ranges->added);
}

tconv_status harness_case_create_tensors(harness_case *test, const harness_layer *layer, harness_fill fill,
                                         uint64_t seed, bool pattern, tconv_issue *issue)
{
    const tconv_desc *desc = &layer->desc;
    memset(test, 0, sizeof *test);
    tconv_status status = tconv_validate(desc, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (harness_operation_of(desc->op) == NULL)
        return harness_fail(issue, TCONV_ERROR_UNSUPPORTED, "op", "op: the harness has no formula for it");
    test->layer = *layer;
    test->fill = fill;
    for (int role = 0; role < HARNESS_ROLES; ++role)
        test->views[role] = harness_view_of(desc, (harness_role)role);

    const struct ranges ranges = fill == HARNESS_INTEGERS ? integer_ranges(desc, seed % 2 != 0) : (struct ranges){0};
    if (fill == HARNESS_INTEGERS && ranges.first == 0)
        return harness_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "fill",
                            "a layer of so many products in a sum has no exact integers");

    harness_random random;
    harness_random_seed(&random, seed);
    if (!create_buffers(test, &random)) {
        harness_case_destroy(test);
        return harness_fail(issue, TCONV_ERROR_OUT_OF_MEMORY, "src", "no memory for the tensors of the case");
    }
    fill_buffers(test, &ranges, pattern, &random);
    return TCONV_SUCCESS;
}

tconv_status harness_case_create_unanswered(harness_case *test, const harness_layer *layer, harness_fill fill,
                                            uint64_t seed, tconv_issue *issue)
{
    return harness_case_create_tensors(test, layer, fill, seed, true, issue);
}

void harness_case_destroy(harness_case *test)
{
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        harness_buffer_release(&test->tensors[role]);
        free(test->answers[role].expected);
        free(test->answers[role].bound);
        free(test->answers[role].samples);
        test->answers[role] = (harness_answer){0};
    }
}
