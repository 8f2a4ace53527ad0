/*
 * The layers of cuda_races.txt, which scripts/gpu-racecheck runs on a GPU: each is taken by its implementation and
 * launches the kernel that it names, and every kernel that there is for Hopper is launched by one of them. A kernel that
 * has no line was never looked at for races.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/drive.h"
#include "standin/standin.h"
#include "support/expect.h"

#define MAX_KERNEL_NAMES 256

struct race {
    char way[64], implementation[32], kernel[48], op[24], kind[16], layout[8], problem[192];
};

/* Reads the next line that is no comment. */
static bool read_race(FILE *file, struct race *race)
{
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#')
            continue;
        cr_assert_eq(sscanf(line, "%63s %31s %47s %23s %15s %7s %191[^\n]", race->way, race->implementation,
                            race->kernel, race->op, race->kind, race->layout, race->problem),
                     7, "not a line of cuda_races.txt: %s", line);
        return true;
    }
    return false;
}

static harness_layer layer_of(const struct race *race)
{
    static const char *const ops[] = {
        [TCONV_FORWARD] = "forward",
        [TCONV_BACKWARD_DATA] = "backward_data",
        [TCONV_BACKWARD_WEIGHTS] = "backward_weights",
    };
    static const struct {
        const char *kind;
        tconv_dtype dtype;
        tconv_math math;
    } kinds[] = {{"strict", TCONV_F32, TCONV_MATH_STRICT},
                 {"tf32", TCONV_F32, TCONV_MATH_TF32},
                 {"f16", TCONV_F16, TCONV_MATH_DEFAULT},
                 {"bf16", TCONV_BF16, TCONV_MATH_DEFAULT},
                 {"f64", TCONV_F64, TCONV_MATH_DEFAULT}};
    harness_layer layer;
    char message[128];
    size_t op = 0, kind = 0;
    cr_assert(harness_problem_parse(race->problem, &layer, message, sizeof message), "%s: %s", race->way, message);
    while (op < sizeof ops / sizeof ops[0] && strcmp(ops[op], race->op) != 0)
        op++;
    while (kind < sizeof kinds / sizeof kinds[0] && strcmp(kinds[kind].kind, race->kind) != 0)
        kind++;
    cr_assert(op < sizeof ops / sizeof ops[0] && kind < sizeof kinds / sizeof kinds[0], "%s: %s %s", race->way,
              race->op, race->kind);
    layer.desc.op = (tconv_op)op;
    layer.desc.dtype = kinds[kind].dtype;
    layer.desc.math = kinds[kind].math;
    layer.desc.layout = strcmp(race->layout, "nhwc") == 0 ? TCONV_NHWC : TCONV_NCHW;
    return layer;
}

/* Packs, where weights are read, and executes, with all calls recorded. */
static void launch(const struct race *race)
{
    const harness_layer layer = layer_of(race);
    const drive_tensors tensors = drive_place(&layer, 0);
    const tconv_options options = drive_options(race->implementation, 0);
    tconv_plan *plan = NULL, *packed = NULL;
    tconv_issue issue;
    cr_assert_eq(tconv_plan_create(&layer.desc, &options, &plan, &issue), TCONV_SUCCESS, "%s: %s", race->way,
                 issue.message);
    if (layer.desc.op != TCONV_BACKWARD_WEIGHTS)
        expect_success(tconv_plan_pack_weights(plan, &tensors.weights, DRIVE_STREAM, &packed, &issue), issue);
    cr_assert_eq(drive_execute(packed != NULL ? packed : plan, &tensors), TCONV_SUCCESS, "%s", race->way);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
}

/* Writes the name of a kernel's function, without its parameters: _ZN5tconv5cells14streaming_gemmI... is
 * tconv::cells::streaming_gemm. */
