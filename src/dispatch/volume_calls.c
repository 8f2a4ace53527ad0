/* Runs the parts of a layer with depth. */
#include <string.h>

#include "../core/alloc.h"
#include "../core/checked.h"
#include "../core/operation.h"
#include "../core/post.h"
#include "../core/status.h"
#include "../cpu/cpu_backend.h"
#include "../cuda/cuda_backend.h"
#include "../cuda/cuda_target.h"
#include "volume.h"
#include "volume_plan.h"

/* One execute, or the packing of weights. */
struct run {
    const tconv_plan *plan;
    const tconv_problem *problem;
    const tconv_arguments *given;
    char *weights, *src, *dst, *inner; /* parts of the scratch */
    void *stream;
};

/* Where a call of a part begins. */
struct place {
    int64_t volume, image;
};

double tconv_volume_copy_seconds(double bytes, int64_t run)
{
    /* Bytes in a second by words of 1, 2, 4, 8 and 16 bytes: those of 2 and more were timed on an H200. */
    static const double RATES[] = {0.4e12, 0.7e12, 1.2e12, 2.3e12, 3.8e12};
    int word = 0;
    while (word < 4 && (run >> word & 1) == 0)
        word++;
    return TCONV_VOLUME_LAUNCH_SECONDS + 2 * bytes / RATES[word];
}

tconv_status tconv_volume_copy(const tconv_plan *plan, tconv_plane_copy *axes, const void *from, void *to, void *stream,
                               tconv_issue *issue)
{
    const tconv_target *target = &plan->layer.target;
    axes->element_size = plan->layer.problem.element_size;
    tconv_plane_copy_simplify(axes);
    if (target->backend == TCONV_BACKEND_CUDA)
        return tconv_cuda_copy_planes(tconv_cuda_target_of(target).device, axes, from, to, stream, issue);
    tconv_cpu_copy_planes(target, axes, from, to);
    return TCONV_SUCCESS;
}

static tconv_status copy(const struct run *run, tconv_plane_copy *axes, const void *from, void *to, tconv_issue *issue)
{
    return tconv_volume_copy(run->plan, axes, from, to, run->stream, issue);
}

static char *at(const void *data, int64_t element, const tconv_problem *problem)
{
    return data == NULL ? NULL : (char *)data + element * (int64_t)problem->element_size;
}

/* ------------------------------------------------------------------------------------------------------------- weights */

/* Where the first kernel plane of a part lies. */
static char *kernel_at(const struct run *run, const void *weights, const tconv_volume_part *part)
{
    return at(weights, part->kernel.first * run->problem->weight.d, run->problem);
}

/* The extents of a copy of kernel planes. Taps are channels before those of one tap: of the inputs of a group, or in the
 * gradient of src of its outputs. */
struct kernel_planes {
    bool of_inputs;
    int64_t taps, tap;               /* elements from a tap to the next */
    int64_t groups, in, out, kernel; /* of what is copied; kernel: elements of a plane */
    int64_t all_in, all_out;         /* of the layer */
};

static struct kernel_planes kernel_planes_of(const tconv_problem *problem, const tconv_volume_part *part)
{
    const bool of_inputs = problem->desc.op != TCONV_BACKWARD_DATA;
    struct kernel_planes of = {.of_inputs = of_inputs,
                               .taps = part->taps,
                               .tap = part->kernel.tap * problem->weight.d,
                               .groups = of_inputs ? problem->groups : 1,
                               .in = of_inputs ? problem->group_in : problem->in_channels,
                               .out = problem->group_out,
                               .kernel = problem->h.kernel * problem->w.kernel};
    of.all_in = of_inputs ? of.groups * of.in * of.taps : of.in;
    of.all_out = of_inputs ? of.out : of.out * of.taps;
    return of;
}

