/*
 * tconv: transposed convolution in one, two and three dimensions (PyTorch's ConvTranspose1d to 3d, ONNX's ConvTranspose) on
 * the CPU and on CUDA.
 *
 * This header is the manual of the library. In short:
 *
 *     tconv_desc desc;                      // 1. say what the layer is
 *     tconv_desc_init(&desc);
 *     desc.batch = 1, desc.in_channels = 64, desc.in_h = desc.in_w = 32;
 *     desc.out_channels = 32, desc.kernel_h = desc.kernel_w = 4;
 *     desc.stride_h = desc.stride_w = 2;
 *     tconv_plan *plan;                     // 2. make a plan, once
 *     tconv_plan_create(&desc, NULL, &plan, NULL);
 *     size_t size;
 *     tconv_plan_workspace_size(plan, &size);
 *     void *workspace = malloc(size);
 *     tconv_plan_execute(plan, &src, &weights, NULL, &dst, workspace, size, NULL);   // 3. run it, often
 *     tconv_plan_destroy(plan);
 *
 * tconv_conv_transpose does 2 and 3 in one call.
 *
 * THE OPERATION. For image n, group g, output channel o of the group and output pixel (oh, ow):
 *
 *     dst[n, g*Og + o, oh, ow] = bias[g*Og + o]
 *         + sum over ci < Ig, kh < kernel_h, kw < kernel_w of src[n, g*Ig + ci, ih, iw] * weights[g*Ig + ci, o, kh, kw]
 *     where ih = (oh + pad_top  - kh * dilation_h) / stride_h   and
 *           iw = (ow + pad_left - kw * dilation_w) / stride_w,
 *     taken only where both divide exactly and 0 <= ih < in_h, 0 <= iw < in_w; Ig and Og are channels per group.
 *
 *     out_h = (in_h - 1) * stride_h - pad_top - pad_bottom + dilation_h * (kernel_h - 1) + output_padding_h + 1
 *
 * (out_w alike). The kernel is not flipped. output_padding only widens the output. This is the definition of PyTorch 2
 * (torch.nn.ConvTranspose2d) with padding free to differ on each side, as in ONNX ConvTranspose.
 *     Depth is a third axis, before the rows: planes od, kernel planes kd < kernel_d, and id = (od + pad_front
 * - kd * dilation_d) / stride_d, taken only where that divides exactly and 0 <= id < in_d. A desc that leaves the fields of
 * depth alone has one plane and is the layer of two axes, as one row makes a layer of one axis.
 *     desc.post lists what every output goes through before it is stored: scale and shift, an addend, activations
 * (tconv_post_op). desc.op asks for a gradient of this in place of dst, what training needs: that of src, or those of weights and bias
 * (tconv_op). desc.accumulate adds what is computed to what is there. desc.stream_axis computes an input of any length
 * chunk by chunk (A STREAM OF FRAMES, at tconv_step). Plans, layouts, dtypes and backends are the same.
 *
 * ERRORS. Every call that can fail returns a tconv_status, and describes a failure in the tconv_issue that it is given
 * (which may be NULL) and in the calling thread's tconv_last_issue: the field, its value and the rule that it breaks. On
 * failure no output is written, nothing leaks, and *plan is NULL. The library never aborts, exits, throws or prints (but
 * for TCONV_VERBOSE).
 *
 * NUMBERS. f32 sums in f32: for any finite data, on any hardware and however long a sum is, an element errs by at most
 * 160 * 2^-24 * sum |x||w|, on the CPU by at most 64 * 2^-24 * sum |x||w| in sums of up to 2^18 terms. Where the terms of
 * a sum are of like size it stays within 16 * 2^-24 * sum |x||w| in all tests. (docs/precision.md derives these numbers;
 * what f32 itself loses below 2^-100 and above 2^127 comes on top.) TCONV_MATH_TF32, where it is asked for, rounds each factor
 * to nearest, to 11 bits (10 of them stored), and sums in f32. f16 and bf16 multiply exactly, sum in f32 and round once.
 * f64 is f64 throughout. The same plan on the same device and data gives the same bits always; on the CPU for any number
 * of threads, in the same floating-point environment. An image has the bits that it has alone, however many are computed
 * with it, where tconv_plan_describe says batch_invariant=yes and the same implementation (tconv_options) computes both.
 *     Where all partial sums are integers below 2^24 (f32), every backend gives the same bits; on tensor cores if also at
 * least one factor of each f32 product fits in 11 bits and the other in fewer than 24 (TF32: both in 11). There a
 * strict f32 product is three of TF32, which leave out small part times small part (3xTF32).
 *     On the CPU and in the CUDA kernels without tensor cores a tap that falls outside the input is skipped: NaN and
 * Inf go exactly where the arithmetic takes them. On tensor cores, and in the gradients on CUDA, an output whose sum
 * holds one is not finite either, but zeros that stand for missing taps and channels are multiplied as well: NaN may
 * appear in other outputs of the same image and group (of other groups too where groups have few channels) or, where
 * the weights have a NaN or Inf, of the same group; and Inf may become NaN.
 *     In layers with depth, planes beyond the input count as zeros that are multiplied, but for kernels of up to 32 planes on
 * the CPU. A gradient of the weights in f32 or f64 may add what up to 16 groups of images give one after another, with a
 * rounding of the sum each.
 *
 * THREADS. A plan is immutable: any number of threads may execute one at once, each with its own dst and workspace.
 *     On the CPU a plan runs on OpenMP's threads, never more than the process may have run at once (affinity); on the
 * caller's own, by tconv_options.parallel, as many as tconv_options.threads says, up to 1024; or, with threads = 1, on none
 * but the calling thread, which then never enters OpenMP. Layers with little work take fewer. The bits are the same by
 * any of them. From inside an OpenMP parallel region the library runs serially, unless it was given a parallel_for.
 *     The calling thread's floating-point environment (rounding, flush-to-zero, traps) holds in all threads, which get
 * their own back; exceptions that they raise are raised in the calling thread.
 *     A thread needs 16 KiB of stack beside what the system takes of it: OMP_STACKSIZE=32k will do.
 *     OpenMP's run-times end the process where a thread cannot be made, or memory is refused to them. So before a plan
 * needs more of OpenMP's threads than are known to exist, as many plain ones are made and ended again, and the plan
 * runs on as many as could be made. These risks remain: in that very moment the last thread or memory goes to somebody
 * else; the caller's own smaller OpenMP regions have just made libgomp end threads; with OMP_DYNAMIC, OpenMP chooses
 * the size of teams. A parallel_for and threads = 1 do not have them.
 *     A child forked before any execute behaves like its parent. In one forked later, the thread that forked runs
 * serially where it had executed by OpenMP's threads, which libgomp would wait for in vain; others there start threads
 * of their own. Where the forking thread only had OpenMP regions of the caller's, libgomp hangs, as in every OpenMP
 * program.
 *     The shared object stays loaded once it was (dlclose does not unmap it), because OpenMP's threads wait in it.
 *
 * ENVIRONMENT. Variables are read once for the process, by the first call that makes a plan or describes the system,
 * and again by tconv_environment_reload: plans may be made beside setenv. What the caller names in tconv_desc or
 * tconv_options wins; variables decide what AUTO, DEFAULT and 0 mean. A value that is not listed is an error of every
 * plan that is made (TCONV_ERROR_ENVIRONMENT), until it is mended and reloaded. An empty value is as good as none.
 *
 *     TCONV_BACKEND=auto|cpu|cuda                             what TCONV_BACKEND_AUTO means
 *     TCONV_CPU_ISA=generic|avx2|avx512|neon|avx512_bf16|amx  the highest instruction set to use
 *                                                             (tconv_cpu_isa)
 *     TCONV_CPU_TUNING=auto|common|xeon                       the processor that tiles and stores are tuned for
 *     TCONV_NUM_THREADS=1..65536                              CPU threads, at most
 *     TCONV_MATH=strict|tf32                                  what TCONV_MATH_DEFAULT means
 *     TCONV_VERBOSE=0|1|2                                     lines to stderr or options.log: 1 each execute,
 *                                                             2 also why implementations were passed over
 *
 * Cores and caches are what Linux says, read once in a process without allocating. Where hwloc is built in, and on other
 * systems or with HWLOC_SYNTHETIC, HWLOC_XMLFILE or HWLOC_FSROOT set, they are what hwloc says, which crashes where it
 * gets no memory. OMP_STACKSIZE is read to try threads as large as OpenMP's.
 */
