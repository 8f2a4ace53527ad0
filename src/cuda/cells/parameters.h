/*
 * Between the host side of the cells algorithm (cells.cu, cells_plan.cu) and its kernels: what a kernel is told, and which
 * there are.
 *
 * Words. A cell is a small block of outputs, rows x columns x channels, that one position computes: its sums lie side by side
 * on N, [column][row][channel]. Cells tile dst; the input of neighbouring cells is `row_step` rows or one column apart. An
 * entry is one shift of the input and the window of a cell's sums that have a tap there: the input at that shift, read from
 * its plane by channels, times the taps' weights. The entries of a cell are its program; a slot is the weights of some of
 * them for one chunk of input channels, a stage the input of a tile of positions for one chunk.
 */
#ifndef TCONV_CUDA_CELLS_PARAMETERS_H
#define TCONV_CUDA_CELLS_PARAMETERS_H

#include <cuda.h>

#include "../../core/impl.h"

namespace tconv::cells
{

#define TCONV_CELLS_GROUPS    2   /* warpgroups that multiply */
#define TCONV_CELLS_CLUSTER   2   /* blocks that share weights */
#define TCONV_CELLS_POSITIONS 128 /* of a tile: 64 of each warpgroup */
#define TCONV_CELLS_THREADS   384 /* with those that load */
#define TCONV_CELLS_STEP      8   /* input channels of one product */
#define TCONV_CELLS_ALIGNMENT 4   /* columns: a stage begins at a multiple */
#define TCONV_CELLS_BUFFERS   8   /* the most of one kind */
#define TCONV_CELLS_PROGRAMS  8   /* the most: one for each row phase where a cell has one row */
#define TCONV_CELLS_SLOTS     64  /* of all programs */
#define TCONV_CELLS_ENTRIES   320
#define TCONV_CELLS_TAPS      320

/* Sums of a position. In strict f32 a warpgroup has as many beside them, of the entry that is multiplied. */
#define TCONV_CELLS_SUMS(strict) ((strict) ? 128 : 256)
/*
 * In strict f32 the sums of entries are added in f32, which may be off by a quarter of their number (where they are alike):
 * within the bound of 16 for so many. Longer sums are made of segments, each begun at zero, whose sums are put aside in
 * shared memory and added (find_segments in cells_plan.cu).
 */
#define TCONV_CELLS_MAX_STROKES 48
#define TCONV_CELLS_ASIDE_BYTES (TCONV_CELLS_GROUPS * 64 * TCONV_CELLS_SUMS(true) * 4)

/*
 * TF32 with weights that stay in shared memory (cells_resident.cuh): pairs of warpgroups that multiply in turn, units of a
 * tile, one for each warpgroup of a pair; positions of a unit, and floats from a channel of it to the next, so that no
 * two of those that are loaded at once share a bank.
 */
#define TCONV_CELLS_TURNS            2
#define TCONV_CELLS_UNITS            2
#define TCONV_CELLS_UNIT             64
#define TCONV_CELLS_UNIT_PITCH       72
#define TCONV_CELLS_RESIDENT_SUMS    128
#define TCONV_CELLS_RESIDENT_CHUNKS  16  /* the most */
#define TCONV_CELLS_RESIDENT_THREADS 640 /* with those that load */

/*
 * Which of a warp's 16 positions row `row` of M is (0 to 7) and, where half is 1, row + 8, which are one thread's. As
 * neighbours they are stored by one vector. They are in turn for the first four rows, the later one first for the others, so
 * that the eight positions of a half, which are loaded at once, lie in 8 of every 16 banks that no other of four
 * channels needs, 8 banks apart: 0 2 4 6 9 11 13 15.
 */
static inline __host__ __device__ int tconv_cells_position(bool neighbours, int row, int half)
{
    return neighbours ? 2 * row + (half ^ row >> 2) : row + 8 * half;
}

/* Flags of an entry: the last of its slot, the last of a stage. */
#define TCONV_CELLS_SLOT_ENDS  1
#define TCONV_CELLS_STAGE_ENDS 2

struct tconv_cells_entry {
    uint16_t pixel;         /* of the stage, from a position's own: floats */
    uint8_t window, flags;  /* window: its first block of sums * 16 + how many */
    uint16_t weights, rows; /* rows of N: where the window begins in the slot; all of the slot */
};

struct tconv_cells_slot {
    uint16_t rows;      /* of N */
    uint16_t first_row; /* of its program's rows */
};

struct tconv_cells_program {
    int first_slot, end_slot, first_entry, end_entry;
    int first_row, rows; /* of N, of all slots; first_row: of all programs */
    int residue;         /* output row of a cell's first row, less out_row_step for each cell */
};

struct tconv_cells_parameters {
    const void *src, *weights /* packed, by slots */, *bias /* or NULL */;
    void *dst;
    tconv_strides from, to; /* of src and dst, in elements */
    bool by_boxes;          /* whether the copy engine can read src; else the loading warps read it */
    bool vectors;           /* whether a cell's columns can be stored at once */
    bool pair_vectors;      /* whether two neighbours' can be where the first is at a multiple of so many */
    bool neighbours;        /* whether a thread's two positions are neighbours (tconv_cells_position) */

