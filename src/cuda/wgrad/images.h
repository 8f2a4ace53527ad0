/* The images of K-tiles: those of the layer, or of a layer with depth the planes of a volume (parameters.h, image_axis). */
#ifndef TCONV_CUDA_WGRAD_IMAGES_H
#define TCONV_CUDA_WGRAD_IMAGES_H

#include "../../core/problem.h"
#include "parameters.h"

/* Return the images of src and of the gradient of dst, and the volumes that have as many each. */
static inline int64_t src_images(const tconv_problem *problem)
{
    return tconv_has_depth(problem) ? problem->d.in : problem->batch;
}
static inline int64_t dst_images(const tconv_problem *problem)
{
    return tconv_has_depth(problem) ? problem->d.out : problem->batch;
}
static inline int64_t volumes_of(const tconv_problem *problem)
{
    return tconv_has_depth(problem) ? problem->batch : 1;
}

/* Returns the elements from an image of src or of the gradient of dst to the next. */
static inline int64_t image_stride(const tconv_problem *problem, const tconv_strides *strides)
{
    return tconv_has_depth(problem) ? strides->d : strides->n;
}

/* Returns the elements from a volume to the next; of one alone, any that alignment allows. */
static inline int64_t volume_stride(const tconv_problem *problem, const tconv_strides *strides)
{
    return problem->batch > 1 ? strides->n : image_stride(problem, strides);
}

/* Returns whether images and volumes begin at multiples of so many elements. */
static inline bool images_begin_at_multiples(const tconv_problem *problem, const tconv_strides *strides,
                                             int64_t elements)
{
    return volume_stride(problem, strides) % elements == 0 && image_stride(problem, strides) % elements == 0;
}

/* Return the box of so many images of the gradient of dst that neighbours among those of src meet, and its steps. */
static inline uint32_t met_box(const image_axis *images)
{
    return (uint32_t)(((1 << images->tile_log2) - 1) * images->step + 1);
}
static inline uint32_t met_step(const image_axis *images)
{
    return images->tile_log2 > 0 ? (uint32_t)images->step : 1;
}

#endif