#ifndef TCONV_TCONV_H
#define TCONV_TCONV_H

#include <stddef.h>
#include <stdint.h>

#include "export.h"
#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------------------- status */

/* The outcome of a call. The values never change. */
typedef enum tconv_status {
    TCONV_SUCCESS = 0,                /* the call did what it was asked */
    TCONV_ERROR_INVALID_ARGUMENT = 1, /* a field breaks a rule; the issue says which and how */
    TCONV_ERROR_OVERFLOW = 2,      /* a tensor of 2^63 bytes or more, an axis of 2^61 outputs before padding, or an axis
                                         of two inputs or more where both kernel and stride / gcd(stride, dilation) are
                                         above 65536 */
    TCONV_ERROR_OUT_OF_MEMORY = 3, /* the allocator, or the device's, returned nothing */
    TCONV_ERROR_UNAVAILABLE = 4,   /* the backend is not built, has no driver, no device, no code for the device */
    TCONV_ERROR_UNSUPPORTED = 5,   /* valid, but the implementation that was asked for does not do it */
    TCONV_ERROR_ENVIRONMENT = 6,   /* an environment variable has a value that it does not accept */
    TCONV_ERROR_CUDA = 7           /* CUDA reported an error; the issue has its text */
} tconv_status;

/* Describes a failure. Filled in by the library, owned by the caller; both texts end with '\0'. */
typedef struct tconv_issue {
    tconv_status status; /* outcome of the call */
    char field[44];      /* the field, argument or variable at fault: "stride_h", "src_strides[1]", "TCONV_BACKEND" */
    char message[208];   /* the field, its value and the rule: "stride_h = 0: must be at least 1" */
} tconv_issue;

/* The name of a status, "TCONV_SUCCESS" and so on; "unknown status" for a value that is none. Never NULL. */
TCONV_API const char *tconv_status_string(tconv_status status);

/* Copies the issue of the calling thread's last failed call; a success issue with empty texts where none has failed, or there
 * was no memory to keep it. */
TCONV_API void tconv_last_issue(tconv_issue *issue);

/* The version of the linked library, "major.minor.patch". */
TCONV_API const char *tconv_version(void);

/* ------------------------------------------------------------------------------------------------------------ layer */

/* The type of a tensor's elements. */
typedef enum tconv_dtype {
    TCONV_F32 = 0, /* IEEE 754 binary32 */
    TCONV_F64 = 1, /* IEEE 754 binary64 */
    TCONV_F16 = 2, /* IEEE 754 binary16 */
    TCONV_BF16 = 3 /* the upper half of a binary32 */
} tconv_dtype;

/* How src and dst lie in memory, slowest first. */
typedef enum tconv_layout {
    TCONV_NCHW = 0, /* images, channels, planes, rows, columns */
    TCONV_NHWC = 1  /* images, planes, rows, columns, channels: PyTorch's channels_last and channels_last_3d */
} tconv_layout;

