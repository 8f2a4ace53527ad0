/*
 * Packs weights for the pixels algorithm: in the type of the sums, in the order in which they are read, from any
 * layout. Taps that reach no input from any output are left out. The header says whether some weight is Inf or NaN.
 */
#include <stdatomic.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../cpu_target.h"
#include "../kernels/kernels.h"
#include "../threads/parallel.h"
#include "pack.h"

#include "plan.h"

/* Input channels that are packed at a time for all taps, so that filters stay in the first-level cache from tap to tap.
 * It is chosen, not measured. */
enum { PACK_CHANNELS = 8 };

/* Bytes of packed weights that are worth another thread, because waking a thread takes about as long. It is chosen, not
 * measured. */
enum { BYTES_PER_THREAD = 64 << 10 };

/* The most output channels of a block; no vector is longer than TCONV_ALIGNMENT. */
enum { MAX_WIDTH = TCONV_CPU_MAX_PIXEL_VECTORS * TCONV_ALIGNMENT / sizeof(float) };

/* Packs all taps of a few input channels of a block of a group; tells whether all their weights are finite. */
static bool pack_slice(const tconv_layer *layer, const tconv_cpu_pixel_plan *plan, int64_t channel,
                       tconv_cpu_pack *pack)
{
    const int64_t group_in = plan->group_in;
    int64_t k_block = channel / plan->k_block * plan->k_block, length = tconv_min(plan->k_block, group_in - k_block);
    tconv_cpu_pack_function *const function =
        tconv_cpu_find_kernels(tconv_cpu_target_of(&layer->target).cpu_isa)->dtype[layer->problem.dtype].pack;
    tconv_cpu_packed_tap list[TCONV_CPU_LISTED_TAPS];
    tconv_cpu_phase phase = {0};
    bool finite = true;
    pack->taps = list;
    pack->tap_count = 0;
    while (tconv_cpu_next_phase(layer, &phase)) {
        int64_t taps = tconv_cpu_phase_taps(&phase);
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t term = phase.offset * group_in + taps * k_block + tap * length + channel - k_block;
            list[pack->tap_count++] = (tconv_cpu_packed_tap){
                .from = tconv_cpu_tap_weight(layer, &phase, tap), .to = term * pack->width, .pitch = pack->width};
            if (pack->tap_count < TCONV_CPU_LISTED_TAPS)
                continue;
            finite &= function(pack);
            pack->tap_count = 0;
        }
    }
    return function(pack) && finite;
}

/* Fills the list of where each tap reads in the strip. */
static void fill_taps(const tconv_layer *layer, const tconv_cpu_pixel_plan *plan, tconv_cpu_pixel_tap *taps)
{
    tconv_cpu_phase phase = {0};
    while (tconv_cpu_next_phase(layer, &phase)) {
        for (int64_t tap = 0; tap < tconv_cpu_phase_taps(&phase); tap++) {
            int64_t row = tconv_cpu_row_shift(layer, &phase, tap), column = tconv_cpu_column_shift(layer, &phase, tap);
            taps[phase.offset + tap] =
                (tconv_cpu_pixel_tap){.strip = (int32_t)((row - plan->rows.min_shift) * plan->row_pitch +
                                                         (column - plan->columns.min_shift) * plan->pixel_pitch),
                                      .weights = (int32_t)tap};
        }
    }
}

/* Lists the places of a block's output channels, from number `output` of the group on. Returns where the first one's
 * weights begin, from those of the group's first. layer is the caller's. */
