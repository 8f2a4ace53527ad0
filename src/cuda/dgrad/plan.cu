/* Plans a layer: the planes, the derived layer, the chunks, and the implementation that is predicted to be fastest. */
#include "plan.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include "../../core/checked.h"
#include "../cuda_backend.h"
#include "../igemm/sums.h"
#include "../model/planned.h"

namespace tconv::dgrad
{

namespace
{

constexpr int64_t MAX_SCRATCH = (int64_t)48 << 20; /* bytes, of all that a chunk needs */
constexpr int64_t MAX_DEPTH = (int64_t)32 << 20;   /* bytes of a chunk's planes: they stay in the L2 of an H200 */
constexpr int64_t MAX_COUNT = INT32_MAX;           /* of channels */
/* Terms of a sum in TF32 and 16-bit dtypes, of which tensor cores lose 7e-9 for each: longer ones come in parts, or are
 * cuda_general's. */
constexpr double MAX_TENSOR_TERMS = 16384;
constexpr double TRANSPOSE_TIMES =
    1.3; /* that transposing chunks takes longer than a pass that moves vectors (measured) */
constexpr double WINDOW_TIMES = 1.8; /* likewise transposing windows, whose rows hardly ever begin at vectors */
constexpr int64_t MORE_CHUNKS = 4;   /* than are needed are considered: tiles of smaller ones may fill whole waves */

/* The ways in which a layer may be planned. The planes of an axis have the taps of a phase each, or one. */
struct way {
    dgrad::source source;
    bool rows_per_tap, columns_per_tap;
    bool one_pixel = false;
};
/* IN_PLACE, which derives no weights, comes before what is predicted to take as long. */
constexpr way WAYS[] = {{IN_PLACE, false, false, true},
                        {IN_PLACE, false, false},
                        {IN_PLACE_BY_CHUNKS, false, false},
                        {TRANSPOSED, false, false},
                        {AS_IT_LIES, false, false},
                        {SPLIT, false, false},
                        {SPLIT, true, true},
                        {SPLIT, true, false},
                        {SPLIT, false, true}};

constexpr double PARTS_TIMES = 1.12; /* that a plan of parts is taken to need longer than predicted (measured) */
constexpr double SPLIT_TIMES = 1.15; /* likewise where planes are made */
constexpr double ROWS_TIMES = 1.6;   /* likewise by cuda_rows, whose other layers have fewer input channels */
constexpr int64_t PARTS[] = {1, 2, 3, 4, 8, 16}; /* of the channels that are summed */

/* Whether an axis may be read as it lies: it has one plane, and forward's paddings are not negative. An axis of one
 * input has another stride than 1 in the form in which implementations see it (tconv_axis_canonical). */
bool lies_well(const tconv_axis *axis, const tconv_cuda_planes *planes)
{
    return planes->stride == 1 && planes->count == 1 && planes->pad <= planes->halo &&
           axis->out - axis->in + planes->pad >= 0 && (axis->out > 1 || planes->taps == 1);
}

/* Whether all outputs of an image are those of its only input, and lie as their weights do: they are the channels of one
 * pixel, in either layout. */
bool is_one_pixel(const tconv_problem *problem)
{
    const int64_t rows = problem->h.out, columns = problem->w.out, channels = problem->out_channels;
    const auto is_all = [](const tconv_axis *axis) {
        return axis->in == 1 && axis->pad == 0 && axis->out == axis->kernel &&
               (axis->kernel == 1 || axis->dilation == 1);
    };
    const tconv_strides *dst = &problem->dst;
    const tconv_weight_strides *weight = &problem->weight;
    const bool planes = dst->c == rows * columns && dst->h == columns && dst->w == 1;
    const bool pixels = dst->c == 1 && dst->w == channels && dst->h == columns * channels;
    return is_all(&problem->h) && is_all(&problem->w) && rows * columns > 1 && problem->groups == 1 &&
           (planes || pixels) && problem->src.c == 1 && weight->out == dst->c && weight->h == dst->h &&
           weight->w == dst->w && channels * rows * columns <= MAX_COUNT;
}

/* Whether a way is one of the layer's, and not the same as another. */
bool is_tried(const tconv_problem *problem, const way &way)
{
    const tconv_cuda_planes rows = tconv_cuda_planes_of(&problem->h, false);
    const tconv_cuda_planes columns = tconv_cuda_planes_of(&problem->w, false);
    const bool lies = lies_well(&problem->h, &rows) && lies_well(&problem->w, &columns);
    if (way.one_pixel)
        return is_one_pixel(problem);
    if (way.source == AS_IT_LIES)
        return lies;
    const double image = (double)problem->out_channels * (double)problem->h.out * (double)problem->w.out;
    if (way.source == TRANSPOSED && (problem->element_size > 4 || image * (double)problem->element_size <= MAX_DEPTH))
        return false;
    if (way.source != SPLIT)
        return rows.count <= MAX_PHASES && columns.count <= MAX_PHASES &&
               (way.source == IN_PLACE || problem->layout == TCONV_NCHW);
    return (!lies || way.rows_per_tap || way.columns_per_tap) && (!way.rows_per_tap || rows.taps > 1) &&
           (!way.columns_per_tap || columns.taps > 1);
}

/* As many of them as leave room for so many elements, `each` of one: chunks are as even as they come. */
int64_t fit(int64_t have, double each, double most)
{
    const double room = most / each;
    return room >= (double)have ? have : tconv_ceil_div(have, tconv_ceil_div(have, tconv_max(1, (int64_t)room)));
}

/* The channels of the derived layer's src; false where they are too many. */
bool count_channels(const tconv_problem *problem, const plan *made, int64_t *channels)
{
    return tconv_checked_mul(made->rows.count, made->columns.count, channels) &&
           tconv_checked_mul(*channels, problem->out_channels, channels) && *channels <= MAX_COUNT;
}

void count_chunks(const tconv_problem *problem, plan *made)
{
    made->image_chunks = tconv_ceil_div(tconv_max(problem->batch, 1), made->images);
    made->row_chunks = tconv_ceil_div(problem->h.in, made->chunk_rows);
    made->column_chunks = tconv_ceil_div(problem->w.in, made->chunk_columns);
}

/* Sets the chunks, so that the planes of one take at most MAX_DEPTH: of images, of rows of an image, of columns of a row.
 * A pixel that takes more is taken all the same where planes have no halo; else returns false. */
bool cut_chunks(const tconv_problem *problem, int64_t channels, plan *made)
{
    const double most = (double)(MAX_DEPTH / (int64_t)problem->element_size);
    made->images = tconv_max(problem->batch, 1);
    made->chunk_rows = problem->h.in;
    made->chunk_columns = problem->w.in;
    if (made->source == IN_PLACE_BY_CHUNKS)
        made->images =
            fit(made->images, (double)problem->out_channels * (double)problem->h.out * (double)problem->w.out, most);
    if (made->source == TRANSPOSED) {
        const double pixel = (double)tconv_round_up(problem->out_channels, vector_of(problem));
        const double row = pixel * (double)window_of(&made->columns, problem->w.in);
        const auto inputs = [](const tconv_cuda_planes *of, double outputs) {
            return fmax(1, (outputs - (double)window_of(of, 1)) / (double)of->stride + 1);
        };
        made->images = fit(made->images, row * (double)window_of(&made->rows, problem->h.in), most);
        if (made->images == 1)
            made->chunk_rows = fit(problem->h.in, 1, inputs(&made->rows, most / row));
        if (made->chunk_rows == 1)
            made->chunk_columns =
                fit(problem->w.in, 1, inputs(&made->columns, most / pixel / (double)window_of(&made->rows, 1)));
    }
    if (made->source == SPLIT) {
        const double row = (double)channels * (double)row_elements_of(problem, made);
        const double rows = most / row - (double)made->rows.halo;
        made->images = fit(made->images, row * (double)made->rows.positions, most);
        if (row * (double)made->rows.positions > most)
            made->chunk_rows = fit(problem->h.in, 1, rows);
        if (rows < 1) {
            const double pixel = (double)channels * (double)(1 + made->rows.halo);
            const double columns = most / pixel - (double)(made->columns.halo + vector_of(problem));
            if (columns < 1 && made->rows.taps * made->columns.taps > 1)
                return false;
            made->chunk_columns = fit(problem->w.in, 1, columns);
        }
    }
    count_chunks(problem, made);
    return true;
}

/* Plans the derived layer by an implementation, to take less than a limit, 0 for none. Its seconds are negative where that
 * does not take it, or needs too much memory. */
tconv_planned plan_inner(const tconv_implementation *by, double limit, plan *made, tconv_cuda_work *work)
{
    tconv_planned planned = {};
    planned.work = work;
    planned.limit = limit;
    memset(made->made, 0, sizeof made->made);
    const tconv_status status = by->plan(&made->derived, made->made, &planned, NULL);
    const int64_t scratch = (int64_t)planned.sizes.scratch;
    if (status != TCONV_SUCCESS || (scratch > 0 && scratch_before(made) + scratch > MAX_SCRATCH))
        planned.prediction.seconds = -1;
    made->sizes = planned.sizes;
    made->packed_bytes = tconv_round_up((int64_t)planned.sizes.packed, ALIGNMENT);
    return planned;
}

/* Whether sums are too long for tensor cores, but in strict f32, where partial sums are added with compensation. */
bool has_long_sums(const tconv_layer *derived)
{
    const tconv_problem *problem = &derived->problem;
    const double terms = (double)problem->group_in * (double)problem->h.kernel * (double)problem->w.kernel;
    return terms > MAX_TENSOR_TERMS && !tconv_cuda_is_strict(derived);
}

/* Whether an implementation may compute the derived layer. One whose plan has another's in it (cuda_gemm_col2im) has no room. */
bool may_compute(const tconv_implementation *by, const plan *made, bool is_long)
{
    const bool fits =
        by->plan_bytes <= sizeof made->made && (by->dtypes & TCONV_DTYPE_BIT(made->derived.problem.dtype));
    return fits && !(is_long && by != &tconv_cuda_general) &&
           !(is_in_place(made) && by != &tconv_cuda_igemm && by != &tconv_cuda_cells) &&
           !(made->source == TRANSPOSED && by != &tconv_cuda_igemm);
}

/* How much longer than predicted an implementation takes, or a plan by it is taken to. */
double times_by(const tconv_implementation *by)
{
    return by == &tconv_cuda_rows ? ROWS_TIMES : 1;
}
double times_of(const plan *made)
{
    return times_by(made->by) * (made->parts > 1 ? PARTS_TIMES : 1) * (made->source == SPLIT ? SPLIT_TIMES : 1);
}

/* What transposing takes in place, beside what the implementation counts for it. */
double seconds_of_transposing(const plan *made, const tconv_cuda_machine *machine, const tconv_cuda_work *work)
{
    const double moved = machine->pass * machine->multiprocessors * machine->hz;
    return is_in_place(made) ? (TRANSPOSE_TIMES - 1) * work->pass_bytes / moved : 0;
}

/* Finds the implementation that is predicted to be fastest with the derived layer; NULL where none takes less than a
 * limit, 0 for none. In 16 bits, parts are cuda_igemm's that has sums in f32 for outputs. */
const tconv_implementation *choose_inner(double limit, plan *made)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(&made->derived);
    const tconv_cuda_work begun = tconv_cuda_begin_work(&made->derived);
    const tconv_implementation *best = NULL;
    const bool is_long = has_long_sums(&made->derived);
    if (tconv_cuda_is_beyond(limit, &machine, &begun))
        return NULL;
    for (size_t i = 0; tconv_cuda_implementations[i] != NULL; i++) {
        const tconv_implementation *by = tconv_cuda_implementations[i];
        if (!may_compute(by, made, is_long))
            continue;
        if (made->parts > 1 && made->derived.problem.element_size == 2) {
            if (by != &tconv_cuda_igemm)
                continue;
            by = &igemm::sums;
        }
        tconv_cuda_work work = {};
        const double planned = plan_inner(by, limit, made, &work).prediction.seconds;
        const double seconds = planned > 0 ? planned * times_by(by) + seconds_of_transposing(made, &machine, &work) : 0;
        if (seconds > 0 && (limit <= 0 || seconds < limit)) {
            best = by;
            limit = seconds;
        }
    }
    return best;
}

/* The bytes of the gradient of dst that are read for the planes of a chunk: of the outputs in them, whole rows where
 * those are brought by sectors. */
double read_bytes(const tconv_problem *problem, const plan *made)
{
    const auto outputs_of = [](const tconv_cuda_planes *of, bool all) {
        const double read = (double)of->count * (double)of->positions, there = (double)of->out;
        return all || read > there ? there : read;
    };
    const double rows = outputs_of(&made->depth.rows, false);
    const double columns = outputs_of(&made->depth.columns, problem->layout == TCONV_NCHW);
    return (double)made->images * (double)problem->out_channels * rows * columns * (double)problem->element_size;
}

/* How much longer making planes takes than a pass that moves vectors (measured): in NHWC for words of the channels of a
 * pixel, or for sectors of which those are a part, in NCHW for single columns. */
double split_times(const tconv_problem *problem)
{
    constexpr int64_t FULL = 8; /* bytes: such words are as good as vectors */
    const int64_t element = (int64_t)problem->element_size;
    if (problem->layout == TCONV_NCHW)
        return element == 2 ? 1.7 : 1.4;
    const int64_t bytes = problem->group_out * element, sector = SECTOR_BYTES;
    return fmax((double)FULL / (double)tconv_gcd(bytes, FULL),
                (double)(bytes + sector - tconv_gcd(bytes, sector)) / (double)bytes);
}

/* Makes the work of all chunks of that of one. Making its planes is a pass, and so is adding its parts. */
void count_passes(const tconv_problem *problem, const plan *made, tconv_cuda_work *work)
{
    const double chunks = (double)chunks_of(made);
    const bool splits = made->source == SPLIT, transposes = made->source == TRANSPOSED;
    work->rounds *= chunks;
    work->dram_bytes *= chunks;
    /* The first launch is not a pass. */
    work->passes = chunks * (work->passes + 1 + (splits || transposes ? 1 : 0) + (made->parts > 1 ? 1 : 0)) - 1;
    work->pass_bytes *= chunks * (is_in_place(made) ? TRANSPOSE_TIMES : 1);
    if (splits)
        work->pass_bytes += chunks * ((double)made->depth_bytes + read_bytes(problem, made)) * split_times(problem);
    if (transposes)
        work->pass_bytes += chunks * 2 * (double)made->depth_bytes * WINDOW_TIMES;
    work->pass_bytes += chunks * (double)made->sums_bytes;
}

/* What making planes takes, and launching all chunks but for the first's kernel. */
double seconds_of_passes(const tconv_layer *layer, const plan *made)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    tconv_cuda_work work = {};
    count_passes(&layer->problem, made, &work);
    return tconv_cuda_least_seconds(&machine, &work) - machine.launch;
}