/* How the weights lie in memory, slowest first; their logical shape is always (in_channels, out_channels / groups,
 * kernel_d, kernel_h, kernel_w). Kernel planes lie before the kernel rows. They are dense. */
typedef enum tconv_weight_layout {
    TCONV_WEIGHT_IOHW = 0, /* PyTorch, ONNX */
    TCONV_WEIGHT_IHWO = 1, /* PyTorch channels_last */
    TCONV_WEIGHT_HWOI = 2  /* TensorFlow, Keras */
} tconv_weight_layout;

/*
 * What is computed of a layer. The desc always describes the forward layer, and a gradient has the shape, strides, dtype and
 * argument of its tensor: where a call takes dst, the gradients' operations take the gradient of dst, and so on. Issues name
 * it diff_dst, diff_src, diff_weights or diff_bias. With i an input, k a tap and y an output pixel, s, d and p the strides,
 * dilations and paddings at the top and left, c and o the channels of a group, and only terms whose output exists,
 *
 *     diff_src[n, c, i]     = sum over o, k of diff_dst[n, o, s * i + d * k - p] * weights[c, o, k]
 *     diff_weights[c, o, k] = sum over n, i of src[n, c, i] * diff_dst[n, o, s * i + d * k - p]
 *     diff_bias[o]          = sum over n, y of diff_dst[n, o, y], every output, with a tap or without
 *
 * With accumulate = 1 in the desc, what the operation writes is added to what is there, before the one rounding to the
 * dtype: dst = dst + bias + sum, diff_weights = diff_weights + sum, and so on. What is there counts as one more term
 * of the sum in all that NUMBERS above promises, and a NaN or Inf in it stays in its own element. On CUDA it is added
 * where the output is stored; or dst and diff_src take workspace for their sums, where that is faster, in f16 and bf16
 * also for what is read, in f32: 32 MiB, or an image where that has more.
 */
typedef enum tconv_op {
    TCONV_FORWARD = 0,       /* dst, from src, weights and bias */
    TCONV_BACKWARD_DATA = 1, /* diff_src, from diff_dst and weights; bias is ignored */
    /* diff_weights and diff_bias, from diff_dst and src: either may be NULL where it is not wanted, and src where
     * diff_weights is. With batch 0 they are 0, or with accumulate what they were. */
    TCONV_BACKWARD_WEIGHTS = 2
} tconv_op;

/* How f32 may be multiplied; other dtypes ignore it. */
typedef enum tconv_math {
    TCONV_MATH_DEFAULT = 0, /* what TCONV_MATH says, STRICT if it is not set */
    TCONV_MATH_STRICT = 1,  /* as accurate as f32 multiply-adds */
    TCONV_MATH_TF32 = 2     /* CUDA may round src and weights to nearest, to 11 bits: relative L2 error <= 5e-4 */
} tconv_math;

/* The most post-ops of a layer. */
#define TCONV_MAX_POST_OPS 8

/*
 * A step that an output goes through before it is stored (tconv_post_op). y is the value so far, c its output channel,
 * a and b the step's alpha and beta, v the operand that tconv_operands hold at the step's place: v[c] has out_channels
 * elements, of f32, and of f64 where the dtype is f64; t has the shape and the dtype of dst and desc.addend_strides.
 * The values never change. a and b must be 0 where the formula does not have them.
 */
typedef enum tconv_post_kind {
    TCONV_POST_ADD_CHANNEL = 1, /* y + v[c] */
    TCONV_POST_MUL_CHANNEL = 2, /* y * v[c] */
    TCONV_POST_ADD_TENSOR = 3,  /* y + a * t[n, c, d, h, w]; at most one of a layer */
    TCONV_POST_LINEAR = 4,      /* a * y + b, rounded once */
    TCONV_POST_CLAMP = 5,       /* min(max(y, a), b), a <= b, either may be infinite: ReLU6, Hardtanh, min, max */
    TCONV_POST_LEAKY_RELU = 6,  /* y > 0 ? y : a * y; with a = 0 that is 0 also for -Inf: ReLU */
    TCONV_POST_SIGMOID = 7,     /* 1 / (1 + exp(-y)) */
    TCONV_POST_TANH = 8,        /* tanh(y) */
    TCONV_POST_SILU = 9,        /* y / (1 + exp(-y)), also called swish */
    TCONV_POST_GELU = 10,       /* y * (1 + erf(y / sqrt(2))) / 2 */
    TCONV_POST_GELU_TANH = 11,  /* y * (1 + tanh(sqrt(2 / pi) * (y + .044715 * y^3))) / 2 */
    TCONV_POST_MISH = 12,       /* y * tanh(log(1 + exp(y))) */
    TCONV_POST_ELU = 13,        /* y > 0 ? y : a * (exp(y) - 1) */
    TCONV_POST_SOFTPLUS = 14,   /* log(1 + exp(y)) */
    TCONV_POST_HARDSWISH = 15,  /* y * min(max(y + 3, 0), 6) / 6 */
    TCONV_POST_SNAKE = 16       /* y + v[out_channels + c] * sin(v[c] * y)^2: v has 2 * out_channels elements */
} tconv_post_kind;

