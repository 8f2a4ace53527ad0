/* Outputs of cpu_carry: from the carry, by the products of frames, to dst and the carry again. */
#include <string.h>

#include "../../core/checked.h"
#include "../kernels/half.h"
#include "carry.h"

enum { STORE_ROWS = 64 }; /* that are stored by one call: their places are on the stack */

/* How the outputs of a task lie. */
struct lay {
    bool of_rows;                        /* rows are streamed */
    int64_t channels, length, others;    /* others: places of the other axis */
    int64_t image, channel, row, column; /* from one to the next, in numbers */
    int64_t line, unit;                  /* places of the streamed axis lie `unit` apart, in lines */
};

static struct lay lay_of(const tconv_cpu_carry_task *task)
{
    const tconv_problem *problem = &task->job->products.layer->problem;
    const bool inside = task->job->products.plan->channels_inside;
    struct lay lay = {.of_rows = problem->desc.stream_axis == TCONV_STREAM_OF_ROWS,
                      .channels = task->channels,
                      .length = task->job->cut->length,
                      .others = tconv_unstreamed_axis(problem)->out};
    const int64_t columns = lay.of_rows ? lay.others : lay.length;
    lay.column = inside ? lay.channels : 1;
    lay.row = columns * lay.column;
    lay.image = lay.channels * lay.length * lay.others;
    lay.channel = inside ? 1 : lay.length * lay.others;
    lay.unit = lay.of_rows ? lay.row : lay.column;
    lay.line = lay.unit * lay.length;
    return lay;
}

static void *outputs_at(const tconv_cpu_carry_task *task, int64_t index)
{
    return tconv_cpu_real_at(task->job->products.plan->real_size, task->products.outputs, index);
}

/* ----------------------------------------------------------------------------------------------------------- carry */

/* The places in the outputs to which runs of the carry go; a run is count numbers side by side, and runs follow one another. */
struct carried {
    int64_t runs, count;
    int64_t pitch, step; /* in the outputs: from run to run, and from number to number */
};

/* Copies numbers of the carry to outputs, or back. */
#define DEFINE_COPY(name, type, real_type, in, out)                                                                    \
    static void load_##name(const void *carry, const struct carried *lie, void *outputs)                               \
    {                                                                                                                  \
        const type *from = carry;                                                                                      \
        for (int64_t run = 0; run < lie->runs; run++, from += lie->count)                                              \
            for (int64_t i = 0; i < lie->count; i++)                                                                   \
                ((real_type *)outputs)[run * lie->pitch + i * lie->step] = in(from[i]);                                \
    }                                                                                                                  \
    static void save_##name(void *carry, const struct carried *lie, const void *outputs)                               \
    {                                                                                                                  \
        type *to = carry;                                                                                              \
        for (int64_t run = 0; run < lie->runs; run++, to += lie->count)                                                \
            for (int64_t i = 0; i < lie->count; i++)                                                                   \
                to[i] = out(((const real_type *)outputs)[run * lie->pitch + i * lie->step]);                           \
    }

#define AS_IT_IS(value) (value)
DEFINE_COPY(f32, float, float, AS_IT_IS, AS_IT_IS)
DEFINE_COPY(f64, double, double, AS_IT_IS, AS_IT_IS)
DEFINE_COPY(f16, uint16_t, float, tconv_float_from_f16, tconv_f16_from_float)
DEFINE_COPY(bf16, uint16_t, float, tconv_float_from_bf16, tconv_bf16_from_float)

/* Each dtype of a carry has its own pair of functions. */
static const struct {
    void (*load)(const void *carry, const struct carried *lie, void *outputs);
    void (*save)(void *carry, const struct carried *lie, const void *outputs);
} copy[TCONV_DTYPES] = {
    [TCONV_F32] = {load_f32, save_f32},
    [TCONV_F64] = {load_f64, save_f64},
    [TCONV_F16] = {load_f16, save_f16},
    [TCONV_BF16] = {load_bf16, save_bf16},
};

