/* Each part of a block's work as if nothing else took time; the longest counts. */
#include "cost.h"

#include "../../core/checked.h"
#include "../gemm/shape.h"

/* The prediction of kernels by mma.sync is made of these: cycles of a multiprocessor, or of a quarter of it, and
 * instructions of a warp. */
#define MMA_CYCLES         6.4  /* an MMA takes a quarter so long */
#define LONE_WARP          1.25 /* MMAs take so many times as long where a quarter has one warp */
#define L2_BYTES           20.0 /* loaded in a cycle */
#define VECTOR_ISSUE       18.0 /* to load 32 vectors */
#define GATHER_ISSUE       5.0  /* to load 32 elements */
#define HALF_GATHER_ISSUE  4.0  /* to load 32 elements of 16 bits */
#define STEP_ISSUE         30.0 /* of a step of K, beside its MMAs and operands */
#define ROUND_ISSUE        1.0  /* to round an operand's register to TF32 */
#define SPLIT_ISSUE        2.0  /* to split it in two */
#define ADD_ISSUE          1.5  /* to add a sum of 3xTF32 to the total, every fourth step */
#define TURN               4.0  /* cycles that an instruction that copies vectors takes its warp */
#define HIDDEN_PART        0.15 /* of what is not the longest: it shows where single elements are copied */
#define TF32_GATHER        2.0  /* TF32 takes so many times as long by single elements */
#define HALF_GATHER_CYCLES 9.0  /* to load 32 elements of 16 bits, which nothing hides */

/* Kernels by wgmma, whose producer warps copy. */
#define WGMMA_PART          0.9   /* of the tensor cores' rate */
#define SHARED_BYTES        110.0 /* read and written in a cycle */
#define WARPGROUP_L2_BYTES  26.0  /* loaded in a cycle */
#define VECTOR_CYCLES       6.0   /* to copy 32 vectors */
#define UNIT_CYCLES         29.0  /* to load 32 units of a channel that are transposed in registers, */
#define TRANSPOSED_CYCLES   3.6   /* and for 32 elements of these units */
#define ELEMENT_CYCLES      16.0  /* to copy 32 elements, or units of lines */
#define HALF_ELEMENT_CYCLES 16.0  /* to copy 32 elements of 16 bits */
#define HALF_UNIT_CYCLES    32.0  /* to copy 32 units of lines of 16 bits */
#define HALF_LINES          1.5   /* the longest part takes so many times as long by lines of 16 bits */
#define TMA_ROW_CYCLES      1.5   /* TMA takes for a row of a box of 16 bits */
#define TURNED_PASSES       3.0   /* src passes through shared memory so often where it goes through registers */
#define COPIED_PASSES       2.0   /* the gradient of dst does where lanes copy it by vectors */
#define TILE_CYCLES         150.0 /* of a K-tile, beside all that */

/* Kernels by wgmma in strict f32. */
#define STRICT_WGMMA_PART 0.7
#define SPLIT_PLANES      4.0 /* src is written or read so often, beside the products */

/* Kernels by boxes. */
#define BOX_SHARED_BYTES 120.0 /* read and written in a cycle */
#define BOX_L2_BYTES     30.0  /* loaded in a cycle */
#define BOX_TILE_CYCLES  40.0

/* Returns how many times as many bytes move as are used: memory moves whole sectors, and single elements that are `apart`
 * elements apart may use a part of a sector. */
double tconv_wgrad_sector_part(const tconv_layer *layer, const planned_layer *plan, int apart)
{
    const tconv_problem *problem = &layer->problem;
    const double run = (double)apart * (double)(1 << plan->params.columns.tile_log2);
    const double sector = SECTOR_BYTES / (double)problem->element_size;
    const bool channels = plan->load == CHANNELS || plan->load == SRC_CHANNELS || plan->params.lines.src_vectors;
    return channels || run >= sector ? 1 : sector / run;
}

double tconv_wgrad_line_loads(const parameters *params, bool half)
{
    const int power = params->columns.stride & -params->columns.stride;
    return (double)(power < 8 ? power : 8) / params->lines.twins * (half ? 2 : 1);
}

