/* Plans a layer: the planes, the inner layer, the chunks, and the implementation that is predicted to be fastest. */
#include "plan.h"
#include "../cuda_target.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "../../core/checked.h"
#include "../../core/views.h"
#include "../cuda_backend.h"
#include "../igemm/sums.h"
#include "../model/search.h"

static const int64_t MAX_SCRATCH = (int64_t)48 << 20; /* bytes, of all that a chunk needs */
static const int64_t MAX_DEPTH = (int64_t)32 << 20;   /* bytes of a chunk's planes: they stay in the L2 of an H200 */
static const int64_t MAX_COUNT = INT32_MAX;           /* of channels */
static const int64_t MORE_CHUNKS = 4; /* than are needed are considered: tiles of smaller ones may fill whole waves */

/* Elements that are summed in parts of planes, at most, as a share of a tile for each multiprocessor: layers of nearly as many
 * took longer. */
static const double MOST_OF_PLANES = 0.75;

/* Terms of a sum in TF32 and 16-bit dtypes, of which tensor cores lose 7e-9 for each: longer ones come in parts, or are
 * cuda_general's. */
static const double MAX_TENSOR_TERMS = 16384;

/* How much longer a step takes than the cost model predicts (measured): transposing chunks than a pass that moves
 * vectors; likewise transposing windows, whose rows hardly ever begin at vectors; a plan of parts, and so many seconds beside; a plan that makes
 * planes; a plan by cuda_rows, whose other layers have fewer input channels; one whose pixels have 64 bytes of channels, where
 * columns could be channels too. */
static const double TRANSPOSE_TIMES = 1.3;
static const double WINDOW_TIMES = 1.8;
static const double PARTS_TIMES = 1.12, PARTS_SECONDS = 0.8e-6;
static const double TAPS_TIMES = 1.12; /* more, where parts are of planes with several taps */
static const double REARRANGED_TIMES = 1.15;
static const double ROWS_TIMES = 1.6;
static const double SHORT_PIXEL_TIMES = 1.1;

/* A form that a layer may be planned in. The planes of an axis have the taps of a phase each, or one. */
typedef struct dgrad_form {
    dgrad_source source;
    bool rows_per_tap, columns_per_tap;
    bool one_pixel, to_depth;
} dgrad_form;

/* STRIDED, which derives no weights, comes before forms that are predicted to take as long. */
static const dgrad_form FORMS[] = {{.source = STRIDED, .one_pixel = true},
                                   {.source = STRIDED, .to_depth = true},
                                   {.source = STRIDED},
                                   {.source = STRIDED_BY_CHUNKS},
                                   {.source = TRANSPOSED},
                                   {.source = NATIVE},
                                   {.source = REARRANGED},
                                   {.source = REARRANGED, .rows_per_tap = true, .columns_per_tap = true},
                                   {.source = REARRANGED, .rows_per_tap = true},
                                   {.source = REARRANGED, .columns_per_tap = true}};

/* Parts of the channels that are summed, or of planes. */
typedef struct dgrad_parts {
    int64_t count;
    bool of_planes;
} dgrad_parts;
static const dgrad_parts PARTS[] = {{1, false}, {2, false}, {3, false}, {4, false}, {8, false}, {16, false},
                                    {2, true},  {3, true},  {4, true},  {8, true},  {16, true}};

/* Returns whether an axis may be read as it lies: it has one plane, and forward's paddings are not negative. An axis of
 * one input has another stride than 1 in the form in which implementations see it (tconv_axis_canonical). */
static bool is_native_axis(const tconv_axis *axis, const tconv_cuda_planes *planes)
{
    return planes->stride == 1 && planes->count == 1 && planes->pad <= planes->halo &&
           axis->out - axis->in + planes->pad >= 0 && (axis->out > 1 || planes->taps == 1);
}

/* Returns whether all outputs of an axis are those of its only input. */
static bool has_one_input(const tconv_axis *axis)
{
    return axis->in == 1 && axis->pad == 0 && axis->out == axis->kernel && (axis->kernel == 1 || axis->dilation == 1);
}

/* Returns whether all outputs of an image are those of its only input, and lie as their weights do: they are the
 * channels of one pixel, in either layout. */
