/*
 * libtconv_torch_operators.so: tconv's operators for processes without Python, above all C++ programs that load what
 * AOTInductor has compiled. Loading it defines tconv::conv_transpose1d, 2d and 3d, and those with post-ops,
 * for the CPU and CUDA, without derivatives. The package tconv.torch defines the same operators, so that a process has
 * either of the two.
 */
#include "torch_plans.h"

#include <stdio.h>

enum { INPUT, WEIGHT, BIAS, STRIDE, PADDING, OUTPUT_PADDING, GROUPS, DILATION, POST, OPERANDS };
static const layer_arguments of_layer = {STRIDE, PADDING, DILATION, OUTPUT_PADDING, GROUPS};

/* Computes a call. Returns false where it could not; status and issue then say why the library made no plan. */
static bool compute(stable_value *stack, bool has_post, tconv_issue *issue)
{
    thread_state *state = begin(make_state());
    planned_call call;
    *issue = (tconv_issue){.status = TCONV_SUCCESS};
    if (state == NULL ||
        !read_call(stack, &of_layer, has_post ? stack[POST] : 0, has_post ? stack[OPERANDS] : 0, &call))
        return false;
    torch_tensor *result = compute_layer(&call.layer, state);
    if (result == NULL) {
        issue->status = plan_call(&call, state, issue);
        if (issue->status == TCONV_SUCCESS)
            result = compute_layer(&call.layer, state);
    }
    if (result == NULL)
        return false;
    release_layer(stack, &of_layer);
    if (has_post)
        release_post(stack[POST], stack[OPERANDS]);
    stack[0] = value_of(result);
    return true;
}

static void throw_issue(const char *name, stable_value *stack, bool has_post, const tconv_issue *issue)
{
    release_layer(stack, &of_layer);
    if (has_post)
        release_post(stack[POST], stack[OPERANDS]);
    torch.aoti_torch_check(false, name, __FILE__, __LINE__,
                           issue->message[0] != '\0' ? issue->message : "tconv cannot compute this call");
}

/* What the library does not take is PyTorch's own layer, which has the same arguments. A bad environment variable is
 * nobody's intention. */
static void compute_or_pass_on(stable_value *stack, const char *name, const char *pytorchs, const char *overload)
{
    tconv_issue issue;
    if (compute(stack, false, &issue))
        return;
    if (issue.status == TCONV_ERROR_ENVIRONMENT)
        throw_issue(name, stack, false, &issue);
    if (torch.torch_call_dispatcher(pytorchs, overload, stack, INTERFACE_VERSION) != 0)
        throw_error_of(pytorchs);
}

static void compute_or_throw(stable_value *stack, const char *name)
{
    tconv_issue issue;
    if (!compute(stack, true, &issue))
        throw_issue(name, stack, true, &issue);
}

#define OPERATORS(n, overload)                                                                                         \
    static void conv_transpose##n##d(stable_value *stack, uint64_t arguments, uint64_t results)                        \
    {                                                                                                                  \
        (void)arguments, (void)results;                                                                                \
        compute_or_pass_on(stack, __func__, "aten::conv_transpose" #n "d", overload);                                  \
    }                                                                                                                  \
    static void conv_transpose##n##d_post(stable_value *stack, uint64_t arguments, uint64_t results)                   \
    {                                                                                                                  \
        (void)arguments, (void)results;                                                                                \
        compute_or_throw(stack, __func__);                                                                             \
    }
OPERATORS(1, "")
OPERATORS(2, "input")
OPERATORS(3, "input")

/* -------------------------------------------------------------------------------------------------------- when loaded */

#define SCHEMA(n)                                                                                                      \
    "conv_transpose" #n "d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[" #n "] stride=1, SymInt[" #n        \
    "] padding=0, SymInt[" #n "] output_padding=0, SymInt groups=1, SymInt[" #n "] dilation=1) -> Tensor"
#define POST_SCHEMA(n)                                                                                                 \
    "conv_transpose" #n "d_post(Tensor input, Tensor weight, Tensor? bias, SymInt[" #n "] stride, SymInt[" #n          \
    "] padding, SymInt[" #n "] output_padding, SymInt groups, SymInt[" #n "] dilation, str post, Tensor[] operands) "  \
    "-> Tensor"
static const char *const schemas[] = {SCHEMA(1), SCHEMA(2), SCHEMA(3), POST_SCHEMA(1), POST_SCHEMA(2), POST_SCHEMA(3)};

#define KERNELS_OF(name)                                                                                               \
    {"tconv", "CPU", #name, name},                                                                                     \
    {                                                                                                                  \
        "tconv", "CUDA", #name, name                                                                                   \
    }
static const struct kernel kernels[] = {KERNELS_OF(conv_transpose1d),      KERNELS_OF(conv_transpose2d),
                                        KERNELS_OF(conv_transpose3d),      KERNELS_OF(conv_transpose1d_post),
                                        KERNELS_OF(conv_transpose2d_post), KERNELS_OF(conv_transpose3d_post)};
#define KERNELS (sizeof kernels / sizeof *kernels)

static torch_library *definitions, *installed[KERNELS];

/* Stands for the settings where this PyTorch does not say what they are: no TF32. */
static int64_t settings_unknown(void)
{
    return TCONV_TORCH_OURS | TCONV_TORCH_CUDNN;
}

static const char *define(void)
{
    if (prepare(settings_unknown) != 0 || torch.aoti_torch_library_init_def == NULL ||
        torch.aoti_torch_library_def == NULL)
        return "there is no libtorch in this process, or one that is too old: load libtorch first";
    if (torch.aoti_torch_library_init_def("tconv", __FILE__, __LINE__, &definitions) != 0)
        return "tconv's operators are defined in this process already";
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        if (torch.aoti_torch_library_def(definitions, schemas[i]) != 0)
            return "this PyTorch refuses the definition of an operator";
    return install(KERNELS, kernels, installed) == 0 ? NULL : "this PyTorch refuses a kernel of an operator";
}

__attribute__((constructor)) static void when_loaded(void)
{
    const char *why = define();
    if (why != NULL)
        fprintf(stderr, "libtconv_torch_operators.so: %s\n", why);
}