/* Returns the rows of the boxes by which TMA brings the lines and src of a K-tile, which have so many elements. */
static double line_box_rows(const planned_layer *plan, double src, double dst)
{
    const parameters *params = &plan->params;
    return (params->lines.src_box_pixels > 0 ? src / params->lines.src_box_pixels : 0) +
           (params->box_bytes > 0 ? dst / params->lines.length / params->sharers : 0);
}

shared_passes tconv_wgrad_shared_passes(const planned_layer *plan)
{
    const bool turned = plan->math == NUMERICS_TF32 && plan->load == CHANNELS; /* src goes through registers */
    return (shared_passes){plan->math == NUMERICS_STRICT ? SPLIT_PLANES
                           : turned                      ? TURNED_PASSES
                                                         : 1,
                           turned && plan->params.box_bytes == 0 ? COPIED_PASSES : 1};
}

static double longer_of(double one, double other)
{
    return one > other ? one : other;
}

/* A K-tile of a kernel by wgmma. */
typedef struct wgmma_tile {
    bool lines, half, strict;
    double src, dst; /* elements */
} wgmma_tile;

static wgmma_tile find_tile(const tconv_layer *layer, const planned_layer *plan, int64_t slots)
{
    const parameters *params = &plan->params;
    const double size = (double)layer->problem.element_size, channels = plan->kernel->channels;
    const double pixels = params->k_pixels;
    wgmma_tile tile = {plan->load == LINES, layer->problem.element_size == 2, plan->math == NUMERICS_STRICT, 0, 0};
    tile.src = pixels * channels;
    tile.dst = tile.lines ? (double)(params->stage_bytes - params->src_bytes) / size
                          : (double)slots * (double)params->tiles.chunk;
    return tile;
}

/* Returns the cycles that producer warps take to copy a K-tile. */
static double copy_cycles(const tconv_layer *layer, const planned_layer *plan, const wgmma_tile *tile)
{
    const parameters *params = &plan->params;
    const double size = (double)layer->problem.element_size;
    const double vector = size / VECTOR_BYTES / WARP * VECTOR_CYCLES;
    const double element = (tile->half ? HALF_ELEMENT_CYCLES : ELEMENT_CYCLES) / WARP;
    double src = vector, dst = element; /* of an element */
    if (tile->lines && tile->half && params->src_unit > 1)
        src = (UNIT_CYCLES / params->src_unit + TRANSPOSED_CYCLES) / WARP;
    else if (plan->load == ELEMENTS || (tile->lines && !params->lines.src_vectors))
        src = tile->half ? element : element / params->src_unit;
    if (plan->load == CHANNELS)
        dst = vector;
    const bool brings_src = tile->lines && params->lines.src_box_pixels > 0; /* TMA does */
    const double copies_src = brings_src ? (tile->strict ? tile->src * vector : 0) : tile->src * src;
    double copies_dst = 0;
    if (params->box_bytes == 0 && tile->lines)
        copies_dst = tile->dst / params->lines.unit * (tile->half ? HALF_UNIT_CYCLES / WARP : element);
    else if (params->box_bytes == 0)
        copies_dst = tile->dst * dst;
    return copies_src + copies_dst;
}

