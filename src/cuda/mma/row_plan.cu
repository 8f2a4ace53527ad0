/* How a layer is cut up for the row kernel: tiles of columns as wide as shared memory allows, and strips of rows that
 * end together; and the tables of taps. */
#include "plan.h"

namespace tconv::mma
{

namespace
{

constexpr int64_t MAX_WAVES = 8;     /* that are tried: of more, the last one is a small part */
constexpr int64_t LEAST_ZEROS = 256; /* elements, where a row of them does not fit: a few bulk stores a row */

/* Channels of src in shared memory begin in different banks for the lanes of a fragment. */
constexpr int64_t BANKS = 32;
constexpr int64_t BANK_BYTES = 4;
constexpr int64_t CHANNEL_SKEW = 8; /* elements: their pitch is an odd multiple */

/* How far the first tap of a phase reads back from its position. */
int64_t back_of(const tconv_axis *axis, const tconv_phase *phase)
{
    return (phase->residue + axis->pad) / axis->stride - phase->first_shift;
}

int64_t max_back(const tconv_axis *axis, const tconv_phase_table *table)
{
    int64_t most = 0;
    for (int64_t i = 0; i < table->count; i++)
        most = tconv_max(most, back_of(axis, &table->phases[i]) + (table->phases[i].taps - 1) * table->shift_step);
    return most;
}

struct row_planner {
    const tconv_layer *const layer;
    const tconv_problem *const problem;
    const int64_t element;   /* bytes */
    const int64_t length;    /* elements that a thread copies or stores at once */
    const int64_t sector;    /* elements */
    const int64_t steps;     /* of the longest sum, at one tap */
    const int64_t positions; /* of a warp */
    const row_sums sums;
    row_parameters *const params; /* what is planned */

    row_planner(const tconv_layer *of, row_parameters *made)
        : layer(of), problem(&of->problem), element((int64_t)problem->element_size), length(VECTOR_BYTES / element),
          sector(SECTOR_BYTES / element), steps(tconv_ceil_div(problem->group_in * element, MMA_K_BYTES)),
          positions(row_mmas_n((int)problem->w.stride) * MMA_N), sums(choose_sums()), params(made)
    {
    }

    /* Steps of the longest sum. */
    int64_t additions() const
    {
        return layer->rows.max_taps * layer->columns.max_taps * steps;
    }

    row_sums choose_sums() const
    {
        if (problem->dtype == TCONV_F32)
            return tconv_cuda_is_strict(layer) ? ADDED : DIRECT;
        return additions() > DIRECT_STEPS ? ADDED : problem->group_in <= NARROW_CHANNELS ? NARROW : DIRECT;
    }

    const char *refusal() const
    {
        if (layer->target.compute_capability < MIN_COMPUTE_CAPABILITY)
            return "needs compute capability 8.0";
        if (problem->layout != TCONV_NCHW)
            return "NHWC";
        if (!tconv_cuda_is_small_axis(&problem->h) || !tconv_cuda_is_small_axis(&problem->w))
            return "a stride above 16, or an extent too large for 32-bit coordinates";
        if (problem->w.stride == 7 || problem->w.stride > 8)
            return "a column stride of 7, or above 8";
        if (max_back(&problem->w, &layer->columns) >= MAX_BACKS)
            return "taps that read more than 16 columns";
        if (problem->h.kernel * problem->w.kernel * problem->group_in >= SMALL_AXIS_EXTENT ||
            max_back(&problem->h, &layer->rows) * problem->group_in >= SMALL_AXIS_EXTENT ||
            problem->in_channels >= SMALL_AXIS_EXTENT || problem->out_channels >= SMALL_AXIS_EXTENT)
            return "too many weights or channels for 32-bit numbers";
        if (tconv_cuda_is_strict(layer) && additions() > MAX_ADDITIONS)
            return "strict f32 sums of more than 48 taps by 8 channels";
        return NULL;
    }