/*
 * A post-op: what follows the layer in a network, computed where the output is made, so that the output is neither
 * written nor read once more. A layer's list is run in order, on what the layer without it would store but for the
 * rounding: held + bias + sum (held with accumulate). Each step is computed in f32 (f64 where the dtype is f64) and
 * rounded to it; the rounding to the dtype comes once, after the last step. An output without a tap is no exception.
 *     Accuracy: of each kind against the exact function of its argument. ADD, MUL, LINEAR, CLAMP and LEAKY_RELU: each
 * operation is rounded correctly, and MUL_CHANNEL and the ADD_CHANNEL that follows it at once (a folded BatchNorm) are
 * one operation; HARDSWISH and ADD_TENSOR: two. SIGMOID to SOFTPLUS: 4 units in the last place or 2^-126; where a CUDA
 * device multiplies f16, bf16 or TF32, 16 units in the last place of f32 or 2^-118. SNAKE: 4 units in the last place of
 * |y| + |v[out_channels + c]| where |v[c] * y| <= 1e5. In f64 the same, where the C library's functions are as exact,
 * but for GELU_TANH of negative y, which errs by |y|^3 units where that is more.
 *     NaN stays NaN in every kind. Inf goes where the function has its limit: SILU, both GELU, MISH and HARDSWISH of -Inf are -0,
 * SNAKE of it is -Inf.
 * Integers that all steps of ADD, MUL, LINEAR, CLAMP and LEAKY_RELU keep below 2^24 have the same bits on every backend.
 */
typedef struct tconv_post_op {
    tconv_post_kind kind; /* what is done */
    int32_t reserved;     /* 0 */
    double alpha;         /* a of the kind's formula, rounded to the type of the steps; 0 where there is none */
    double beta;          /* b, likewise */
} tconv_post_op;

/*
 * A layer. Fill with tconv_desc_init, then set the extents and whatever differs from the defaults. The library only
 * reads it and keeps no pointer to it. struct_size lets a caller be older or newer than the library; one above 4096, as
 * an uninitialised struct may have it, is refused before anything else is read (tconv_options alike).
 *
 * Strides count elements in the order n, c, h, w, whatever the layout (as PyTorch's Tensor.stride()). 0, the default,
 * means dense; the stride of an extent of 1 is ignored. Images and channels (NCHW) or images and pixels (NHWC) may lie
 * further apart than dense, so that a layer reads or writes a slice of a larger tensor; rows are dense:
 *     NCHW: w = 1, h = width, c >= height * width, n >= (channels - 1) * c + height * width
 *     NHWC: c = 1, w >= channels, h = width * w,   n >= (height * width - 1) * w + channels
 * Planes are dense too: they are height * h apart, and depth * height stands for height in the rules of c and n. Where both
 * height and width are 1, the stride of planes (src_stride_d) is that of pixels in NHWC.
 */
typedef struct tconv_desc {
    size_t struct_size;                               /* sizeof(tconv_desc) as the caller knows it; set by init */
    int64_t batch;                                    /* >= 0, default 1; 0 images is a layer that does nothing */
    int64_t in_channels, in_h, in_w;                  /* >= 1, no default */
    int64_t out_channels;                             /* >= 1, no default; as in_channels a multiple of groups */
    int64_t kernel_h, kernel_w;                       /* >= 1, no default */
    int64_t stride_h, stride_w;                       /* >= 1, default 1 */
    int64_t pad_top, pad_left, pad_bottom, pad_right; /* >= 0, default 0: rows and columns cut off the output */
    int64_t output_padding_h, output_padding_w;       /* 0 <= output_padding < max(stride, dilation), default 0 */
    int64_t dilation_h, dilation_w;                   /* >= 1, default 1 */
    int64_t groups;                                   /* >= 1, default 1 */
    tconv_dtype dtype;                                /* of src, weights, bias and dst; default TCONV_F32 */
    tconv_layout layout;                              /* default TCONV_NCHW */
    tconv_weight_layout weight_layout;                /* default TCONV_WEIGHT_IOHW */
    tconv_math math;                                  /* default TCONV_MATH_DEFAULT */
    int64_t src_strides[4], dst_strides[4];           /* n, c, h, w in elements, default 0: dense */
    tconv_op op;                                      /* default TCONV_FORWARD */
    int32_t accumulate;                               /* 0 or 1, default 0: 1 adds to what the outputs hold */
    int32_t post_count;                               /* post-ops, 0 to 8, default 0; of TCONV_FORWARD alone */
    tconv_post_op post[TCONV_MAX_POST_OPS];           /* in their order; those past post_count are 0 */
    int64_t addend_strides[4];                        /* of TCONV_POST_ADD_TENSOR's operand, as dst_strides */
    int32_t stream_axis;     /* default 0: no stream; 1: a stream of rows; 2: of columns (tconv_step) */
    tconv_dtype carry_dtype; /* of a stream's carry: default TCONV_F32, which in f64 is f64; or dtype */
    int64_t in_d, kernel_d, stride_d, dilation_d; /* of depth: >= 1, default 1; a stream's are 1 */
    int64_t pad_front, pad_back;                  /* >= 0, default 0: planes cut off the output */
    int64_t output_padding_d;                     /* as output_padding_h */
    int64_t src_stride_d, dst_stride_d;           /* of planes, in elements, default 0: dense */
    int64_t addend_stride_d;                      /* likewise, beside addend_strides */
} tconv_desc;

/* Fills desc with the defaults for a caller whose tconv_desc has struct_size bytes; use tconv_desc_init. */
TCONV_API tconv_status tconv_desc_init_sized(tconv_desc *desc, size_t struct_size);

/* Fills desc with the defaults. Fails only on NULL. */
static inline tconv_status tconv_desc_init(tconv_desc *desc)
{
    return tconv_desc_init_sized(desc, sizeof(tconv_desc));
}

/* Checks desc by every rule above. The answer is the same on every machine and for every backend. */
TCONV_API tconv_status tconv_validate(const tconv_desc *desc, tconv_issue *issue);

