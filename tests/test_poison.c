/*
 * No implementation computes with memory that it has not written. Memory for packed weights and scratch holds
 * signalling NaNs, as do the gaps and surroundings of every tensor, and no arithmetic may meet one (FE_INVALID) or
 * divide by zero. The bits of dst are the same whatever the memory held. The test calls implementations below the API,
 * so that caches of any size lead to every tiling.
 */
#include <criterion/criterion.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/alloc.h"
#include "../src/core/problem.h"
#include "../src/cpu/cpu_backend.h"
#include "../src/cpu/cpu_target.h"
#include "../src/dispatch/impl_list.h"
#include "harness.h"
#include "support/bare_layer.h"
#include "support/desc_numbers.h"
#include "support/part.h"

static const tconv_allocator from_malloc;

#define RANDOM_LAYERS 800

/* Multiply-adds: larger layers are left out. Some thousands remain, among them all kinds of corners. */
#define MOST_PRODUCTS 1e6

/* Elements around each tensor that belong to nobody: more than any vector has. */
enum { AROUND = 32 };

/* The contents of memory before a run, in numbers of the size of the element or of the type of the sums. */
enum poison { SIGNALLING, ONES, ZEROS, POISONS };

static void poison(void *memory, size_t bytes, size_t size, enum poison kind)
{
    static const struct {
        uint64_t bits8;
        uint32_t bits4;
        uint16_t bits2;
    } kinds[POISONS] = {{0x7ff4000000000001, 0x7fa00001, 0x7d01}, {0x3ff0000000000000, 0x3f800000, 0x3c00}, {0, 0, 0}};
    for (size_t i = 0; i + size <= bytes; i += size) {
        char *at = (char *)memory + i;
        if (size == 8)
            memcpy(at, &kinds[kind].bits8, size);
        else if (size == 4)
            memcpy(at, &kinds[kind].bits4, size);
        else
            memcpy(at, &kinds[kind].bits2, size);
    }
}

/* A tensor with its surroundings, all signalling NaNs. */
struct tensor {
    char *memory, *data;
    size_t bytes;
};

static struct tensor make_tensor(const tconv_problem *problem, int64_t extent)
{
    struct tensor made;
    size_t size = problem->element_size;
    made.bytes = ((size_t)extent + 2 * (size_t)AROUND) * size;
    made.memory = malloc(made.bytes);
    cr_assert_not_null(made.memory);
    made.data = made.memory + AROUND * size;
    if (problem->dtype == TCONV_BF16) /* a signalling NaN of its own */
        for (size_t i = 0; i < made.bytes; i += 2)
            memcpy(made.memory + i, &(uint16_t){0x7fa1}, 2);
    else
        poison(made.memory, made.bytes, size, SIGNALLING);
    return made;
}

/* Writes small integers where the view has elements. */
static void fill_tensor(const struct tensor *tensor, tconv_dtype dtype, const harness_view *view,
                        harness_random *random)
{
    for (int64_t a = 0; a < view->shape[0]; a++)
        for (int64_t b = 0; b < view->shape[1]; b++)
            for (int64_t c = 0; c < view->shape[2]; c++)
                for (int64_t d = 0; d < view->shape[3]; d++)
                    harness_element_set(dtype, tensor->data, harness_view_index(view, a, b, c, d),
                                        (double)harness_random_integer(random, -3, 3));
}

/* A machine: an instruction set, and cache sizes for which tiles are cut. 0: its own. */
struct machine {
    tconv_cpu_isa isa;
    size_t l2_bytes, l3_bytes;
};

/* A last-level cache of one byte makes everything streamed that can be. */
static const struct {
    size_t l2_bytes, l3_bytes;
} caches[] = {{0, 0}, {0, 1}, {16 << 10, 1}, {48 << 10, 0}};

static void make_layer(tconv_layer *layer, const tconv_desc *desc, const struct machine *machine)
{
    tconv_issue issue;
    memset(layer, 0, sizeof *layer);
    cr_assert_eq(tconv_problem_init(&layer->problem, desc, &issue), TCONV_SUCCESS, "%s", issue.message);
    cr_assert_eq(tconv_phases_create(&layer->problem.h, &from_malloc, &layer->rows, &issue), TCONV_SUCCESS);
    cr_assert_eq(tconv_phases_create(&layer->problem.w, &from_malloc, &layer->columns, &issue), TCONV_SUCCESS);
    cr_assert_eq(tconv_cpu_resolve(1, machine->isa, TCONV_CPU_TUNING_DETECTED, &layer->target, &issue), TCONV_SUCCESS);
    layer->target.backend = TCONV_BACKEND_CPU;
    tconv_cpu_target cpu = tconv_cpu_target_of(&layer->target);
    if (machine->l2_bytes > 0)
        cpu.l2_bytes = machine->l2_bytes;
    if (machine->l3_bytes > 0)
        cpu.l3_bytes = machine->l3_bytes;
    tconv_cpu_target_set(&layer->target, cpu);
}