    /* Fills in what depends neither on tiles nor on the taps of columns. Positions are those of the padded outputs that
     * exist. */
    void fill_layer() const
    {
        params->src_image = problem->src.n;
        params->src_channel = problem->src.c;
        params->dst_image = problem->dst.n;
        params->dst_channel = problem->dst.c;
        params->in_rows = (int)problem->h.in;
        params->in_columns = (int)problem->w.in;
        params->out_rows = (int)problem->h.out;
        params->out_columns = (int)problem->w.out;
        params->group_in = (int)problem->group_in;
        params->group_out = (int)problem->group_out;
        params->groups = (int)problem->groups;
        params->m_tiles = (int)tconv_ceil_div(problem->group_out, BLOCK_M);
        params->row_stride = (int)problem->h.stride;
        params->row_pad = (int)problem->h.pad;
        params->column_pad = (int)problem->w.pad;
        params->row_kernel_step = (int)layer->rows.kernel_step;
        params->row_back_step = (int)layer->rows.shift_step;
        params->max_row_back = (int)max_back(&problem->h, &layer->rows);
        params->max_column_back = (int)max_back(&problem->w, &layer->columns);
        params->first_row = (int)(problem->h.pad / problem->h.stride);
        params->end_row = (int)((problem->h.pad + problem->h.out - 1) / problem->h.stride + 1);
        params->first_column = (int)(problem->w.pad / problem->w.stride);
        params->end_column = (int)((problem->w.pad + problem->w.out - 1) / problem->w.stride + 1);
        params->steps = (int)steps;
        params->stages = params->max_row_back + 2; /* and the next row, which is on its way */
        params->stage_channels = sums == NARROW ? NARROW_CHANNELS : (int)(steps * (MMA_K_BYTES / element));
        for (int64_t i = 0; i < layer->rows.count; i++) {
            const tconv_phase *phase = &layer->rows.phases[i];
            const int64_t row_phase = (phase->residue + problem->h.pad) % problem->h.stride;
            params->row_taps[row_phase] = (int)phase->taps;
            params->row_kernel[row_phase] = (int)phase->first_kernel;
            params->row_back[row_phase] = (int)back_of(&problem->h, phase);
        }
    }

    /* Fills in the taps of columns. */
    void fill_columns() const
    {
        for (int64_t i = 0; i < layer->columns.count; i++) {
            const tconv_phase *phase = &layer->columns.phases[i];
            const int64_t column_phase = (phase->residue + problem->w.pad) % problem->w.stride;
            for (int64_t tap = 0; tap < phase->taps; tap++) {
                const int64_t back = back_of(&problem->w, phase) + tap * layer->columns.shift_step;
                params->column_phases[back] |= 1 << column_phase;
                params->kernel_column[back][column_phase] =
                    (short)(phase->first_kernel + tap * layer->columns.kernel_step);
            }
            params->column_taps += (int)phase->taps;
        }
    }

    int64_t weight_vectors() const
    {
        return problem->h.kernel * params->column_taps * steps * (tconv_cuda_is_strict(layer) ? 2 : 1) * LANES;
    }

    /* Fills in how much weights and src are, which fit in shared memory. */
    void fill_sizes() const
    {
        params->stage_elements = params->stage_channels * params->src_pitch;
        params->weight_vectors = (int)weight_vectors();
        params->kernel_row_vectors = (int)(params->weight_vectors / problem->h.kernel);
        const int tap_vectors = params->column_taps > 0 ? params->kernel_row_vectors / params->column_taps : 0;
        for (int back = 1; back < MAX_BACKS; back++)
            params->column_vectors[back] =
                params->column_vectors[back - 1] +
                __builtin_popcount((unsigned int)params->column_phases[back - 1]) * tap_vectors;
    }

    int64_t shared_bytes_of(const row_parameters *of) const
    {
        const int64_t src = (int64_t)of->stages * of->stage_channels * of->src_pitch;
        return weight_vectors() * VECTOR_BYTES + (src + BLOCK_M * of->staging_pitch + of->zeros) * element +
               BLOCK_M * SECTOR_BYTES;
    }