/* Validates desc and writes the shape of dst in the order n, c, h, w, whatever the layout; of a stream, that of its
 * longest chunk. A dst of several planes is INVALID_ARGUMENT ("shape"). */
TCONV_API tconv_status tconv_output_shape(const tconv_desc *desc, int64_t shape[4], tconv_issue *issue);

/* Validates desc and writes the shape of dst in the order n, c, d, h, w, whatever the layout. */
TCONV_API tconv_status tconv_output_shape3d(const tconv_desc *desc, int64_t shape[5], tconv_issue *issue);

/* ---------------------------------------------------------------------------------------------------------- options */

/* What a layer runs on. */
typedef enum tconv_backend {
    TCONV_BACKEND_AUTO = 0, /* where the tensors live, unless TCONV_BACKEND says otherwise */
    TCONV_BACKEND_CPU = 1,  /* the host */
    TCONV_BACKEND_CUDA = 2  /* a CUDA device */
} tconv_backend;

/* Where a tensor's memory is. */
typedef enum tconv_location {
    TCONV_LOCATION_AUTO = 0, /* find out (asks the CUDA driver, if the process has loaded it) */
    TCONV_LOCATION_HOST = 1, /* memory of the host, page-locked memory too */
    TCONV_LOCATION_CUDA = 2  /* memory of a CUDA device */
} tconv_location;

/* The highest instruction set that the CPU backend may use: a cap, so that a machine with less uses what it has. A level
 * of another architecture than the machine's is TCONV_ERROR_UNAVAILABLE. */
typedef enum tconv_cpu_isa {
    TCONV_CPU_ISA_DEFAULT = 0,     /* what TCONV_CPU_ISA says, the machine's best if it is not set */
    TCONV_CPU_ISA_GENERIC = 1,     /* what the compiler assumes of every machine of this architecture */
    TCONV_CPU_ISA_AVX2 = 2,        /* with FMA and F16C */
    TCONV_CPU_ISA_AVX512 = 3,      /* F, BW, DQ and VL */
    TCONV_CPU_ISA_NEON = 4,        /* of AArch64 */
    TCONV_CPU_ISA_AVX512_BF16 = 5, /* AVX-512, and products of pairs of bf16 */
    TCONV_CPU_ISA_AMX = 6          /* those, and AMX with bf16 */
} tconv_cpu_isa;

/* Functions that allocate and free host memory (plans, packed weights, the one-shot call's memory): both or neither. */
typedef struct tconv_allocator {
    void *(*allocate)(void *context, size_t size); /* aligned as malloc's; NULL when out of memory */
    void (*release)(void *context, void *memory);  /* memory is never NULL */
    void *context;                                 /* handed to both */
} tconv_allocator;

/*
 * Threads of the caller's, in place of OpenMP's. parallel_for calls task(argument, index) once for each index from 0 to
 * count - 1, on any threads, in any order, at once or one after another, and returns when all have returned. It must not
 * fail; tasks neither wait for each other nor throw. The library calls it from the thread that executes or packs, never
 * from a task. NULL, the default: OpenMP.
 */
typedef struct tconv_parallel {
    /* task(argument, index) for each index below count */
    void (*parallel_for)(void *context, int32_t count, void (*task)(void *argument, int32_t index), void *argument);
    void *context; /* handed to parallel_for */
} tconv_parallel;

/* Receives verbose lines in place of stderr: write gets one line, without its line feed, in the thread that calls the
 * library, so that several may call it at once. line is valid during the call. NULL, the default: stderr, each line by
 * one write. */
typedef struct tconv_log {
    void (*write)(void *context, const char *line); /* one line */
    void *context;                                  /* handed to write */
} tconv_log;

/* How to run a layer. Fill with tconv_options_init. NULL in place of options means the defaults. */
typedef struct tconv_options {
    size_t struct_size;      /* sizeof(tconv_options) as the caller knows it; set by init */
    tconv_backend backend;   /* default TCONV_BACKEND_AUTO */
    tconv_location location; /* where a plan's tensors will live, for AUTO: default TCONV_LOCATION_AUTO, which is the
                                   host for a plan and is found out by the one-shot call */
    int32_t device;          /* CUDA device; default -1: the current one (one-shot: the one where the tensors live) */
    int32_t threads;         /* CPU threads, at most; default 0: what TCONV_NUM_THREADS says, else every core this
                                   process may use (affinity, cgroup quota and OMP_NUM_THREADS heeded) */
    tconv_cpu_isa cpu_isa;   /* default TCONV_CPU_ISA_DEFAULT */
    const char *implementation; /* one by its name (tconv_implementation_name); default NULL: the best that fits */
    tconv_allocator allocator;  /* default malloc and free */
    void *stream;               /* cudaStream_t of the one-shot call; default NULL: the legacy default stream */
    tconv_parallel parallel;    /* default OpenMP */
    tconv_log log;              /* default stderr */
    int32_t verbose;            /* 1 or 2 as TCONV_VERBOSE; default 0: what TCONV_VERBOSE says */
} tconv_options;

/* Fills options with the defaults for a caller whose tconv_options has struct_size bytes; use tconv_options_init. */
TCONV_API tconv_status tconv_options_init_sized(tconv_options *options, size_t struct_size);

/* Fills options with the defaults. Fails only on NULL. */
static inline tconv_status tconv_options_init(tconv_options *options)
{
    return tconv_options_init_sized(options, sizeof(tconv_options));
}

/* TCONV_SUCCESS where backend can run here (AUTO and CPU always can); else TCONV_ERROR_UNAVAILABLE, with the reason. */
TCONV_API tconv_status tconv_backend_available(tconv_backend backend, tconv_issue *issue);