/* Plans all chunks by the implementation; their seconds, or DBL_MAX where it does not take them. */
double plan_chunks(const tconv_layer *layer, int64_t channels, plan *made, tconv_cuda_work *work)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    *work = {};
    if (!describe_derived(layer, channels, made) || plan_inner(made->by, 0, made, work).prediction.seconds <= 0)
        return DBL_MAX;
    count_passes(&layer->problem, made, work);
    return tconv_cuda_seconds_of(&machine, work);
}

/* Plans the chunks that were cut, or a few more, smaller ones, of images or of rows; false where the implementation takes
 * none. */
bool plan_best_chunks(const tconv_layer *layer, int64_t channels, plan *made, tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    const bool cuts_rows = made->row_chunks > 1;
    int64_t *const part = cuts_rows ? &made->chunk_rows : &made->images;
    const int64_t have = cuts_rows ? problem->h.in : problem->batch;
    const int64_t parts = cuts_rows ? made->row_chunks : made->image_chunks;
    int64_t best = *part;
    double least = plan_chunks(layer, channels, made, work);
    for (int64_t more = 1; more <= MORE_CHUNKS && parts > 1 && made->column_chunks == 1; more++) {
        *part = tconv_ceil_div(have, parts + more);
        count_chunks(problem, made);
        const double seconds = plan_chunks(layer, channels, made, work);
        if (seconds < least) {
            best = *part;
            least = seconds;
        }
    }
    *part = best;
    count_chunks(problem, made);
    return plan_chunks(layer, channels, made, work) < DBL_MAX; /* once more, for a plan stays where it was made */
}

