/*
 * Packs weights for the correlation algorithm: in the type of the sums, in the order in which they are read, from any
 * layout. Taps that reach no output from any input are left out. The header says whether some weight is Inf or NaN.
 */
#include <stdatomic.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../cpu_target.h"
#include "../threads/parallel.h"
#include "task.h"

/* Output channels that are packed at a time: a cache line of those that are neighbours in memory. It is chosen, not measured. */
enum { PACK_CHANNELS = 16 };

/* The most input channels of a block. */
enum { MAX_WIDTH = TCONV_CPU_MAX_PIXEL_VECTORS * TCONV_ALIGNMENT / sizeof(float) };

/* Bytes of packed weights that are worth another thread, because waking a thread takes about as long. It is chosen, not
 * measured. */
enum { BYTES_PER_THREAD = 64 << 10 };

/* Packs words of two output channels in the order of single ones; `odd`: the last word has one. */
static bool pack_pairs(const tconv_cpu_pack *pack, int64_t output_stride, bool odd)
{
    for (int64_t o = 0; o < pack->channels; o++)
        for (const tconv_cpu_packed_tap *tap = pack->taps; tap < pack->taps + pack->tap_count; tap++) {
            uint32_t *to = (uint32_t *)pack->packed + o * tap->pitch + tap->to;
            const bool both = o + 1 < pack->channels || !odd;
            for (int64_t m = 0; m < pack->width; m++) {
                const uint16_t *filter = (const uint16_t *)pack->weights + (m < pack->count ? pack->places[m] : 0) +
                                         o * pack->step + tap->from;
                to[m] = m < pack->count ? filter[0] | (both ? (uint32_t)filter[output_stride] << 16 : 0) : 0;
            }
        }
    return true;
}

/* Packs taps; tells whether all their weights are finite, but for pairs. */
static bool pack_some(const tconv_layer *layer, const tconv_cpu_dgrad_plan *plan, const tconv_cpu_pack *pack, bool odd)
{
    if (plan->pairs != NULL)
        return pack_pairs(pack, layer->problem.weight.out, odd);
    return plan->kernels->dtype[layer->problem.dtype].pack(pack);
}

/* Packs all taps of a block for some output channels from one on; tells whether all their weights are finite. */
static bool pack_taps(const tconv_layer *layer, const tconv_cpu_dgrad_plan *plan, const tconv_cpu_dgrad_block *block,
                      int64_t channel, bool odd, tconv_cpu_pack *pack)
{
    tconv_cpu_dgrad_walk walk = {0};
    tconv_cpu_packed_tap taps[TCONV_CPU_LISTED_TAPS];
    const int64_t first = tconv_cpu_dgrad_weight(plan, block, 0, channel);
    bool finite = true;
    pack->taps = taps;
    pack->tap_count = 0;
    while (tconv_cpu_next_dgrad_tap(plan, layer, &walk)) {
        taps[pack->tap_count++] =
            (tconv_cpu_packed_tap){.from = walk.tap.weight,
                                   .to = tconv_cpu_dgrad_weight(plan, block, walk.tap.index, channel) - first,
                                   .pitch = plan->pixels ? block->width : block->width * plan->taps};
        if (pack->tap_count < TCONV_CPU_LISTED_TAPS)
            continue;
        finite &= pack_some(layer, plan, pack, odd);
        pack->tap_count = 0;
    }
    return pack_some(layer, plan, pack, odd) && finite;
}

/* Lists what each term of a period, or each tap, adds to a position's place. */
static void list_terms(const tconv_layer *layer, const tconv_cpu_dgrad_plan *plan, void *terms)
{
    tconv_cpu_dgrad_walk walk = {0};
    while (tconv_cpu_next_dgrad_tap(plan, layer, &walk)) {
        const int64_t place = walk.tap.place * plan->place_pitch, tap = walk.tap.index;
        const int64_t row = plan->rows_of_taps ? plan->columns.taps : 1;
        if (plan->pixels && tap % row == 0)
            ((tconv_cpu_pixel_tap *)terms)[tap / row] = (tconv_cpu_pixel_tap){(int32_t)place, (int32_t)(tap / row)};
        for (int64_t o = 0; !plan->pixels && o < plan->period_channels; o++)
            ((int32_t *)terms)[o * plan->taps + tap] = (int32_t)(o * plan->channel_pitch + place);
    }
}