struct tensors {
    struct tensor src, weights, bias, dst;
    bool has_bias;
};

/* Executes once in memory that holds the poison; returns the floating-point exceptions that it raised. */
static int run(tconv_layer *layer, const tconv_implementation *implementation, const struct tensors *tensors,
               enum poison kind)
{
    tconv_memory_sizes sizes;
    tconv_issue issue;
    void *made;
    size_t real = layer->problem.dtype == TCONV_F64 ? 8 : 4;
    cr_assert_eq(bare_layer_plan(layer, implementation, &made, &sizes, &issue), TCONV_SUCCESS, "%s", issue.message);
    size_t packed_bytes = tconv_align_up(sizes.packed + 1, TCONV_ALIGNMENT);
    size_t scratch_bytes = tconv_align_up(sizes.scratch + 1, TCONV_ALIGNMENT);
    void *packed = aligned_alloc(TCONV_ALIGNMENT, packed_bytes),
         *scratch = aligned_alloc(TCONV_ALIGNMENT, scratch_bytes);
    cr_assert(packed != NULL && scratch != NULL);
    poison(packed, packed_bytes, real, kind);
    poison(scratch, scratch_bytes, real, kind);
    const tconv_arguments arguments = {.src = tensors->src.data,
                                       .packed = packed,
                                       .bias = tensors->has_bias ? tensors->bias.data : NULL,
                                       .dst = tensors->dst.data,
                                       .scratch = scratch};
    feclearexcept(FE_ALL_EXCEPT);
    tconv_status status = implementation->pack(layer, made, tensors->weights.data, packed, NULL, &issue);
    if (status == TCONV_SUCCESS)
        status = implementation->execute(layer, made, &arguments, &issue);
    int raised = fetestexcept(FE_INVALID | FE_DIVBYZERO);
    cr_assert_eq(status, TCONV_SUCCESS, "%s", issue.message);
    free(packed);
    free(scratch);
    free(made);
    return raised;
}

static struct tensors make_tensors(const harness_layer *layer, const tconv_problem *problem, harness_random *random)
{
    const harness_view src = harness_src_view(&layer->desc), weights = harness_weights_view(&layer->desc);
    const harness_view bias = {{1, 1, 1, problem->out_channels}, {0, 0, 0, 1}, problem->out_channels, 1};
    struct tensors made = {.src = make_tensor(problem, problem->src_extent),
                           .weights = make_tensor(problem, problem->weight_extent),
                           .bias = make_tensor(problem, problem->out_channels),
                           .has_bias = layer->has_bias};
    fill_tensor(&made.src, problem->dtype, &src, random);
    fill_tensor(&made.weights, problem->dtype, &weights, random);
    fill_tensor(&made.bias, problem->dtype, &bias, random);
    return made;
}

static void release_tensors(struct tensors *tensors)
{
    free(tensors->src.memory);
    free(tensors->weights.memory);
    free(tensors->bias.memory);
}

/* Checks the layer on a machine by an implementation; returns false where it is not taken. */
static bool check(const harness_layer *given, const struct machine *machine, const tconv_implementation *implementation,
                  harness_random *random)
{
    char text[HARNESS_LAYER_TEXT];
    tconv_layer layer;
    make_layer(&layer, &given->desc, machine);
    bool taken = bare_layer_is_taken(&layer, implementation, NULL);
    if (taken) {
        struct tensors tensors = make_tensors(given, &layer.problem, random);
        struct tensor first = {0};
        harness_layer_format(given, text, sizeof text);
        for (int kind = 0; kind < POISONS; kind++) {
            tensors.dst = make_tensor(&layer.problem, layer.problem.dst_extent);
            int raised = run(&layer, implementation, &tensors, (enum poison)kind);
            cr_assert_eq(raised, 0, "%s %s l2=%zu l3=%zu, memory %d: %s%s: %s", implementation->name,
                         harness_cpu_isa_name(machine->isa), machine->l2_bytes, machine->l3_bytes, kind,
                         raised & FE_INVALID ? "invalid " : "", raised & FE_DIVBYZERO ? "division by zero" : "", text);
            if (kind == 0) {
                first = tensors.dst;
                continue;
            }
            bool same = tensors.dst.memory != NULL && first.memory != NULL &&
                        memcmp(tensors.dst.memory, first.memory, first.bytes) == 0;
            free(tensors.dst.memory);
            cr_assert(same, "%s %s: other bits from memory %d: %s", implementation->name,
                      harness_cpu_isa_name(machine->isa), kind, text);
        }
        free(first.memory);
        release_tensors(&tensors);
    }
    bare_layer_release(&layer);
    return taken;
}

