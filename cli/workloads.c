/* Reads workloads, strictly: the header line must be the one we know, every line must have every column. */
#include "workloads.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define HEADER         "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias"
#define MAX_FILE_BYTES (16 << 20) /* some hundred thousand layers */

/* The columns after the name, in order; ph and pw stand for both sides. */
static const size_t columns[] = {
    offsetof(tconv_desc, batch),
    offsetof(tconv_desc, in_channels),
    offsetof(tconv_desc, in_h),
    offsetof(tconv_desc, in_w),
    offsetof(tconv_desc, out_channels),
    offsetof(tconv_desc, kernel_h),
    offsetof(tconv_desc, kernel_w),
    offsetof(tconv_desc, stride_h),
    offsetof(tconv_desc, stride_w),
    offsetof(tconv_desc, pad_top),
    offsetof(tconv_desc, pad_left),
    offsetof(tconv_desc, output_padding_h),
    offsetof(tconv_desc, output_padding_w),
    offsetof(tconv_desc, dilation_h),
    offsetof(tconv_desc, dilation_w),
    offsetof(tconv_desc, groups),
};
#define COLUMN_COUNT (sizeof columns / sizeof columns[0])

bool workloads_append(workload_list *list, const char *name, const harness_layer *layer)
{
    workload *items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (items == NULL)
        return false;
    list->items = items;
    snprintf(items[list->count].name, sizeof items[0].name, "%s", name);
    items[list->count++].layer = *layer;
    return true;
}

/* Reads the whole number at *at and the separator after it, which must be next. */
static bool take_number(const char **at, char next, int64_t *value)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    if (errno != 0 || *end != next)
        return false;
    *at = *end == '\0' ? end : end + 1;
    return true;
}

/* Reads one line, which ends with '\0'. Returns what is wrong, or NULL. */
static const char *parse_line(const char *line, workload *to)
{
    size_t length = strcspn(line, ",");
    if (length == 0 || length >= sizeof to->name)
        return "the name must have 1 to 63 characters";
    if (strcspn(line, "\"\\") < length)
        return "the name must be without quotes and backslashes";
    memcpy(to->name, line, length);
    to->name[length] = '\0';
    const char *at = line + length + (line[length] == ',');
    tconv_desc *desc = &to->layer.desc;
    tconv_desc_init(desc);
    for (size_t i = 0; i < COLUMN_COUNT; ++i) {
        int64_t value;
        if (!take_number(&at, ',', &value))
            return "there must be 18 columns, all but the name whole numbers >= 0";
        memcpy((char *)desc + columns[i], &value, sizeof value);
    }
    int64_t bias;
    if (!take_number(&at, '\0', &bias) || bias > 1)
        return "the last column, bias, must be 0 or 1";
    to->layer.has_bias = bias == 1;
    desc->pad_bottom = desc->pad_top;
    desc->pad_right = desc->pad_left;
    return NULL;
}

int workloads_parse(const char *text, workload_list *list, char *message, size_t capacity)
{
    for (int number = 1; *text != '\0'; ++number) {
        char line[512];
        size_t length = strcspn(text, "\r\n");
        const char *wrong = length >= sizeof line ? "the line is longer than 511 characters" : NULL;
        memcpy(line, text, wrong == NULL ? length : 0);
        line[wrong == NULL ? length : 0] = '\0';
        text += length;
        text += *text == '\r';
        text += *text == '\n';
        workload entry;
        if (wrong == NULL && number == 1 && strcmp(line, HEADER) != 0)
            wrong = "the header must be " HEADER;
        if (wrong == NULL && (number == 1 || line[0] == '\0'))
            continue;
        if (wrong == NULL)
            wrong = parse_line(line, &entry);
        if (wrong == NULL && workloads_find(list, entry.name) != NULL)
            wrong = "the name appears twice";
        if (wrong != NULL) {
            snprintf(message, capacity, "line %d: %s", number, wrong);
            return CLI_BAD_INPUT;
        }
        if (!workloads_append(list, entry.name, &entry.layer)) {
            snprintf(message, capacity, "no memory");
            return CLI_FAILURE;
        }
    }
    if (list->count > 0)
        return CLI_SUCCESS;
    snprintf(message, capacity, "has no layer");
    return CLI_BAD_INPUT;
}

int workloads_read(const char *path, workload_list *list, char *message, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    char *text = file != NULL ? malloc(MAX_FILE_BYTES + 1) : NULL;
    int code = CLI_BAD_INPUT;
    if (file == NULL) {
        snprintf(message, capacity, "cannot be opened: %s", strerror(errno));
    } else if (text == NULL) {
        snprintf(message, capacity, "no memory");
        code = CLI_FAILURE;
    } else {
        size_t length = fread(text, 1, MAX_FILE_BYTES + 1, file);
        if (ferror(file) != 0) {
            snprintf(message, capacity, "cannot be read: %s", strerror(errno));
        } else if (length > MAX_FILE_BYTES) {
            snprintf(message, capacity, "is larger than 16 MiB");
        } else {
            text[length] = '\0';
            code = workloads_parse(text, list, message, capacity);
        }
    }
    free(text);
    if (file != NULL)
        fclose(file);
    return code;
}

const workload *workloads_find(const workload_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; ++i)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

void workloads_release(workload_list *list)
{
    free(list->items);
    *list = (workload_list){0};
}