static bool is_one_pixel(const tconv_problem *problem)
{
    const int64_t rows = problem->h.out, columns = problem->w.out, channels = problem->out_channels;
    const tconv_strides *dst = &problem->dst;
    const tconv_weight_strides *weight = &problem->weight;
    const bool planes = dst->c == rows * columns && dst->h == columns && dst->w == 1;
    const bool pixels = dst->c == 1 && dst->w == channels && dst->h == columns * channels;
    return has_one_input(&problem->h) && has_one_input(&problem->w) && rows * columns > 1 && problem->groups == 1 &&
           (planes || pixels) && problem->src.c == 1 && weight->out == dst->c && weight->h == dst->h &&
           weight->w == dst->w && channels * rows * columns <= MAX_COUNT;
}

/* Returns whether a layer may have a form, which is not the same as another. */
static bool is_tried(const tconv_problem *problem, const dgrad_form *form)
{
    const tconv_cuda_planes rows = tconv_cuda_planes_of(&problem->h, false);
    const tconv_cuda_planes columns = tconv_cuda_planes_of(&problem->w, false);
    const bool is_native = is_native_axis(&problem->h, &rows) && is_native_axis(&problem->w, &columns);
    if (problem->plane_taps.taps > 0 || problem->volumes.images > 0) /* which TMA finds where they lie */
        return form->source == STRIDED && !form->one_pixel && rows.count <= MAX_PHASES && columns.count <= MAX_PHASES;
    if (form->one_pixel)
        return is_one_pixel(problem);
    if (form->source == NATIVE)
        return is_native;
    const double image = (double)problem->out_channels * (double)problem->h.out * (double)problem->w.out;
    if (form->source == TRANSPOSED &&
        (problem->element_size > 4 || image * (double)problem->element_size <= (double)MAX_DEPTH))
        return false;
    if (form->source != REARRANGED)
        return rows.count <= MAX_PHASES && columns.count <= MAX_PHASES &&
               (form->source == STRIDED || problem->layout == TCONV_NCHW);
    return (!is_native || form->rows_per_tap || form->columns_per_tap) && (!form->rows_per_tap || rows.taps > 1) &&
           (!form->columns_per_tap || columns.taps > 1);
}

/* Counts the channels of the inner layer's src; false where they are too many. */
static bool count_channels(const tconv_problem *problem, const dgrad_plan *plan, int64_t *channels)
{
    return tconv_checked_mul(plan->rows.count, plan->columns.count, channels) &&
           tconv_checked_mul(*channels, problem->out_channels, channels) && *channels <= MAX_COUNT;
}

static void count_chunks(const tconv_problem *problem, dgrad_plan *plan)
{
    plan->image_chunks = tconv_ceil_div(tconv_max(problem->batch, 1), plan->images);
    plan->row_chunks = tconv_ceil_div(problem->h.in, plan->chunk_rows);
    plan->column_chunks = tconv_ceil_div(problem->w.in, plan->chunk_columns);
}

/* Returns how many inputs of an axis reach no more outputs than so many: at least one. */
static double inputs_within(const tconv_cuda_planes *planes, double outputs)
{
    return fmax(1, (outputs - (double)window_of(planes, 1)) / (double)planes->stride + 1);
}

/* Cuts chunks whose windows take at most so many elements: of images, of rows of an image, of columns of a row. */
static void cut_windows(const tconv_problem *problem, double most, dgrad_plan *plan)
{
    const double pixel = (double)tconv_round_up(problem->out_channels, vector_of(problem));
    const double row = pixel * (double)window_of(&plan->columns, problem->w.in);
    plan->images = tconv_inner_fit(plan->images, row * (double)window_of(&plan->rows, problem->h.in), most);
    if (plan->images == 1)
        plan->chunk_rows = tconv_inner_fit(problem->h.in, 1, inputs_within(&plan->rows, most / row));
    if (plan->chunk_rows == 1)
        plan->chunk_columns = tconv_inner_fit(
            problem->w.in, 1, inputs_within(&plan->columns, most / pixel / (double)window_of(&plan->rows, 1)));
}

/* Cuts chunks whose planes take at most so many elements, likewise. A pixel that takes more is taken all the same where
 * planes have no halo; else returns false. */
