/*
 * cuda_accumulate: forward and the gradient of src where the layer accumulates (desc.accumulate), every dtype and either
 * layout.
 *
 * The layer without that is computed into the workspace by whichever other implementation of the operation is predicted to
 * be fastest, and a pass adds these sums and the bias to what the output holds (add.cu). So the kernels need not know of it,
 * each layer has the fastest of them, and there is one rounding to the dtype: sums of f32 and f64 are stored as they are;
 * f16 and bf16, whose kernels round what they store, are widened to f32 and multiplied in TF32, which holds them exactly.
 *
 * Images come in chunks of at most 32 MiB of sums and what is widened, which are then read from the second-level cache; an
 * image that has more is taken all the same. The last chunk has as many images as the others: it computes some once more, and adds those
 * that were not added before.
 *
 * Numeric order: that of the implementation; then the bias, then what was held.
 */
#include <cstdio>
#include <cstring>

#include "../../core/checked.h"
#include "../../core/operation.h"
#include "../../core/status.h"
#include "../cuda_backend.h"
#include "../dgrad/plan.h"
#include "../gemm_col2im/plan.h"
#include "../implementations.h"
#include "../model/planned.h"
#include "../runtime/launch.h"
#include "add.h"

namespace tconv::accumulate
{

namespace
{

constexpr int64_t MAX_CHUNK = (int64_t)32 << 20; /* bytes of sums and what is widened: they stay in the L2 of an H200 */
constexpr int64_t ALIGNMENT = 256;               /* bytes, of each part of the memory */

/* The longest plans are those that have another's in them. */
constexpr size_t MAX_PLAN = sizeof(gemm_col2im::plan) > sizeof(dgrad::plan) ? sizeof(gemm_col2im::plan)
                                                                            : sizeof(dgrad::plan);

struct plan {
    int64_t images, chunks; /* of a chunk; of the layer */
    bool widens;            /* src, or the gradient of dst, and the weights are 16-bit */
    tconv_layer inner; /* a chunk, which does not accumulate, with sums that lie densely; its tables are the layer's */
    const tconv_implementation *by; /* what computes it */
    tconv_memory_sizes sizes;       /* that this needs */
    int64_t weights_bytes;          /* of widened weights, before what `by` packed */
    int64_t sums_bytes,
        read_bytes; /* of a chunk: sums; what is read, where it is widened; before the scratch of `by` */
    alignas(16) unsigned char made[MAX_PLAN]; /* the plan of `by` */
};

bool writes_dst(const tconv_problem *problem)
{
    return tconv_is_in(tconv_operation_of(problem)->writes, TCONV_ROLE_DST);
}

/* A walk over the layer's dst, or src, without addresses and strides. */
walk walk_over(const tconv_problem *problem, bool dst, int64_t images)
{
    const int64_t channels = dst ? problem->out_channels : problem->in_channels;
    const int64_t pixels = dst ? problem->h.out * problem->w.out : problem->h.in * problem->w.in;
    walk of = {};
    of.images = images;
    of.lines_are_channels = problem->layout == TCONV_NCHW;
    of.lines = of.lines_are_channels ? channels : pixels;
    of.elements = of.lines_are_channels ? pixels : channels;
    return of;
}

const tconv_strides *strides_of(const tconv_problem *problem, bool dst)
{
    return dst ? &problem->dst : &problem->src;
}

int64_t line_stride(const tconv_problem *problem, bool dst)
{
    const tconv_strides *strides = strides_of(problem, dst);
    return problem->layout == TCONV_NCHW ? strides->c : strides->w;
}

/* Images of a chunk, so that chunks are as even as they come. */
int64_t images_of(const tconv_problem *problem, bool widens)
{
    const bool dst = writes_dst(problem);
    const walk sums = walk_over(problem, dst, 1), read = walk_over(problem, !dst, 1);
    const double size = widens ? sizeof(float) : (double)problem->element_size;
    const double elements =
        (double)sums.lines * (double)sums.elements + (widens ? (double)read.lines * (double)read.elements : 0);
    const int64_t batch = tconv_max(problem->batch, 1);
    const double fit = (double)MAX_CHUNK / (elements * size);
    return fit >= (double)batch ? batch : tconv_ceil_div(batch, tconv_ceil_div(batch, tconv_max(1, (int64_t)fit)));
}

/* Describes a chunk as a layer of its own. */
tconv_status describe_inner(const tconv_layer *layer, plan *made, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    const bool dst = writes_dst(problem);
    tconv_desc desc = problem->desc;
    made->inner = *layer;
    if (made->widens) {
        desc.dtype = TCONV_F32;
        made->inner.target.math = TCONV_MATH_TF32;
    }
    desc.math = made->inner.target.math;
    desc.accumulate = 0;
    desc.batch = made->images;
    if (dst || made->widens)
        memset(desc.dst_strides, 0, sizeof desc.dst_strides);
    if (!dst || made->widens)
        memset(desc.src_strides, 0, sizeof desc.src_strides);
    return tconv_problem_init(&made->inner.problem, &desc, issue);
}

/* Has an implementation plan the chunk, to take less than a limit, 0 for none; its seconds, negative where it does not. */
double plan_inner(const tconv_implementation *by, double limit, plan *made, tconv_cuda_work *work)
{
    tconv_planned planned = {};
    planned.limit = limit;
    planned.work = work;
    memset(made->made, 0, sizeof made->made);
    const bool is_taken = (by->dtypes & TCONV_DTYPE_BIT(made->inner.problem.dtype)) != 0 &&
                          by->plan_bytes <= sizeof made->made &&
                          by->plan(&made->inner, made->made, &planned, NULL) == TCONV_SUCCESS;
    made->sizes = planned.sizes;
    return is_taken ? planned.prediction.seconds : -1;
}

/* Plans the chunk by that which is predicted to be fastest; false where none takes it. */
bool choose_inner(plan *made, tconv_cuda_work *work)
{
    const tconv_implementation *const *list =
        writes_dst(&made->inner.problem) ? tconv_cuda_implementations : tconv_cuda_backward_data;
    double least = 0;
    for (size_t i = 0; list[i] != NULL; i++) {
        if (list[i] == &tconv_cuda_accumulate)
            continue;
        const double seconds = plan_inner(list[i], least, made, NULL);
        if (seconds > 0 && (made->by == NULL || seconds < least)) {
            made->by = list[i];
            least = seconds;
        }
    }
    return made->by != NULL &&
           plan_inner(made->by, 0, made, work) > 0; /* once more, for a plan stays where it was made */
}

/* Makes the work of all chunks of that of one. Widening and adding are passes. */
void count_passes(const tconv_problem *problem, const plan *made, tconv_cuda_work *work)
{
    const double chunks = (double)made->chunks;
    const double held = (double)problem->element_size / (double)made->inner.problem.element_size;
    work->rounds *= chunks;
    work->dram_bytes *= chunks;
    /* The first launch is not a pass. */
    work->passes = chunks * (work->passes + (made->widens ? 3 : 2)) - 1;
    work->pass_bytes += (1 + 2 * held) * (double)made->sums_bytes + (1 + held) * (double)made->read_bytes;
    work->pass_bytes *= chunks;
}

tconv_status plan_layer(const tconv_layer *layer, void *to, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    plan *made = static_cast<plan *>(to);
    tconv_cuda_work work = {};
    if (!problem->desc.accumulate)
        return tconv_decline(issue, "for layers that accumulate");
    made->widens = problem->element_size < sizeof(float);
    made->images = images_of(problem, made->widens);
    made->chunks = tconv_ceil_div(tconv_max(problem->batch, 1), made->images);
    const tconv_status status = describe_inner(layer, made, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (!choose_inner(made, &work))
        return tconv_decline(issue, "no implementation takes the layer without what is held");

    const tconv_problem *inner = &made->inner.problem;
    const bool dst = writes_dst(problem);
    const int64_t size = (int64_t)inner->element_size;
    made->sums_bytes = tconv_round_up((dst ? inner->dst_extent : inner->src_extent) * size, ALIGNMENT);
    made->read_bytes =
        made->widens ? tconv_round_up((dst ? inner->src_extent : inner->dst_extent) * size, ALIGNMENT) : 0;
    made->weights_bytes = made->widens ? tconv_round_up(inner->weight_extent * size, ALIGNMENT) : 0;
    int64_t packed, scratch;
    if (!tconv_checked_add(made->weights_bytes, (int64_t)made->sizes.packed, &packed) ||
        !tconv_checked_add(made->sums_bytes, made->read_bytes, &scratch) ||
        !tconv_checked_add(scratch, (int64_t)made->sizes.scratch, &scratch))
        return tconv_fail(issue, TCONV_ERROR_OVERFLOW, "workspace_size", "the size of the workspace overflows");
    planned->sizes.packed = (size_t)packed;
    planned->sizes.scratch = (size_t)scratch;
    count_passes(problem, made, &work);
    tconv_cuda_predict(layer, &work, planned);
    return TCONV_SUCCESS;
}

tconv_status pack(const tconv_layer *layer, const void *from, const void *weights, void *packed, void *stream,
                  tconv_issue *issue)
{
    const plan *made = static_cast<const plan *>(from);
    if (made->widens) {
        walk of = {};
        of.from = weights;
        of.to = packed;
        of.images = of.lines = 1;
        of.elements = layer->problem.weight_extent;
        const tconv_status status =
            on_device(layer->target.device, issue, [&] { return widen(layer->problem.dtype, &of, stream, issue); });
        if (status != TCONV_SUCCESS)
            return status;
        weights = packed;
    }
    return made->by->pack(&made->inner, made->made, weights, static_cast<char *>(packed) + made->weights_bytes, stream,
                          issue);
}

/* An image of dst, or src, in the caller's memory. */
char *image_at(const tconv_problem *problem, bool dst, const tconv_arguments *arguments, int64_t image)
{
    return static_cast<char *>(dst ? arguments->dst : arguments->src) +
           image * strides_of(problem, dst)->n * (int64_t)problem->element_size;
}

/* Finds what the chunk reads, which is widened first where it is of 16 bits. */
tconv_status prepare_read(const tconv_layer *layer, const plan *made, int64_t image, const tconv_arguments *arguments,
                          void **read, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem, *inner = &made->inner.problem;
    const bool dst = !writes_dst(problem);
    *read = image_at(problem, dst, arguments, image);
    if (!made->widens)
        return TCONV_SUCCESS;
    walk of = walk_over(problem, dst, made->images);
    of.from = *read;
    of.from_image = strides_of(problem, dst)->n;
    of.from_line = line_stride(problem, dst);
    of.to = *read = static_cast<char *>(arguments->scratch) + made->sums_bytes;
    of.to_image = strides_of(inner, dst)->n;
    of.to_line = line_stride(inner, dst);
    return on_device(layer->target.device, issue, [&] { return widen(problem->dtype, &of, arguments->stream, issue); });
}

/* Adds a chunk's sums to what the output holds, but those of images that were added before. */
tconv_status add_sums(const tconv_layer *layer, const plan *made, int64_t image, int64_t before,
                      const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem, *inner = &made->inner.problem;
    const bool dst = writes_dst(problem);
    walk of = walk_over(problem, dst, made->images - before);
    of.from_image = strides_of(inner, dst)->n;
    of.from_line = line_stride(inner, dst);
    of.from = static_cast<char *>(arguments->scratch) + before * of.from_image * (int64_t)inner->element_size;
    of.to = image_at(problem, dst, arguments, image + before);
    of.to_image = strides_of(problem, dst)->n;
    of.to_line = line_stride(problem, dst);
    of.bias = arguments->bias;
    return on_device(layer->target.device, issue, [&] { return add(problem->dtype, &of, arguments->stream, issue); });
}

tconv_status execute(const tconv_layer *layer, const void *from, const tconv_arguments *arguments, tconv_issue *issue)
{
    const plan *made = static_cast<const plan *>(from);
    const bool dst = writes_dst(&layer->problem);
    char *scratch = static_cast<char *>(arguments->scratch);
    for (int64_t i = 0; i < made->chunks; i++) {
        const int64_t image = tconv_cuda_chunk_begin(i, made->images, layer->problem.batch);
        tconv_arguments inner = {}; /* without weights: they are packed before, also where execute could */
        void *read;
        tconv_status status = prepare_read(layer, made, image, arguments, &read, issue);
        inner.src = dst ? read : scratch;
        inner.dst = dst ? scratch : read;
        inner.packed = static_cast<const char *>(arguments->packed) + made->weights_bytes;
        inner.scratch = scratch + made->sums_bytes + made->read_bytes;
        inner.stream = arguments->stream;
        inner.packs = arguments->packs && i == 0 && !made->widens;
        if (status == TCONV_SUCCESS)
            status = made->by->execute(&made->inner, made->made, &inner, issue);
        if (status == TCONV_SUCCESS)
            status = add_sums(layer, made, image, i * made->images - image, arguments, issue);
        if (status != TCONV_SUCCESS)
            return status;
    }
    return TCONV_SUCCESS;
}

void describe(const tconv_layer *, const void *from, char *text, size_t capacity)
{
    const plan *made = static_cast<const plan *>(from);
    char inner[512] = "";
    if (made->by->describe != NULL)
        made->by->describe(&made->inner, made->made, inner, sizeof inner);
    snprintf(text, capacity, "chunks=%lld widens=%d by=%s %s", (long long)made->chunks, made->widens, made->by->name,
             inner);
}

} // namespace

extern "C" const tconv_implementation tconv_cuda_accumulate = {"cuda_accumulate",
                                                               TCONV_BACKEND_CUDA,
                                                               TCONV_DTYPES_TO_F64,
                                                               sizeof(plan),
                                                               plan_layer,
                                                               pack,
                                                               execute,
                                                               describe,
                                                               true,
                                                               NULL};

} // namespace tconv::accumulate