/* The name of the index-th implementation of this build, best first, the reference last; NULL past the end. Names begin
 * with "cpu_" or "cuda_". One that is listed may still be unavailable on this machine, or have some operations alone. */
TCONV_API const char *tconv_implementation_name(size_t index);

/* ------------------------------------------------------------------------------------------------------------- plan */

/* A tensor as execute takes it; its shape and strides are the desc's. data is aligned to its element and is not owned. */
typedef struct tconv_tensor {
    void *data;              /* only read, but for what the operation computes */
    tconv_dtype dtype;       /* that of the desc */
    tconv_location location; /* where data is; AUTO: to be found out */
} tconv_tensor;

/* A layer bound to an implementation. Immutable. */
typedef struct tconv_plan tconv_plan;

/*
 * Chooses the implementation for desc, once. On success *plan is the caller's, to destroy. The backend is options' or
 * TCONV_BACKEND's; with AUTO it is CUDA where options->location is TCONV_LOCATION_CUDA, else the CPU.
 * Errors: whatever tconv_validate finds; bad options; UNAVAILABLE; UNSUPPORTED (an operation without implementations, or
 * an implementation asked for by name that does not take this layer); ENVIRONMENT; OUT_OF_MEMORY.
 */
TCONV_API tconv_status tconv_plan_create(const tconv_desc *desc, const tconv_options *options, tconv_plan **plan,
                                         tconv_issue *issue);

/*
 * The bytes of workspace that execute needs, in memory where the plan runs (host, or the plan's device); may be 0. On CUDA it
 * holds the packed weights and, for some NCHW layers whose src is at most 48 MiB, src once more, in NHWC.
 */
TCONV_API tconv_status tconv_plan_workspace_size(const tconv_plan *plan, size_t *size);

/*
 * For inference: packs the weights once. *packed is a new plan that holds them, needs no more workspace, and ignores the
 * weights that execute is given (NULL will do). plan stays as it is; both are destroyed separately. Another
 * implementation may be the fastest when weights are packed, with sums in its own order. On CUDA the packing is ordered
 * on stream, and *packed may be used on other streams once it is done.
 */
TCONV_API tconv_status tconv_plan_pack_weights(const tconv_plan *plan, const tconv_tensor *weights, void *stream,
                                               tconv_plan **packed, tconv_issue *issue);

/*
 * Runs the layer, which is no stream (those go by tconv_plan_step). src, weights, bias (NULL for none; out_channels
 * elements) and dst have the desc's dtype and lie where the plan runs: a plan never copies between host and device, but
 * returns TCONV_ERROR_INVALID_ARGUMENT. workspace has at least tconv_plan_workspace_size bytes, at any address; nobody else
 * uses it meanwhile. On CUDA all work is ordered on stream (a cudaStream_t), nothing is synchronised and the call may be
 * captured into a CUDA graph; the CPU ignores stream. The call allocates nothing, except that OpenMP starts threads that do
 * not run yet. With batch 0 it does nothing and reads no pointer, but for the gradients of weights and bias where it does
 * not accumulate.
 *
 * What is computed, dst (desc.op: a gradient), must share no element with the others or workspace, nor the first
 * tconv_plan_workspace_size bytes of workspace with them: INVALID_ARGUMENT, which names both. Slices of one larger
 * tensor are no overlap, although their ranges of addresses meet: decided exactly where one of the two is dense, or
 * both have the same strides of images and of channels (NCHW) or pixels (NHWC). With other strides, two whose ranges
 * meet are refused, unless images and channels (pixels) of both stand at different places modulo the greatest common
 * divisor of all these strides. Addresses alone are compared: memory that is mapped twice is not seen to be one.
 */
TCONV_API tconv_status tconv_plan_execute(const tconv_plan *plan, const tconv_tensor *src, const tconv_tensor *weights,
                                          const tconv_tensor *bias, const tconv_tensor *dst, void *workspace,
                                          size_t workspace_size, void *stream);

/* The tensors of a call, for layers whose post-ops have operands. Fill with 0, then struct_size and what there is. */
typedef struct tconv_operands {
    size_t struct_size;                           /* sizeof(tconv_operands) as the caller knows it */
    const tconv_tensor *src;                      /* as tconv_plan_execute takes it */
    const tconv_tensor *weights;                  /* likewise */
    const tconv_tensor *bias;                     /* likewise */
    const tconv_tensor *dst;                      /* likewise */
    const tconv_tensor *post[TCONV_MAX_POST_OPS]; /* the operand of desc.post[i], NULL where that kind has none */
} tconv_operands;

/*
 * Runs the layer as tconv_plan_execute does, with the operands of its post-ops, which lie where the plan runs, are only
 * read and share no element with dst (adding to dst is desc.accumulate). tconv_plan_execute refuses a plan whose list
 * has operands. An example, a folded BatchNorm and ReLU:
 *
 *     desc.post_count = 3;
 *     desc.post[0].kind = TCONV_POST_MUL_CHANNEL, desc.post[1].kind = TCONV_POST_ADD_CHANNEL;
 *     desc.post[2].kind = TCONV_POST_LEAKY_RELU;
 *     ...
 *     tconv_operands operands = {sizeof operands, &src, &weights, NULL, &dst, {&scale, &shift}};
 *     tconv_plan_execute_with(plan, &operands, workspace, size, NULL);
 */
TCONV_API tconv_status tconv_plan_execute_with(const tconv_plan *plan, const tconv_operands *operands, void *workspace,
                                               size_t workspace_size, void *stream);

/* The name of the implementation that the plan runs; "" for NULL. Valid as long as the library is loaded. */
TCONV_API const char *tconv_plan_implementation(const tconv_plan *plan);