static bool cut_planes(const tconv_problem *problem, int64_t channels, double most, dgrad_plan *plan)
{
    const double row = (double)channels * (double)tconv_dgrad_row_elements(problem, plan);
    const double rows = most / row - (double)plan->rows.halo;
    plan->images = tconv_inner_fit(plan->images, row * (double)plan->rows.positions, most);
    if (row * (double)plan->rows.positions > most)
        plan->chunk_rows = tconv_inner_fit(problem->h.in, 1, rows);
    if (rows < 1) {
        const double pixel = (double)channels * (double)(1 + plan->rows.halo);
        const double columns = most / pixel - (double)(plan->columns.halo + vector_of(problem));
        if (columns < 1 && plan->rows.taps * plan->columns.taps > 1)
            return false;
        plan->chunk_columns = tconv_inner_fit(problem->w.in, 1, columns);
    }
    return true;
}

/* Sets the chunks, so that the planes of one take at most MAX_DEPTH; false where they cannot. */
static bool cut_chunks(const tconv_problem *problem, int64_t channels, dgrad_plan *plan)
{
    const int64_t elements = MAX_DEPTH / (int64_t)problem->element_size;
    const double most = (double)elements;
    plan->images = tconv_max(problem->batch, 1);
    plan->chunk_rows = problem->h.in;
    plan->chunk_columns = problem->w.in;
    if (plan->source == STRIDED_BY_CHUNKS)
        plan->images = tconv_inner_fit(
            plan->images, (double)problem->out_channels * (double)problem->h.out * (double)problem->w.out, most);
    if (plan->source == TRANSPOSED)
        cut_windows(problem, most, plan);
    if (plan->source == REARRANGED && !cut_planes(problem, channels, most, plan))
        return false;
    count_chunks(problem, plan);
    return true;
}

/* Returns whether the scratch of a chunk, with that of the inner plan, is not too much. */
static bool fits_scratch(const dgrad_plan *plan)
{
    const int64_t scratch = (int64_t)plan->inner.sizes.scratch;
    return scratch <= 0 || scratch_before(plan) + scratch <= MAX_SCRATCH;
}

/* Returns whether sums are too long for tensor cores, but in strict f32, where partial sums are added with
 * compensation. */
static bool has_long_sums(const tconv_layer *inner)
{
    const tconv_problem *problem = &inner->problem;
    const double of_planes = (double)(problem->groups * problem->group_in) / (double)problem->in_channels;
    const double terms = (double)problem->group_in * (double)problem->h.kernel * (double)problem->w.kernel / of_planes;
    return terms > MAX_TENSOR_TERMS && !tconv_cuda_is_strict(inner);
}

/* Returns the implementation, or NULL where the inner layer is none for it. (One whose plan has another's in it,
 * cuda_gemm_col2im, has no room.) In 16 bits, parts are those of cuda_igemm alone, which has sums in f32 for outputs. */
static const tconv_implementation *admit(const void *outer, const tconv_inner_plan *inner,
                                         const tconv_implementation *implementation)
{
    const dgrad_plan *plan = outer;
    const bool is_igemm = implementation == &tconv_cuda_igemm;
    if (implementation != &tconv_cuda_general && has_long_sums(&inner->layer))
        return NULL;
    const bool by_cells = implementation == &tconv_cuda_cells && !plan->of_planes && !plan->to_depth;
    if (is_strided(plan) && !is_igemm && (plan->source == TRANSPOSED || !by_cells))
        return NULL;
    if (plan->parts > 1 && is_igemm)
        return &tconv_igemm_sums;
    return plan->parts > 1 && inner->layer.problem.element_size == 2 ? NULL : implementation;
}

/* Return how much longer than predicted an implementation takes, or a plan by it is taken to; at least, where it is NULL. */
static double times_by(const tconv_implementation *implementation)
{
    return implementation == &tconv_cuda_rows ? ROWS_TIMES : 1;
}
static double times_of(const dgrad_plan *plan, const tconv_implementation *implementation)
{
    const bool of_taps = plan->of_planes && plan->rows.taps * plan->columns.taps > 1;
    return (implementation != NULL ? times_by(implementation) : 1) * (plan->parts > 1 ? PARTS_TIMES : 1) *
           (of_taps ? TAPS_TIMES : 1) * (plan->source == REARRANGED ? REARRANGED_TIMES : 1);
}

