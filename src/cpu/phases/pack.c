/*
 * Packs weights for the microkernels: in the type of the sums, in the order in which they are read, from any layout.
 * Taps that reach no input from any output are left out. The header says whether some weight is Inf or NaN.
 */
#include <stdatomic.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../cpu_target.h"
#include "../threads/parallel.h"
#include "pack.h"

#include "plan.h"

/* Input channels that are packed at a time: a cache line of those that are neighbours in memory. It is chosen, not measured. */
enum { PACK_CHANNELS = 16 };

/* Bytes of packed weights that are worth another thread, because waking a thread takes about as long. It is chosen, not
 * measured. */
enum { BYTES_PER_THREAD = 64 << 10 };

/* Packs the weights of some input channels and a block of output channels; tells whether all of them are finite. */
static bool pack_part(const tconv_layer *layer, const tconv_cpu_plan *plan, int64_t begin, tconv_cpu_pack *pack)
{
    const tconv_weight_strides *strides = &layer->problem.weight;
    const int64_t group_in = layer->problem.group_in;
    tconv_cpu_pack_function *const function = plan->kernels->dtype[layer->problem.dtype].pack;
    tconv_cpu_packed_tap taps[TCONV_CPU_LISTED_TAPS];
    tconv_cpu_pass pass = {0};
    bool finite = true;
    pack->taps = taps;
    pack->tap_count = 0;
    while (tconv_cpu_next_pass(plan, layer, &pass)) {
        const int64_t pitch = tconv_cpu_term(plan, &pass, group_in, 0, 1) * pass.phases * pack->width;
        for (int64_t i = 0; i < tconv_cpu_pass_taps(&pass) * pass.phases; i++) {
            int64_t tap = i / pass.phases, phase = i % pass.phases;
            const tconv_phase *columns = tconv_cpu_column_phase(plan, layer, pass.first + phase);
            int64_t row = pass.row_taps.first + tap / pass.column_taps.count;
            int64_t column = pass.column_taps.first + tap % pass.column_taps.count;
            const int64_t term =
                (pass.weights * group_in + tconv_cpu_term(plan, &pass, group_in, tap, 0) * pass.phases) + phase;
            taps[pack->tap_count++] = (tconv_cpu_packed_tap){
                .from = (pass.row->first_kernel + row * layer->rows.kernel_step) * strides->h +
                        (columns->first_kernel + column * layer->columns.kernel_step) * strides->w,
                .to = term * pack->width + begin * pitch,
                .pitch = pitch};
            if (pack->tap_count < TCONV_CPU_LISTED_TAPS)
                continue;
            finite &= function(pack);
            pack->tap_count = 0;
        }
    }
    return function(pack) && finite;
}

/* Fills the list of where each tap reads in the halo strip. */
static void fill_taps(const tconv_layer *layer, const tconv_cpu_plan *plan, int32_t *taps)
{
    tconv_cpu_pass pass = {0};
    while (tconv_cpu_next_pass(plan, layer, &pass)) {
        const tconv_phase *columns = tconv_cpu_column_phase(plan, layer, pass.first);
        for (int64_t tap = 0; tap < tconv_cpu_pass_taps(&pass); tap++) {
            int64_t row_tap = pass.row_taps.first + tap / pass.column_taps.count;
            int64_t column_tap = pass.column_taps.first + tap % pass.column_taps.count;
            int64_t row = tconv_cpu_shift(&layer->rows, pass.row, row_tap) - plan->rows.min_shift;
            int64_t column = tconv_cpu_shift(&layer->columns, columns, column_tap) - plan->columns.min_shift;
            taps[pass.taps + tap] = (int32_t)(row * plan->row_pitch + column - tconv_cpu_lag(plan, pass.first));
        }
    }
}

/* All shares of the packing have this in common. */
struct shared {
    const tconv_layer *layer;
    const tconv_cpu_plan *plan;
    const void *weights;
    char *to;
    int64_t slices, parts;
    int shares;
    atomic_bool has_nonfinite;
};

static void pack_share(void *argument, int index)
{
    struct shared *shared = argument;
    const tconv_cpu_plan *plan = shared->plan;
    const tconv_problem *problem = &shared->layer->problem;
    const int64_t all_taps = plan->rows.taps * plan->columns.taps;
    tconv_cpu_range range = tconv_cpu_share_of(shared->parts, index, shared->shares);
    for (int64_t i = range.begin; i < range.end; i++) {
        int64_t block = i % plan->blocks, slice = i / plan->blocks % shared->slices;
        int64_t group = i / plan->blocks / shared->slices;
        const int64_t begin = slice * PACK_CHANNELS;
        const tconv_cpu_block channels = tconv_cpu_block_of(plan, problem->group_out, block);
        const int64_t from =
            (group * problem->group_in + begin) * problem->weight.in + channels.first * problem->weight.out;
        const int64_t to = (group * problem->group_out + channels.first) * problem->group_in * all_taps;
        int64_t places[TCONV_CPU_MAX_CHANNELS];
        for (int64_t m = 0; m < channels.count; m++)
            places[m] = m * problem->weight.out;
        tconv_cpu_pack pack = {.weights = (const char *)shared->weights + from * (int64_t)problem->element_size,
                               .packed = shared->to + to * plan->real_size,
                               .places = places,
                               .count = channels.count,
                               .width = channels.count,
                               .channels = tconv_min(PACK_CHANNELS, problem->group_in - begin),
                               .step = problem->weight.in};
        if (!pack_part(shared->layer, plan, begin, &pack))
            atomic_store_explicit(&shared->has_nonfinite, true, memory_order_relaxed);
    }
}

tconv_status tconv_cpu_pack_phases(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                   void *stream, tconv_issue *issue)
{
    const tconv_cpu_plan *plan = made;
    (void)stream, (void)issue;
    tconv_cpu_packed_header *header = packed;
    int32_t *taps = (int32_t *)(void *)((char *)packed + TCONV_ALIGNMENT);
    struct shared shared = {.layer = layer,
                            .plan = plan,
                            .weights = weights,
                            .to = (char *)taps + plan->taps_bytes,
                            .slices = tconv_ceil_div(layer->problem.group_in, PACK_CHANNELS)};
    shared.parts = layer->problem.groups * plan->blocks * shared.slices;
    shared.shares = tconv_cpu_count_shares(&layer->target, tconv_cpu_target_of(&layer->target).threads,
                                           tconv_min(shared.parts, plan->packed_bytes / BYTES_PER_THREAD));
    if (!plan->gather)
        fill_taps(layer, plan, taps);
    tconv_cpu_run_shares(&layer->target, shared.shares, pack_share, &shared);
    header->has_nonfinite = atomic_load_explicit(&shared.has_nonfinite, memory_order_relaxed);
    return TCONV_SUCCESS;
}
