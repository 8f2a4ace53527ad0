/* The functions that count a plan's work share what is here, and are found by the name of their implementation. */
#include "planned.h"

#include <cstring>

#include "../../core/checked.h"

namespace tconv::model
{

tconv_cuda_work begin_work(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const double src = (double)problem->in_channels * (double)(problem->h.in * problem->w.in);
    const double dst = (double)problem->out_channels * (double)(problem->h.out * problem->w.out);
    const double weights =
        (double)(problem->in_channels * problem->group_out) * (double)(problem->h.kernel * problem->w.kernel);
    tconv_cuda_work work = {};
    work.dram_bytes = ((double)problem->batch * (src + dst) + weights) * (double)problem->element_size;
    work.rounds = work.resident = work.k_blocks = work.store_warps = 1;
    return work;
}

bool is_strict(const tconv_layer *layer)
{
    return layer->problem.dtype == TCONV_F32 && layer->target.math != TCONV_MATH_TF32;
}

static int64_t vector_of(const tconv_problem *problem, const tconv_strides *strides)
{
    tconv_strides apart = *strides;
    if (problem->layout == TCONV_NHWC) /* pixels take the place of channels */
        apart.c = apart.w;
    int64_t vector = VECTOR_BYTES / (int64_t)problem->element_size;
    while (vector > 1 && !tconv_rows_begin_at_multiples(&apart, vector))
        vector /= 2;
    return vector;
}

int64_t row_vector(const tconv_layer *layer)
{
    return vector_of(&layer->problem, &layer->problem.dst);
}

int64_t src_row_vector(const tconv_layer *layer)
{
    return vector_of(&layer->problem, &layer->problem.src);
}

bool reads_vectors(const tconv_layer *layer)
{
    return src_row_vector(layer) * (int64_t)layer->problem.element_size == VECTOR_BYTES;
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

double tapped_outputs(const tconv_layer *layer)
{
    return tapped(&layer->rows) * tapped(&layer->columns);
}

double mean_taps(const tconv_layer *layer)
{
    const double outputs = tapped_outputs(layer);
    return outputs > 0 ? tapped_taps(&layer->rows) * tapped_taps(&layer->columns) / outputs : 0;
}

void add_fill(const tconv_layer *layer, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const double untapped = (double)(problem->h.out * problem->w.out) - tapped_outputs(layer);
    if (untapped <= 0)
        return;
    work->passes += 1;
    work->pass_bytes += untapped * (double)(problem->batch * problem->out_channels) * (double)problem->element_size;
}

double part_ends(int64_t piece, int64_t step)
{
    const int64_t alike = tconv_gcd(tconv_gcd(SECTOR_BYTES, piece), step % SECTOR_BYTES);
    return 2 * (1 - (double)alike / SECTOR_BYTES);
}

} // namespace tconv::model

tconv_cuda_work_function *tconv_cuda_work_named(const char *implementation)
{
    static const struct {
        const char *name;
        tconv_cuda_work_function *function;
    } table[] = {{"cuda_stencil", tconv_cuda_stencil_work}, {"cuda_col2im", tconv_cuda_col2im_work},
                 {"cuda_rows", tconv_cuda_rows_work},       {"cuda_cells", tconv_cuda_cells_work},
                 {"cuda_wgmma", tconv_cuda_wgmma_work},     {"cuda_igemm", tconv_cuda_igemm_work},
                 {"cuda_mma", tconv_cuda_mma_work},         {"cuda_general", tconv_cuda_general_work}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(implementation, table[i].name) == 0)
            return table[i].function;
    return NULL;
}
