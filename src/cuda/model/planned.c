/* Counts that follow from the layer, and the prediction of a plan's time. */
#include "planned.h"

#include "../../core/checked.h"
#include "../cuda_target.h"
#include "../epilogue/layer_posts.h"

#include <string.h>

/* The inputs of an axis that are read: where phases are those of src, those of each phase, but not what lies between. The
 * taps of a phase of src may go back by more than there are outputs. */
static double inputs_read(const tconv_layer *layer, const tconv_axis *axis, const tconv_phase_table *phases)
{
    const int64_t of_phase = tconv_max(1, axis->out + (phases->max_taps - 1) * phases->shift_step);
    return (double)(layer->phases_of_src ? tconv_min(axis->in, phases->count * of_phase) : axis->in);
}

tconv_cuda_work tconv_cuda_begin_work(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const double rows = inputs_read(layer, &problem->h, &layer->rows);
    /* Columns come by whole sectors. */
    const double columns =
        problem->layout == TCONV_NHWC ? inputs_read(layer, &problem->w, &layer->columns) : (double)problem->w.in;
    const double src =
        (double)(tconv_src_images(problem) * tconv_src_channels(problem)) * (double)problem->d.in * rows * columns;
    const double dst = (double)problem->out_channels * (double)(problem->d.out * problem->h.out * problem->w.out);
    const double weights = (double)(problem->in_channels * problem->group_out) *
                           (double)(problem->d.kernel * problem->h.kernel * problem->w.kernel);
    tconv_cuda_work work;
    memset(&work, 0, sizeof work);
    const double addend = tconv_cuda_has_addend(problem) ? dst : 0;
    work.dram_bytes = (src + (double)problem->batch * (dst + addend) + weights) * (double)problem->element_size;
    work.rounds = work.resident = work.k_blocks = work.stage_k_blocks = work.store_warps = 1;
    return work;
}

bool tconv_cuda_is_strict(const tconv_layer *layer)
{
    return layer->problem.dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32;
}

bool tconv_cuda_begins_at_multiples(const tconv_problem *problem, const tconv_strides *strides, int64_t elements)
{
    tconv_strides apart = *strides;
    if (problem->layout == TCONV_NHWC) /* pixels take the place of channels */
        apart.c = apart.w;
    return tconv_rows_begin_at_multiples(&apart, elements);
}

static int64_t vector_of(const tconv_problem *problem, const tconv_strides *strides)
{
    int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    while (vector > 1 && !tconv_cuda_begins_at_multiples(problem, strides, vector))
        vector /= 2;
    return vector;
}

int64_t tconv_cuda_row_vector(const tconv_layer *layer)
{
    return vector_of(&layer->problem, &layer->problem.dst);
}

int64_t tconv_cuda_src_row_vector(const tconv_layer *layer)
{
    return vector_of(&layer->problem, &layer->problem.src);
}

bool tconv_cuda_reads_vectors(const tconv_layer *layer)
{
    return tconv_cuda_src_row_vector(layer) * (int64_t)layer->problem.element_size == VECTOR_BYTES;
}

static double tapped(const tconv_phase_table *table)
{
    int64_t outputs = 0;
    for (int64_t i = 0; i < table->count; i++)
        outputs += table->phases[i].outputs;
    return (double)outputs;
}

static double tapped_taps(const tconv_phase_table *table)
{
    double taps = 0;
    for (int64_t i = 0; i < table->count; i++)
        taps += (double)table->phases[i].outputs * (double)table->phases[i].taps;
    return taps;
}

double tconv_cuda_tapped_outputs(const tconv_layer *layer)
{
    return tapped(&layer->rows) * tapped(&layer->columns);
}

double tconv_cuda_mean_taps(const tconv_layer *layer)
{
    const double outputs = tconv_cuda_tapped_outputs(layer);
    return outputs > 0 ? tapped_taps(&layer->rows) * tapped_taps(&layer->columns) / outputs : 0;
}