/* Describes the copy for input channels outside: group, tap, input, output with kernel; or input, tap, output, kernel. */
static tconv_plane_copy axes_of_inputs_outside(const tconv_weight_strides *from, const struct kernel_planes *of,
                                               bool outputs_inside)
{
    tconv_plane_copy axes = {.planes = 1};
    const int64_t input = of->kernel * of->all_out;
    tconv_volume_set_axis(&axes, 3, 1, 0, 0);
    tconv_volume_set_axis(&axes, 4, 1, 0, 0);
    if (of->of_inputs) {
        tconv_volume_set_axis(&axes, 0, of->groups, of->in * from->in, of->taps * of->in * input);
        tconv_volume_set_axis(&axes, 1, of->taps, of->tap, of->in * input);
        tconv_volume_set_axis(&axes, 2, of->in, from->in, input);
        tconv_volume_set_axis(&axes, 4, outputs_inside ? 1 : of->out, from->out, of->kernel);
        tconv_volume_set_axis(&axes, 5, outputs_inside ? input : of->kernel, 1, 1);
        return axes;
    }
    tconv_volume_set_axis(&axes, 0, of->in, from->in, input);
    if (outputs_inside) {
        tconv_volume_set_axis(&axes, 1, of->kernel, of->out, of->all_out);
        tconv_volume_set_axis(&axes, 2, of->taps, of->tap, of->out);
    } else {
        tconv_volume_set_axis(&axes, 1, of->taps, of->tap, of->out * of->kernel);
        tconv_volume_set_axis(&axes, 2, of->out, from->out, of->kernel);
    }
    tconv_volume_set_axis(&axes, 5, outputs_inside ? of->out : of->kernel, 1, 1);
    return axes;
}

/* Describes the copy for input channels inside: kernel, output, input of a tap, and of its group; or kernel, tap, output, input. */
static tconv_plane_copy axes_of_inputs_inside(const tconv_weight_strides *from, const struct kernel_planes *of)
{
    tconv_plane_copy axes = {.planes = 1};
    tconv_volume_set_axis(&axes, 0, of->kernel, from->w, of->all_out * of->all_in);
    tconv_volume_set_axis(&axes, 4, 1, 0, 0);
    tconv_volume_set_axis(&axes, 5, of->in, 1, 1);
    if (of->of_inputs) {
        tconv_volume_set_axis(&axes, 1, of->out, from->out, of->all_in);
        tconv_volume_set_axis(&axes, 2, of->groups, of->in, of->taps * of->in);
        tconv_volume_set_axis(&axes, 3, of->taps, of->tap, of->in);
    } else {
        tconv_volume_set_axis(&axes, 1, of->taps, of->tap, of->out * of->all_in);
        tconv_volume_set_axis(&axes, 2, of->out, from->out, of->all_in);
        tconv_volume_set_axis(&axes, 3, 1, 0, 0);
    }
    return axes;
}

tconv_plane_copy tconv_volume_weight_axes(const tconv_problem *problem, const tconv_volume_part *part)
{
    const struct kernel_planes of = kernel_planes_of(problem, part);
    const tconv_weight_layout layout = problem->desc.weight_layout;
    return layout == TCONV_WEIGHT_HWOI ? axes_of_inputs_inside(&problem->weight, &of)
                                       : axes_of_inputs_outside(&problem->weight, &of, layout == TCONV_WEIGHT_IHWO);
}

/* Copies a part's kernel planes to memory, as its layer's weights. */
static tconv_status copy_weights(const struct run *run, const tconv_volume_part *part, const void *weights, void *to,
                                 tconv_issue *issue)
{
    tconv_plane_copy axes = tconv_volume_weight_axes(run->problem, part);
    return copy(run, &axes, kernel_at(run, weights, part), to, issue);
}

/* Copies a layer's gradient of the weights to a kernel plane; from is NULL for zeros. */
static tconv_status copy_gradient(const struct run *run, const tconv_volume_part *part, const void *from, void *weights,
                                  tconv_issue *issue)
{
    tconv_volume_part one = *part;
    one.taps = 1;
    tconv_plane_copy axes = tconv_volume_weight_axes(run->problem, &one);
    tconv_volume_reverse_copy(&axes);
    if (from == NULL)
        axes.planes = 0;
    return copy(run, &axes, from, kernel_at(run, weights, part), issue);
}

/* -------------------------------------------------------------------------------------------------------------- planes */