/* Returns the carry of the task's first channel, of an image of the call; NULL where the image has no part. */
static char *carry_of(const tconv_cpu_carry_task *task, int64_t image)
{
    const tconv_step_arguments *step = task->job->step;
    const tconv_problem *problem = step->problem;
    if (step->carry == NULL || (step->active != NULL && step->active[image] == 0))
        return NULL;
    const int64_t slot = step->slots != NULL ? step->slots[image] : image;
    const int64_t channel = task->group * problem->group_out + task->products.channel;
    const int64_t each = problem->tail * tconv_unstreamed_axis(problem)->out;
    return (char *)step->carry +
           (slot * problem->out_channels + channel) * each * (int64_t)tconv_dtype_size(problem->carry_dtype);
}

/* The carry of a channel is one run of numbers for each line: of all its rows where rows are streamed, else of a row. In
 * planes the runs of all channels lie equally far apart. In a line of outputs the carry is from place `first` on. */
static void copy_carry(const tconv_cpu_carry_task *task, int64_t image, int64_t first, char *carry, bool saves)
{
    const struct lay lay = lay_of(task);
    const tconv_problem *problem = task->job->step->problem;
    const bool inside = task->job->products.plan->channels_inside;
    const int64_t runs = lay.of_rows ? 1 : lay.others;
    const struct carried lie = {.runs = inside ? runs : lay.channels * runs,
                                .count = problem->tail * (lay.of_rows ? lay.others : 1),
                                .pitch = lay.of_rows && !inside ? lay.channel : lay.row,
                                .step = lay.column};
    const int64_t bytes = runs * lie.count * (int64_t)tconv_dtype_size(problem->carry_dtype);
    for (int64_t channel = 0; channel < (inside ? lay.channels : 1); channel++) {
        void *outputs = outputs_at(task, (image - task->image) * lay.image + channel * lay.channel + first * lay.unit);
        if (saves)
            copy[problem->carry_dtype].save(carry + channel * bytes, &lie, outputs);
        else
            copy[problem->carry_dtype].load(carry + channel * bytes, &lie, outputs);
    }
}

void tconv_cpu_carry_begin(tconv_cpu_carry_task *task)
{
    const struct lay lay = lay_of(task);
    const tconv_step_arguments *step = task->job->step;
    memset(task->products.outputs, 0, (size_t)(task->images * lay.image * task->job->products.plan->real_size));
    for (int64_t image = task->image; image < task->image + task->images; image++) {
        char *carry = carry_of(task, image);
        if (carry != NULL && (step->reset == NULL || step->reset[image] == 0))
            copy_carry(task, image, 0, carry, false);
    }
}

void tconv_cpu_carry_move(const tconv_cpu_carry_task *task, int64_t count)
{
    const struct lay lay = lay_of(task);
    const int64_t lines = task->images * lay.image / lay.line, real = task->job->products.plan->real_size;
    const int64_t tail = task->job->step->problem->tail;
    for (int64_t line = 0; line < lines; line++) {
        char *outputs = outputs_at(task, line * lay.line);
        memmove(outputs, outputs + count * lay.unit * real, (size_t)(tail * lay.unit * real));
        memset(outputs + tail * lay.unit * real, 0, (size_t)((lay.length - tail) * lay.unit * real));
    }
}

void tconv_cpu_carry_end(const tconv_cpu_carry_task *task, int64_t first)
{
    const tconv_problem *problem = task->job->step->problem;
    const size_t bytes = (size_t)(task->channels * problem->tail * tconv_unstreamed_axis(problem)->out) *
                         tconv_dtype_size(problem->carry_dtype);
    for (int64_t image = task->image; image < task->image + task->images; image++) {
        char *carry = carry_of(task, image);
        if (carry != NULL && problem->flushes)
            memset(carry, 0, bytes);
        else if (carry != NULL)
            copy_carry(task, image, first, carry, true);
    }
}

/* ------------------------------------------------------------------------------------------------------ overlap-add */

/* Taps [first, end) of a row of the kernel, whose products of a pixel go to outputs: `count` channels of each, which lie
 * side by side in both. */
struct taps {
    int64_t first, end, count, step; /* step: from the outputs of a tap to those of the next */
};

/* Channels whose products and outputs of a tap lie side by side, in runs: each channel of planes, each group of pixels. */
struct runs {
    int64_t count, together;
    int64_t products, outputs; /* from a run to the next */
};