/* Returns whether each output is in one chunk alone: so it has to be where chunks add to what outputs hold. */
static bool has_even_chunks(const tconv_problem *problem, const dgrad_plan *plan)
{
    return tconv_max(problem->batch, 1) % plan->images == 0 && problem->h.in % plan->chunk_rows == 0 &&
           problem->w.in % plan->chunk_columns == 0;
}

/* Returns the seconds that inner plans are compared by: the predicted ones, and those of transposing a strided src
 * beside what the implementation counts for it; 0 where the inner plan needs too much memory. */
static double compared_seconds(const void *outer, const tconv_inner_plan *inner,
                               const tconv_implementation *implementation, const tconv_planned *planned,
                               const tconv_cuda_work *work)
{
    const dgrad_plan *plan = outer;
    const tconv_cuda_machine machine = tconv_cuda_machine_of(&inner->layer);
    const double moved = machine.pass * machine.multiprocessors * machine.hz;
    const double transposing = is_strided(plan) ? (TRANSPOSE_TIMES - 1) * work->pass_bytes / moved : 0;
    return fits_scratch(plan) ? planned->prediction.seconds * times_by(implementation) + transposing : 0;
}

/* Finds the implementation that is predicted to be fastest with the inner layer; false where none takes less than a
 * limit, 0 for none. */
static bool choose_inner(double limit, dgrad_plan *plan)
{
    const tconv_inner_search search = {
        .list = tconv_cuda_implementations, .limit = limit, .outer = plan, .admit = admit, .seconds = compared_seconds};
    return tconv_inner_choose(&plan->inner, &search);
}

/* Returns the outputs of an axis that are read for its planes: those in them, or all where those are more or all are
 * brought. */
static double outputs_read(const tconv_cuda_planes *planes, bool all)
{
    const double read = (double)planes->count * (double)planes->positions, there = (double)planes->out;
    return all || read > there ? there : read;
}

/* Returns the bytes of the gradient of dst that are read for the planes of a chunk, whole rows where those are brought
 * by sectors. */
static double read_bytes(const tconv_problem *problem, const dgrad_plan *plan)
{
    const double rows = outputs_read(&plan->depth.rows, false);
    const double columns = outputs_read(&plan->depth.columns, problem->layout == TCONV_NCHW);
    return (double)plan->images * (double)problem->out_channels * rows * columns * (double)problem->element_size;
}

/* Returns how much longer making planes takes than a pass that moves vectors (measured): in NHWC for words of the
 * channels of a pixel, or for sectors of which those are a part, in NCHW for single columns. */
static double rearranging_times(const tconv_problem *problem)
{
    const int64_t full = 8; /* bytes: such words are as good as vectors */
    const int64_t element = (int64_t)problem->element_size;
    if (problem->layout == TCONV_NCHW)
        return element == 2 ? 1.7 : 1.4;
    const int64_t bytes = problem->group_out * element, sector = SECTOR_BYTES;
    return fmax((double)full / (double)tconv_gcd(bytes, full),
                (double)(bytes + sector - tconv_gcd(bytes, sector)) / (double)bytes);
}

/* Turns the work of one chunk into that of all. Making a chunk's planes is a pass, and so is adding its parts. */
static void count_passes(const tconv_problem *problem, const dgrad_plan *plan, tconv_cuda_work *work)
{
    const double chunks = (double)chunks_of(plan);
    const bool rearranges = plan->source == REARRANGED, transposes = plan->source == TRANSPOSED;
    work->rounds *= chunks;
    work->dram_bytes *= chunks;
    /* The first launch is not a pass. */
    work->passes = chunks * (work->passes + 1 + (rearranges || transposes ? 1 : 0) + (plan->parts > 1 ? 1 : 0)) - 1;
    work->pass_bytes *= chunks * (is_strided(plan) ? TRANSPOSE_TIMES : 1);
    if (rearranges)
        work->pass_bytes +=
            chunks * ((double)plan->depth_bytes + read_bytes(problem, plan)) * rearranging_times(problem);
    if (transposes)
        work->pass_bytes += chunks * 2 * (double)plan->depth_bytes * WINDOW_TIMES;
    work->pass_bytes += chunks * (double)plan->sums_bytes;
}