/* Copies the planes that a call sums side by side. */
static tconv_status copy_planes(const struct run *run, const tconv_volume_part *part, const struct place *place,
                                int64_t volumes, int64_t planes, bool src, const void *from, void *to,
                                tconv_issue *issue)
{
    const tconv_problem *problem = run->problem;
    const tconv_strides *strides = src ? &problem->src : &problem->dst;
    const tconv_plane_walk *walk = src ? &part->src : &part->dst;
    const int64_t channels = src ? problem->group_in : problem->group_out, groups = problem->groups, taps = part->taps;
    const int64_t pixels = src ? problem->h.in * problem->w.in : problem->h.out * problem->w.out;
    const int64_t image = groups * taps * channels * pixels;
    const bool nhwc = problem->layout == TCONV_NHWC;
    tconv_plane_copy axes = {.plane = walk->first + walk->step * place->image,
                             .step = walk->step,
                             .tap = walk->tap,
                             .planes = src ? problem->d.in : problem->d.out,
                             .plane_stride = strides->d};
    tconv_volume_set_axis(&axes, 0, volumes, strides->n, planes * image);
    tconv_volume_set_axis(&axes, 1, planes, 0, image);
    tconv_volume_set_axis(&axes, 2, taps, 0, channels * (nhwc ? 1 : pixels));
    if (nhwc) {
        tconv_volume_set_axis(&axes, 3, pixels, strides->w, groups * taps * channels);
        tconv_volume_set_axis(&axes, 4, groups, channels, taps * channels);
        tconv_volume_set_axis(&axes, 5, channels, 1, 1);
    } else {
        tconv_volume_set_axis(&axes, 3, groups, channels * strides->c, taps * channels * pixels);
        tconv_volume_set_axis(&axes, 4, channels, strides->c, pixels);
        tconv_volume_set_axis(&axes, 5, pixels, 1, 1);
    }
    return copy(run, &axes, at(from, place->volume * strides->n, problem), to, issue);
}

/* Writes zeros to the planes of src that no output reaches. */
static tconv_status clear_planes(const struct run *run, const tconv_volume_part *part, tconv_issue *issue)
{
    const tconv_problem *problem = run->problem;
    const tconv_strides *strides = &problem->src;
    const bool nhwc = problem->layout == TCONV_NHWC;
    const int64_t pixels = problem->h.in * problem->w.in;
    tconv_plane_copy axes = {.planes = 0};
    tconv_volume_set_axis(&axes, 0, problem->batch, 0, strides->n);
    tconv_volume_set_axis(&axes, 1, part->images, 0, part->src.step * strides->d);
    tconv_volume_set_axis(&axes, 2, 1, 0, 0);
    tconv_volume_set_axis(&axes, 3, 1, 0, 0);
    tconv_volume_set_axis(&axes, 4, nhwc ? pixels : problem->in_channels, 0, nhwc ? strides->w : strides->c);
    tconv_volume_set_axis(&axes, 5, nhwc ? problem->in_channels : pixels, 1, 1);
    return copy(run, &axes, NULL, at(run->given->src, part->src.first * strides->d, problem), issue);
}

/* --------------------------------------------------------------------------------------------------------------- calls */

/* Where a tensor's planes of a call lie. */
static char *planes_at(const void *data, const tconv_strides *strides, const tconv_plane_walk *walk,
                       const struct place *place, const tconv_problem *problem)
{
    const int64_t plane = walk->first + walk->step * place->image;
    return at(data, place->volume * strides->n + plane * strides->d, problem);
}

/* Has a layer pack its weights, unless the plan holds them or the layer does so itself, and computes it. */
static tconv_status run_layer(const struct run *run, const part_plan *made, int slot, bool packs, void *weights,
                              tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_plan *layer = run->plan->volume->layers[made->layers[slot]];
    char *const packed = run->inner + made->packed_at[slot];
    tconv_status status;
    arguments->scratch = run->inner + made->packed_bytes;
    if (made->kind == KERNEL || (made->kind == FLAT && run->problem->desc.op == TCONV_BACKWARD_WEIGHTS)) {
        arguments->weights = weights;
    } else if (run->given->packed != NULL) {
        arguments->packed = (const char *)run->given->packed + made->packed_at[slot];
    } else {
        const bool by_itself = layer->sizes.execute_packs && !layer->layer.packed_before;
        arguments->packed = packed;
        arguments->packs = packs && !layer->layer.packed_before;
        arguments->weights = by_itself ? weights : NULL;
        if (packs && !by_itself &&
            (status = layer->implementation->pack(&layer->layer, layer->made, weights, packed, run->stream, issue)))
            return status;
    }
    return layer->implementation->execute(&layer->layer, layer->made, arguments, issue);
}

