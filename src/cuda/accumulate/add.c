/* Launches the kernels that widen and add: a thread takes neighbours of a line, as many as both tensors have at
 * multiples of so many. */
#include "add.h"

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

static tconv_status launch(const void *kernel, bool vectors, const walk *elements, void *stream, tconv_issue *issue)
{
    const int64_t count = elements->images * elements->lines * (elements->elements / (vectors ? VECTOR : 1));
    walk own = *elements;
    void *arguments[] = {&own};
    return tconv_launch_blocks(kernel, tconv_ceil_div(count, THREADS), THREADS, arguments, stream, issue, false);
}

tconv_status tconv_accumulate_widen(tconv_dtype dtype, const walk *elements, void *stream, tconv_issue *issue)
{
    const bool vectors = takes_vectors(elements, (int64_t)tconv_dtype_size(dtype), (int64_t)sizeof(float));
    return launch(tconv_accumulate_widen_kernel(dtype, vectors), vectors, elements, stream, issue);
}

tconv_status tconv_accumulate_add(tconv_dtype dtype, const walk *elements, void *stream, tconv_issue *issue)
{
    const int64_t size = (int64_t)tconv_dtype_size(dtype);
    const bool vectors = takes_vectors(elements, tconv_max(size, (int64_t)sizeof(float)), size);
    return launch(tconv_accumulate_add_kernel(dtype, vectors), vectors, elements, stream, issue);
}