    /* How many lanes meet in one bank when sums are staged: lane l has channel l / 4, from output 2 * (l % 4) * stride
     * on. */
    int64_t conflicts_of(int64_t pitch) const
    {
        const int64_t bytes = element * (problem->dst.c % 2 == 0 ? 2 : 1);
        const int64_t access = tconv_max(bytes, BANK_BYTES), accesses = BANKS * BANK_BYTES / access;
        int64_t lanes[BANKS] = {}, most = 0;
        for (int64_t lane = 0; lane < LANES; lane++) {
            const int64_t at = (lane / 4 * pitch + lane % 4 * 2 * problem->w.stride) * element;
            most = tconv_max(most, ++lanes[at / access % accesses]);
        }
        return most;
    }

    /* The pitch of at least so many elements that goes with dst and has the fewest bank conflicts. */
    int64_t choose_pitch(int64_t elements) const
    {
        const int64_t least = elements + (problem->dst.c % sector - elements % sector + sector) % sector;
        int64_t best = least;
        for (int64_t pitch = least; pitch < least + BANKS * BANK_BYTES / element; pitch += sector)
            if (conflicts_of(pitch) < conflicts_of(best))
                best = pitch;
        return best;
    }

    /* Fills in what depends on the columns of a tile: those of so many warps. */
    void divide_columns(int64_t warps) const
    {
        const int64_t columns = warps * positions, outputs = columns * problem->w.stride;
        params->tile_columns = (int)columns;
        params->column_tiles = (int)tconv_ceil_div(params->end_column - params->first_column, columns);
        params->src_loaded = (int)round_up(columns + params->max_column_back + length - 1, length);
        params->src_pitch = (int)round_up((int64_t)params->src_loaded, CHANNEL_SKEW);
        if (params->src_pitch % (2 * CHANNEL_SKEW) == 0)
            params->src_pitch += (int)CHANNEL_SKEW;
        params->staging_pitch = (int)choose_pitch(outputs + sector);
        params->zeros = layer->rows.bias_only > 0 ? (int)round_up(outputs, sector) : 0;
        const int64_t together = problem->dtype == TCONV_F32 ? 1 : 2; /* channels that are copied together */
        const int64_t copy_warps = tconv_max(warps / tconv_ceil_div(problem->group_in, together), 1);
        params->copy_warps = (int)copy_warps;
        params->copy_channel_step = (int)(warps / copy_warps * together);
        params->copy_column_step = (int)(copy_warps * LANES * length);
        params->joins_rows = params->column_tiles == 1 && problem->w.out >= 2 * sector;
    }

    /* Warps of a block: as many as there are columns for, but so that enough blocks share a multiprocessor, if they
     * can. */
    bool choose_columns() const
    {
        const int64_t all = tconv_ceil_div(params->end_column - params->first_column, positions);
        const int64_t most_bytes = layer->target.shared_bytes;
        for (int64_t bytes : {(most_bytes + SHARED_RESERVED) / MIN_BLOCKS - SHARED_RESERVED, most_bytes})
            /* Tiles as even as can be: each number of warps that they may then have. */
            for (int64_t most = MAX_WARPS; most > 0; most--) {
                divide_columns(tconv_ceil_div(all, tconv_ceil_div(all, most)));
                if (shared_bytes_of(params) > bytes)
                    params->zeros = (int)tconv_min(params->zeros, LEAST_ZEROS);
                if (shared_bytes_of(params) <= bytes)
                    return true;
            }
        return false;
    }

    /* Counts the blocks that share a multiprocessor. */
    int64_t resident_of(const row_parameters *of) const
    {
        const int64_t blocks = row_max_blocks(problem->element_size, sums, (int)problem->w.stride);
        return tconv_min((layer->target.shared_bytes + SHARED_RESERVED) / (shared_bytes_of(of) + SHARED_RESERVED),
                         blocks * MAX_WARPS / (of->tile_columns / positions));
    }

    /* Rows without taps that follow those of a row phase. */
    int bias_rows_behind(int row_phase) const
    {
        int bias_rows = 0;
        while (bias_rows < params->row_stride &&
               params->row_taps[(row_phase + bias_rows + 1) % params->row_stride] == 0)
            bias_rows++;
        return bias_rows;
    }

