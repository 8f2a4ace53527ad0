/* Streams are held up by a host function that waits for a flag, for at most HOLD_SECONDS. There are also CUDA calls
 * that must succeed. */
#ifndef TCONV_TESTS_HOLD_H
#define TCONV_TESTS_HOLD_H

#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>

#define HOLD_SECONDS 20

#define expect_cuda(call)                                                                                              \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        cr_assert_eq(error_, cudaSuccess, "%s: %s", #call, cudaGetErrorString(error_));                                \
    } while (0)

/* Holds streams up until it is let go, or gives up. */
struct hold {
    atomic_bool let_go, gave_up;
};

/* Initialises hold; must precede hold_up. */
void hold_init(struct hold *hold);

/* Makes later work on stream wait for let_go. hold must live until the stream has finished. */
void hold_up(struct hold *hold, cudaStream_t stream);
void let_go(struct hold *hold);

/* Whether a stream went on without let_go. The caller must have waited for the stream. */
bool hold_gave_up(const struct hold *hold);

#endif
