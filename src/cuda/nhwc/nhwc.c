/*
 * cuda_nhwc: layers in NCHW, computed in NHWC: forward and both gradients, f32 and 16 bits.
 *
 * Src and dst are transposed in the workspace, so many images at a time that they take at most 40 MiB, and whichever other
 * implementation is predicted to be fastest in NHWC computes these images. Many have ways for NHWC that they have not for NCHW:
 * a pixel's channels are neighbours, so that TMA brings any pixels, at any stride, of rows that are no vectors. For
 * gradients, weights that are no more than the tensors are brought to IHWO, which kernels for NHWC read and write as they lie.
 *
 * The gradient of the weights is of all images at once, because chunks would round it between them. The last chunk of the others
 * begins so that it ends with the layer: it computes some images once more.
 *
 * Numeric order: that of the implementation.
 */
#include <stdio.h>
#include <string.h>

#include "../../core/checked.h"
#include "../../core/status.h"
#include "../../core/volume.h"
#include "../cuda_backend.h"
#include "../cuda_target.h"
#include "../inner/inner.h"
#include "../model/planned.h"

enum {
    MOST_TRANSPOSED = 40 << 20, /* bytes of a chunk's transposed tensors */
    MOST_SCRATCH = 48 << 20     /* with what the inner plan needs */
};

/* Transposing takes this much longer than a pass that moves vectors, timed on an H200; and this many launches, because none of its
 * kernels begins before the one ahead has ended. */
static const double TRANSPOSING_TIMES_HALF = 2.2, TRANSPOSING_TIMES = 1.6, TRANSPOSING_LAUNCHES = 2;

typedef struct nhwc_plan {
    int64_t images, chunks; /* of a chunk; of the layer */
    bool transposes_weights;
    int64_t src_bytes, dst_bytes; /* of a chunk's transposed tensors, where the scratch begins */
    /* How many bytes the weights take in IHWO, which lie before what the inner implementation packs; or their gradient, which lies
     * behind the tensors. 0 where they are not transposed. */
    int64_t weights_bytes;
    tconv_inner_plan inner; /* of a chunk; its phases are the layer's */
    _Alignas(16) unsigned char inner_bytes[TCONV_CUDA_MAX_NHWC_PLAN];
} nhwc_plan;

static bool is_gradient_of_weights(const tconv_problem *problem)
{
    return problem->desc.op == TCONV_BACKWARD_WEIGHTS;
}

/* Returns the transposition of the weights from IOHW to IHWO. */
static tconv_transposition weights_transposition(const tconv_problem *problem)
{
    const int64_t taps = problem->h.kernel * problem->w.kernel, each = problem->group_out * taps;
    return (tconv_transposition){.matrices = problem->in_channels,
                                 .rows = problem->group_out,
                                 .columns = taps,
                                 .from_matrix = each,
                                 .from_row = taps,
                                 .to_matrix = each,
                                 .to_row = problem->group_out,
                                 .element_size = problem->element_size};
}

/* Forward packs the weights from either layout. */
static bool transposes_weights(const tconv_problem *problem)
{
    return problem->desc.op != TCONV_FORWARD && problem->desc.weight_layout == TCONV_WEIGHT_IOHW &&
           problem->group_out > 1 && problem->h.kernel * problem->w.kernel > 1 &&
           problem->weight_extent <= problem->src_extent + problem->dst_extent;
}

/* Decides how many images a chunk has; false where an image is too large, or the gradient of the weights has several chunks. */
static bool cut_images(const tconv_problem *problem, nhwc_plan *plan)
{
    const double pixels = (double)problem->h.in * (double)problem->w.in,
                 outputs = (double)problem->h.out * (double)problem->w.out;
    const double image = ((double)problem->in_channels * pixels + (double)problem->out_channels * outputs) *
                         (double)problem->element_size;
    plan->images = tconv_inner_fit(problem->batch, image, MOST_TRANSPOSED);
    plan->chunks = tconv_ceil_div(problem->batch, plan->images);
    return image * (double)plan->images <= MOST_TRANSPOSED && (plan->chunks == 1 || !is_gradient_of_weights(problem));
}

