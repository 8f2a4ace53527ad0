/*
 * The gradient of src on the CPU where caches are small: in K-blocks with partial sums, in tiles of few rows, and with
 * results that are streamed, whole rows of one image as one; exact on integers at every instruction set. The machine is set
 * below the API. These are tests of the suite gradients.
 */
#include <criterion/criterion.h>

#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/cases.h"
#include "support/gradients.h"
#include "support/ways.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A last-level cache of one byte makes everything streamed that can be. */
static const struct {
    size_t l2_bytes, l3_bytes;
} caches[] = {{0, 1}, {16 << 10, 1}, {48 << 10, 0}};

/* Rows of src that are stored one by one, as they begin and end anywhere in a cache line; that are stored together; of
 * several images; of several blocks of channels; in tiles that end within a row. */
static const char *const problems[] = {
    "n=1 ci=3 h=9 w=701 co=2 k=3 s=2 p=1",  "n=1 ci=14 h=21 w=67 co=5 k=1",
    "n=2 ci=13 h=19 w=33 co=4 k=2 s=2",     "n=5 ci=25 h=5 w=7 co=70 k=3 s=2 p=1",
    "n=3 ci=9 h=33 w=41 co=9 k=3 p=1 g=9",  "n=1 ci=6 h=40 w=130 co=40 k=3x4 s=1x3 p=1x0 d=2x1",
    "n=2 ci=32 h=9 w=20 co=24 k=4 s=4 p=1", "n=2 ci=4 h=3 w=700 co=2 k=1x3 s=1x5 p=0x1",
};

static void check(const char *problem, int form, tconv_cpu_isa isa, size_t l2_bytes, size_t l3_bytes)
{
    const struct bare_target machine = {.isa = isa, .cache = l2_bytes, .threads = 2};
    harness_output output = {.implementation = tconv_cpu_dgrad.name};
    harness_failure failure;
    harness_layer layer = gradient_layer(problem, TCONV_BACKWARD_DATA);
    tconv_layer bare;
    layer.desc.dtype = (tconv_dtype)(form / 2);
    layer.desc.layout = (tconv_layout)(form % 2);
    bare_layer_make(&bare, problem, layer.desc.dtype, layer.desc.layout, &machine);
    tconv_cpu_target cpu = tconv_cpu_target_of(&bare.target);
    if (l3_bytes > 0)
        cpu.l3_bytes = l3_bytes;
    tconv_cpu_target_set(&bare.target, cpu);
    harness_case test = make_case(&layer, HARNESS_INTEGERS, 1);
    output.src = harness_buffer_create(test.views[HARNESS_SRC].extent, harness_element_size(layer.desc.dtype), 0);
    bare_layer_run(&bare, &tconv_cpu_dgrad,
                   &(struct bare_tensors){.src = output.src.data, .weights = test.weights.data, .dst = test.dst.data});
    cr_assert(harness_compare(&test, &output, &failure), "%s l2=%zu l3=%zu: %s", harness_cpu_isa_name(isa), l2_bytes,
              l3_bytes, failure.text);
    harness_output_release(&output);
    harness_case_destroy(&test);
    bare_layer_release(&bare);
}

Test(gradients, data_in_small_caches)
{
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++)
        for (size_t p = 0; tconv_cpu_has_isa((tconv_cpu_isa)isa) && p < COUNT(problems); p++)
            for (int form = 0; form < LARGER_FORMS; form++) /* four dtypes, two layouts */
                for (size_t c = 0; c < COUNT(caches); c++)
                    check(problems[p], form, (tconv_cpu_isa)isa, caches[c].l2_bytes, caches[c].l3_bytes);
}
