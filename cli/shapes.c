#include "shapes.h"

#include <string.h>

const int *shapes_of_layout(tconv_layout layout)
{
    static const int axes[][AXES] = {[TCONV_NCHW] = {0, 1, 2, 3, 4}, [TCONV_NHWC] = {0, 4, 1, 2, 3}};
    return axes[layout];
}

const int *shapes_of_weights(tconv_weight_layout layout)
{
    static const int axes[][AXES] = {[TCONV_WEIGHT_IOHW] = {0, 1, 2, 3, 4},
                                     [TCONV_WEIGHT_IHWO] = {0, 4, 1, 2, 3},
                                     [TCONV_WEIGHT_HWOI] = {4, 3, 0, 1, 2}};
    return axes[layout];
}

void shapes_logical(const npy_array *array, bool deep, const int axes[AXES], int64_t logical[AXES])
{
    const bool has_images = array->rank == 4 + deep;
    int64_t extents[AXES];
    for (int i = 0, from = 0; i < AXES; ++i)
        extents[i] = (i == 0 && !has_images) || (i == axes[D] && !deep) ? 1 : array->shape[from++];
    for (int i = 0; i < AXES; ++i)
        logical[i] = extents[axes[i]];
}

int shapes_in_file(const int64_t logical[AXES], bool deep, bool has_images, const int axes[AXES],
                   int64_t shape[NPY_MAX_RANK])
{
    int64_t extents[AXES];
    int rank = 0;
    for (int i = 0; i < AXES; ++i)
        extents[axes[i]] = logical[i];
    for (int i = 0; i < AXES; ++i)
        if (!(i == 0 && !has_images) && !(i == axes[D] && !deep))
            shape[rank++] = extents[i];
    return rank;
}

void shapes_of_view(const harness_view *view, int64_t logical[AXES])
{
    const int64_t extents[AXES] = {view->shape[0], view->shape[1], view->planes, harness_view_rows(view),
                                   view->shape[3]};
    memcpy(logical, extents, sizeof extents);
}
