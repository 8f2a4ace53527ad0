/*
 * Packs weights for the matrix algorithm: split into parts, in the order in which they are read, from any layout. Taps
 * that reach no input from any output are left out. The header says whether some weight is Inf or NaN; each block has the
 * range of its weights.
 */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "../../core/alloc.h"
#include "../../core/checked.h"
#include "../cpu_target.h"
#include "../kernels/half.h"
#include "../threads/parallel.h"
#include "task.h"

/* Bytes of packed weights that are worth another thread, because waking a thread takes about as long. It is chosen, not
 * measured. */
enum { BYTES_PER_THREAD = 64 << 10 };

/* All shares of the packing have this in common. */
struct shared {
    const tconv_cpu_bf16_plan *plan;
    const char *weights;
    uint16_t *to;
    tconv_cpu_bf16_range *ranges;
    int64_t tasks; /* blocks of all groups */
    int shares;
    atomic_bool has_nonfinite;
};

/* Some input and output channels of one tap. */
struct piece {
    const void *first;
    int64_t inputs, outputs, input_stride, output_stride;
};

/* Reads a piece as f32: [pair of input channels][output channel][channel of the pair], zeros where it has none. */
#define DEFINE_READ(name, type, convert)                                                                               \
    static void read_##name(const struct piece *piece, float(*to)[TCONV_CPU_FRAGMENT][2])                              \
    {                                                                                                                  \
        for (int64_t i = 0; i < piece->inputs; i++) {                                                                  \
            const type *from = (const type *)piece->first + i * piece->input_stride;                                   \
            for (int64_t o = 0; o < piece->outputs; o++)                                                               \
                to[i / 2][o][i % 2] = convert(from[o * piece->output_stride]);                                         \
        }                                                                                                              \
    }

#define AS_IT_IS(value) (value)
DEFINE_READ(f32, float, AS_IT_IS)
DEFINE_READ(f16, uint16_t, tconv_float_from_f16)
DEFINE_READ(bf16, uint16_t, tconv_float_from_bf16)

/* Packs a piece: a step. */
static void pack_step(const struct shared *shared, const struct piece *piece, uint16_t *to, tconv_cpu_bf16_range *range)
{
    const tconv_cpu_bf16_plan *plan = shared->plan;
    float pairs[TCONV_CPU_BF16_DEPTH / 2][TCONV_CPU_FRAGMENT][2] = {{{0}}};
    const int64_t count = plan->depth * TCONV_CPU_FRAGMENT;
    switch (plan->view.layer.problem.dtype) {
    case TCONV_F16: read_f16(piece, pairs); break;
    case TCONV_BF16: read_bf16(piece, pairs); break;
    default: read_f32(piece, pairs); break;
    }
    const tconv_cpu_bf16_split split = {
        .from = pairs[0][0],
        .rows = 1,
        .count = count,
        .step = 1,
        .parts = plan->parts,
        .to = to,
        .part_pitch = count,
        .range = range,
    };
    plan->matrix->split(&split);
}

/* Packs chunks of a block, of all taps of each in turn, so that its filters stay in the caches. */
static tconv_cpu_bf16_range pack_block(const struct shared *shared, int64_t group, int64_t block)
{
    const tconv_cpu_bf16_plan *plan = shared->plan;
    const tconv_layer *layer = &plan->view.layer, *caller = &plan->view.caller; /* which has the taps */
    const tconv_problem *problem = &layer->problem;
    const tconv_weight_strides *strides = &problem->weight;
    tconv_cpu_bf16_range range = TCONV_CPU_BF16_NO_RANGE;
    uint16_t *const packed = shared->to + (group * plan->blocks + block) * tconv_cpu_bf16_block(plan);
    const int64_t output = block * TCONV_CPU_FRAGMENT;
    for (int64_t chunk = 0; chunk < plan->chunks; chunk++) {
        const int64_t input = chunk * plan->depth;
        tconv_cpu_phase phase = {0};
        while (tconv_cpu_next_phase(caller, &phase)) {
            for (int64_t tap = 0; tap < tconv_cpu_phase_taps(&phase); tap++) {
                const int64_t offset = group * layer->group_weights + input * strides->in + output * strides->out +
                                       tconv_cpu_tap_weight(caller, &phase, tap);
                const struct piece piece = {
                    .first = shared->weights + offset * (int64_t)problem->element_size,
                    .inputs = tconv_min(plan->depth, problem->group_in - input),
                    .outputs = tconv_min(TCONV_CPU_FRAGMENT, problem->group_out - output),
                    .input_stride = strides->in,
                    .output_stride = strides->out,
                };
                pack_step(shared, &piece,
                          packed + (phase.offset * plan->chunks + chunk * tconv_cpu_phase_taps(&phase) + tap) *
                                       tconv_cpu_bf16_step(plan),
                          &range);
            }
        }
    }
    return range;
}

static void pack_share(void *argument, int index)
{
    struct shared *shared = argument;
    const tconv_cpu_range range = tconv_cpu_share_of(shared->tasks, index, shared->shares);
    for (int64_t i = range.begin; i < range.end; i++) {
        shared->ranges[i] = pack_block(shared, i / shared->plan->blocks, i % shared->plan->blocks);
        if (shared->ranges[i].most >= tconv_bits_of_float(INFINITY))
            atomic_store_explicit(&shared->has_nonfinite, true, memory_order_relaxed);
    }
}

tconv_status tconv_cpu_pack_bf16(const tconv_layer *layer, const void *made, const void *weights, void *packed,
                                 void *stream, tconv_issue *issue)
{
    const tconv_cpu_bf16_plan *plan = made;
    (void)stream, (void)issue;
    tconv_cpu_packed_header *header = packed;
    char *ranges = (char *)packed + TCONV_ALIGNMENT;
    struct shared shared = {.plan = plan,
                            .weights = weights,
                            .to = (uint16_t *)(void *)(ranges + plan->weight_ranges_bytes),
                            .ranges = (tconv_cpu_bf16_range *)(void *)ranges,
                            .tasks = layer->problem.groups * plan->blocks};
    shared.shares = tconv_cpu_count_shares(&layer->target, tconv_cpu_target_of(&layer->target).threads,
                                           tconv_min(shared.tasks, plan->packed_bytes / BYTES_PER_THREAD));
    tconv_cpu_run_shares(&layer->target, shared.shares, pack_share, &shared);
    header->has_nonfinite = atomic_load_explicit(&shared.has_nonfinite, memory_order_relaxed);
    return TCONV_SUCCESS;
}