    /* Has rows without taps written together with the row before, where room for them costs no block. */
    void join_bias_rows() const
    {
        row_parameters joined = *params;
        for (int row_phase = 0; row_phase < params->row_stride; row_phase++) {
            joined.bias_rows_after[row_phase] = params->row_taps[row_phase] > 0 ? bias_rows_behind(row_phase) : 0;
            joined.bias_rows = (int)tconv_max(joined.bias_rows, joined.bias_rows_after[row_phase]);
        }
        joined.staging_pitch =
            (int)choose_pitch(params->tile_columns * problem->w.stride * (joined.bias_rows + 1) + 2 * sector);
        joined.zeros = (int)tconv_min(params->zeros, LEAST_ZEROS);
        if (params->joins_rows && joined.bias_rows > 0 && resident_of(&joined) >= resident_of(params))
            *params = joined;
    }

    /* Divides the rows into strips, so that the multiprocessors compute all blocks in a few whole waves and the least
     * time. */
    void divide_rows(int64_t places) const
    {
        const int64_t rows = params->end_row - params->first_row;
        const int64_t others = tconv_max(problem->batch, 1) * problem->groups * params->column_tiles * params->m_tiles;
        int64_t best = INT64_MAX;
        for (int64_t waves = 1; waves <= MAX_WAVES; waves++) {
            const int64_t strips = tconv_min(tconv_max(places * waves / others, 1), rows);
            const int64_t strip_rows = tconv_ceil_div(rows, strips);
            const int64_t taken = tconv_ceil_div(others * tconv_ceil_div(rows, strip_rows), places);
            const int64_t time = taken * (strip_rows + params->max_row_back + 1);
            if (time < best) {
                best = time;
                params->strip_rows = (int)strip_rows;
            }
        }
        params->strips = (int)tconv_ceil_div(rows, params->strip_rows);
    }

    row_kernel kernel() const
    {
        return problem->dtype == TCONV_F16    ? f16_row_kernel(sums, problem->w.stride)
               : problem->dtype == TCONV_BF16 ? bf16_row_kernel(sums, problem->w.stride)
               : sums == ADDED                ? strict_row_kernel(problem->w.stride)
                                              : tf32_row_kernel(problem->w.stride);
    }
};

} // namespace

const char *plan_rows(const tconv_layer *layer, planned_rows *made)
{
    const tconv_problem *problem = &layer->problem;
    row_parameters *params = &made->params;
    const row_planner planner(layer, params);
    const char *why = planner.refusal();
    if (why != NULL)
        return why;
    planner.fill_layer();
    planner.fill_columns();
    if (!planner.choose_columns())
        return "weights, or rows of src, too many for shared memory";
    const int64_t tiles = (int64_t)params->column_tiles * params->m_tiles;
    if (problem->batch * problem->groups > INT32_MAX / (params->end_row - params->first_row) / tiles)
        return "too many images for 32-bit numbers of blocks";
    planner.fill_sizes();
    planner.join_bias_rows();
    made->resident = planner.resident_of(params);
    planner.divide_rows(layer->target.multiprocessors * made->resident);

    params->src_aligned = problem->src.n % planner.length == 0 && problem->src.c % planner.length == 0 &&
                          problem->w.in % planner.length == 0;
    params->staging_pairs = problem->dst.c % 2 == 0;
    made->sums = planner.sums;
    made->grid.kernel = (const void *)planner.kernel();
    made->grid.blocks = problem->batch * problem->groups * params->strips * tiles;
    made->grid.threads = (int)(params->tile_columns / planner.positions * LANES);
    made->grid.shared_bytes = planner.shared_bytes_of(params);
    /* Without weights packing launches nothing. */
    made->grid.overlaps = params->weight_vectors > 0 && layer->target.compute_capability >= DEPENDENT_LAUNCH_CAPABILITY;
    return NULL;
}

} // namespace tconv::mma