/* All shares of the packing have this in common. */
struct shared {
    const tconv_layer *layer;
    const tconv_cpu_dgrad_plan *plan;
    const void *weights;
    char *to;
    int64_t slices, parts;
    int shares;
    atomic_bool has_nonfinite;
};

/* Output channels of a slice, which does not go beyond its K-block. */
static int64_t slice_channels(const tconv_cpu_dgrad_plan *plan)
{
    return tconv_min(PACK_CHANNELS, plan->k_block);
}

/* Slices of the K-blocks of a group. */
static int64_t count_slices(const tconv_cpu_dgrad_plan *plan)
{
    const int64_t whole = plan->group_out / plan->k_block, rest = plan->group_out % plan->k_block;
    const int64_t size = slice_channels(plan);
    return whole * tconv_ceil_div(plan->k_block, size) + tconv_ceil_div(rest, size);
}

static void pack_share(void *argument, int index)
{
    struct shared *shared = argument;
    const tconv_cpu_dgrad_plan *plan = shared->plan;
    const tconv_problem *problem = &shared->layer->problem;
    const tconv_weight_strides *strides = &problem->weight;
    const tconv_cpu_range range = tconv_cpu_share_of(shared->parts, index, shared->shares);
    const int64_t in_k_block = tconv_ceil_div(plan->k_block, slice_channels(plan));
    for (int64_t i = range.begin; i < range.end; i++) {
        const int64_t slice = i % shared->slices, group = i / shared->slices / plan->blocks;
        const int64_t k_block = slice / in_k_block * plan->k_block;
        const int64_t channel = k_block + slice % in_k_block * slice_channels(plan);
        const int64_t end = tconv_min(plan->group_out, k_block + plan->k_block);
        const tconv_cpu_dgrad_block block = tconv_cpu_dgrad_block_of(plan, group, i / shared->slices % plan->blocks);
        const int64_t from =
            (group * plan->group_in + block.first) * strides->in + channel * tconv_cpu_dgrad_word(plan) * strides->out;
        const int64_t to = block.weights + tconv_cpu_dgrad_weight(plan, &block, 0, channel);
        int64_t places[MAX_WIDTH];
        for (int64_t m = 0; m < block.count; m++)
            places[m] = m * strides->in;
        tconv_cpu_pack pack = {.weights = (const char *)shared->weights + from * (int64_t)problem->element_size,
                               .packed = tconv_cpu_real_at(plan->real_size, shared->to, to),
                               .places = places,
                               .count = block.count,
                               .width = block.width,
                               .channels = tconv_min(slice_channels(plan), end - channel),
                               .step = tconv_cpu_dgrad_word(plan) * strides->out};
        const bool odd = channel + pack.channels == plan->group_out && problem->group_out % 2 != 0;
        if (!pack_taps(shared->layer, plan, &block, channel, odd, &pack))
            atomic_store_explicit(&shared->has_nonfinite, true, memory_order_relaxed);
    }
}

tconv_status tconv_cpu_pack_dgrad(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                  void *stream, tconv_issue *issue)
{
    const tconv_cpu_dgrad_plan *plan = made;
    (void)stream, (void)issue;
    tconv_cpu_packed_header *header = packed;
    char *terms = (char *)packed + TCONV_ALIGNMENT;
    struct shared shared = {.layer = layer,
                            .plan = plan,
                            .weights = weights,
                            .to = terms + plan->terms_bytes,
                            .slices = count_slices(plan)};
    shared.parts = plan->all_groups * plan->blocks * shared.slices;
    shared.shares = tconv_cpu_count_shares(&layer->target, tconv_cpu_target_of(&layer->target).threads,
                                           tconv_min(shared.parts, plan->packed_bytes / BYTES_PER_THREAD));
    list_terms(layer, plan, terms);
    tconv_cpu_run_shares(&layer->target, shared.shares, pack_share, &shared);
    if (plan->pairs != NULL) {
        tconv_cpu_pair_range *range = &((tconv_cpu_dgrad_pair_header *)packed)->range;
        *range = (tconv_cpu_pair_range)TCONV_CPU_NO_PAIR_RANGE;
        plan->pairs->find_range(range, (const uint16_t *)(const void *)shared.to,
                                2 * plan->all_groups * plan->padded_in * plan->group_out * plan->taps);
    }
    header->has_nonfinite = atomic_load_explicit(&shared.has_nonfinite, memory_order_relaxed);
    return TCONV_SUCCESS;
}
