/* Plans, packs and executes the inner layer of a plan. */
#include "inner.h"

#include "../../core/capability.h"
#include "../model/search.h"

#include <string.h>

void tconv_inner_begin(tconv_inner_plan *inner, void *bytes, size_t capacity)
{
    memset(inner, 0, sizeof *inner);
    inner->bytes = bytes;
    inner->capacity = capacity;
}

bool tconv_inner_may_plan(const tconv_inner_plan *inner, const tconv_implementation *implementation)
{
    return implementation->plan_bytes <= inner->capacity &&
           (implementation->dtypes & TCONV_DTYPE_BIT(inner->layer.problem.dtype)) != 0 &&
           tconv_missing_capability(implementation, &inner->layer) == NULL;
}

tconv_planned tconv_inner_plan_by(tconv_inner_plan *inner, const tconv_implementation *implementation, double limit,
                                  tconv_cuda_work *work)
{
    tconv_planned planned;
    memset(&planned, 0, sizeof planned);
    planned.work = work;
    planned.limit = limit;
    memset(inner->bytes, 0, inner->capacity);
    if (implementation->plan(&inner->layer, inner->bytes, &planned, NULL) != TCONV_SUCCESS)
        planned.prediction.seconds = -1;
    inner->sizes = planned.sizes;
    return planned;
}

bool tconv_inner_choose(tconv_inner_plan *inner, const tconv_inner_search *search)
{
    const tconv_cuda_work begun = tconv_cuda_begin_work(&inner->layer);
    tconv_search best = tconv_search_begin(&inner->layer, search->limit, &inner->implementation, sizeof(void *));
    inner->implementation = NULL;
    if (tconv_search_is_beyond(&best, &begun))
        return false;
    for (const tconv_implementation *const *entry = search->list; *entry != NULL; entry++) {
        const tconv_implementation *implementation = *entry;
        if (!tconv_inner_may_plan(inner, implementation))
            continue;
        if (search->admit != NULL)
            implementation = search->admit(search->outer, inner, implementation);
        if (implementation == NULL)
            continue;
        tconv_cuda_work work;
        memset(&work, 0, sizeof work);
        const tconv_planned planned = tconv_inner_plan_by(inner, implementation, best.limit, &work);
        double seconds = planned.prediction.seconds;
        if (seconds > 0 && search->seconds != NULL)
            seconds = search->seconds(search->outer, inner, implementation, &planned, &work);
        if (seconds > 0)
            tconv_search_keep(&best, &implementation, seconds);
    }
    return best.found;
}

int64_t tconv_inner_fit(int64_t have, double each, double most)
{
    const double room = most / each;
    return room >= (double)have ? have : tconv_ceil_div(have, tconv_ceil_div(have, tconv_max(1, (int64_t)room)));
}

tconv_arguments tconv_inner_arguments(const tconv_arguments *outer, int64_t packed_at, int64_t scratch_at)
{
    tconv_arguments arguments;
    memset(&arguments, 0, sizeof arguments);
    arguments.packed = (const char *)outer->packed + packed_at;
    arguments.scratch = (char *)outer->scratch + scratch_at;
    arguments.stream = outer->stream;
    return arguments;
}

tconv_status tconv_inner_pack(const tconv_inner_plan *inner, const void *weights, void *packed, void *stream,
                              tconv_issue *issue)
{
    return inner->implementation->pack(&inner->layer, inner->bytes, weights, packed, stream, issue);
}

tconv_status tconv_inner_execute(const tconv_inner_plan *inner, const tconv_arguments *arguments, tconv_issue *issue)
{
    return inner->implementation->execute(&inner->layer, inner->bytes, arguments, issue);
}

void tconv_inner_describe(const tconv_inner_plan *inner, char *text, size_t capacity)
{
    text[0] = '\0';
    if (inner->implementation->describe != NULL)
        inner->implementation->describe(&inner->layer, inner->bytes, text, capacity);
}
