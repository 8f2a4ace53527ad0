/*
 * The cells algorithm: NCHW layers of f32 with many channels on Hopper's tensor cores, strided ones above all; in
 * TF32 or, in strict f32, by three products of it.
 *
 * A position of the input computes a cell of outputs: a block of rows and columns of some channels. All sums of a cell lie
 * side by side on N, positions are M; for each shift of the input, the window of the cell's sums that have a tap there takes
 * products. The tensor cores read positions from registers, to which they come from the planes of src by single loads: no
 * copy of src with channels last is made anywhere, and where outputs share an input it is read once. The kernel is in
 * cells_kernel.cuh, tiles and programs are chosen in cells_plan.cu, the packed weights are in cells_pack.cu. Where each pixel
 * is read at its own position alone and the weights of all input channels fit in shared memory, cells_resident.cuh has a kernel
 * for TF32 that loads them once.
 */
#include "../../core/checked.h"
#include "../../core/status.h"
#include "../implementations.h"
#include "../maps/hopper.h"
#include "../runtime/launch.h"
#include "../runtime/tensor_map.h"
#include "plan.h"

#include <cstdio>
#include <cstring>

namespace tconv::cells
{

namespace
{

const char *why_not(const tconv_layer *layer)
{
    const tconv_problem *problem = &layer->problem;
    const char *why = why_not_hopper(layer);
    if (why != NULL)
        return why;
    if (problem->layout != TCONV_NCHW)
        return "needs NCHW";
    if (layer->columns.stride != 1 && layer->columns.stride != 2 && layer->columns.stride != 4)
        return "needs column strides of 1, 2 or 4";
    if (layer->rows.count != layer->rows.stride || layer->columns.count != layer->columns.stride)
        return "needs taps for every output";
    if (!has_code((const void *)tconv_cells_tf32_shapes[0].kernel, TCONV_CELLS_THREADS, layer->target.device))
        return "the build has no sm_90a code";
    return NULL;
}

bool cells_supports(tconv_layer *layer, char reason[TCONV_REASON_SIZE])
{
    tconv_cells_choice choice;
    tconv_cells_plan plan;
    const char *why = why_not(layer);
    if (why == NULL && !tconv_cells_choose(layer, multiprocessors_of(layer->target.device), &choice, &plan))
        why = "no tile fits in shared memory, there are too many taps, or sums are too long for strict f32";
    if (why != NULL)
        snprintf(reason, TCONV_REASON_SIZE, "%s", why);
    else
        layer->choice = tconv_cells_number_of(&choice);
    return why == NULL;
}

/* What supports chose. */
void describe_chosen(const tconv_layer *layer, tconv_cells_plan *plan)
{
    const tconv_cells_choice choice = tconv_cells_choice_of(layer->choice);
    tconv_cells_describe(layer, &choice, multiprocessors_of(layer->target.device), plan);
}

bool cells_suits(const tconv_layer *layer, double *cycles, char reason[TCONV_REASON_SIZE])
{
    const tconv_problem *problem = &layer->problem;
    tconv_cells_plan plan;
    describe_chosen(layer, &plan);
    /* What the copy engine does not read is read element by element. */
    if (problem->src.n % TCONV_CELLS_ALIGNMENT != 0 || problem->src.c % TCONV_CELLS_ALIGNMENT != 0 ||
        (plan.parameters.in_rows > 1 && problem->src.h % TCONV_CELLS_ALIGNMENT != 0)) {
        snprintf(reason, TCONV_REASON_SIZE, "rows and channels of src are no multiples of 16 bytes");
        return false;
    }
    *cycles = plan.cycles;
    return true;
}

tconv_status cells_memory(const tconv_layer *layer, tconv_memory_sizes *sizes, tconv_issue *issue)
{
    tconv_cells_plan plan;
    int64_t size;
    describe_chosen(layer, &plan);
    if (!tconv_checked_mul(plan.packing.rows, (plan.strict ? 2 : 1) * 4 * (int64_t)sizeof(float), &size))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "weights", "packed weights: their size does not fit in 63 bits");
    sizes->packed = (size_t)size;
    sizes->scratch = 0;
    return TCONV_SUCCESS;
}

tconv_status cells_pack_weights(const tconv_layer *layer, const void *weights, void *packed, void *stream,
                                tconv_issue *issue)
{
    tconv_cells_plan plan;
    describe_chosen(layer, &plan);
    return on_device(layer->target.device, issue, [&] {
        return tconv_cells_pack(&plan.parameters, &plan.packing, plan.strict, weights, packed, stream, issue);
    });
}

/* Describes src and a box of so many columns, rows and images of a chunk's channels to the copy engine; false where it cannot
 * read src as it lies. */
bool make_map(const tconv_layer *layer, const tconv_cells_plan *plan, const void *src, int columns, int rows,
              int images, CUtensorMap *map)
{
    const tconv_problem *problem = &layer->problem;
    const tconv_cells_parameters *of = &plan->parameters;
    const cuuint64_t element = problem->element_size;
    /* From a row to the next: where there is but one, a number that the copy engine takes. */
    const int64_t row = of->in_rows > 1 ? problem->src.h : problem->src.c;
    const tensor_map_recipe planes = {
        problem->dtype,
        CU_TENSOR_MAP_SWIZZLE_NONE,
        src,
        {(cuuint64_t)of->in_columns, (cuuint64_t)of->in_rows, (cuuint64_t)problem->in_channels,
         (cuuint64_t)problem->batch},
        {(cuuint64_t)row * element, (cuuint64_t)problem->src.c * element, (cuuint64_t)problem->src.n * element},
        {(cuuint32_t)columns, (cuuint32_t)rows, (cuuint32_t)of->chunk_channels, (cuuint32_t)images},
        of->resident};
    return encode_tensor_map(&planes, map);
}

/* The boxes that a kernel reads; false where the copy engine cannot. */
bool make_maps(const tconv_layer *layer, const tconv_cells_plan *plan, const void *src, CUtensorMap maps[2])
{
    const tconv_cells_parameters *of = &plan->parameters;
    if (!of->resident)
        return make_map(layer, plan, src, of->row_pitch, plan->box_rows, of->tile_images, &maps[0]);
    return make_map(layer, plan, src, TCONV_CELLS_UNIT_PITCH, 1, 1, &maps[0]) &&
           make_map(layer, plan, src, of->rest_pitch, 1, TCONV_CELLS_UNIT_PITCH / of->rest_pitch, &maps[1]);
}

/* Whether all columns of a cell lie in one vector of dst. */
bool can_store_vectors(const tconv_layer *layer, const tconv_cells_parameters *of)
{
    const tconv_problem *problem = &layer->problem;
    const int64_t vector = of->cell_columns;
    return tconv_rows_begin_at_multiples(&problem->dst, vector) &&
           (uintptr_t)of->dst % (size_t)(vector * (int64_t)problem->element_size) == 0;
}

/* Whether two cells' columns lie in one vector in all channels and rows of a cell where they do in one. */
bool can_store_pairs(const tconv_layer *layer, const tconv_cells_parameters *of)
{
    const int64_t vector = 2 * of->cell_columns;
    return of->neighbours && layer->problem.dst.c % vector == 0 &&
           (of->cell_rows == 1 || layer->problem.dst.h % vector == 0);
}

tconv_status cells_execute(const tconv_layer *layer, const tconv_arguments *arguments, tconv_issue *issue)
{
    tconv_cells_plan plan;
    CUtensorMap maps[2]; /* without and with what is left of images */
    describe_chosen(layer, &plan);
    tconv_cells_parameters *parameters = &plan.parameters;
    memset(maps, 0, sizeof maps);
    parameters->src = arguments->src;
    parameters->weights = arguments->packed;
    parameters->bias = arguments->bias;
    parameters->dst = arguments->dst;
    parameters->by_boxes = make_maps(layer, &plan, arguments->src, maps);
    parameters->boxes_shared = parameters->by_boxes && parameters->sharing > 1;
    parameters->vectors = can_store_vectors(layer, parameters);
    parameters->pair_vectors = can_store_pairs(layer, parameters);
    void *kernel_arguments[] = {parameters, &maps[0], &maps[1]};
    const int clusters = multiprocessors_of(layer->target.device) / TCONV_CELLS_CLUSTER;
    const int64_t tiles =
        parameters->resident
            ? tconv_ceil_div((int64_t)parameters->team_step * parameters->tile_step * parameters->sharing,
                             TCONV_CELLS_CLUSTER)
            : parameters->tiles;
    const int blocks = (int)tconv_min(tiles, tconv_max(1, clusters)) * TCONV_CELLS_CLUSTER;
    const launch_grid grid = {parameters->resident ? (const void *)tconv_cells_find_resident(parameters->cell_columns)
                                                   : (const void *)plan.shape.kernel,
                              blocks, parameters->resident ? TCONV_CELLS_RESIDENT_THREADS : TCONV_CELLS_THREADS,
                              TCONV_CELLS_SHARED_MEMORY, arguments->packs};
    return launch_on_device(&grid, kernel_arguments, layer->target.device, arguments->stream, issue);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_cells = {"cuda_cells",
                                                          TCONV_BACKEND_CUDA,
                                                          TCONV_DTYPE_BIT(TCONV_F32),
                                                          cells_supports,
                                                          cells_memory,
                                                          cells_pack_weights,
                                                          cells_execute,
                                                          cells_suits,
                                                          NULL,
                                                          0};

} // namespace tconv::cells
