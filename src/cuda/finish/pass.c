/* Launches the kernels that widen, and that make outputs: a thread takes neighbours of a line, as many as both tensors have
 * at multiples of so many. */
#include "pass.h"

#include "../../core/checked.h"
#include "../hardware.h"
#include "../runtime/launch.h"

/* Returns whether an address is a multiple of a vector of elements of so many bytes, or of what a thread loads at once. */
static bool is_aligned(const void *address, int64_t element_bytes)
{
    return (uintptr_t)address % (uintptr_t)tconv_min(VECTOR * element_bytes, VECTOR_BYTES) == 0;
}

/* Returns whether elements of so many bytes each, here and there, can be taken as vectors. */
static bool takes_vectors(const walk *elements, int64_t from_bytes, int64_t to_bytes)
{
    const int64_t steps =
        elements->elements | elements->from_image | elements->from_line | elements->to_image | elements->to_line;
    return steps % VECTOR == 0 && is_aligned(elements->from, from_bytes) && is_aligned(elements->to, to_bytes);
}

/* Launches a kernel on elements; its parameter is a walk over them, or begins with one. */
static tconv_status launch(const void *kernel, bool vectors, const walk *elements, void *parameter, void *stream,
                           tconv_issue *issue)
{
    const int64_t count = elements->images * elements->lines * (elements->elements / (vectors ? VECTOR : 1));
    void *arguments[] = {parameter};
    return tconv_launch_blocks(kernel, tconv_ceil_div(count, THREADS), THREADS, arguments, stream, issue, false);
}

tconv_status tconv_finish_widen(tconv_dtype dtype, const walk *elements, void *stream, tconv_issue *issue)
{
    const bool vectors = takes_vectors(elements, (int64_t)tconv_dtype_size(dtype), (int64_t)sizeof(float));
    walk own = *elements;
    return launch(tconv_finish_widen_kernel(dtype, vectors), vectors, elements, &own, stream, issue);
}

/* Returns whether operands can be taken as vectors: elements of the addend, and numbers of channels where neighbours are
 * channels. */
static bool takes_operand_vectors(tconv_dtype dtype, const posts_walk *outputs)
{
    return (outputs->addend_image | outputs->addend_line) % VECTOR == 0 &&
           is_aligned(outputs->addend, (int64_t)tconv_dtype_size(dtype)) &&
           (outputs->sums.lines_are_channels || tconv_cuda_posts_begin_at_multiples(&outputs->steps, VECTOR_BYTES));
}

tconv_status tconv_finish_outputs(tconv_dtype dtype, bool exact, const posts_walk *outputs, void *stream,
                                  tconv_issue *issue)
{
    const bool vectors = dtype != TCONV_F64 &&
                         takes_vectors(&outputs->sums, (int64_t)sizeof(float), (int64_t)tconv_dtype_size(dtype)) &&
                         takes_operand_vectors(dtype, outputs);
    posts_walk own = *outputs;
    return launch(tconv_finish_posts_kernel(dtype, exact, vectors), vectors, &outputs->sums, &own, stream, issue);
}