/* Returns the seconds of making planes, and of launching all chunks but for the first's kernel. */
static double seconds_of_passes(const tconv_layer *layer, const dgrad_plan *plan)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    tconv_cuda_work work;
    memset(&work, 0, sizeof work);
    count_passes(&layer->problem, plan, &work);
    return tconv_cuda_least_seconds(&machine, &work) - machine.launch;
}

/* Plans all chunks by the implementation of the inner plan. Returns their seconds, or DBL_MAX where it does not take them. */
static double plan_chunks(const tconv_layer *layer, int64_t channels, dgrad_plan *plan, tconv_cuda_work *work)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    memset(work, 0, sizeof *work);
    if ((layer->problem.desc.accumulate && !has_even_chunks(&layer->problem, plan)) ||
        !tconv_dgrad_describe_inner(layer, channels, plan) ||
        tconv_inner_plan_by(&plan->inner, plan->inner.implementation, 0, work).prediction.seconds <= 0 ||
        !fits_scratch(plan))
        return DBL_MAX;
    count_passes(&layer->problem, plan, work);
    return tconv_cuda_seconds_of(&machine, work);
}

/* Plans the chunks that were cut, or a few more, smaller ones, of images or of rows; false where the implementation
 * takes none. */
static bool plan_best_chunks(const tconv_layer *layer, int64_t channels, dgrad_plan *plan, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const bool cuts_rows = plan->row_chunks > 1;
    int64_t *const piece = cuts_rows ? &plan->chunk_rows : &plan->images;
    const int64_t have = cuts_rows ? problem->h.in : problem->batch;
    const int64_t pieces = cuts_rows ? plan->row_chunks : plan->image_chunks;
    int64_t best = *piece;
    double least = plan_chunks(layer, channels, plan, work);
    for (int64_t more = 1; more <= MORE_CHUNKS && pieces > 1 && plan->column_chunks == 1; more++) {
        *piece = tconv_ceil_div(have, pieces + more);
        count_chunks(problem, plan);
        const double seconds = plan_chunks(layer, channels, plan, work);
        if (seconds < least) {
            best = *piece;
            least = seconds;
        }
    }
    if (*piece == best)
        return least < DBL_MAX;
    /* The best is planned once more, because a plan stays where it is written. */
    *piece = best;
    count_chunks(problem, plan);
    return plan_chunks(layer, channels, plan, work) < DBL_MAX;
}

/* Returns whether a chunk may be summed in parts, those of channels whole K-blocks of 128 bytes each: where a tile of 64 x 128
 * for each multiprocessor is more than there is. */
static bool may_have_parts(const tconv_layer *layer, int64_t channels, const dgrad_plan *plan)
{
    const int64_t parts = plan->parts;
    const tconv_problem *problem = &layer->problem;
    const double elements =
        (double)plan->images * (double)problem->in_channels * (double)plan->chunk_rows * (double)plan->chunk_columns;
    const int64_t k_block = 128 / (int64_t)problem->element_size;
    const bool cuts_well =
        plan->of_planes ? is_strided(plan) : problem->groups == 1 && channels % (parts * k_block) == 0;
    const double most =
        64.0 * 128.0 * tconv_cuda_target_of(&layer->target).multiprocessors * (plan->of_planes ? MOST_OF_PLANES : 1);
    return parts == 1 || (!problem->desc.accumulate && problem->dtype != TCONV_F64 && cuts_well && elements < most &&
                          (double)parts * elements * sizeof(float) <= (double)MAX_SCRATCH);
}

