/*
 * Packs weights for the microkernels: in the type of the sums, in the order in which they are read, from any layout.
 * Taps that reach no input from any output are left out. The header says whether some weight is Inf or NaN.
 */
#include <stdatomic.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../cpu_target.h"
#include "../kernels/half.h"
#include "../threads/parallel.h"
#include "pack.h"

#include "plan.h"

/* Input channels that are packed at a time. Weights are transposed in a buffer that stays in the first-level cache:
 * straight from one tensor to the other, either side would jump by powers of two and evict itself. It is chosen, not
 * measured. */
enum { PACK_CHANNELS = 8 };

/* Taps that are packed at a time, half as many of f64: that buffer has 16 x 8 x 12 floats, 6 KiB. */
enum { PACK_TAPS = 16 };

/* Bytes of packed weights that are worth another thread, because waking a thread takes about as long. It is chosen, not
 * measured. */
enum { BYTES_PER_THREAD = 64 << 10 };

/* One tap of a row phase and a column phase. */
struct tap {
    int64_t from;  /* its offset in a filter */
    int64_t to;    /* where its first weight goes in the block's packed weights */
    int64_t width; /* from one input channel to the next there */
};

/* A block of output channels of one group, input channels [begin, begin + count) of it, and taps to be packed next. */
struct part {
    const tconv_problem *problem;
    const void *weights;
    void *packed; /* the block's packed weights */
    int64_t group, begin, count;
    tconv_cpu_block block;
    int64_t tap_count;
    struct tap taps[PACK_TAPS];
};

/* Packs the taps of a part; tells whether all their weights are finite. */
#define DEFINE_PACK(name, type, real, convert)                                                                         \
    static bool pack_##name(const struct part *part)                                                                   \
    {                                                                                                                  \
        const tconv_weight_strides *strides = &part->problem->weight;                                                  \
        const int64_t group_in = part->problem->group_in, count = part->block.count, run = part->count * count;        \
        const type *filters = (const type *)part->weights + (part->group * group_in + part->begin) * strides->in +     \
                              part->block.first * strides->out;                                                        \
        real transposed[PACK_TAPS * sizeof(float) / sizeof(real)][PACK_CHANNELS * TCONV_CPU_MAX_CHANNELS] = {{0}};     \
        bool finite = true;                                                                                            \
        for (int64_t i = 0; i < run; i++) {                                                                            \
            const type *filter = filters + i / count * strides->in + i % count * strides->out;                         \
            for (int64_t t = 0; t < part->tap_count; t++)                                                              \
                transposed[t][i] = convert(filter[part->taps[t].from]);                                                \
        }                                                                                                              \
        for (int64_t t = 0; t < part->tap_count; t++) {                                                                \
            const struct tap *tap = &part->taps[t];                                                                    \
            for (int64_t c = 0; c < part->count; c++) {                                                                \
                real *to = (real *)part->packed + tap->to + (part->begin + c) * tap->width;                            \
                for (int64_t m = 0; m < count; m++) {                                                                  \
                    to[m] = transposed[t][c * count + m];                                                              \
                    finite &= to[m] - to[m] == 0; /* Inf - Inf and NaN - NaN are NaN */                                \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        return finite;                                                                                                 \
    }

#define AS_IT_IS(value) (value)
DEFINE_PACK(f32, float, float, AS_IT_IS)
DEFINE_PACK(f64, double, double, AS_IT_IS)
DEFINE_PACK(f16, uint16_t, float, tconv_float_from_f16)
DEFINE_PACK(bf16, uint16_t, float, tconv_float_from_bf16)

static bool (*const pack_taps[TCONV_DTYPES])(const struct part *part) = {
    [TCONV_F32] = pack_f32,
    [TCONV_F64] = pack_f64,
    [TCONV_F16] = pack_f16,
    [TCONV_BF16] = pack_bf16,
};

static bool pack_part(const tconv_layer *layer, const tconv_cpu_plan *plan, struct part *part)
{
    const tconv_weight_strides *strides = &layer->problem.weight;
    const int64_t group_in = layer->problem.group_in, most_taps = plan->real ? PACK_TAPS / 2 : PACK_TAPS;
    tconv_cpu_pass pass = {0};
    bool finite = true;
    while (tconv_cpu_next_pass(plan, layer, &pass)) {
        for (int64_t i = 0; i < tconv_cpu_pass_taps(&pass) * pass.phases; i++) {
            int64_t tap = i / pass.phases, phase = i % pass.phases;
            const tconv_phase *columns = tconv_cpu_column_phase(plan, layer, pass.first + phase);
            int64_t row = pass.row_taps.first + tap / pass.column_taps.count;
            int64_t column = pass.column_taps.first + tap % pass.column_taps.count;
            part->taps[part->tap_count++] = (struct tap){
                .from = (pass.row->first_kernel + row * layer->rows.kernel_step) * strides->h +
                        (columns->first_kernel + column * layer->columns.kernel_step) * strides->w,
                .to =
                    ((pass.weights * group_in + tconv_cpu_term(plan, &pass, group_in, tap, 0) * pass.phases) + phase) *
                    part->block.count,
                .width = tconv_cpu_term(plan, &pass, group_in, 0, 1) * pass.phases * part->block.count};
            if (part->tap_count < most_taps)
                continue;
            finite &= pack_taps[layer->problem.dtype](part);
            part->tap_count = 0;
        }
    }
    return pack_taps[layer->problem.dtype](part) && finite;
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
        struct part part = {.problem = problem,
                            .weights = shared->weights,
                            .group = group,
                            .begin = slice * PACK_CHANNELS,
                            .count = tconv_min(PACK_CHANNELS, problem->group_in - slice * PACK_CHANNELS),
                            .block = tconv_cpu_block_of(plan, problem->group_out, block)};
        int64_t channel = group * problem->group_out + part.block.first;
        part.packed = shared->to + channel * problem->group_in * all_taps * plan->real_size;
        if (!pack_part(shared->layer, plan, &part))
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
