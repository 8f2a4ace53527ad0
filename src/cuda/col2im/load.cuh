/*
 * A warp copies the src of its pixels to shared memory by cp.async, a pipeline stage at a time: the channels of a
 * K-block, as [channel][pixel] (NCHW) or [pixel][channel] (NHWC).
 */
#ifndef TCONV_CUDA_COL2IM_LOAD_CUH
#define TCONV_CUDA_COL2IM_LOAD_CUH

#include "tile.cuh"

namespace tconv::col2im
{

/* Pixels of a warp of the kernel for any device: two MMA tiles along M share each fragment of weights. */
constexpr int MMA_WARP_M = BLOCK_M / MMA_WARPS;

/*
 * A pipeline stage of a warp, of Hopper's kernel (hopper) or the one for any device. Its pitch leaves no bank
 * conflicts, and rows at multiples of an access. A lane's two channels of f32 are neighbours (hopper) or 4 apart.
 */
template <class Element_, bool nhwc, bool hopper, int stages> struct stage_layout {
    using Element = Element_;
    static constexpr bool NHWC = nhwc, HOPPER = hopper;
    static constexpr int STAGES = stages; /* of the pipeline */
    static constexpr int PIXELS = hopper ? (int)WARP_M : MMA_WARP_M;
    static constexpr int STEP = MMA_K_BYTES / (int)sizeof(Element); /* channels of a K step */
    static constexpr int CHANNELS = hopper ? K_STEPS * STEP : STEP;
    static constexpr int LENGTH = ACCESS_BYTES / (int)sizeof(Element); /* elements of an access */
    static constexpr int PADDING = sizeof(Element) == 2 || nhwc == hopper ? 8 : 4;
    static constexpr int PITCH = (nhwc ? CHANNELS : PIXELS) + PADDING; /* elements */
    static constexpr int ELEMENTS = PITCH * (nhwc ? PIXELS : CHANNELS);
    static constexpr int CHANNEL = nhwc ? 1 : PITCH, PIXEL = nhwc ? PITCH : 1;
    static_assert(ELEMENTS * sizeof(Element) <= STAGE_BYTES, "a stage");
};

template <class Stage> struct loader {
    using Element = typename Stage::Element;
    static constexpr bool NHWC = Stage::NHWC;
    static constexpr int LENGTH = Stage::LENGTH;
    static constexpr int ROW = (NHWC ? Stage::CHANNELS : Stage::PIXELS) / LENGTH; /* accesses along memory */
    static constexpr int LINES = 32 / ROW; /* and across it that a warp copies at once */
    static constexpr int ACCESSES = Stage::ELEMENTS / Stage::PITCH / LINES;
    static constexpr int END = Stage::STAGES * Stage::ELEMENTS;

    const Element *base; /* the group's first element */
    const Element *from; /* the lane's first access in this stage */
    Element *stages, *to;
    int64_t line;        /* elements of src from an access of the lane to the next */
    int64_t advance;     /* elements of src from a stage to the next */
    int channel, column; /* of the lane's first access in this stage */
    int ends[ACCESSES];  /* the end of channels, by access; 0 where row or column does not exist */
    int lane_channel, row, row_step, end_row, stage;
    int left; /* stages to load */

    /* Pixels of a block tile beyond a row are, on Hopper, those of more images, else of the next rows. */
    __device__ __forceinline__ void start(const parameters &layer, const block_tile &block, char *memory, int warp,
                                          int lane)
    {
        const int pixel = warp * Stage::PIXELS, beyond = pixel >> layer.row_pixels_log2;
        const int row_pixels = 1 << layer.row_pixels_log2, rows = min(layer.rows.in, block.end_quotient);
        const int image = block.first_image + (Stage::HOPPER ? beyond : 0);
        const int along = lane % ROW * LENGTH, across = lane / ROW;
        base = static_cast<const Element *>(layer.src) + image * layer.src_strides.n +
               block.group * layer.group_in * layer.src_strides.c;
        stages = reinterpret_cast<Element *>(memory) + warp * END;
        to = stages + across * Stage::PITCH + along;
        line = LINES * (NHWC ? layer.src_strides.w : layer.src_strides.c);
        advance = Stage::CHANNELS * layer.src_strides.c;
        lane_channel = NHWC ? along : across;
        column = block.first_column + (pixel & (row_pixels - 1)) + (NHWC ? across : along);
        row = block.first_row + (Stage::HOPPER ? 0 : beyond);
        row_step = Stage::HOPPER ? 1 : BLOCK_M >> layer.row_pixels_log2;
        end_row = Stage::HOPPER && image >= layer.images ? 0 : rows;
        left = Stage::HOPPER ? max(0, rows - block.first_row) * layer.k_blocks
                             : (block.end_quotient - block.first_row + row_step - 1) / row_step * layer.k_blocks;
        stage = 0;
        start_row(layer);
    }

    __device__ __forceinline__ void start_row(const parameters &layer)
    {
        channel = lane_channel;
#pragma unroll
        for (int i = 0; i < ACCESSES; i++)
            ends[i] = row < end_row && column + (NHWC ? i * LINES : 0) < layer.columns.in ? layer.group_in : 0;
        from = base + row * layer.src_strides.h + column * layer.src_strides.w + channel * layer.src_strides.c;
    }

    /* Copies words of 4 bytes, where src is not aligned to accesses. Lanes take neighbours, which are not the elements
     * of their accesses. */
    __device__ __forceinline__ void copy_words(const parameters &layer)
    {
        constexpr int WORD = WORD_BYTES / (int)sizeof(Element);
        constexpr int WORDS = ROW * LENGTH / WORD, WORD_LINES = 32 / WORDS; /* of a line; lines at once */
        const int64_t pitch = NHWC ? layer.src_strides.c : layer.src_strides.w;
        const int64_t line_pitch = NHWC ? layer.src_strides.w : layer.src_strides.c;
        const int lane = (int)threadIdx.x % 32; /* ahead of the lane's access: */
        const int along = lane % WORDS * WORD - lane % ROW * LENGTH, across = lane / WORDS - lane / ROW;
        const Element *word = from + along * pitch + across * line_pitch;
        const uint32_t word_to = shared_address(to + stage + across * Stage::PITCH + along);
#pragma unroll
        for (int i = 0; i < ACCESSES * LINES / WORD_LINES; i++) {
            const int this_channel = channel + (NHWC ? along : across + i * WORD_LINES);
            const int this_column = column + (NHWC ? across + i * WORD_LINES : along);
            const bool exists = this_channel < layer.group_in && this_column < layer.columns.in && row < end_row;
            cp_async_padded<WORD_BYTES>(word_to + i * WORD_LINES * Stage::PITCH * (int)sizeof(Element),
                                        word + i * WORD_LINES * line_pitch, exists ? WORD_BYTES : 0);
        }
    }

    /* Copies elements of 2 bytes one by one, where rows begin at odd ones. */
    __device__ __forceinline__ void copy_elements(const parameters &layer)
    {
        const int64_t pitch = NHWC ? layer.src_strides.c : layer.src_strides.w;
#pragma unroll
        for (int i = 0; i < ACCESSES; i++) {
            element_vector<Element, LENGTH> run;
#pragma unroll
            for (int k = 0; k < LENGTH; k++) {
                const int this_channel = channel + (NHWC ? k : i * LINES);
                const int this_column = column + (NHWC ? i * LINES : k);
                const bool exists = this_channel < layer.group_in && this_column < layer.columns.in && row < end_row;
                run.at[k] = exists ? from[i * line + k * pitch] : Element(0.0f);
            }
            *reinterpret_cast<element_vector<Element, LENGTH> *>(to + stage + i * LINES * Stage::PITCH) = run;
        }
    }

    __device__ __forceinline__ void copy_accesses()
    {
#pragma unroll
        for (int i = 0; i < ACCESSES; i++) {
            const bool exists = channel + (NHWC ? 0 : i * LINES) < ends[i];
            /* The rest of the line has the pixel's next channels, or other warps' pixels. */
            cp_async_line(to + stage + i * LINES * Stage::PITCH, from + i * line, exists);
        }
    }

    /* Starts to copy the next stage, if there is one, and ends a commit group in any case. */
    __device__ __forceinline__ void next(const parameters &layer)
    {
        if (left-- > 0) {
            if (layer.src_aligned)
                copy_accesses();
            else if (sizeof(Element) == 4 || layer.src_words)
                copy_words(layer);
            else if constexpr (sizeof(Element) == 2)
                copy_elements(layer);
            stage = stage == END - Stage::ELEMENTS ? 0 : stage + Stage::ELEMENTS;
            from += advance;
            channel += Stage::CHANNELS;
            if (channel >= layer.k_blocks * Stage::CHANNELS) {
                row += row_step;
                start_row(layer);
            }
        }
        cp_async_commit();
    }

    /* Starts to copy the first stages, but for one. */
    __device__ __forceinline__ void begin(const parameters &layer)
    {
#pragma unroll 1
        for (int i = 0; i < Stage::STAGES - 1; i++)
            next(layer);
    }
};

} // namespace tconv::col2im

#endif