/*
 * Writes the plan as one line: its backend, implementation, threads or device, whether an image has the bits that it has
 * alone (batch_invariant=yes), of a stream whether its bits do not depend on chunks (chunk_invariant=yes), of a layer with
 * depth how many layers of two axes compute it (calls=3), workspace, and the layer as arguments of `tconv bench`. Up to capacity bytes with the closing '\0' go to text (NULL if capacity is 0);
 * *length, which may be NULL, becomes the full length without it.
 */
TCONV_API tconv_status tconv_plan_describe(const tconv_plan *plan, char *text, size_t capacity, size_t *length);

/* ----------------------------------------------------------------------------------------------------------- streams */

/*
 * A STREAM OF FRAMES. With desc.stream_axis the layer runs over an input that comes in chunks: frames of audio, bands of
 * an image. Along that axis (1: rows, 2: columns) an input reaches K = dilation * (kernel - 1) + 1 outputs: input i,
 * counted from where its stream began, reaches outputs stride * i to stride * i + K - 1. A step takes the next `length`
 * inputs and gives the next stride * length outputs, which are final; it is always that many, the first step is no special
 * case. The unfinished sums of the P = max(0, K - stride) outputs that follow, the tail, stay in a tensor of the caller's,
 * the carry, which is zeros where a stream begins. tconv_plan_flush ends a stream: it gives the P outputs of the tail.
 * All steps of a stream and its flush are the one call without padding; without the flush, the one call whose padding
 * after the last column (row) is P, or whose output_padding is stride - K.
 *     The carry is dense in the order n, c, h, w, whatever the layout: (slots, out_channels, out_h, P) where columns are
 * streamed, (slots, out_channels, P, out_w) where rows are. It holds sums without bias, in f32 (f64 in f64); with
 * carry_dtype they are rounded to the layer's dtype after each step. It may be copied, saved, and moved to another slot.
 * The bias is added and post-ops run once, when an output leaves.
 *     The desc describes the longest chunk: in_w (in_h where rows are streamed) is the most inputs of a step, batch the most
 * images. One plan serves each length and batch up to these; nothing is planned again. The operation is TCONV_FORWARD
 * without accumulate. Padding and output_padding of the streamed axis are 0: where a network cuts outputs off the front,
 * the caller drops them from the beginning of a stream (docs/c.md has recipes). The other axis is as ever.
 *     src, dst and addend of a shorter chunk or smaller batch are dense by their own sizes where the desc's strides are 0.
 * Strides of images, channels (NCHW) or pixels (NHWC) that the desc gives hold for each chunk, so that a chunk may be a
 * slice of a long buffer.
 *     To its carry an output adds what inputs along the streamed axis give, the oldest first, one or a few roundings for each
 * beside those of NUMBERS. Where tconv_plan_describe says chunk_invariant=yes, the bits of a stream depend on the layer and
 * the machine alone: not on how its inputs are cut into chunks, nor on batch, slots or threads.
 */
typedef struct tconv_step {
    size_t struct_size;          /* sizeof(tconv_step) as the caller knows it; set by init */
    const tconv_tensor *src;     /* the chunk, as tconv_plan_execute takes it; a flush ignores it */
    const tconv_tensor *weights; /* likewise; a plan that holds its weights packed ignores them too */
    const tconv_tensor *bias;    /* likewise; NULL for none */
    const tconv_tensor *dst;     /* stride * length rows or columns, of a flush P */
    const tconv_tensor *carry;   /* read, and written in place; ignored where P is 0 */
    /* Operands of post-ops, as in tconv_operands. An addend has the shape of this step's dst. */
    const tconv_tensor *post[TCONV_MAX_POST_OPS];
    int64_t batch;      /* images of this step, 1 to the desc's; default 0: as many as the desc's */
    int64_t length;     /* inputs of this step along the streamed axis, 1 to the desc's; default 0: as the desc's */
    int64_t slot_count; /* slots of the carry, at least 1; default 0: as many as the desc's batch */
    /* The slot of each image, [batch], no two alike, from 0 to slot_count - 1. Default NULL: image n has slot n. These
     * three arrays lie where the plan runs, and are read when the work runs: a captured CUDA graph follows them. */
    const int32_t *slots;
    /* [batch], not 0 where a stream begins: its carry counts as zeros. Default NULL: nowhere. */
    const uint8_t *reset;
    /* [batch], 0 where an image has no part: its slot stays as it is, and what its dst holds then is undefined. Default
     * NULL: all have. */
    const uint8_t *active;
    void *workspace;       /* as tconv_plan_execute takes it */
    size_t workspace_size; /* likewise, at least tconv_plan_workspace_size */
    void *stream;          /* likewise, a cudaStream_t */
} tconv_step;

/* Fills step with the defaults for a caller whose tconv_step has struct_size bytes; use tconv_step_init. */
TCONV_API tconv_status tconv_step_init_sized(tconv_step *step, size_t struct_size);

/* Fills step with the defaults: no tensors, the plan's own batch and length. Fails only on NULL. */
static inline tconv_status tconv_step_init(tconv_step *step)
{
    return tconv_step_init_sized(step, sizeof(tconv_step));
}

/* Validates a desc with stream_axis and writes the shape of the carry, with a slot for each of the desc's images. Its
 * extent along the streamed axis is P, 0 where the kernel is no longer than the stride: then there is no carry. */
TCONV_API tconv_status tconv_carry_shape(const tconv_desc *desc, int64_t shape[4], tconv_issue *issue);