void tconv_cuda_add_fill(const tconv_layer *layer, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const double untapped = (double)(problem->h.out * problem->w.out) - tconv_cuda_tapped_outputs(layer);
    if (untapped <= 0)
        return;
    /* Columns between others are parts of sectors, which move whole. */
    const bool scattered = problem->layout == TCONV_NCHW && layer->columns.bias_only > 0;
    const double outputs = scattered ? (double)(problem->h.out * problem->w.out) : untapped;
    work->passes += 1;
    work->pass_bytes += outputs * (double)(problem->batch * problem->out_channels) * (double)problem->element_size;
}

double tconv_cuda_part_ends(int64_t piece, int64_t step)
{
    const int64_t alike = tconv_gcd(tconv_gcd(SECTOR_BYTES, piece), step % SECTOR_BYTES);
    return 2 * (1 - (double)alike / SECTOR_BYTES);
}

int64_t tconv_cuda_strip_rows(int64_t rows, int64_t back, int64_t step, int64_t others, int64_t places)
{
    enum { MAX_WAVES = 8 }; /* of more waves the last one is a small part */
    int64_t best = INT64_MAX, best_rows = rows;
    for (int64_t waves = 1; waves <= MAX_WAVES; waves++) {
        const int64_t strips = tconv_min(tconv_max(places * waves / others, 1), rows);
        const int64_t strip_rows = tconv_ceil_div(rows, strips);
        const int64_t taken = tconv_ceil_div(others * tconv_ceil_div(rows, strip_rows), places);
        const int64_t time = taken * tconv_ceil_div(strip_rows + back, step);
        if (time < best) {
            best = time;
            best_rows = strip_rows;
        }
    }
    return best_rows;
}

tconv_cuda_machine tconv_cuda_machine_of(const tconv_layer *layer)
{
    return tconv_cuda_machine_like(tconv_cuda_target_of(&layer->target).compute_capability,
                                   tconv_cuda_target_of(&layer->target).multiprocessors);
}

#ifdef TCONV_CUDA_SWEEP

/* bench/sweep_tiles.py sets the seed, by which planners take other tiles than the best, and reads the last plan's
 * work. */
extern __attribute__((visibility("default"))) uint64_t tconv_sweep_seed;
extern __attribute__((visibility("default"))) tconv_cuda_work tconv_sweep_work;
uint64_t tconv_sweep_seed;
tconv_cuda_work tconv_sweep_work;

/* Returns a factor from 1 to 1.6 that is the same for the same time and seed (splitmix64), 1 without a seed. */
static double noise_of(double seconds)
{
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    bits += tconv_sweep_seed * 0x9E3779B97F4A7C15U;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBU;
    return tconv_sweep_seed == 0 ? 1 : 1 + 0.6 * (double)((bits ^ bits >> 31) >> 11) / 0x1p53;
}

static void keep(const tconv_cuda_work *work)
{
    tconv_sweep_work = *work;
}

#else

static double noise_of(double seconds)
{
    (void)seconds;
    return 1;
}

static void keep(const tconv_cuda_work *work)
{
    (void)work;
}

#endif

double tconv_cuda_seconds_with(const tconv_cuda_machine *machine, const tconv_cuda_work *work,
                               const tconv_cuda_tile *tile)
{
    const double seconds = tconv_cuda_seconds_by_tile(machine, work, tile);
    return seconds * noise_of(seconds);
}

double tconv_cuda_seconds_of(const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    const tconv_cuda_tile tile = tconv_cuda_tile_of(machine, work);
    return tconv_cuda_seconds_with(machine, work, &tile);
}

double tconv_cuda_packing_seconds(const tconv_layer *layer)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    const double moved = tconv_cuda_is_strict(layer) ? 3 : 2; /* strict f32 writes big and small parts */
    const double bytes = moved * (double)layer->problem.weight_extent * (double)layer->problem.element_size;
    if (layer->packed_before)
        return 0;
    return machine.pass_launch + bytes / (machine.pass * machine.multiprocessors * machine.hz);
}

void tconv_cuda_predict(const tconv_layer *layer, const tconv_cuda_work *work, tconv_planned *planned)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    planned->prediction = tconv_cuda_cost_of(&machine, work);
    planned->prediction.saved = planned->sizes.reads_unpacked ? tconv_cuda_packing_seconds(layer) : 0;
    keep(work);
    if (planned->work != NULL)
        *(tconv_cuda_work *)planned->work = *work;
}