/* Whether channels of a chunk may be summed in so many parts, whole K-blocks of 128 bytes each: where a tile of 64 x 128
 * for each multiprocessor is more than there is. */
bool may_have_parts(const tconv_layer *layer, int64_t channels, int64_t parts, const plan *made)
{
    const tconv_problem *problem = &layer->problem;
    const double elements =
        (double)made->images * (double)problem->in_channels * (double)made->chunk_rows * (double)made->chunk_columns;
    const int64_t k_block = 128 / (int64_t)problem->element_size;
    return parts == 1 || (problem->dtype != TCONV_F64 && problem->groups == 1 && channels % (parts * k_block) == 0 &&
                          elements < 64.0 * 128.0 * layer->target.multiprocessors &&
                          (double)parts * elements * sizeof(float) <= (double)MAX_SCRATCH);
}

/* Plans a layer one way, to take less than a limit, 0 for none. */
const char *plan_way(const tconv_layer *layer, const way &way, int64_t parts, double limit, plan *made,
                     tconv_cuda_work *work)
{
    const tconv_problem *problem = &layer->problem;
    int64_t channels;
    *made = {};
    made->source = way.source;
    made->parts = parts;
    made->rows = tconv_cuda_planes_of(&problem->h, way.rows_per_tap);
    made->columns = tconv_cuda_planes_of(&problem->w, way.columns_per_tap);
    made->one_pixel = way.one_pixel;
    const int64_t in_place = problem->out_channels * (way.one_pixel ? problem->h.out * problem->w.out : 1);
    if (way.one_pixel)
        made->rows = made->columns = tconv_cuda_planes_of(&ONE_PIXEL, false);
    if (!count_channels(problem, made, &channels) || !cut_chunks(problem, channels, made) ||
        !may_have_parts(layer, is_in_place(made) ? in_place : channels, parts, made) ||
        !describe_derived(layer, channels, made))
        return "planes or weights too many for a layer";
    const double left = limit > 0 ? limit - seconds_of_passes(layer, made) : 0;
    made->by = limit > 0 && left <= 0 ? NULL : choose_inner(left / (double)chunks_of(made), made);
    if (made->by == NULL || !plan_best_chunks(layer, channels, made, work))
        return limit > 0 ? TCONV_NO_FASTER : "no implementation that takes the planes in 48 MiB";
    return NULL;
}