static tconv_cpu_isa levels[TCONV_CPU_ISA_AMX];
static size_t level_count;

static void list_levels_of_machine(void)
{
    level_count = 0;
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; isa++)
        if (tconv_cpu_has_isa((tconv_cpu_isa)isa))
            levels[level_count++] = (tconv_cpu_isa)isa;
}

TestSuite(poison, .init = list_levels_of_machine);

/* Checks the layer by every implementation, each time at another instruction set and with other caches, or at all of
 * them. */
static void check_layer(const harness_layer *layer, size_t number, bool everywhere, harness_random *random)
{
    static const tconv_implementation *const implementations[] = {&tconv_cpu_phases, &tconv_cpu_pixels,
                                                                  &tconv_cpu_col2im, &tconv_cpu_reference};
    size_t count = everywhere ? level_count * COUNT(caches) : 1;
    if (layer->desc.batch == 0 || harness_layer_flops(&layer->desc) / 2 > MOST_PRODUCTS)
        return;
    for (size_t i = 0; i < COUNT(implementations); i++)
        for (size_t at = number; at < number + count; at++) {
            const struct machine machine = {levels[at % level_count], caches[at / level_count % COUNT(caches)].l2_bytes,
                                            caches[at / level_count % COUNT(caches)].l3_bytes};
            check(layer, &machine, implementations[i], random);
        }
}

/* ------------------------------------------------------------------------------------------------------------ layers */

/* Layers with tiles that random layers seldom have: several images, parts of tiles, gathered terms, streamed rows,
 * stencils, pixels by K-blocks, padded blocks, depthwise ones, no taps at all. */
static const char *const problems[] = {
    "n=7 ci=12 h=2 w=7 co=16 k=4x3 s=3x2 d=2x1 g=4",
    "n=5 ci=3 h=4 w=5 co=2 k=3 p=1 b=1",
    "n=4 ci=5 h=3 w=3 co=7 k=5 s=2 p=2",
    "n=1 ci=1 h=9 w=700 co=1 k=3 s=2 p=1 b=1",
    "n=1 ci=1 h=5 w=333 co=2 k=3x4 s=1x4 p=1 b=1",
    "n=2 ci=33 h=6 w=19 co=33 k=4 s=2 p=1 g=33 b=1",
    "n=1 ci=3 h=7 w=601 co=5 k=3 p=1",
    "n=1 ci=2 h=3 w=300 co=3 k=2x3 s=1x3 d=1x5 b=1",
    "n=3 ci=40 h=5 w=6 co=8 k=3 d=9 b=1",
    "n=2 ci=70 h=4 w=5 co=20 k=3 s=2 p=1 b=1",
    "n=2 ci=300 h=3 w=5 co=33 k=2 s=2 b=1",
    "n=3 ci=100 h=1 w=1 co=40 k=3x2 b=1",
    "n=2 ci=3 h=1 w=1 co=4 k=1 s=4 p=1x1x0x0 op=3 b=1",
    "n=2 ci=4 h=5 w=6 co=3 k=1 s=3 op=2 b=1",
    "n=2 ci=4 h=3 w=5 co=3 k=3 s=20 b=1",
    "n=1 ci=6 h=20 w=17 co=1 k=5 s=3 p=2 op=1 b=1",
    "n=1 ci=4 h=9 w=130 co=3 k=4 s=2 p=1 b=1",
    "n=1 ci=500 h=3 w=3 co=2 k=7 s=2 p=3",
};

Test(poison, chosen_layers_in_every_form)
{
    harness_random random;
    harness_random_seed(&random, 1);
    for (size_t i = 0; i < COUNT(problems); i++)
        for (int form = 0; form < 8; form++) {
            harness_layer layer;
            char message[128];
            cr_assert(harness_problem_parse(problems[i], &layer, message, sizeof message), "%s", message);
            layer.desc.dtype = (tconv_dtype)(form / 2);
            layer.desc.layout = form % 2 == 0 ? TCONV_NCHW : TCONV_NHWC;
            if (in_part(i * 8 + (size_t)form))
                check_layer(&layer, 0, true, &random);
        }
}

Test(poison, corners)
{
    harness_random random;
    harness_random_seed(&random, 2);
    for (size_t i = 0; i < harness_corner_count(); i++) {
        harness_layer layer;
        harness_corner(i, &layer);
        if (in_part(i))
            check_layer(&layer, i / 8 + i, false, &random);
    }
}

Test(poison, random_layers)
{
    harness_random random;
    harness_random_seed(&random, 3);
    for (size_t i = 0; i < RANDOM_LAYERS; i++) {
        harness_layer layer;
        harness_random_layer(&random, &layer);
        if (in_part(i))
            check_layer(&layer, i, false, &random);
    }
}
