/*
 * A case is a layer with the tensors that its operation reads and the right answer for those that it writes. This
 * header also has the functions that run a case and judge its output.
 *
 * The answer is computed by the implementation "cpu_reference" on a dense float64 copy of the case, and the error
 * bound, the sum of the absolute values of an element's terms, by running it again on absolute values; of a layer with
 * depth both come straight from the formula. Both are of the sum: the judge takes the sum through the layer's post-ops (post.h). Gaps of slices,
 * the room around every tensor and the outputs hold bytes 0xFF before the run: a NaN in every dtype, so that an element
 * that is read by mistake, or left unwritten, shows. Outputs that a layer adds to hold random numbers.
 */
#ifndef TCONV_HARNESS_CASE_H
#define TCONV_HARNESS_CASE_H

#include "layer.h"

/* A tensor in host memory with guard bytes on both sides. data is aligned to its element and often to no more. */
typedef struct harness_buffer {
    unsigned char *memory; /* the whole allocation, owned */
    size_t bytes;          /* of the whole allocation */
    size_t offset;         /* of data, from memory on */
    void *data;            /* memory + offset */
} harness_buffer;

/* An element of a tensor that is written, a place in the shape of its view, and its right answer. */
typedef struct harness_sample {
    int64_t at[4];
    double value, bound;
} harness_sample;

/* The values that the tensors hold. */
typedef enum harness_fill {
    HARNESS_INTEGERS, /* small integers (src or weights up to 1024 where there is room): exact in the dtype and, of f32, in TF32,
                         products and sums exact in f32, so that the result, rounded once to the dtype, has one right
                         answer on every backend */
    HARNESS_REALS /* uniform in [-1, 1), rounded to the dtype */
} harness_fill;

/* The right answer for one tensor. */
typedef struct harness_answer {
    double *expected; /* dense, in the order of the view's shape, before post-ops and not rounded to the dtype; NULL
                                with no image */
    double *bound;    /* likewise, for reals; NULL for integers */
    harness_sample *samples; /* for a case that is judged at samples alone; NULL where expected is there */
    int64_t sample_count;
} harness_answer;

typedef struct harness_case {
    harness_layer layer;
    harness_fill fill;
    union {
        struct {
            harness_view src_view, weights_view, bias_view, dst_view; /* views of operands of post-ops follow */
        };
        harness_view views[HARNESS_ROLES];
    };
    union {
        struct {
            harness_buffer src, weights, bias, dst;
        };
        /* What is read, and what outputs hold that are added to; memory is NULL for other tensors and those that are not
         * there. */
        harness_buffer tensors[HARNESS_ROLES];
    };
    harness_answer answers[HARNESS_ROLES]; /* for the tensors that are written */
} harness_case;

/* Whether the operation of the case reads, or writes, the tensor, and the layer has it. */
bool harness_case_reads(const harness_case *test, harness_role role);
bool harness_case_writes(const harness_case *test, harness_role role);

/* Whether the case adds to what the tensor holds. */
bool harness_case_adds_to(const harness_case *test, harness_role role);

/* Whether there are integers other than 0 whose sums are all exact in f32 and do not overflow f16: not where an output of
 * the operation is a sum of too many products. */
bool harness_has_integers(const harness_layer *layer);

/* Makes the layer's tensors and answer from seed. Returns UNSUPPORTED where the harness has no formula for the
 * operation. On failure nothing is left to release. */
tconv_status harness_case_create(harness_case *test, const harness_layer *layer, harness_fill fill, uint64_t seed,
                                 tconv_issue *issue);

/* Makes the case of a layer that differs from that of answered, which harness_case_create made from the same seed, in nothing
 * but its layouts and strides: numbers are drawn in the order of the logical axes and rounded to the dtype, so that the answer is
 * the same, and is copied. */
tconv_status harness_case_create_as(harness_case *test, const harness_layer *layer, uint64_t seed,
                                    const harness_case *answered, tconv_issue *issue);

/* Makes the same case with an answer at the elements of harness_pick_sample alone, each straight from the formula: the
 * reference is not run. The tensors are the same as with the whole answer. */
tconv_status harness_case_create_sampled(harness_case *test, const harness_layer *layer, harness_fill fill,
                                         uint64_t seed, tconv_issue *issue);

/* Makes the same case with the whole answer from the formula, element by element: no code of the library is run. */
tconv_status harness_case_create_by_formula(harness_case *test, const harness_layer *layer, harness_fill fill,
                                            uint64_t seed, tconv_issue *issue);

/* Makes a case without the answer, quickly, for layers that are too big for the reference. The numbers repeat after
 * some ten thousand, and gaps hold numbers too. */