/* Computes some planes of some volumes of a part. */
static tconv_status run_call(const struct run *run, const tconv_volume_part *part, const part_plan *made,
                             const struct place *place, int slot, int64_t volumes, int64_t planes, bool packs,
                             void *weights, tconv_issue *issue)
{
    const tconv_problem *problem = run->problem;
    const tconv_arguments *given = run->given;
    const int addend = tconv_post_addend(&problem->desc);
    tconv_arguments arguments = *given;
    tconv_status status;
    arguments.weights = NULL;
    arguments.packed = NULL;
    arguments.packs = false;
    arguments.src = planes_at(given->src, &problem->src, &part->src, place, problem);
    arguments.dst = planes_at(given->dst, &problem->dst, &part->dst, place, problem);
    if (made->kind == BIAS) /* no output is of it, but it may be read: it has another shape than src */
        arguments.src = run->src;
    if (made->tap_channels > 0 && problem->desc.op == TCONV_FORWARD)
        arguments.src = at(given->src, place->volume * problem->src.n, problem);
    else if (made->tap_channels > 0)
        arguments.dst = at(given->dst, place->volume * problem->dst.n, problem);
    if (addend >= 0)
        arguments.post[addend] = planes_at(given->post[addend], &problem->addend, &part->dst, place, problem);
    if (made->kind == KERNEL)
        arguments.bias = NULL;
    if (made->copies_src) {
        arguments.src = run->src;
        if ((status = copy_planes(run, part, place, volumes, planes, true, given->src, arguments.src, issue)))
            return status;
    }
    if (made->copies_dst) {
        arguments.dst = run->dst;
        if ((status = copy_planes(run, part, place, volumes, planes, false, given->dst, arguments.dst, issue)))
            return status;
    }
    return run_layer(run, made, slot, packs, weights, &arguments, issue);
}

/* Computes all calls of a part. */
static tconv_status run_calls(const struct run *run, const tconv_volume_part *part, const part_plan *made,
                              void *weights, tconv_issue *issue)
{
    bool packs[SLOTS];
    struct place place;
    bool again = false;
    memset(packs, true, sizeof packs);
    for (place.volume = 0; place.volume < run->problem->batch; place.volume += made->volumes)
        for (place.image = 0; place.image < part->images; place.image += made->planes) {
            const int64_t volumes = tconv_min(made->volumes, run->problem->batch - place.volume);
            const int64_t planes = tconv_min(made->planes, part->images - place.image);
            const int slot = (volumes < made->volumes ? FEWER_VOLUMES : 0) |
                             (planes < made->planes ? FEWER_PLANES : 0) | (made->kind == KERNEL && again ? AGAIN : 0);
            const tconv_status status =
                run_call(run, part, made, &place, slot, volumes, planes, packs[slot], weights, issue);
            if (status != TCONV_SUCCESS)
                return status;
            packs[slot] = false;
            again = true;
        }
    return TCONV_SUCCESS;
}

/* Computes the gradient of a kernel plane. */
static tconv_status run_kernel(const struct run *run, const tconv_volume_part *part, const part_plan *made,
                               tconv_issue *issue)
{
    void *const weights = run->given->weights;
    tconv_status status;
    if (weights == NULL)
        return TCONV_SUCCESS;
    if (!made->copies_weights)
        return run_calls(run, part, made, kernel_at(run, weights, part), issue);
    if ((run->problem->desc.accumulate && (status = copy_weights(run, part, weights, run->weights, issue))) ||
        (status = run_calls(run, part, made, run->weights, issue)))
        return status;
    return copy_gradient(run, part, run->weights, weights, issue);
}

static tconv_status run_part(const struct run *run, const tconv_volume_part *part, const part_plan *made,
                             tconv_issue *issue)
{
    const tconv_problem *problem = run->problem;
    char *weights = kernel_at(run, run->given->weights, part);
    tconv_status status;
    if (made->kind == KERNEL)
        return run_kernel(run, part, made, issue);
    if (made->kind == ZERO && (problem->desc.accumulate || problem->desc.op == TCONV_FORWARD))
        return TCONV_SUCCESS;
    if (made->kind == ZERO && problem->desc.op == TCONV_BACKWARD_DATA)
        return problem->batch > 0 ? clear_planes(run, part, issue) : TCONV_SUCCESS;
    if (made->kind == ZERO)
        return run->given->weights != NULL ? copy_gradient(run, part, NULL, run->given->weights, issue) : TCONV_SUCCESS;
    if (made->copies_weights && run->given->packed == NULL) {
        if ((status = copy_weights(run, part, run->given->weights, run->weights, issue)))
            return status;
        weights = run->weights;
    }
    return run_calls(run, part, made, weights, issue);
}

