/* Keeps the best of the plans that a planner offers. */
#include "search.h"

#include <string.h>

tconv_search tconv_search_begin(const tconv_layer *layer, double limit, void *best, size_t plan_bytes)
{
    return (tconv_search){.machine = tconv_cuda_machine_of(layer),
                          .limit = limit,
                          .limited = limit > 0,
                          .best = best,
                          .plan_bytes = plan_bytes};
}

bool tconv_search_is_beyond(const tconv_search *search, const tconv_cuda_work *least)
{
    return search->limited && tconv_cuda_least_seconds(&search->machine, least) >= search->limit;
}

bool tconv_search_keep(tconv_search *search, const void *plan, double seconds)
{
    if (search->limited && seconds >= search->limit)
        return false;
    memcpy(search->best, plan, search->plan_bytes);
    search->limit = seconds;
    return search->limited = search->found = true;
}

void tconv_search_offer(tconv_search *search, const void *plan, const tconv_cuda_work *work)
{
    if (!tconv_search_is_beyond(search, work) &&
        tconv_search_keep(search, plan, tconv_cuda_seconds_of(&search->machine, work)))
        search->work = *work;
}

const char *tconv_search_refusal(const tconv_search *search, const char *why)
{
    return search->found ? NULL : search->limited ? TCONV_NO_FASTER : why;
}