tconv_status harness_case_create_unanswered(harness_case *test, const harness_layer *layer, harness_fill fill,
                                            uint64_t seed, tconv_issue *issue);

/* Makes the tensors of a case without an answer: the functions above begin with it. pattern: the numbers repeat, as those
 * of an unanswered case do. */
tconv_status harness_case_create_tensors(harness_case *test, const harness_layer *layer, harness_fill fill,
                                         uint64_t seed, bool pattern, tconv_issue *issue);

void harness_case_destroy(harness_case *test);

/* Fills in the issue, unless that is NULL, and returns status. */
tconv_status harness_fail(tconv_issue *issue, tconv_status status, const char *field, const char *message);

/* The results of a run. */
typedef struct harness_output {
    union {
        struct {
            harness_buffer src, weights, bias, dst;
        };
        harness_buffer tensors[HARNESS_ROLES]; /* the tensors that are written, guards and gaps included */
    };
    const char *implementation; /* the implementation that ran; never NULL */
    size_t workspace_bytes;
    double milliseconds; /* one execute without warm-up; includes packing unless pack_once */
} harness_output;

/*
 * Runs the case: plan, workspace, execute; options decide where and how (NULL: the defaults). For a plan that runs on
 * CUDA the tensors are copied there, and the results back. pack_once packs the weights with tconv_plan_pack_weights
 * first and then executes without them. The workspace has exactly the size that the plan asked for, at an odd address,
 * with guards; a byte written outside it is TCONV_ERROR_INVALID_ARGUMENT with field "workspace". On success *output is
 * the caller's to release; on failure it holds nothing.
 */
tconv_status harness_run(const harness_case *test, const tconv_options *options, bool pack_once, harness_output *output,
                         tconv_issue *issue);
void harness_output_release(harness_output *output);

/* A failure in one line: the place, the output, the right answer, and the layer. */
typedef struct harness_failure {
    char text[320 + HARNESS_LAYER_TEXT];
} harness_failure;

/*
 * Judges an output of a case with an answer. Integers: equal to the exact result rounded once. Reals:
 *     f32        |error| <= 16 * 2^-24 * bound each and relative L2 error <= 1e-6
 *     TF32       as f32, plus (2^-10 + 2^-22) * bound each for the rounded factors; relative L2 error <= 5e-4, and where src, the
 *                weights or the gradient of dst have fewer than 32 elements <= 2^-10 + 2^-22
 *     f64        |error| <= 16 * 2^-53 * bound each
 *     f16, bf16  as f32 each, plus half an ulp of the result
 * Where the layer has post-ops, the error of the sum goes through them, with what each step may add (harness_apply_posts).
 * The relative error is judged where there are none and at least 32 outputs are sums: a few may all but cancel, whatever the arithmetic. A
 * case with samples is judged at its samples. In addition, every byte outside the written tensors' elements must be as
 * it was.
 */
bool harness_compare(const harness_case *test, const harness_output *output, harness_failure *failure);

/* Judges count elements of harness_pick_sample, each computed in float64 straight from the formula, for outputs of any
 * size, with or without an answer. Bytes outside the elements are not checked. */
bool harness_compare_sampled(const harness_case *test, const harness_output *output, int64_t count, uint64_t seed,
                             harness_failure *failure);

/* Whether two outputs of a case have the same bits. */
bool harness_same_bits(const harness_case *test, const harness_output *a, const harness_output *b,
                       harness_failure *failure);

/* Finds the index-th of the elements at which a tensor is judged, where it is not judged at all of them. First come the
 * sixteen ends of all axes, or thirty-two with depth; then the first, a middle and the last row and column of each phase of
 * dst's strides (of up to eight phases of an axis; other tensors have one), at random places of the other axes; then
 * random elements. The tensor must have elements. */
void harness_pick_sample(const harness_case *test, harness_role role, int64_t index, harness_random *random,
                         int64_t at[4]);

/* Returns how many elements have a fixed place; those with higher indices are drawn at random. */
int64_t harness_placed_samples(const harness_case *test, harness_role role);

/* Computes one element of a tensor that is written, in float64 straight from the formula in tconv.h, and its bound; both
 * before post-ops. */
void harness_element_answer(const harness_case *test, harness_role role, const int64_t at[4], double *value,
                            double *bound);

/* A buffer of count elements of size element_size, every byte 0xFF; the data are skew elements off the best alignment.
 * memory is NULL when out of memory. */
harness_buffer harness_buffer_create(int64_t count, size_t element_size, unsigned skew);
void harness_buffer_release(harness_buffer *buffer);

#endif