/* Computes the gradient of the bias by a layer of its own. */
static tconv_status run_bias(const struct run *run, tconv_issue *issue)
{
    const tconv_volume_plan *volume = run->plan->volume;
    if (volume->bias < 0 || run->given->bias == NULL)
        return TCONV_SUCCESS;
    const tconv_plan *layer = volume->layers[volume->bias];
    tconv_arguments arguments = *run->given;
    arguments.src = arguments.weights = NULL;
    arguments.scratch = run->inner;
    return layer->implementation->execute(&layer->layer, layer->made, &arguments, issue);
}

tconv_status tconv_volume_execute(const tconv_plan *plan, const tconv_arguments *arguments, tconv_issue *issue)
{
    const tconv_volume_plan *volume = plan->volume;
    struct run run = {.plan = plan, .problem = &plan->layer.problem, .given = arguments, .stream = arguments->stream};
    if (arguments->scratch != NULL) {
        run.weights = arguments->scratch;
        run.src = run.weights + volume->weights_bytes;
        run.dst = run.src + volume->src_bytes;
        run.inner = run.dst + volume->dst_bytes;
    }
    tconv_status status = TCONV_SUCCESS;
    if (volume->view.inner != NULL)
        return tconv_volume_execute_view(plan, arguments, issue);
    if (volume->plans[0].kind == FLAT) {
        tconv_arguments flat = *arguments;
        flat.weights = NULL;
        flat.packed = NULL;
        return run_layer(&run, &volume->plans[0], 0, true, arguments->weights, &flat, issue);
    }
    for (int64_t i = 0; i < volume->plan_count && status == TCONV_SUCCESS; i++)
        status = run_part(&run, &volume->parts.parts[i], &volume->plans[i], issue);
    return status == TCONV_SUCCESS ? run_bias(&run, issue) : status;
}

/* ------------------------------------------------------------------------------------------------------------- packing */

/* Packs the weights of a part for each of its layers. */
static tconv_status pack_part(const struct run *run, const part_plan *made, const void *weights, void *packed,
                              tconv_issue *issue)
{
    tconv_status status = TCONV_SUCCESS;
    for (int slot = 0; slot < SLOTS && status == TCONV_SUCCESS; slot++) {
        if (made->layers[slot] < 0)
            continue;
        const tconv_plan *layer = run->plan->volume->layers[made->layers[slot]];
        status = layer->implementation->pack(&layer->layer, layer->made, weights,
                                             (char *)packed + made->packed_at[slot], run->stream, issue);
    }
    return status;
}

/* Packs all parts, copying kernel planes to memory of so many bytes as the largest part needs. */
static tconv_status pack_parts(const struct run *run, const void *weights, void *packed, tconv_issue *issue)
{
    const tconv_volume_plan *volume = run->plan->volume;
    tconv_status status = TCONV_SUCCESS;
    for (int64_t i = 0; i < volume->plan_count && status == TCONV_SUCCESS; i++) {
        const part_plan *made = &volume->plans[i];
        if (made->kind == FLAT)
            return pack_part(run, made, weights, packed, issue);
        const tconv_volume_part *part = &volume->parts.parts[i];
        if (made->copies_weights && (status = copy_weights(run, part, weights, run->weights, issue)))
            return status;
        status =
            pack_part(run, made, made->copies_weights ? run->weights : kernel_at(run, weights, part), packed, issue);
    }
    return status;
}

tconv_status tconv_volume_pack(const tconv_plan *plan, const void *weights, void *packed, void *stream,
                               tconv_issue *issue)
{
    const bool cuda = plan->layer.target.backend == TCONV_BACKEND_CUDA;
    const int device = cuda ? tconv_cuda_target_of(&plan->layer.target).device : 0;
    const size_t bytes = plan->volume->packing_bytes;
    struct run run = {.plan = plan, .problem = &plan->layer.problem, .stream = stream};
    void *memory = NULL;
    tconv_status status = TCONV_SUCCESS;
    if (plan->volume->view.inner != NULL)
        return tconv_volume_pack_view(plan, weights, packed, stream, issue);
    if (bytes > 0)
        status = cuda ? tconv_cuda_allocate_async(device, bytes, stream, &memory, issue)
                      : tconv_allocate_for(&plan->allocator, bytes, "weights", &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    run.weights = memory;
    status = pack_parts(&run, weights, packed, issue);
    if (cuda && memory != NULL)
        tconv_cuda_release_async(device, memory, stream);
    else
        tconv_release(&plan->allocator, memory);
    return status;
}