/*
 * Computes the next chunk of each image's stream. What tconv_plan_execute says of tensors, workspace, stream, allocation,
 * overlap and capture holds here too; dst and carry are what is written, and neither holds slots, reset or active.
 *
 *     desc.in_channels = 80, desc.in_h = 1, desc.in_w = 64;        // up to 64 frames of 80 numbers at a time
 *     desc.out_channels = 40, desc.kernel_h = 1, desc.kernel_w = 16, desc.stride_w = 8, desc.stream_axis = 2;
 *     ...                                                          // plan, workspace; the carry is 1 x 40 x 1 x 8 zeros
 *     tconv_step step;
 *     tconv_step_init(&step);
 *     step.src = &src, step.weights = &weights, step.dst = &dst, step.carry = &carry;
 *     step.workspace = workspace, step.workspace_size = size;
 *     while ((step.length = read_frames(src.data, 64)) > 0) {      // 80 x length
 *         tconv_plan_step(plan, &step);
 *         play(dst.data, 8 * step.length);                         // 40 x (8 * length)
 *     }
 *     tconv_plan_flush(plan, &step);                               // the last 8
 *
 * On the CPU a slot of an active image that is out of range, or that another one has, is INVALID_ARGUMENT ("slots[3]"). On
 * CUDA the host does not see slots: an image whose slot is out of range has no part, as if it were not active; two active
 * images of one slot leave its carry and their dst undefined. Nothing else is ever written.
 */
TCONV_API tconv_status tconv_plan_step(const tconv_plan *plan, const tconv_step *step);

/* Ends the stream of each image: gives the P outputs of its tail and makes its slot zeros, so that another stream may begin
 * there. src, weights and length of the step are ignored. Where P is 0 it does nothing. */
TCONV_API tconv_status tconv_plan_flush(const tconv_plan *plan, const tconv_step *step);

/* Frees the plan. NULL is allowed. On CUDA, the caller first waits for what still runs from it. A plan that is used or
 * destroyed again afterwards is INVALID_ARGUMENT ("plan") as long as its memory has not been given to another use; that is
 * a help to find the mistake, not a promise. */
TCONV_API void tconv_plan_destroy(tconv_plan *plan);

/* --------------------------------------------------------------------------------------------------------- one call */

/*
 * Plans and runs desc once. The backend is options' or TCONV_BACKEND's; with AUTO it is where src lives (the first
 * tensor that desc.op reads). Tensors that live elsewhere than the backend that was forced are copied there and dst
 * back; the call then returns when dst is ready. Where all lie on the device, the work is ordered on options->stream
 * and the call returns at once. dst must share no element with the others, as in tconv_plan_execute.
 */
TCONV_API tconv_status tconv_conv_transpose(const tconv_desc *desc, const tconv_options *options,
                                            const tconv_tensor *src, const tconv_tensor *weights,
                                            const tconv_tensor *bias, const tconv_tensor *dst, tconv_issue *issue);

/* The same with the operands of post-ops (tconv_plan_execute_with). */
TCONV_API tconv_status tconv_conv_transpose_with(const tconv_desc *desc, const tconv_options *options,
                                                 const tconv_operands *operands, tconv_issue *issue);

/* tconv_conv_transpose by its first name. */
TCONV_API tconv_status tconv_conv_transpose2d(const tconv_desc *desc, const tconv_options *options,
                                              const tconv_tensor *src, const tconv_tensor *weights,
                                              const tconv_tensor *bias, const tconv_tensor *dst, tconv_issue *issue);

/* tconv_conv_transpose_with by its first name. */
TCONV_API tconv_status tconv_conv_transpose2d_with(const tconv_desc *desc, const tconv_options *options,
                                                   const tconv_operands *operands, tconv_issue *issue);

/* ------------------------------------------------------------------------------------------------------- the system */

/*
 * Reads the environment variables again, for plans that are made from now on; plans that exist stay as they are. Returns
 * TCONV_ERROR_ENVIRONMENT where a value is bad, as every plan that is made will. Other threads may make plans meanwhile,
 * but as with getenv nobody may change the environment during the call.
 */
TCONV_API tconv_status tconv_environment_reload(tconv_issue *issue);

/* How tconv_system_info and tconv_explain write. */
typedef enum tconv_text_format {
    TCONV_TEXT_PLAIN = 0, /* lines for a reader */
    TCONV_TEXT_JSON = 1   /* one object */
} tconv_text_format;

/* Describes the build and the machine: version, build options, backends and why one is missing, GPUs, instruction sets,
 * cores, caches, NUMA nodes, environment variables as they were read. text, capacity and length as in tconv_plan_describe. */
TCONV_API tconv_status tconv_system_info(tconv_text_format format, char *text, size_t capacity, size_t *length);

/*
 * Says what each implementation of the backend would do with desc: its plan (tiles, stages, kernels), the time that the
 * cost model predicts for it and of what that is made, its rank, whether an image has the bits that it has alone
 * (batch_invariant), or why it declines. A plan takes the one of rank 1, unless options name another. With device NULL
 * it is the machine that options and environment name; else a GPU by its name in the cost model, such as "h200", which
 * need not be there, for which every build plans, one without CUDA too: no CUDA function is called. An unknown name is
 * INVALID_ARGUMENT ("device"), and the issue lists the names. options may be NULL. On CUDA predictions are seconds of the
 * kernels alone, and ranks are those of calls that pack the weights; the CPU's implementations predict nothing. text,
 * capacity and length as in tconv_plan_describe, and on failure as they were; the words are for people, and may change.
 *     A layer with depth is computed by layers of two axes over its planes, and what is said is said of the one with the most
 * work.
 */
TCONV_API tconv_status tconv_explain(const tconv_desc *desc, const tconv_options *options, const char *device,
                                     tconv_text_format format, char *text, size_t capacity, size_t *length,
                                     tconv_issue *issue);

#ifdef __cplusplus
}
#endif

#endif