/* Describes a chunk in NHWC. */
static tconv_status describe_inner(const tconv_layer *layer, nhwc_plan *plan, tconv_issue *issue)
{
    tconv_problem *inner = &plan->inner.layer.problem;
    tconv_desc desc = layer->problem.desc;
    plan->inner.layer = *layer;
    desc.layout = TCONV_NHWC;
    desc.batch = plan->images;
    if (plan->transposes_weights)
        desc.weight_layout = TCONV_WEIGHT_IHWO;
    memset(desc.src_strides, 0, sizeof desc.src_strides);
    memset(desc.dst_strides, 0, sizeof desc.dst_strides);
    const tconv_status status = tconv_problem_derive(inner, &desc, issue);
    if (status != TCONV_SUCCESS)
        return status;
    const int64_t size = (int64_t)inner->element_size;
    plan->src_bytes = tconv_inner_aligned(inner->src_extent * size);
    plan->dst_bytes = tconv_inner_aligned(inner->dst_extent * size);
    plan->weights_bytes = plan->transposes_weights ? tconv_inner_aligned(inner->weight_extent * size) : 0;
    return TCONV_SUCCESS;
}

static int64_t scratch_before(const nhwc_plan *plan)
{
    const bool gradient = is_gradient_of_weights(&plan->inner.layer.problem);
    return plan->src_bytes + plan->dst_bytes + (gradient ? plan->weights_bytes : 0);
}

/* Returns the seconds that inner plans are compared by; 0 where one needs too much memory. */
static double compared_seconds(const void *outer, const tconv_inner_plan *inner,
                               const tconv_implementation *implementation, const tconv_planned *planned,
                               const tconv_cuda_work *work)
{
    (void)implementation, (void)work;
    const int64_t scratch = scratch_before(outer) + (int64_t)inner->sizes.scratch;
    return scratch <= MOST_SCRATCH ? tconv_compared_seconds(&planned->prediction) : 0;
}

/* Turns the work of one chunk into that of all, with the transpositions. */
static void count_passes(const tconv_problem *problem, const nhwc_plan *plan, tconv_cuda_work *work)
{
    const double chunks = (double)plan->chunks, launches = 2 * TRANSPOSING_LAUNCHES; /* of src, of dst */
    const double times = problem->element_size < sizeof(float) ? TRANSPOSING_TIMES_HALF : TRANSPOSING_TIMES;
    const double weights = plan->transposes_weights ? TRANSPOSING_LAUNCHES : 0;
    work->rounds *= chunks;
    work->dram_bytes *= chunks;
    work->passes = chunks * (work->passes + launches + 1) - 1 + weights; /* the first launch is none of the passes */
    work->pass_bytes = chunks * (work->pass_bytes + 2 * times * (double)(plan->src_bytes + plan->dst_bytes)) +
                       2 * times * (double)plan->weights_bytes;
}

/* Plans a chunk by the implementation that is predicted to be fastest, so that the layer takes less than a limit, 0 for none;
 * false where none does. */
static bool plan_inner(const tconv_layer *layer, double limit, nhwc_plan *plan, tconv_planned *inner,
                       tconv_cuda_work *work)
{
    const tconv_op op = layer->problem.desc.op;
    const tconv_cuda_machine machine = tconv_cuda_machine_of(layer);
    tconv_inner_search search = {.list = op == TCONV_FORWARD         ? tconv_cuda_implementations
                                         : op == TCONV_BACKWARD_DATA ? tconv_cuda_backward_data
                                                                     : tconv_cuda_backward_weights,
                                 .outer = plan,
                                 .seconds = compared_seconds};
    if (limit > 0) {
        tconv_cuda_work passes;
        memset(&passes, 0, sizeof passes);
        count_passes(&layer->problem, plan, &passes);
        search.limit = (limit + machine.launch - tconv_cuda_least_seconds(&machine, &passes)) / (double)plan->chunks;
        if (search.limit <= 0)
            return false;
    }
    if (!tconv_inner_choose(&plan->inner, &search))
        return false;
    *inner = tconv_inner_plan_by(&plan->inner, plan->inner.implementation, 0, work);
    return inner->prediction.seconds > 0;
}

