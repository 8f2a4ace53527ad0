/* Each part of a block's work as if nothing else took time; the longest counts. */
#include "cost.h"

#include "../../core/checked.h"
#include "../gemm/shape.h"

namespace tconv::wgrad
{

namespace
{

/* What the prediction is made of: cycles of a multiprocessor, or of a quarter of it, and instructions of a warp. */
constexpr double MMA_CYCLES = 6.4; /* of an MMA, on a quarter */
constexpr double LONE_WARP = 1.25; /* times as long where a quarter has one warp */
constexpr double L2_BYTES = 20;    /* a cycle */
constexpr double VECTOR_ISSUE = 18, GATHER_ISSUE = 5, HALF_GATHER_ISSUE = 4; /* of 32 vectors, of 32 elements */
constexpr double STEP_ISSUE = 30;        /* of a step of K, beside its MMAs and factors */
constexpr double ROUND_ISSUE = 1;        /* of a factor, to TF32 */
constexpr double SPLIT_ISSUE = 2;        /* in two */
constexpr double ADD_ISSUE = 1.5;        /* of a sum of 3xTF32, that joins the total every fourth step */
constexpr double TURN = 4;               /* cycles of an instruction that copies vectors, to its warp */
constexpr double HIDDEN_PART = 0.15;     /* of what is not the longest, that shows where single elements are copied */
constexpr double TF32_GATHER = 2;        /* times as long in TF32 by single elements */
constexpr double HALF_GATHER_CYCLES = 9; /* of 32 of 16 bits, that nothing hides */

/* The same of a kernel by wgmma, whose copies are other warps'. */
constexpr double WGMMA_PART = 0.9;         /* of the tensor cores' rate */
constexpr double SHARED_BYTES = 110;       /* a cycle */
constexpr double WARPGROUP_L2_BYTES = 26;  /* a cycle */
constexpr double VECTOR_CYCLES = 6;        /* of 32 vectors that are copied */
constexpr double UNIT_CYCLES = 29;         /* of 32 units of a channel that are transposed in registers */
constexpr double TRANSPOSED_CYCLES = 3.6;  /* and of 32 elements of them */
constexpr double ELEMENT_CYCLES = 16;      /* of 32 elements, or units of lines */
constexpr double HALF_ELEMENT_CYCLES = 16; /* of 32 of 16 bits */
constexpr double HALF_UNIT_CYCLES = 32;    /* of 32 units of lines of 16 bits */
constexpr double HALF_LINES = 1.5;         /* times as long as the longest part takes by lines of 16 bits */
constexpr double TMA_ROW_CYCLES = 1.5;     /* of a row of a box, of 16 bits */
constexpr double TURNED_PASSES = 3;        /* times that src passes that way where it goes through registers */
constexpr double COPIED_PASSES = 2;        /* and the gradient of dst by vectors that lanes copy */
constexpr double TILE_CYCLES = 150;        /* of a K-tile, beside that */

/* And in strict f32: */
constexpr double STRICT_PRODUCTS = 3;
constexpr double STRICT_WGMMA_PART = 0.7;
constexpr double SPLIT_PLANES = 4; /* times that src is written or read, beside the products */

/* The same of a kernel by boxes. */
constexpr double BOX_SHARED_BYTES = 120; /* a cycle */
constexpr double BOX_L2_BYTES = 30;      /* a cycle */
constexpr double BOX_TILE_CYCLES = 40;

/* How many times as much moves as is used: whole sectors, of which single elements that are `apart` apart may be a part. */
double sector_part(const tconv_problem *problem, const planned_layer *plan, int apart)
{
    const double run = (double)apart * (double)(1 << plan->parameters.columns.tile_log2);
    const double sector = SECTOR_BYTES / (double)problem->element_size;
    return plan->reading == CHANNELS || plan->reading == SRC_CHANNELS || plan->parameters.lines.src_vectors ||
                   run >= sector
               ? 1
               : sector / run;
}

/* Words of a bank that loads of lines take for one of their pixels, where no taps of neighbouring columns share it. */
double line_loads(const parameters *of, bool half)
{
    const int power = of->columns.stride & -of->columns.stride;
    return (double)(power < 8 ? power : 8) / of->lines.twins * (half ? 2 : 1);
}

/* Rows of the boxes by which TMA brings a K-tile's lines and src, of so many elements each. */
double line_box_rows(const planned_layer *plan, double src, double dst)
{
    const parameters *p = &plan->parameters;
    return (p->lines.src_box_pixels > 0 ? src / p->lines.src_box_pixels : 0) +
           (p->box_bytes > 0 ? dst / p->lines.length / p->sharers : 0);
}

double longer_of(double one, double other)
{
    return one > other ? one : other;
}

} // namespace

double warpgroup_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots)
{
    const parameters *p = &plan->parameters;
    const double size = (double)layer->problem.element_size, chunk = (double)p->tiles.chunk;
    const double channels = plan->kernel.channels, pairs = plan->kernel.pairs, pixels = p->k_pixels;
    const bool strict = plan->mode == MODE_STRICT;
    const double existing = (double)(p->tiles.rows.group_taps * p->tiles.columns.group_taps) * chunk;
    const double tiles = strict ? (double)tconv_ceil_div((int64_t)existing, MMA_M) : pairs / MMA_M;
    const double steps = pixels * size / MMA_K_BYTES, mmas = steps * tiles;
    const bool lines = plan->reading == LINES, elements = plan->reading == ELEMENTS;
    const double products = mmas * channels / 2 * (strict ? STRICT_PRODUCTS / STRICT_WGMMA_PART : 1 / WGMMA_PART);
    const double src = pixels * channels,
                 dst = lines ? (double)(p->stage_bytes - p->src_bytes) / size : (double)slots * chunk;
    const double l2 = (src * sector_part(&layer->problem, plan, 1) +
                       dst * (lines ? 1.0 / p->sharers : sector_part(&layer->problem, plan, p->columns.stride))) *
                      size / WARPGROUP_L2_BYTES;
    const bool tf32_vectors = plan->mode == MODE_TF32 && plan->reading == CHANNELS;
    const double shared = (mmas * (MMA_A_BYTES * (lines ? line_loads(p, size == 2) : 1) +
                                   channels * MMA_K_BYTES * (strict ? STRICT_PRODUCTS : 1)) +
                           (src * (strict         ? SPLIT_PLANES
                                   : tf32_vectors ? TURNED_PASSES
                                                  : 1) +
                            dst * (tf32_vectors && p->box_bytes == 0 ? COPIED_PASSES : 1)) *
                               size) /
                          SHARED_BYTES;
    const double of_vectors = size / VECTOR_BYTES / LANES * VECTOR_CYCLES,
                 of_elements = (size == 2 ? HALF_ELEMENT_CYCLES : ELEMENT_CYCLES) / LANES;
    const double src_elements = size == 4 ? of_elements / p->src_unit : of_elements;
    const auto of_units = [](int unit) { return (UNIT_CYCLES / unit + TRANSPOSED_CYCLES) / LANES; };
    const double copies_src = lines && p->lines.src_box_pixels > 0
                                  ? (strict ? src * of_vectors : 0)
                                  : src * (lines && size == 2 && p->src_unit > 1          ? of_units(p->src_unit)
                                           : elements || (lines && !p->lines.src_vectors) ? src_elements
                                                                                          : of_vectors);
    const double copies_dst = p->box_bytes > 0 ? 0
                              : lines ? dst / p->lines.unit * (size == 2 ? HALF_UNIT_CYCLES / LANES : of_elements)
                              : plan->reading == CHANNELS ? dst * of_vectors
                                                          : dst * of_elements;
    const double longest = longer_of(longer_of(products, shared), longer_of(l2, copies_src + copies_dst));
    return (lines && size == 2 ? longer_of(longest, line_box_rows(plan, src, dst) * TMA_ROW_CYCLES) * HALF_LINES
                               : longest) +
           TILE_CYCLES;
}