/* Plans a layer in one form, to take less than a limit, 0 for none; by an implementation, or by the best where that is NULL. */
static const char *plan_form(const tconv_layer *layer, const dgrad_form *form, const dgrad_parts *parts,
                             const tconv_implementation *implementation, double limit, dgrad_plan *plan,
                             tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    int64_t channels;
    memset(plan, 0, sizeof *plan);
    tconv_inner_begin(&plan->inner, plan->inner_bytes, sizeof plan->inner_bytes);
    plan->source = form->source;
    plan->parts = parts->count;
    plan->of_planes = parts->of_planes;
    plan->to_depth = form->to_depth;
    plan->rows = tconv_cuda_planes_of(&problem->h, form->rows_per_tap);
    plan->columns = tconv_cuda_planes_of(&problem->w, form->columns_per_tap);
    plan->one_pixel = form->one_pixel;
    const int64_t summed = problem->out_channels * (form->one_pixel ? problem->h.out * problem->w.out : 1);
    if (form->one_pixel) {
        const tconv_axis axis = tconv_one_pixel_axis();
        plan->rows = plan->columns = tconv_cuda_planes_of(&axis, false);
    }
    if (!count_channels(problem, plan, &channels) || !cut_chunks(problem, channels, plan) ||
        !may_have_parts(layer, is_strided(plan) ? summed : channels, plan) ||
        !tconv_dgrad_describe_inner(layer, channels, plan))
        return "planes or weights too many for a layer";
    /* The factor of a plan's time holds for its passes too, but of several chunks the seconds are less than their sum. */
    const double most = chunks_of(plan) == 1 ? limit / times_of(plan, NULL) : limit;
    const double left = limit > 0 ? most - seconds_of_passes(layer, plan) : 0;
    plan->inner.implementation = implementation;
    if ((limit > 0 && left <= 0) || (implementation == NULL && !choose_inner(left / (double)chunks_of(plan), plan)) ||
        !plan_best_chunks(layer, channels, plan, work))
        return limit > 0                  ? TCONV_NO_FASTER
               : problem->desc.accumulate ? "no implementation that adds to each output once"
                                          : "no implementation that takes the planes in 48 MiB";
    tconv_dgrad_read_backwards(problem, plan);
    return NULL;
}

/* Returns the seconds of writing weights in each call beside packing them once: not even that where they are read as
 * they lie, twice where they are derived before. */
static double seconds_of_weights(const tconv_layer *layer, const dgrad_plan *plan)
{
    const double packing = tconv_cuda_packing_seconds(layer);
    return derives_weights(plan) ? packing : plan->inner.sizes.reads_unpacked ? -packing : 0;
}

/* Returns whether the images of all volumes are equally far apart where they are written, as partial sums are. */
static bool are_volumes_dense(const tconv_problem *problem)
{
    return problem->volumes.images == 0 || problem->volumes.written == problem->volumes.images * problem->src.n;
}

const char *tconv_dgrad_make_plan(const tconv_layer *layer, double limit, dgrad_plan *plan, tconv_cuda_work *work)
{
    struct {
        const tconv_layer *layer;
        const dgrad_form *form;
        const dgrad_parts *parts;
        const tconv_implementation *implementation;
    } tried, best;
    tconv_layer deep;
    const bool has_depth = tconv_dgrad_columns_to_depth(layer, &deep);
    const bool may_be_parts = are_volumes_dense(&layer->problem);
    const bool is_short = has_depth && tconv_dgrad_has_short_pixels(&layer->problem);
    tconv_search search = tconv_search_begin(layer, limit, &best, sizeof best);
    const double saved = tconv_cuda_packing_seconds(layer); /* at most */
    const char *why = TCONV_NO_FASTER;
    bool is_best = false; /* the last plan is */
    for (size_t f = 0; f < sizeof FORMS / sizeof FORMS[0]; f++)
        for (size_t p = 0; p < sizeof PARTS / sizeof PARTS[0]; p++) {
            tried.layer = FORMS[f].to_depth ? &deep : layer;
            tried.form = &FORMS[f];
            tried.parts = &PARTS[p];
            if ((FORMS[f].to_depth && !has_depth) || (PARTS[p].count > 1 && !may_be_parts) ||
                !is_tried(&tried.layer->problem, &FORMS[f]))
                continue;
            const char *refusal = plan_form(tried.layer, tried.form, tried.parts, NULL,
                                            search.limited ? search.limit + saved : 0, plan, work);
            tried.implementation = plan->inner.implementation;
            is_best =
                refusal == NULL &&
                tconv_search_keep(&search, &tried,
                                  tconv_cuda_seconds_of(&search.machine, work) * times_of(plan, tried.implementation) *
                                          (is_short && !tried.form->to_depth ? SHORT_PIXEL_TIMES : 1) +
                                      (plan->parts > 1 ? PARTS_SECONDS : 0) + seconds_of_weights(layer, plan));
            why = PARTS[p].count == 1 && refusal != NULL ? refusal : why;
        }
    if (!search.found)
        return why;
    /* The best is planned once more, because a plan stays where it is written. */
    return is_best ? NULL : plan_form(best.layer, best.form, best.parts, best.implementation, 0, plan, work);
}