static void name_function(const char *mangled, char *text, size_t capacity)
{
    const char *at = strncmp(mangled, "_ZN", 3) == 0 ? mangled + 3 : mangled + strcspn(mangled, "0123456789");
    text[0] = '\0';
    for (size_t used = 0; *at >= '0' && *at <= '9';) {
        char *name;
        const size_t length = strtoul(at, &name, 10);
        if (strncmp(name, "_GLOBAL__N_", strlen("_GLOBAL__N_")) != 0)
            used += (size_t)snprintf(text + used, capacity - used, "%s%.*s", used > 0 ? "::" : "", (int)length, name);
        cr_assert_lt(used, capacity);
        at = name + length;
    }
}

struct names {
    char text[MAX_KERNEL_NAMES][96];
    size_t count;
};

static void add_name(struct names *names, const char *mangled)
{
    char text[96];
    name_function(mangled, text, sizeof text);
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->text[i], text) == 0)
            return;
    cr_assert_lt(names->count, (size_t)MAX_KERNEL_NAMES);
    memcpy(names->text[names->count++], text, sizeof text);
}

static bool has_name(const struct names *names, const char *mangled)
{
    char text[96];
    name_function(mangled, text, sizeof text);
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->text[i], text) == 0)
            return true;
    return false;
}

/* Kernels that no layer of the table launches: an empty one; one that sums the gradient of the bias alone, which
 * `tconv bench` never asks for; and one that transposes src for cuda_dgrad alone, of which no small layer is known on two
 * multiprocessors. */
static bool is_left_out(const char *mangled)
{
    return strstr(mangled, "architecture_probe") != NULL || strstr(mangled, "sum_slots_kernel") != NULL ||
           strstr(mangled, "transpose_alone") != NULL;
}

/* Says which device racecheck's build plans for. */
static void use_two_multiprocessors(void)
{
    standin_device device = standin_h200;
    device.multiprocessors = 2;
    standin_set_devices(&device, 1, cudaSuccess);
}

/* scripts/gpu-racecheck writes a log by each name, and breaks off over the second of one. */
Test(standin, layers_for_racecheck_have_names_of_their_own)
{
    static char names[1024][sizeof(((struct race *)NULL)->way)];
    FILE *file = fopen(TCONV_RACES, "r");
    struct race race;
    size_t count = 0;
    cr_assert_not_null(file);
    for (; read_race(file, &race); count++) {
        cr_assert_lt(count, sizeof names / sizeof names[0]);
        for (size_t i = 0; i < count; i++)
            cr_expect_neq(strcmp(names[i], race.way), 0, "two lines are called %s", race.way);
        memcpy(names[count], race.way, sizeof race.way);
    }
    fclose(file);
}

Test(standin, every_kernel_has_a_layer_for_racecheck)
{
    static struct names launched, missing;
    FILE *file = fopen(TCONV_RACES, "r");
    struct race race;
    cr_assert_not_null(file);
    use_two_multiprocessors();
    while (read_race(file, &race)) {
        bool is_found = false;
        standin_forget_calls();
        launch(&race);
        for (size_t i = 0; i < standin_call_count(); i++) {
            const standin_call *call = standin_call_at(i);
            if (!standin_is_launch(call))
                continue;
            add_name(&launched, standin_kernel_name(call->kernel));
            is_found = is_found || strstr(standin_kernel_name(call->kernel), race.kernel) != NULL;
        }
        cr_expect(is_found, "%s: %s launches no kernel %s for %s", race.way, race.implementation, race.kernel,
                  race.problem);
    }
    fclose(file);
    for (int i = 0; i < standin_kernel_count(); i++) {
        const standin_kernel *kernel = standin_kernel_at(i);
        if (standin_has_image(kernel, &standin_h200) && !has_name(&launched, standin_kernel_name(kernel)) &&
            !is_left_out(standin_kernel_name(kernel)))
            add_name(&missing, standin_kernel_name(kernel));
    }
    for (size_t i = 0; i < missing.count; i++)
        cr_expect_fail("no line of cuda_races.txt launches %s", missing.text[i]);
}
