/*
 * A layer with depth as layers of one plane, which implementations compute.
 *
 * A volume is an image of a layer with depth; it has planes. Along depth, outputs of one residue modulo the stride take the
 * same kernel planes (phases.h). So what such outputs read is an image whose channels are (kernel plane, channel): of the
 * planes that lie there, each a plane's channels. A part is the planes of one phase, or of a range of it, as images of a
 * layer of two axes. Where a part takes one kernel plane, its images are planes where they lie, and its layer reads and
 * writes them in place. Where it takes several, planes are copied side by side first (tconv_plane_copy), and so are the
 * kernel planes.
 *
 * An implementation may take a layer with depth as it is (tconv_implementation.sums_planes); this is for the others.
 *
 * The gradient of src is the same with the roles of src and dst exchanged. That of the weights has a part for each kernel
 * plane, whose images are the planes of src that it reads and the planes of dst that these reach.
 */
#ifndef TCONV_CORE_VOLUME_H
#define TCONV_CORE_VOLUME_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most parts of a layer; one that has more is refused. It is chosen so that plans stay below 20 MB. */
#define TCONV_MOST_PARTS 65536

/* Which planes a part takes: first + step * i + tap * t of its image i and its tap t. */
typedef struct tconv_plane_walk {
    int64_t first, step, tap;
} tconv_plane_walk;

/* A part of a layer. In forward, each image is a plane of dst that sums `taps` planes of src; in the gradient of src it is a
 * plane of src that sums planes of dst. In the gradient of the weights, the images of src and dst together give one kernel
 * plane. Without taps, outputs are the bias, and gradients 0. */
typedef struct tconv_volume_part {
    int64_t images, taps;
    tconv_plane_walk src, dst, kernel;
    bool whole; /* all planes that it names are there; else some that are summed are not, and count as zeros */
} tconv_volume_part;

/* The parts of a layer; owned. */
typedef struct tconv_volume_parts {
    tconv_volume_part *parts;
    int64_t count;
} tconv_volume_parts;

/*
 * Makes the parts. With `exact`, no part sums planes that are not there, so that what a kernel plane holds goes nowhere else:
 * then the border of a phase has parts of its own. Fails for lack of memory, and with OVERFLOW where there are too many.
 * tconv_volume_parts_release frees them.
 */
tconv_status tconv_volume_parts_create(const tconv_problem *problem, bool exact, const tconv_allocator *allocator,
                                       tconv_volume_parts *parts, tconv_issue *issue);
void tconv_volume_parts_release(tconv_volume_parts *parts, const tconv_allocator *allocator);

/* Sets the fields of depth to those of a layer of one plane. */
void tconv_drop_depth(tconv_desc *desc);

/* Writes a layer of two axes that is the same in memory to *flat; false where there is none. Where neither depth nor rows
 * overlap, all planes of a volume are rows of one image; where rows and columns have one tap each, depth is rows. */
bool tconv_volume_flatten(const tconv_problem *problem, tconv_desc *flat);

/* Copies axes of a tensor, or writes zeros: six indices, slowest first, the last of which counts neighbours on both sides. */
enum { TCONV_COPY_AXES = 6 };
typedef struct tconv_plane_copy {
    int64_t extents[TCONV_COPY_AXES];                   /* all at least 1 */
    int64_t from[TCONV_COPY_AXES], to[TCONV_COPY_AXES]; /* strides in elements */
    /* Beside its strides, an element comes from plane p = plane + step * i1 + tap * i2, i1 and i2 being its second and third
     * index, which lies p * plane_stride on. It is 0 where p is none of the `planes`. */
    int64_t plane, step, tap, planes, plane_stride;
    size_t element_size;
} tconv_plane_copy;

/* Joins axes behind the third that lie densely on both sides to the last one, and moves what is left there. */
void tconv_plane_copy_simplify(tconv_plane_copy *copy);

/* Transposes matrices: row r, column c of a matrix becomes row c, column r of one. Strides are in elements; neighbours of a row
 * are neighbours in memory on both sides. */
typedef struct tconv_transposition {
    int64_t matrices, rows, columns; /* of what is read */
    int64_t from_matrix, from_row;   /* from a matrix, and a row, to the next */
    int64_t to_matrix, to_row;
    size_t element_size; /* 2, 4 or 8 */
} tconv_transposition;

/* Returns the transposition of src, or of dst, of a layer in NCHW to NHWC, where channels and pixels lie densely; and the one back. */
tconv_transposition tconv_transpose_to_nhwc(const tconv_problem *problem, bool src);
tconv_transposition tconv_transpose_back(const tconv_transposition *of);

#ifdef __cplusplus
}
#endif

#endif