double tconv_wgrad_wgmma_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots)
{
    const parameters *params = &plan->params;
    const wgmma_tile tile = find_tile(layer, plan, slots);
    const bool strict = tile.strict, lines = tile.lines;
    const double size = (double)layer->problem.element_size, chunk = (double)params->tiles.chunk;
    const double channels = plan->kernel->channels, pairs = plan->kernel->pairs, pixels = params->k_pixels;
    const double existing = (double)(params->tiles.rows.group_taps * params->tiles.columns.group_taps) * chunk;
    const double tiles = strict ? (double)tconv_ceil_div((int64_t)existing, MMA_M) : pairs / MMA_M;
    const double steps = pixels * size / MMA_K_BYTES, mmas = steps * tiles;
    const double products = mmas * channels / 2 * (strict ? WGRAD_STRICT_PRODUCTS / STRICT_WGMMA_PART : 1 / WGMMA_PART);
    const double l2 =
        (tile.src * tconv_wgrad_sector_part(layer, plan, 1) +
         tile.dst * (lines ? 1.0 / params->sharers : tconv_wgrad_sector_part(layer, plan, params->columns.stride))) *
        size / WARPGROUP_L2_BYTES;
    const shared_passes passes = tconv_wgrad_shared_passes(plan);
    const double operands = mmas * (MMA_A_BYTES * (lines ? tconv_wgrad_line_loads(params, tile.half) : 1) +
                                    channels * MMA_K_BYTES * (strict ? WGRAD_STRICT_PRODUCTS : 1));
    const double shared = (operands + (tile.src * passes.src + tile.dst * passes.dst) * size) / SHARED_BYTES;
    const double longest = longer_of(longer_of(products, shared), longer_of(l2, copy_cycles(layer, plan, &tile)));
    if (!lines || !tile.half)
        return longest + TILE_CYCLES;
    const double rows = line_box_rows(plan, tile.src, tile.dst) * TMA_ROW_CYCLES;
    return longer_of(longest, rows) * HALF_LINES + TILE_CYCLES;
}

double tconv_wgrad_box_cycles(const planned_layer *plan, int64_t slots)
{
    const parameters *params = &plan->params;
    const double channels = plan->kernel->channels, mmas = BOX_PIXELS / 16.0 * (double)plan->kernel->pairs / MMA_M;
    const double bytes = (BOX_PIXELS * channels + (double)slots * (double)params->tiles.chunk) * 2;
    const double products = mmas * channels / 2 / WGMMA_PART;
    const double shared = (mmas * (MMA_A_BYTES + channels * MMA_K_BYTES) + bytes) / BOX_SHARED_BYTES;
    return longer_of(longer_of(products, shared), bytes / BOX_L2_BYTES) + BOX_TILE_CYCLES;
}

double tconv_wgrad_mma_cycles(const tconv_layer *layer, const planned_layer *plan, int64_t slots)
{
    const parameters *params = &plan->params;
    const bool half = layer->problem.element_size == 2, strict = plan->math == NUMERICS_STRICT;
    const int block_warps = plan->threads / WARP, warps = block_warps * plan->resident,
              height = plan->kernel->channels / 16, width = plan->kernel->pairs / 8;
    const double steps = (double)params->k_pixels / (half ? 16 : 8), mmas = height * width * (strict ? 3 : 1);
    const double factors = half ? 0 : (4 * height + 2 * width) * (strict ? SPLIT_ISSUE : ROUND_ISSUE);
    const double sums = strict ? height * width * 4 * ADD_ISSUE / STRICT_STEPS : 0;
    const double rounds = (double)tconv_ceil_div(warps, 4);
    const double products = steps * mmas * MMA_CYCLES * rounds * (warps <= 4 ? LONE_WARP : 1);
    const double src = (double)params->k_pixels * params->tiles.block_m,
                 dst = (double)slots * (double)params->tiles.chunk;
    const double elements = src + dst, size = (double)layer->problem.element_size;
    const double bytes = (src * tconv_wgrad_sector_part(layer, plan, 1) +
                          dst * tconv_wgrad_sector_part(layer, plan, params->columns.stride)) *
                         size;
    const bool vectors = plan->load == CHANNELS;
    const double load_issue =
        vectors ? elements * size / 512 * VECTOR_ISSUE : elements / WARP * (half ? HALF_GATHER_ISSUE : GATHER_ISSUE);
    const double issue = rounds * steps * (mmas + factors + sums + STEP_ISSUE) + plan->resident * load_issue / 4;
    const double loads = plan->resident * bytes / L2_BYTES;
    double longest = products > issue ? products : issue;
    longest = longest > loads ? longest : loads;
    if (vectors) { /* a block waits for its copies in part, while others multiply */
        const double turn = products / plan->resident + load_issue / block_warps * TURN;
        return longest > turn ? longest : turn;
    }
    const double waits = half ? plan->resident * elements / WARP * HALF_GATHER_CYCLES : 0;
    return (longest + HIDDEN_PART * (products + issue + loads - longest) + waits) * (half || strict ? 1 : TF32_GATHER);
}