static tconv_status plan_layer(const tconv_layer *layer, void *bytes, tconv_planned *planned, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    nhwc_plan *plan = bytes;
    tconv_planned inner;
    tconv_cuda_work work;
    memset(&work, 0, sizeof work);
    tconv_inner_begin(&plan->inner, plan->inner_bytes, sizeof plan->inner_bytes);
    if (problem->layout != TCONV_NCHW || problem->batch == 0 || layer->phases_of_src || layer->stacked_rows)
        return tconv_decline(issue, "for layers in NCHW");
    plan->transposes_weights = transposes_weights(problem);
    if (!cut_images(problem, plan))
        return tconv_decline(issue, "needs images of at most %d MiB, for the gradient of the weights all together",
                             MOST_TRANSPOSED >> 20);
    const tconv_status status = describe_inner(layer, plan, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (!plan_inner(layer, planned->limit, plan, &inner, &work))
        return tconv_decline(issue, "%s", planned->limit > 0 ? TCONV_NO_FASTER : "no implementation takes it in NHWC");
    const tconv_memory_sizes *sizes = &plan->inner.sizes;
    planned->sizes.packed = sizes->packed + (size_t)(is_gradient_of_weights(problem) ? 0 : plan->weights_bytes);
    planned->sizes.scratch = sizes->scratch + (size_t)scratch_before(plan);
    planned->sizes.execute_packs = !plan->transposes_weights && sizes->execute_packs;
    planned->sizes.reads_unpacked = !plan->transposes_weights && sizes->reads_unpacked;
    count_passes(problem, plan, &work);
    tconv_cuda_predict(layer, &work, planned);
    planned->prediction.saved = inner.prediction.saved;
    return TCONV_SUCCESS;
}

static tconv_status transpose(const tconv_layer *layer, const tconv_transposition *of, bool back, const void *from,
                              void *to, void *stream, tconv_issue *issue)
{
    const tconv_transposition reversed = tconv_transpose_back(of);
    return tconv_cuda_transpose(tconv_cuda_target_of(&layer->target).device, back ? &reversed : of, from, to, stream,
                                issue);
}

static tconv_status pack(const tconv_layer *layer, const void *bytes, const void *weights, void *packed, void *stream,
                         tconv_issue *issue)
{
    const nhwc_plan *plan = bytes;
    if (!plan->transposes_weights)
        return tconv_inner_pack(&plan->inner, weights, packed, stream, issue);
    const tconv_transposition of = weights_transposition(&layer->problem);
    const tconv_status status = transpose(layer, &of, false, weights, packed, stream, issue);
    if (status != TCONV_SUCCESS || plan->inner.sizes.reads_unpacked)
        return status;
    return tconv_inner_pack(&plan->inner, packed, (char *)packed + plan->weights_bytes, stream, issue);
}

/* Transposes a chunk of src, or of dst, to NHWC or back. data: the layer's tensor. */
static tconv_status transpose_tensor(const tconv_layer *layer, const nhwc_plan *plan, int64_t image, bool dst,
                                     bool back, void *data, void *transposed, void *stream, tconv_issue *issue)
{
    const tconv_problem *problem = &layer->problem;
    tconv_transposition of = tconv_transpose_to_nhwc(problem, !dst);
    void *const first = (char *)data + image * of.from_matrix * (int64_t)problem->element_size;
    of.matrices = plan->images;
    return transpose(layer, &of, back, back ? transposed : first, back ? first : transposed, stream, issue);
}

/* Sets what the inner layer reads its weights from, or writes their gradient to. */
static void set_weights(const tconv_layer *layer, const nhwc_plan *plan, int64_t chunk,
                        const tconv_arguments *arguments, tconv_arguments *inner)
{
    const bool reads = plan->inner.sizes.reads_unpacked;
    if (is_gradient_of_weights(&layer->problem))
        inner->weights = arguments->weights == NULL || !plan->transposes_weights
                             ? arguments->weights
                             : (char *)arguments->scratch + plan->src_bytes + plan->dst_bytes;
    else if (plan->transposes_weights)
        inner->weights = reads ? (void *)arguments->packed : NULL;
    else
        inner->weights = chunk == 0 || reads ? arguments->weights : NULL;
}

static tconv_status execute_chunk(const tconv_layer *layer, const nhwc_plan *plan, int64_t chunk,
                                  const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_op op = layer->problem.desc.op;
    const int64_t image = tconv_cuda_chunk_begin(chunk, plan->images, layer->problem.batch);
    void *const stream = arguments->stream;
    tconv_arguments inner =
        tconv_inner_arguments(arguments, op == TCONV_BACKWARD_WEIGHTS ? 0 : plan->weights_bytes, scratch_before(plan));
    inner.src = arguments->scratch;
    inner.dst = (char *)arguments->scratch + plan->src_bytes;
    inner.bias = arguments->bias;
    set_weights(layer, plan, chunk, arguments, &inner);
    tconv_status status = TCONV_SUCCESS;
    if (op != TCONV_BACKWARD_DATA && arguments->src != NULL)
        status = transpose_tensor(layer, plan, image, false, false, arguments->src, inner.src, stream, issue);
    if (op != TCONV_FORWARD && status == TCONV_SUCCESS)
        status = transpose_tensor(layer, plan, image, true, false, arguments->dst, inner.dst, stream, issue);
    if (status == TCONV_SUCCESS)
        status = tconv_inner_execute(&plan->inner, &inner, issue);
    if (status != TCONV_SUCCESS)
        return status;
    if (op == TCONV_FORWARD)
        return transpose_tensor(layer, plan, image, true, true, arguments->dst, inner.dst, stream, issue);
    if (op == TCONV_BACKWARD_DATA)
        return transpose_tensor(layer, plan, image, false, true, arguments->src, inner.src, stream, issue);
    if (inner.weights == arguments->weights)
        return TCONV_SUCCESS;
    const tconv_transposition weights = weights_transposition(&layer->problem);
    return transpose(layer, &weights, true, inner.weights, arguments->weights, stream, issue);
}

static tconv_status execute(const tconv_layer *layer, const void *bytes, const tconv_arguments *arguments,
                            tconv_issue *issue)
{
    const nhwc_plan *plan = bytes;
    tconv_status status = TCONV_SUCCESS;
    for (int64_t i = 0; i < plan->chunks && status == TCONV_SUCCESS; i++)
        status = execute_chunk(layer, plan, i, arguments, issue);
    return status;
}

static void describe(const tconv_layer *layer, const void *bytes, char *text, size_t capacity)
{
    (void)layer;
    const nhwc_plan *plan = bytes;
    char inner[512];
    tconv_inner_describe(&plan->inner, inner, sizeof inner);
    snprintf(text, capacity, "images=%lld chunks=%lld weights=%s by=%s %s", (long long)plan->images,
             (long long)plan->chunks, plan->transposes_weights ? "ihwo" : "as_they_lie",
             plan->inner.implementation->name, inner);
}

const tconv_implementation tconv_cuda_nhwc = {.name = "cuda_nhwc",
                                              .backend = TCONV_BACKEND_CUDA,
                                              .dtypes = TCONV_DTYPES_TO_F32,
                                              .plan_bytes = sizeof(nhwc_plan),
                                              .plan = plan_layer,
                                              .pack = pack,
                                              .execute = execute,
                                              .describe = describe};