/* Each type has a function that adds runs of products, which lie side by side and are a few vectors in the usual cases, and one
 * that adds products of taps that lie apart. */
#define DEFINE_ADD(real_type)                                                                                          \
    static inline void add_runs_of_##real_type(const struct runs *runs, int64_t count, const real_type *products,      \
                                               real_type *outputs)                                                     \
    {                                                                                                                  \
        for (int64_t run = 0; run < runs->count; run++) {                                                              \
            const real_type *restrict from = products + run * runs->products;                                          \
            real_type *restrict to = outputs + run * runs->outputs;                                                    \
            for (int64_t i = 0; i < count; i++)                                                                        \
                to[i] += from[i];                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static void add_##real_type(const struct runs *runs, const struct taps *taps, const real_type *products,           \
                                real_type *outputs)                                                                    \
    {                                                                                                                  \
        const int64_t count = (taps->end - taps->first) * taps->count;                                                 \
        products += taps->first * taps->count;                                                                         \
        outputs += taps->first * taps->step;                                                                           \
        if (taps->step != taps->count)                                                                                 \
            for (int64_t tap = taps->first; tap < taps->end; tap++, products += taps->count, outputs += taps->step)    \
                add_runs_of_##real_type(runs, taps->count, products, outputs);                                         \
        else if (count == 4)                                                                                           \
            add_runs_of_##real_type(runs, 4, products, outputs);                                                       \
        else if (count == 8)                                                                                           \
            add_runs_of_##real_type(runs, 8, products, outputs);                                                       \
        else if (count == 16)                                                                                          \
            add_runs_of_##real_type(runs, 16, products, outputs);                                                      \
        else                                                                                                           \
            add_runs_of_##real_type(runs, count, products, outputs);                                                   \
    }

DEFINE_ADD(float)
DEFINE_ADD(double)

/* Where products and outputs of a pixel lie, which is so far along each axis from the first of its image. */
struct at {
    int64_t row, column;
    int64_t products, outputs; /* of the first channel */
};

/* Adds the products of a pixel. */
static void add_pixel(const tconv_cpu_carry_task *task, const struct lay *lay, const struct runs *runs,
                      const struct at *at)
{
    const tconv_problem *problem = &task->job->products.layer->problem;
    const tconv_axis *h = &problem->h, *w = &problem->w;
    const int64_t rows = lay->of_rows ? lay->length : lay->others, columns = lay->of_rows ? lay->others : lay->length;
    const int64_t y = at->row * h->stride - h->pad, x = at->column * w->stride - w->pad;
    struct taps taps = {.count = runs->together, .step = w->dilation * lay->column};
    taps.first = x >= 0 ? 0 : tconv_ceil_div(-x, w->dilation);
    taps.end = w->kernel; /* where nothing is cut off, no division takes time */
    if (x + (w->kernel - 1) * w->dilation >= columns)
        taps.end = tconv_min(w->kernel, tconv_floor_div(columns - 1 - x, w->dilation) + 1);
    for (int64_t tap = 0; tap < h->kernel && taps.first < taps.end; tap++) {
        const int64_t to = y + tap * h->dilation;
        if (to < 0 || to >= rows)
            continue;
        const int64_t from = at->products + tap * w->kernel * runs->together;
        const int64_t first = at->outputs + to * lay->row + x * lay->column;
        if (task->job->products.plan->real)
            add_double(runs, &taps, (const double *)task->products.products + from,
                       (double *)task->products.outputs + first);
        else
            add_float(runs, &taps, (const float *)task->products.products + from,
                      (float *)task->products.outputs + first);
    }
}

void tconv_cpu_carry_add(const tconv_cpu_carry_task *task, int64_t group, int64_t groups)
{
    const struct lay lay = lay_of(task);
    const tconv_cpu_col2im_plan *plan = task->job->products.plan;
    const int64_t channels = task->products.channels;
    struct runs runs = {.count = groups * channels, .together = 1, .products = plan->taps, .outputs = lay.channel};
    if (plan->channels_inside)
        runs = (struct runs){groups, channels, channels * plan->taps, channels};
    int64_t pixel = 0;
    for (int64_t image = 0; image < task->images; image++)
        for (int64_t frame = 0; frame < task->frames; frame++)
            for (int64_t other = task->other; other < task->other + task->others; other++, pixel++) {
                const struct at at = {.row = lay.of_rows ? frame : other,
                                      .column = lay.of_rows ? other : frame,
                                      .products = pixel * plan->pitch,
                                      .outputs = image * lay.image + group * channels * lay.channel};
                add_pixel(task, &lay, &runs, &at);
            }
}

/* ------------------------------------------------------------------------------------------------------- few inputs */

/* Products of pixels with columns, over some input channels. */
struct few {
    const void *src, *weights;
    int64_t src_step, weights_step, channels; /* from an input channel to the next; how many there are */
    const int64_t *pixel_src, *pixel_products;
    int64_t pixels;
    const int64_t *places; /* where the weights of each column begin */
    int64_t columns;
    void *products;
};

#define DEFINE_MULTIPLY(name, type, real_type, in)                                                                     \
    static void multiply_##name(const struct few *few)                                                                 \
    {                                                                                                                  \
        for (int64_t c = 0; c < few->channels; c++) {                                                                  \
            const type *weights = (const type *)few->weights + c * few->weights_step;                                  \
            for (int64_t p = 0; p < few->pixels; p++) {                                                                \
                const real_type value = in(((const type *)few->src)[few->pixel_src[p] + c * few->src_step]);           \
                real_type *to = (real_type *)few->products + few->pixel_products[p];                                   \
                for (int64_t i = 0; i < few->columns; i++) {                                                           \
                    const real_type product = value * in(weights[few->places[i]]);                                     \
                    to[i] = c == 0 ? product : to[i] + product;                                                        \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

DEFINE_MULTIPLY(f32, float, float, AS_IT_IS)
DEFINE_MULTIPLY(f64, double, double, AS_IT_IS)
DEFINE_MULTIPLY(f16, uint16_t, float, tconv_float_from_f16)
DEFINE_MULTIPLY(bf16, uint16_t, float, tconv_float_from_bf16)

static void (*const multiply[TCONV_DTYPES])(const struct few *few) = {
    [TCONV_F32] = multiply_f32,
    [TCONV_F64] = multiply_f64,
    [TCONV_F16] = multiply_f16,
    [TCONV_BF16] = multiply_bf16,
};

void tconv_cpu_carry_multiply_few(tconv_cpu_carry_task *task)
{
    const tconv_cpu_col2im_plan *plan = task->job->products.plan;
    const tconv_problem *problem = &task->job->products.layer->problem;
    const tconv_cpu_col2im_task *products = &task->products;
    const int64_t size = (int64_t)problem->element_size, columns = products->columns;
    const int64_t of_channel = plan->channels_inside ? 1 : plan->taps;
    const int64_t of_tap = plan->channels_inside ? products->channels : 1;
    for (int64_t c = 0; c < products->channels; c++)
        for (int64_t y = 0; y < problem->h.kernel; y++)
            for (int64_t x = 0; x < problem->w.kernel; x++)
                products->column_weights[c * of_channel + (y * problem->w.kernel + x) * of_tap] =
                    c * problem->weight.out + y * problem->weight.h + x * problem->weight.w;
    struct few few = {.src_step = problem->src.c,
                      .weights_step = problem->weight.in,
                      .channels = problem->group_in,
                      .pixel_src = products->pixel_src,
                      .pixel_products = products->pixel_products,
                      .pixels = products->pixels,
                      .places = products->column_weights,
                      .columns = columns};
    for (int64_t group = 0; group < task->groups; group++) {
        const int64_t channel = (task->group + group) * problem->group_in;
        few.src = task->job->products.src + channel * problem->src.c * size;
        few.weights = task->job->products.weights +
                      (channel * problem->weight.in + products->channel * problem->weight.out) * size;
        few.products = tconv_cpu_real_at(plan->real_size, products->products, group * columns);
        multiply[problem->dtype](&few);
    }
}

/* --------------------------------------------------------------------------------------------------------- storing */

/* Stores rows of count sums, a pitch apart, of which each goes to dst a step behind the one before; dst: of the first. */
static void store_rows(const tconv_cpu_carry_task *task, const void *sums, int64_t rows, int64_t count, int64_t pitch,
                       int64_t dst, int64_t step, const tconv_cpu_finish *finish)
{
    const tconv_cpu_col2im_plan *plan = task->job->products.plan;
    const tconv_problem *problem = &task->job->products.layer->problem;
    int64_t to[STORE_ROWS];
    for (int64_t row = 0; row < tconv_min(rows, STORE_ROWS); row++)
        to[row] = row * step;
    for (int64_t row = 0; row < rows; row += STORE_ROWS) {
        const tconv_cpu_pixel_store store = {.sums = tconv_cpu_real_at(plan->real_size, sums, row * pitch),
                                             .rows = tconv_min(STORE_ROWS, rows - row),
                                             .count = count,
                                             .sums_pitch = pitch,
                                             .dst = task->job->products.dst +
                                                    (dst + row * step) * (int64_t)problem->element_size,
                                             .to = to,
                                             .finish = *finish};
        plan->kernels->dtype[problem->dtype].store(&store);
    }
}

/* Stores a row of each channel of an image by one call, after their bias is added: where that is all that is done. */
static void store_channels(const tconv_cpu_carry_task *task, const struct lay *lay, int64_t image, int64_t row,
                           int64_t dst, int64_t count)
{
    const tconv_cpu_col2im_plan *plan = task->job->products.plan;
    const tconv_problem *problem = &task->job->products.layer->problem;
    const int64_t channel = task->group * problem->group_out + task->products.channel;
    const int64_t at = (image - task->image) * lay->image + row * lay->row;
    const tconv_cpu_finish plain = {.row_channels = 1};
    for (int64_t c = 0; c < lay->channels; c++)
        for (int64_t i = at + c * lay->channel; i < at + c * lay->channel + count; i++)
            if (plan->real)
                ((double *)task->products.outputs)[i] += ((const double *)task->job->products.bias)[channel + c];
            else
                ((float *)task->products.outputs)[i] += ((const float *)task->job->products.bias)[channel + c];
    store_rows(task, outputs_at(task, at), lay->channels, count, lay->channel,
               image * problem->dst.n + channel * problem->dst.c + row * problem->dst.h + dst, problem->dst.c, &plain);
}

void tconv_cpu_carry_store(const tconv_cpu_carry_task *task, int64_t first, int64_t count)
{
    const struct lay lay = lay_of(task);
    const tconv_cpu_col2im_plan *plan = task->job->products.plan;
    const tconv_problem *problem = &task->job->products.layer->problem;
    const tconv_step_arguments *step = task->job->step;
    const bool inside = plan->channels_inside;
    const int64_t together = inside ? lay.channels : 1;
    const int64_t rows = lay.of_rows ? count : lay.others, columns = lay.of_rows ? lay.others : count;
    const bool by_rows = !inside && rows < lay.channels && tconv_cpu_are_outputs_sums(problem);
    const int64_t begin = first * (lay.of_rows ? problem->dst.h : problem->dst.w);
    for (int64_t image = task->image; image < task->image + task->images; image++) {
        if (step->active != NULL && step->active[image] == 0)
            continue;
        for (int64_t row = 0; by_rows && row < rows; row++)
            store_channels(task, &lay, image, row, begin, columns);
        for (int64_t c = 0; c < lay.channels && !by_rows; c += together) {
            const int64_t channel = task->group * problem->group_out + task->products.channel + c;
            const int64_t dst = image * problem->dst.n + channel * problem->dst.c + begin;
            const char *sums = outputs_at(task, (image - task->image) * lay.image + c * lay.channel);
            tconv_cpu_finish finish =
                tconv_cpu_finish_of(problem, tconv_cpu_real_at(plan->real_size, task->job->products.bias, channel),
                                    together, &task->job->products.posts);
            finish.steps |= TCONV_CPU_ADD_BIAS;
            if (!inside)
                store_rows(task, sums, rows, columns, lay.row, dst, problem->dst.h, &finish);
            for (int64_t row = 0; inside && row < rows; row++)
                store_rows(task, tconv_cpu_real_at(plan->real_size, sums, row * lay.row), columns, lay.channels,
                           lay.column, dst + row * problem->dst.h, problem->dst.w, &finish);
        }
    }
}