    int groups, group_in, group_out, chunk_channels, chunks, steps;
    int segment_chunks; /* after which sums are put aside; all chunks but in long sums of strict f32 */
    int channels, channel_shift, channel_tiles; /* output channels of a cell, their binary logarithm; cells for all */
    int images, in_rows, in_columns;            /* of src; flat: one row of an image */
    int out_rows, out_columns;
    int flat_columns; /* where positions run on over the rows of an image, the columns of one; else 0 */
    int image_tiles, row_tiles, column_tiles, place_tiles /* of all these */;
    int tiles; /* clusters' tiles: of all groups, channels and programs, CLUSTER places each */
    int tile_images, tile_rows, tile_columns; /* in positions */
    int cell_rows, cell_columns, row_step, out_row_step;
    int first_row, first_column;       /* of a stage, from the tile's first position */
    int row_pitch, plane, image_pitch; /* floats of a stage: from a row to the next, a channel, an image */

    /* Where weights stay in shared memory: slices of N, of all groups, channels and programs; `sharing` of them, 1 or 2, for a
     * team of blocks, which takes every team_step-th of those sets, and of its tiles every tile_step-th. */
    bool resident, boxes_shared;
    int slices, sets, sharing, team_step, tile_step;
    int units, image_units /* of one image */;
    int rest_columns, rest_images,
        rest_pitch; /* of a unit of what is left of images: of each of them, how many, of a box */

    int programs, all_rows /* of N */;
    tconv_cells_program program[TCONV_CELLS_PROGRAMS];
    int stages, slots;
    uint32_t stage_bytes, slot_bytes /* the largest */, row_bytes /* of one row of N: all steps and planes */;
    tconv_cells_slot slot[TCONV_CELLS_SLOTS];
    tconv_cells_entry entry[TCONV_CELLS_ENTRIES];
};

/* Where a tile's position is read in a plane of its stage: floats from the beginning. */
static inline __host__ __device__ int tconv_cells_pixel(const tconv_cells_parameters *layer, int position)
{
    const int row = position / layer->tile_columns, image = row / layer->tile_rows;
    const int pixel = image * layer->image_pitch + row % layer->tile_rows * layer->row_step * layer->row_pitch +
                      position % layer->tile_columns;
    return image < layer->tile_images ? pixel : 0;
}

typedef void tconv_cells_kernel(tconv_cells_parameters layer, CUtensorMap map);

/* By the sums of a block, of which windows are made, and the steps of a chunk. A block of all sums: for layers whose
 * programs are one entry each, with taps for all of them. */
#define TCONV_CELLS_SHAPES 8
struct tconv_cells_shape {
    int block, steps; /* 0: no such shape */
    tconv_cells_kernel *kernel;
};
extern const tconv_cells_shape tconv_cells_tf32_shapes[TCONV_CELLS_SHAPES];
extern const tconv_cells_shape tconv_cells_strict_shapes[TCONV_CELLS_SHAPES];

/* TF32, weights stay in shared memory: by the columns of a cell, 1, 2 or 4. rest_map: of boxes of what is left of images. */
typedef void tconv_cells_resident_kernel(tconv_cells_parameters layer, CUtensorMap main_map, CUtensorMap rest_map);
tconv_cells_resident_kernel *tconv_cells_find_resident(int cell_columns);

/* How the weights lie: what the packing kernel is told beside the layer. Tap i of a slot has rows i * channels and on. */
struct tconv_cells_packing {
    tconv_weight_strides from;
    int64_t rows; /* of 16 bytes, of one plane */
    struct {
        int16_t row, column; /* of the kernel */
    } tap[TCONV_CELLS_TAPS];
    uint16_t first_tap[TCONV_CELLS_SLOTS];
};

tconv_status tconv_cells_pack(const tconv_cells_parameters *layer, const tconv_cells_packing *packing, bool strict,
                              const void *weights, void *packed, void *stream, tconv_issue *issue);

} // namespace tconv::cells

#endif