static int64_t list_places(const tconv_cpu_pixel_view *view, const tconv_layer *layer, bool depthwise, int64_t output,
                           int64_t outputs, int64_t places[])
{
    const tconv_weight_strides *strides = &layer->problem.weight;
    const int64_t channel_stride = depthwise ? strides->in : strides->out;
    int64_t first = output * channel_stride, columns = layer->problem.w.out, o = 0;
    if (layer->problem.layout == TCONV_NHWC) {
        for (; o < outputs; o++)
            places[o] = o * channel_stride;
        return first;
    }
    int64_t channel = output / view->outputs, row = output % view->outputs / columns, column = output % columns;
    for (; o < outputs; channel++, row = 0)
        for (; row < layer->problem.h.out && o < outputs; row++, column = 0)
            for (; column < columns && o < outputs; column++, o++) {
                int64_t place = channel * channel_stride + layer->rows.phases[row].first_kernel * strides->h +
                                layer->columns.phases[column].first_kernel * strides->w;
                first = o == 0 ? place : first;
                places[o] = place - first;
            }
    return first;
}

/* All shares of the packing have this in common. */
struct shared {
    const tconv_layer *layer; /* the caller's */
    const tconv_cpu_pixel_view *view;
    const tconv_cpu_pixel_plan *plan;
    const void *weights;
    char *to;
    int64_t slices, parts;
    int shares;
    atomic_bool has_nonfinite;
};

static void pack_share(void *argument, int index)
{
    struct shared *shared = argument;
    const tconv_problem *problem = &shared->layer->problem;
    const tconv_cpu_pixel_plan *plan = shared->plan;
    tconv_cpu_range range = tconv_cpu_share_of(shared->parts, index, shared->shares);
    for (int64_t i = range.begin; i < range.end; i++) {
        int64_t slice = i % shared->slices, block = i / shared->slices % plan->blocks;
        int64_t group = i / shared->slices / plan->blocks, width = tconv_cpu_block_vectors(plan, block) * plan->lanes;
        int64_t channel = slice * PACK_CHANNELS, output = block * plan->lanes * TCONV_CPU_MAX_PIXEL_VECTORS;
        const int64_t outputs = tconv_min(width, plan->group_out - output);
        int64_t places[MAX_WIDTH];
        const int64_t filter = (group * plan->group_in + channel) * problem->weight.in +
                               list_places(shared->view, shared->layer, plan->depthwise, output, outputs, places);
        tconv_cpu_pack pack = {.weights = (const char *)shared->weights + filter * (int64_t)problem->element_size,
                               .packed = shared->to + tconv_cpu_block_weights(plan, group, block) * plan->real_size,
                               .places = places,
                               .count = outputs,
                               .width = width,
                               .channels = tconv_min(PACK_CHANNELS, plan->group_in - channel),
                               .step = problem->weight.in};
        if (!pack_slice(&shared->view->layer, plan, channel, &pack))
            atomic_store_explicit(&shared->has_nonfinite, true, memory_order_relaxed);
    }
}

tconv_status tconv_cpu_pack_pixels(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                   void *stream, tconv_issue *issue)
{
    const tconv_cpu_pixel_layer *planned = made;
    const tconv_cpu_pixel_plan *plan = &planned->plan;
    (void)stream, (void)issue;
    tconv_cpu_packed_header *header = packed;
    tconv_cpu_pixel_tap *taps = (tconv_cpu_pixel_tap *)(void *)((char *)packed + TCONV_ALIGNMENT);
    struct shared shared = {.layer = layer,
                            .view = &planned->view,
                            .plan = plan,
                            .weights = weights,
                            .to = (char *)taps + plan->taps_bytes,
                            .slices = tconv_ceil_div(plan->group_in, PACK_CHANNELS)};
    shared.parts = plan->all_groups * plan->blocks * shared.slices;
    shared.shares = tconv_cpu_count_shares(&layer->target, tconv_cpu_target_of(&layer->target).threads,
                                           tconv_min(shared.parts, plan->packed_bytes / BYTES_PER_THREAD));
    fill_taps(&planned->view.layer, plan, taps);
    tconv_cpu_run_shares(&layer->target, shared.shares, pack_share, &shared);
    header->has_nonfinite = atomic_load_explicit(&shared.has_nonfinite, memory_order_relaxed);
    return TCONV_SUCCESS;
}
