#include "recorded.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/core/alloc.h"
#include "../src/cuda/cuda_backend.h"

enum { LINE = 1024, PATH = 512 };

static const tconv_allocator from_malloc;

void recorded_read(const char *path, void (*take)(void *context, char *line), void *context)
{
    char line[LINE], command[PATH];
    const int length = snprintf(command, sizeof command, "gzip -dc '%s'", path);
    cr_assert(length > 0 && length < PATH, "%s", path);
    FILE *file = popen(command, "r");
    cr_assert_not_null(file, "%s", path);
    cr_assert_not_null(fgets(line, sizeof line, file), "%s", path);
    while (fgets(line, sizeof line, file) != NULL)
        take(context, line);
    cr_assert_eq(pclose(file), 0, "%s", path);
}

char *recorded_field(char **rest)
{
    char *field = strsep(rest, ",");
    cr_assert_not_null(field);
    return field;
}

void recorded_read_extents(char **rest, int64_t extents[RECORDED_EXTENTS])
{
    for (int i = 0; i < RECORDED_EXTENTS; i++)
        extents[i] = strtoll(recorded_field(rest), NULL, 10);
}

void recorded_make_layer(tconv_layer *layer, tconv_op op, const char *precision, const char *layout,
                         const int64_t extents[RECORDED_EXTENTS])
{
    tconv_desc desc;
    tconv_issue issue;
    tconv_desc_init(&desc);
    desc.op = op;
    desc.batch = extents[0], desc.in_channels = extents[1], desc.in_h = extents[2], desc.in_w = extents[3];
    desc.out_channels = extents[4], desc.kernel_h = extents[5], desc.kernel_w = extents[6];
    desc.stride_h = extents[7], desc.stride_w = extents[8];
    desc.pad_top = desc.pad_bottom = extents[9], desc.pad_left = desc.pad_right = extents[10];
    desc.output_padding_h = extents[11], desc.output_padding_w = extents[12];
    desc.dilation_h = extents[13], desc.dilation_w = extents[14], desc.groups = extents[15];
    desc.dtype = strcmp(precision, "f16") == 0 ? TCONV_F16 : strcmp(precision, "bf16") == 0 ? TCONV_BF16 : TCONV_F32;
    desc.math = strcmp(precision, "tf32") == 0 ? TCONV_MATH_TF32 : TCONV_MATH_STRICT;
    desc.layout = strcmp(layout, "nhwc") == 0 ? TCONV_NHWC : TCONV_NCHW;
    memset(layer, 0, sizeof *layer);
    cr_assert_eq(tconv_problem_init(&layer->problem, &desc, &issue), TCONV_SUCCESS, "%s", issue.message);
    cr_assert_eq(tconv_phases_create(&layer->problem.h, &from_malloc, &layer->rows, &issue), TCONV_SUCCESS);
    cr_assert_eq(tconv_phases_create(&layer->problem.w, &from_malloc, &layer->columns, &issue), TCONV_SUCCESS);
    layer->target.backend = TCONV_BACKEND_CUDA;
    layer->target.math = desc.math;
    layer->packed_before = true;
    cr_assert(tconv_cuda_resolve_named("h200", &layer->target));
}

void recorded_release_layer(tconv_layer *layer)
{
    tconv_phases_release(&layer->rows, &from_malloc);
    tconv_phases_release(&layer->columns, &from_malloc);
}

bool recorded_plan(const tconv_implementation *implementation, const tconv_layer *layer, tconv_planned *planned,
                   tconv_issue *issue)
{
    void *made = calloc(1, implementation->plan_bytes);
    cr_assert_not_null(made);
    const tconv_status status = implementation->plan(layer, made, planned, issue);
    free(made);
    return status == TCONV_SUCCESS;
}

int recorded_least(const double *numbers, int count)
{
    int at = 0;
    for (int i = 1; i < count; i++)
        if (numbers[i] < numbers[at])
            at = i;
    return at;
}
