/* Cuts the parts of a layer with depth into calls of layers of two axes: what is copied, and how much a call takes. */
#include "../core/checked.h"
#include "../cpu/cpu_target.h"
#include "volume_plan.h"

/* Bytes of planes that are copied side by side at a time: what the second-level cache of a GPU holds beside the outputs. It is
 * chosen, not measured. */
static const int64_t MOST_COPIED_CUDA = (int64_t)32 << 20;

/* The most calls whose gradients of the weights are added up in f32 one after another; beyond that, planes are copied. */
static const int64_t MOST_ADDED = 16;

static bool is_cuda(const tconv_plan *plan)
{
    return plan->layer.target.backend == TCONV_BACKEND_CUDA;
}

/* Whether all planes of all volumes are equally far apart. A step may be so long that all of them reach beyond any memory. */
static bool merges(const tconv_problem *problem, const tconv_strides *strides, const tconv_plane_walk *walk,
                   int64_t planes)
{
    int64_t apart;
    return problem->batch <= 1 || planes == 1 ||
           (tconv_checked_mul(planes * walk->step, strides->d, &apart) && strides->n == apart);
}

int64_t tconv_volume_plane_elements(const tconv_problem *problem, bool src)
{
    return src ? problem->in_channels * problem->h.in * problem->w.in
               : problem->out_channels * problem->h.out * problem->w.out;
}

/* The most numbers of calls that are tried for calls that are all alike. It is chosen, not measured. */
static const int64_t MOST_EVEN_TRIES = 1024;

/* How many of `have` a call takes, at most `limit`: as even as they come, all alike where they can be. */
static int64_t share(int64_t have, int64_t limit)
{
    if (have <= limit)
        return have;
    const int64_t least = tconv_ceil_div(have, tconv_max(limit, 1));
    const int64_t last = least + tconv_min(least, MOST_EVEN_TRIES);
    for (int64_t calls = least; calls <= last; calls++)
        if (have % calls == 0)
            return have / calls;
    return tconv_ceil_div(have, least);
}

/* Bytes of copied planes that a call may have. */
static int64_t most_copied(const tconv_plan *plan)
{
    if (is_cuda(plan))
        return MOST_COPIED_CUDA;
    const tconv_cpu_target cpu = tconv_cpu_target_of(&plan->layer.target);
    return tconv_max((int64_t)cpu.l2_bytes, (int64_t)1 << 20) * cpu.threads;
}

/* Whether the calls of a kernel plane's gradient, which add to what others gave, are few and worth more than copies by which all
 * are one. On the CPU, weights that are added to are read and written once more for each. */
static bool adds_weights(const tconv_plan *plan, const tconv_volume_part *part, bool src_merges, bool dst_merges)
{
    const tconv_problem *problem = &plan->layer.problem;
    const int64_t calls = tconv_min(problem->batch, part->images);
    const double copied = (double)problem->batch * (double)part->images *
                          ((src_merges ? 0 : (double)tconv_volume_plane_elements(problem, true)) +
                           (dst_merges ? 0 : (double)tconv_volume_plane_elements(problem, false)));
    const double weights = (double)problem->in_channels * (double)problem->group_out * (double)problem->h.kernel *
                           (double)problem->w.kernel;
    return problem->element_size > 2 && calls <= MOST_ADDED &&
           (is_cuda(plan) || copied > weights * (double)(calls - 1));
}

void tconv_volume_cut_calls(const tconv_plan *plan, const tconv_volume_part *part, part_plan *made)
{
    const tconv_problem *problem = &plan->layer.problem;
    const int64_t volumes = problem->batch, size = (int64_t)problem->element_size;
    const bool weights = made->kind == KERNEL;
    made->copies_src = made->kind == SUM && part->taps > 1 && problem->desc.op == TCONV_FORWARD;
    made->copies_dst = made->kind == SUM && part->taps > 1 && problem->desc.op == TCONV_BACKWARD_DATA;
    const bool src_merges = merges(problem, &problem->src, &part->src, part->images);
    const bool dst_merges = merges(problem, &problem->dst, &part->dst, part->images);
    bool all = (made->copies_src || made->kind == BIAS || src_merges) && (made->copies_dst || dst_merges) &&
               (problem->addend_extent == 0 || merges(problem, &problem->addend, &part->dst, part->images));
    if (made->kind == BIAS && part->dst.step == 1)
        all = true;
    if (weights && !all && !adds_weights(plan, part, src_merges, dst_merges)) {
        made->copies_src = !src_merges;
        made->copies_dst = !dst_merges;
        all = true;
    }
    int64_t limit = INT64_MAX;
    if (!weights && (made->copies_src || made->copies_dst))
        limit = tconv_max(1, most_copied(plan) / size / part->taps /
                                 tconv_volume_plane_elements(problem, made->copies_src));
    made->volumes = made->planes = 1;
    if (all && part->images <= limit) {
        made->planes = part->images;
        made->volumes = share(volumes, limit / part->images);
    } else if (all || volumes <= part->images) {
        made->planes = share(part->images, limit);
    } else {
        made->volumes = share(volumes, limit);
    }
}

int64_t tconv_volume_calls_of(const tconv_problem *problem, const tconv_volume_part *part, const part_plan *made)
{
    if (made->kind == FLAT)
        return 1;
    if (made->kind == ZERO || problem->batch == 0)
        return 0;
    return tconv_ceil_div(problem->batch, made->volumes) * tconv_ceil_div(part->images, made->planes);
}
