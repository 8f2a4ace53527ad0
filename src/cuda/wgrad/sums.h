/* The passes that every gradient of weights and bias on CUDA shares: adding the slices up, and the gradient of the bias. */
#ifndef TCONV_CUDA_WGRAD_SUMS_H
#define TCONV_CUDA_WGRAD_SUMS_H

#include "../../core/impl.h"
#include "../runtime/launch.h"
#include "tiles.h"

namespace tconv::wgrad
{

/* Slices as sums.cu reads them: of float, or of double. */
struct slices {
    sum_tiles tiles;
    int64_t count; /* 0: all sums are 0 */
    bool are_double;
    bool are_added = false; /* already, in the gradient of weights */
    bool overlaps = true;   /* the bias's pass may begin before what was launched last has ended */
    int64_t bias_parts = 0; /* of the gradient of the bias, that the same kernel has written, as bias.cu does */
    const void *bias = NULL;
};

/* Into how many parts slices are cut, which threads of their own add and whose sums are added in order: a power of two. */
inline int parts_of_slices(int64_t slices)
{
    constexpr int MOST_PARTS = 8, PART_SLICES = 4; /* PART_SLICES: of a part, at least */
    int parts = 1;
    while (parts < MOST_PARTS && parts * 2 * PART_SLICES <= slices)
        parts *= 2;
    return parts;
}

/* Whether a kernel of this layer may begin while the one before it still runs, of which it waits for what it reads or overwrites
 * (ptx/dependent_launch.cuh). The first one of a call must not. */
inline bool may_overlap(const tconv_layer *layer)
{
    return layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
}

/* Launches the kernel that adds the slices in order, in double, and rounds to the layer's dtype once. */
tconv_status add_slices(const tconv_layer *layer, const slices *of, const void *memory, void *weights, void *stream,
                        tconv_issue *issue);

/* The same for many weights, row after row of a tile: sums are read as they lie, and transposed in shared memory. */
bool adds_rows(const tconv_layer *layer, const slices *of);
tconv_status add_rows(const tconv_layer *layer, const slices *of, const void *memory, void *weights, void *stream,
                      tconv_issue *issue);

/* Bytes of scratch that the gradient of the bias takes. */
size_t bias_scratch(const tconv_layer *layer);

/* Launches the kernels that sum the gradient of dst over all images and outputs of a channel: parts of an order that the
 * layer fixes, in double, compensated. overlaps: they may begin while the kernel of this call before them still runs. */
tconv_status sum_bias(const tconv_layer *layer, const void *diff_dst, void *scratch, void *bias, bool overlaps,
                      void *stream, tconv_issue *issue);

/* Launches the kernel that adds parts of all channels, in order; bytes of so many. */
tconv_status add_bias_parts(const tconv_layer *layer, const void *parts, int64_t count, void *bias, void *stream,
                            tconv_issue *issue);
size_t bias_parts_bytes(const tconv_layer *layer, int64_t parts);

/* Executes a gradient of weights and bias, of which each is computed where it is wanted: sum_weights launches what writes
 * slices, which it returns in *of, to the scratch. */
template <class SumWeights>
tconv_status execute_gradients(const tconv_layer *layer, const tconv_arguments *arguments, SumWeights sum_weights,
                               tconv_issue *issue)
{
    return on_device(layer->target.device, issue, [&] {
        tconv_status status = TCONV_SUCCESS;
        slices of = {};
        if (arguments->weights != NULL) {
            status = sum_weights(&of);
            if (status == TCONV_SUCCESS && !of.are_added)
                status = add_slices(layer, &of, arguments->scratch, arguments->weights, arguments->stream, issue);
        }
        if (status == TCONV_SUCCESS && arguments->bias != NULL && of.bias_parts > 0)
            status = add_bias_parts(layer, of.bias, of.bias_parts, arguments->bias, arguments->stream, issue);
        else if (status == TCONV_SUCCESS && arguments->bias != NULL)
            status = sum_bias(layer, arguments->dst, arguments->scratch, arguments->bias,
                              arguments->weights != NULL && of.overlaps, arguments->stream, issue);
        return status;
    });
}

/* The operation reads no weights. */
inline tconv_status pack_nothing(const tconv_layer *, const void *, const void *, void *, void *, tconv_issue *)
{
    return TCONV_SUCCESS;
}

} // namespace tconv::wgrad

#endif
