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

void gradient_set_form(harness_layer *layer, int form)
{
    layer->desc.weight_layout = (tconv_weight_layout)(form % 3);
    layer->desc.layout = (tconv_layout)(form / 3 % 2);
    layer->desc.dtype = (tconv_dtype)(form / 6);
}

void gradient_expect_taken(tconv_backend backend, size_t taken)
{
    if (taken == 0 && backend == TCONV_BACKEND_CUDA) {
        fprintf(stderr, "skipped: this needs a gradient on CUDA\n");
        cr_skip_test("skipped: this needs a gradient on CUDA");
    }
    cr_assert_gt(taken, 0, "nothing takes the layers");
}
