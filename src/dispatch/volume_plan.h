/* What a plan of a layer with depth holds: volume.c fills it in by layers of two axes (volume_cut.c,
 * volume_layers.c), volume_calls.c runs it. */
#ifndef TCONV_DISPATCH_VOLUME_PLAN_H
#define TCONV_DISPATCH_VOLUME_PLAN_H

#include "../core/volume.h"
#include "plan_object.h"
#include "volume_view.h"

/* What is done for a part. */
enum part_kind {
    FLAT,   /* all of the layer: it is a layer of two axes in memory, or an implementation takes it as it is */
    SUM,    /* outputs, or the gradient of src, by one tap in place, by several from copies */
    BIAS,   /* outputs without a tap */
    ZERO,   /* gradients without a tap: 0, and nothing to add */
    KERNEL, /* the gradient of one kernel plane */
};

/* The layers of a part: of whole calls, and of the last ones, which have fewer planes or volumes. Gradients of the weights
 * have the same again for calls that add to what others gave. */
enum { FEWER_PLANES = 1, FEWER_VOLUMES = 2, AGAIN = 4, SLOTS = 8 };

/* How a part is computed. */
typedef struct part_plan {
    enum part_kind kind;
    int64_t volumes, planes; /* of a whole call */
    bool copies_weights;     /* the kernel planes are copied to be a layer's weights, or from a layer's gradient */
    bool copies_src, copies_dst;
    /* Taps are read where their planes lie, each as so many channels, and so are their weights (tconv_plane_taps); else 0. */
    int64_t tap_channels;
    bool by_volumes;         /* a call takes all planes of all volumes, each as it lies (tconv_image_volumes) */
    bool stacked;            /* outputs of all phases of depth are rows of one image (tconv_layer.stacked_rows) */
    int64_t layers[SLOTS];   /* indices; -1: no call has it */
    size_t packed_at[SLOTS]; /* bytes of the packed weights, where the plan holds them or execute makes them */
    size_t packed_bytes;     /* that execute makes */
} part_plan;

struct tconv_volume_plan {
    tconv_volume_parts parts;
    part_plan *plans; /* of the parts, or one of kind FLAT */
    int64_t plan_count;
    tconv_plan **layers; /* of two axes */
    int64_t layer_count, layer_room;
    int64_t main;     /* the layer with the most work; -1: there is none */
    int64_t bias;     /* the layer that gives the gradient of the bias; -1: none */
    double main_work; /* products of the layer in all calls */
    /* The scratch, in this order: copied weights, copied planes of src and of dst, and what layers need. */
    size_t weights_bytes, src_bytes, dst_bytes, inner_bytes;
    size_t packing_bytes;   /* of copied weights, while weights are packed once for the plan */
    tconv_volume_view view; /* that computes the layer instead, where it has an inner plan */
};

/* Seconds that a launch of a copy takes on a GPU by prediction, whatever it copies: 2 were timed on an H200, and others begin later. */
#define TCONV_VOLUME_LAUNCH_SECONDS 2.5e-6

/* Seconds that a copy takes on a GPU by prediction, which reads and writes so many bytes by words of at most 16 bytes that fill `run`
 * bytes. */
double tconv_volume_copy_seconds(double bytes, int64_t run);

static inline void tconv_volume_set_axis(tconv_plane_copy *axes, int axis, int64_t extent, int64_t from, int64_t to)
{
    axes->extents[axis] = extent;
    axes->from[axis] = from;
    axes->to[axis] = to;
}

/* Has a copy go from where it went to. */
static inline void tconv_volume_reverse_copy(tconv_plane_copy *axes)
{
    for (int axis = 0; axis < TCONV_COPY_AXES; axis++)
        tconv_volume_set_axis(axes, axis, axes->extents[axis], axes->to[axis], axes->from[axis]);
}

/* Copies axes of a tensor on the plan's backend. */
tconv_status tconv_volume_copy(const tconv_plan *plan, tconv_plane_copy *axes, const void *from, void *to, void *stream,
                               tconv_issue *issue);

/* A layer of two axes, or the layer with depth itself, for an implementation that takes it as it is. */
typedef struct plane_layer {
    tconv_desc desc;
    tconv_plane_taps taps;       /* all 0 where src is as the desc says */
    tconv_image_volumes volumes; /* all 0 where images are as the desc says */
    bool stacked;                /* the desc is that of the first plane that is stacked */
    bool packed_before;
} plane_layer;

/* Elements of src, or of dst, that one plane has. */
int64_t tconv_volume_plane_elements(const tconv_problem *problem, bool src);

/* Decides what is copied for a part, and how many planes and volumes a call takes. */
void tconv_volume_cut_calls(const tconv_plan *plan, const tconv_volume_part *part, part_plan *made);

/* The calls of a part. */
int64_t tconv_volume_calls_of(const tconv_problem *problem, const tconv_volume_part *part, const part_plan *made);

/* The layer of a slot of a part; NULL where no call has it. */
static inline const tconv_plan *tconv_volume_layer_of(const tconv_volume_plan *volume, int64_t part, int slot)
{
    const int64_t index = volume->plans[part].layers[slot];
    return index < 0 ? NULL : volume->layers[index];
}

/* Whether a plan that was tried is none. UNSUPPORTED and OVERFLOW say that there is merely no such plan: they become SUCCESS. */
bool tconv_volume_is_none(tconv_status *status, tconv_issue *issue);

/* Describes a call of a part: so many volumes and planes of each. With `again`, it adds to the gradient of the weights that
 * others gave. */
tconv_desc tconv_volume_describe_call(const tconv_problem *problem, const tconv_volume_part *part,
                                      const part_plan *made, int64_t volumes, int64_t planes, bool again);

/* Describes the layer whose gradient of the bias is that of the layer with depth: planes are rows. */
tconv_desc tconv_volume_describe_bias_gradient(const tconv_problem *problem);

/* Which planes the channels of a part are of, where they are read as they lie; else all 0. */
tconv_plane_taps tconv_volume_plane_taps(const tconv_problem *problem, const tconv_volume_part *part,
                                         const part_plan *made);

/* Describes the copy of a part's kernel planes, from the first one on, to the weights of its layer. */
tconv_plane_copy tconv_volume_weight_axes(const tconv_problem *problem, const tconv_volume_part *part);

/* How the volumes of a part lie, where a call takes each as it lies; else all 0. */
tconv_image_volumes tconv_volume_image_volumes(const tconv_problem *problem, const part_plan *made);

/* Finds the plan of a layer of two axes among those of the plan's volume, or makes it. UNSUPPORTED where no implementation
 * takes planes as they lie. */
tconv_status tconv_volume_find_layer(const tconv_plan *plan, const plane_layer *wanted, int64_t *index,
                                     tconv_issue *issue);

/* Whether all phases of depth and of rows have one tap, which reads the input of the output's number, so that they can be
 * stacked. */
bool tconv_volume_stacks(const tconv_problem *problem);
void tconv_volume_release_layers(tconv_volume_plan *volume, const tconv_allocator *allocator);

#endif
