/*
 * Packs weights for the correlation algorithm: in the type of the sums, in the order in which they are read, from any
 * layout. Taps that reach no output from any input are left out. The header says whether some weight is Inf or NaN.
 */
#include <stdatomic.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../cpu_target.h"
#include "../kernels/half.h"
#include "../threads/parallel.h"
#include "task.h"

/* Output channels and taps that are packed at a time. Weights are transposed in a buffer that stays in the first-level
 * cache, at most 4 KiB: straight from one tensor to the other, either side would jump by powers of two and evict itself.
 * They are chosen, not measured. */
enum { PACK_CHANNELS = 2, PACK_TAPS = 16 };

/* Bytes of input channels of the widest block, as Real. */
enum { MAX_WIDTH_BYTES = TCONV_CPU_MAX_PIXEL_VECTORS * TCONV_ALIGNMENT };

/* Bytes of packed weights that are worth another thread, because waking a thread takes about as long. It is chosen, not
 * measured. */
enum { BYTES_PER_THREAD = 64 << 10 };

/* A block of input channels, some output channels and some taps. */
struct part {
    const void *weights; /* those of the first input and output channel, at the first kernel index */
    void *packed;        /* the first of them */
    int64_t count, width, channels, taps;
    int64_t input_stride, output_stride; /* of the weights */
    int64_t channel_pitch;               /* of what is packed, from output channel to output channel */
    bool odd;                            /* pairs: the last channel of the group has no second one */
    bool dense;                          /* all of it follows on each other in what is packed */
    int64_t from[PACK_TAPS], to[PACK_TAPS];
};

/* Packs a part; tells whether all its weights are finite. */
#define DEFINE_PACK(name, type, real, convert)                                                                         \
    static bool pack_##name(const struct part *part)                                                                   \
    {                                                                                                                  \
        real transposed[PACK_CHANNELS * PACK_TAPS * MAX_WIDTH_BYTES / sizeof(real)] = {0};                             \
        const int64_t taps = part->taps, width = part->width, pitch = taps * width;                                    \
        int32_t nonfinite = 0;                                                                                         \
        for (int64_t m = 0; m < width; m++)                                                                            \
            for (int64_t o = 0; o < part->channels; o++) {                                                             \
                const type *filter = (const type *)part->weights + m * part->input_stride + o * part->output_stride;   \
                real *to = transposed + o * pitch + m;                                                                 \
                for (int64_t t = 0; t < taps; t++)                                                                     \
                    to[t * width] = m < part->count ? convert(filter[part->from[t]]) : 0;                              \
            }                                                                                                          \
        for (int64_t i = 0; i < part->channels * pitch; i++) /* Inf - Inf and NaN - NaN are NaN */                     \
            nonfinite |= !(transposed[i] - transposed[i] == 0);                                                        \
        if (part->dense) {                                                                                             \
            memcpy(part->packed, transposed, (size_t)(part->channels * pitch) * sizeof(real));                         \
            return nonfinite == 0;                                                                                     \
        }                                                                                                              \
        for (int64_t o = 0; o < part->channels; o++)                                                                   \
            for (int64_t t = 0; t < taps; t++)                                                                         \
                memcpy((real *)part->packed + o * part->channel_pitch + part->to[t],                                   \
                       transposed + o * pitch + t * width, (size_t)width * sizeof(real));                              \
        return nonfinite == 0;                                                                                         \
    }

/* The same for words of two output channels; `odd`: the last word has one. */
static bool pack_pairs(const struct part *part)
{
    const int64_t taps = part->taps, width = part->width;
    for (int64_t o = 0; o < part->channels; o++)
        for (int64_t t = 0; t < taps; t++) {
            uint32_t *to = (uint32_t *)part->packed + o * part->channel_pitch + part->to[t];
            const bool both = o + 1 < part->channels || !part->odd;
            for (int64_t m = 0; m < width; m++) {
                const uint16_t *filter = (const uint16_t *)part->weights + m * part->input_stride +
                                         2 * o * part->output_stride + part->from[t];
                to[m] = m < part->count ? filter[0] | (both ? (uint32_t)filter[part->output_stride] << 16 : 0) : 0;
            }
        }
    return true;
}

#define AS_IT_IS(value) (value)
DEFINE_PACK(f32, float, float, AS_IT_IS)
DEFINE_PACK(f64, double, double, AS_IT_IS)
DEFINE_PACK(f16, uint16_t, float, tconv_float_from_f16)
DEFINE_PACK(bf16, uint16_t, float, tconv_float_from_bf16)

static bool (*const pack_part[TCONV_DTYPES])(const struct part *part) = {
    [TCONV_F32] = pack_f32,
    [TCONV_F64] = pack_f64,
    [TCONV_F16] = pack_f16,
    [TCONV_BF16] = pack_bf16,
};

/* Packs all taps of a part. */
static bool pack_taps(const tconv_layer *layer, const tconv_cpu_dgrad_plan *plan, const tconv_cpu_dgrad_block *block,
                      int64_t channel, struct part *part)
{
    tconv_cpu_dgrad_walk walk = {0};
    const int64_t first = tconv_cpu_dgrad_weight(plan, block, 0, channel);
    bool (*const pack)(const struct part *) = plan->pairs != NULL ? pack_pairs : pack_part[layer->problem.dtype];
    bool finite = true;
    part->taps = 0;
    while (tconv_cpu_next_dgrad_tap(plan, layer, &walk)) {
        part->from[part->taps] = walk.tap.weight;
        part->to[part->taps++] = tconv_cpu_dgrad_weight(plan, block, walk.tap.index, channel) - first;
        if (part->taps < PACK_TAPS)
            continue;
        finite &= pack(part);
        part->taps = 0;
    }
    return pack(part) && finite;
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
        struct part part = {.weights = (const char *)shared->weights + from * (int64_t)problem->element_size,
                            .packed = tconv_cpu_real_at(plan->real_size, shared->to, to),
                            .count = block.count,
                            .width = block.width,
                            .channels = tconv_min(slice_channels(plan), end - channel),
                            .input_stride = strides->in,
                            .output_stride = strides->out,
                            .channel_pitch = plan->pixels ? block.width : block.width * plan->taps,
                            .dense = !plan->pixels && plan->taps < PACK_TAPS};
        part.odd = channel + part.channels == plan->group_out && problem->group_out % 2 != 0;
        if (!pack_taps(shared->layer, plan, &block, channel, &part))
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
