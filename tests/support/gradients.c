#include "gradients.h"

#include <criterion/criterion.h>
#include <stdio.h>

harness_layer gradient_layer(const char *problem, tconv_op op)
{
    harness_layer layer;
    char message[128];
    cr_assert(harness_problem_parse(problem, &layer, message, sizeof message), "%s: %s", problem, message);
    layer.desc.op = op;
    return layer;
}

harness_layer gradient_weights_layer(const char *problem, tconv_dtype dtype, tconv_layout layout)
{
    harness_layer layer = gradient_layer(problem, TCONV_BACKWARD_WEIGHTS);
    layer.desc.dtype = dtype;
    layer.desc.layout = layout;
    layer.desc.math = dtype == TCONV_F32 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    return layer;
}

void gradient_set_form(harness_layer *layer, int form)
{
    layer->desc.weight_layout = (tconv_weight_layout)(form % 3);
    layer->desc.layout = (tconv_layout)(form / 3 % 2);
    layer->desc.dtype = (tconv_dtype)(form / 6);
}

/* Whether CUDA has either gradient, of any layer. */
static bool cuda_has_gradients(void)
{
    const tconv_options options = {.struct_size = sizeof options, .backend = TCONV_BACKEND_CUDA, .device = -1};
    for (int op = TCONV_BACKWARD_DATA; op <= TCONV_BACKWARD_WEIGHTS; op++) {
        const harness_layer layer = gradient_layer("ci=8 h=8 w=8 co=8 k=3 p=1", (tconv_op)op);
        tconv_plan *plan;
        if (tconv_plan_create(&layer.desc, &options, &plan, NULL) != TCONV_SUCCESS)
            continue;
        tconv_plan_destroy(plan);
        return true;
    }
    return false;
}

void gradient_expect_taken(tconv_backend backend, size_t taken)
{
    if (taken == 0 && backend == TCONV_BACKEND_CUDA) {
        /* ctest takes a suite that says "this needs" for skipped, whatever its other tests say */
        fprintf(stderr, cuda_has_gradients() ? "left out: CUDA has the other gradient alone\n"
                                             : "skipped: this needs a gradient on CUDA\n");
        cr_skip_test("no such gradient on CUDA");
    }
    cr_assert_gt(taken, 0, "nothing takes the layers");
}