/* What writing weights in each call takes beside packing them once: not even that where they are read as they lie, twice
 * where they are derived before. */
double seconds_of_weights(const tconv_layer *layer, const plan *made)
{
    const double packing = tconv_cuda_packing_seconds(layer);
    return !is_in_place(made) ? packing : made->sizes.reads_unpacked ? -packing : 0;
}

} // namespace

const char *make_plan(const tconv_layer *layer, double limit, plan *made, tconv_cuda_work *work)
{
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    const char *why = NULL;
    double least = limit > 0 ? limit : DBL_MAX;
    const way *best = NULL;
    int64_t best_parts = 1;
    bool is_best = false; /* what was planned last */
    for (const way &way : WAYS)
        for (const int64_t parts : PARTS) {
            if (!is_tried(&layer->problem, way))
                continue;
            const double most = least + tconv_cuda_packing_seconds(layer); /* that may be saved */
            const char *refusal = plan_way(layer, way, parts, least < DBL_MAX ? most : 0, made, work);
            const double seconds = refusal == NULL ? tconv_cuda_seconds_of(&machine, work) * times_of(made) +
                                                         seconds_of_weights(layer, made)
                                                   : DBL_MAX;
            why = parts == 1 ? refusal : why;
            is_best = seconds < least;
            if (is_best) {
                least = seconds;
                best = &way;
                best_parts = parts;
            }
        }
    if (best == NULL)
        return why != NULL ? why : TCONV_NO_FASTER;
    return is_best ? NULL : plan_way(layer, *best, best_parts, 0, made, work); /* a plan stays where it was made */
}

} // namespace tconv::dgrad