double box_cycles(const planned_layer *plan, int64_t slots)
{
    const parameters *p = &plan->parameters;
    const double channels = plan->kernel.channels, mmas = BOX_PIXELS / 16.0 * (double)plan->kernel.pairs / MMA_M;
    const double bytes = (BOX_PIXELS * channels + (double)slots * (double)p->tiles.chunk) * 2;
    const double products = mmas * channels / 2 / WGMMA_PART;
    const double shared = (mmas * (MMA_A_BYTES + channels * MMA_K_BYTES) + bytes) / BOX_SHARED_BYTES;
    return longer_of(longer_of(products, shared), bytes / BOX_L2_BYTES) + BOX_TILE_CYCLES;
}

double tile_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots)
{
    const parameters *p = &plan->parameters;
    const bool half = layer->problem.element_size == 2, strict = plan->mode == MODE_STRICT;
    const int block_warps = plan->threads / LANES, warps = block_warps * plan->resident,
              height = plan->kernel.channels / 16, width = plan->kernel.pairs / 8;
    const double steps = (double)p->k_pixels / (half ? 16 : 8), mmas = height * width * (strict ? 3 : 1);
    const double factors = half ? 0 : (4 * height + 2 * width) * (strict ? SPLIT_ISSUE : ROUND_ISSUE);
    const double sums = strict ? height * width * 4 * ADD_ISSUE / STRICT_STEPS : 0;
    const double rounds = (double)tconv_ceil_div(warps, 4);
    const double products = steps * mmas * MMA_CYCLES * rounds * (warps <= 4 ? LONE_WARP : 1);
    const double src = (double)p->k_pixels * p->tiles.block_m, dst = (double)slots * (double)p->tiles.chunk;
    const double elements = src + dst, size = (double)layer->problem.element_size;
    const double bytes =
        (src * sector_part(&layer->problem, plan, 1) + dst * sector_part(&layer->problem, plan, p->columns.stride)) *
        size;
    const bool vectors = plan->reading == CHANNELS;
    const double load_issue =
        vectors ? elements * size / 512 * VECTOR_ISSUE : elements / LANES * (half ? HALF_GATHER_ISSUE : GATHER_ISSUE);
    const double issue = rounds * steps * (mmas + factors + sums + STEP_ISSUE) + plan->resident * load_issue / 4;
    const double loads = plan->resident * bytes / L2_BYTES;
    double longest = products > issue ? products : issue;
    longest = longest > loads ? longest : loads;
    if (vectors) { /* a block waits for its copies in part, while others multiply */
        const double turn = products / plan->resident + load_issue / block_warps * TURN;
        return longest > turn ? longest : turn;
    }
    const double waits = half ? plan->resident * elements / LANES * HALF_GATHER_CYCLES : 0;
    return (longest + HIDDEN_PART * (products + issue + loads - longest) + waits) * (half || strict ? 1 : TF32_GATHER);
}

} // namespace tconv::wgrad
