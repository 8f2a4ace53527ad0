/* Fuzzes workloads: every layer that is read is found under a name of its own, and text written from the layers is read
 * back to the same ones. */
#include <inttypes.h>
#include <string.h>

#include "command.h"
#include "fuzz.h"
#include "workloads.h"

#define HEADER          "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias\n"
#define HEADER_OF_DEPTH "name,N,Cin,D,H,W,Cout,kd,kh,kw,sd,sh,sw,pd,ph,pw,opd,oph,opw,dd,dh,dw,g,bias\n"
#define LINE_BYTES      512

/* Appends a number to a line. */
static void append(char *line, size_t *length, int64_t number)
{
    *length += (size_t)snprintf(line + *length, LINE_BYTES - *length, ",%" PRId64, number);
}

/* Appends what an axis has, depth first where there are columns of it. */
static void append_axes(char *line, size_t *length, bool deep, int64_t d, int64_t h, int64_t w)
{
    if (deep)
        append(line, length, d);
    append(line, length, h);
    append(line, length, w);
}

static void format_line(const workload *entry, bool deep, char *line)
{
    const tconv_desc *desc = &entry->layer.desc;
    size_t length = (size_t)snprintf(line, LINE_BYTES, "%s", entry->name);
    append(line, &length, desc->batch);
    append(line, &length, desc->in_channels);
    append_axes(line, &length, deep, desc->in_d, desc->in_h, desc->in_w);
    append(line, &length, desc->out_channels);
    append_axes(line, &length, deep, desc->kernel_d, desc->kernel_h, desc->kernel_w);
    append_axes(line, &length, deep, desc->stride_d, desc->stride_h, desc->stride_w);
    append_axes(line, &length, deep, desc->pad_front, desc->pad_top, desc->pad_left);
    append_axes(line, &length, deep, desc->output_padding_d, desc->output_padding_h, desc->output_padding_w);
    append_axes(line, &length, deep, desc->dilation_d, desc->dilation_h, desc->dilation_w);
    append(line, &length, desc->groups);
    append(line, &length, entry->layer.has_bias);
    fuzz_require(length + 1 < LINE_BYTES, "a line takes %zu bytes", length);
    memcpy(line + length, "\n", 2);
}

static void check_again(const workload_list *list)
{
    workload_list again = {0};
    char message[256], *text = malloc(sizeof HEADER_OF_DEPTH + list->count * LINE_BYTES);
    bool deep = false;
    if (text == NULL)
        return;
    for (size_t i = 0; i < list->count; ++i) { /* whether any field of depth is not its default */
        tconv_desc flat = list->items[i].layer.desc;
        harness_drop_depth(&flat);
        deep = deep || memcmp(&flat, &list->items[i].layer.desc, sizeof flat) != 0;
    }
    const char *const header = deep ? HEADER_OF_DEPTH : HEADER;
    size_t length = strlen(header);
    memcpy(text, header, length + 1);
    for (size_t i = 0; i < list->count; ++i) {
        format_line(&list->items[i], deep, text + length);
        length += strlen(text + length);
    }
    fuzz_require(workloads_parse(text, length, &again, message, sizeof message) == CLI_SUCCESS, "written, then %s",
                 message);
    fuzz_require(again.count == list->count, "%zu layers were written, %zu read", list->count, again.count);
    for (size_t i = 0; i < list->count; ++i)
        fuzz_require(strcmp(list->items[i].name, again.items[i].name) == 0 &&
                         memcmp(&list->items[i].layer.desc, &again.items[i].layer.desc, sizeof(tconv_desc)) == 0 &&
                         list->items[i].layer.has_bias == again.items[i].layer.has_bias,
                     "layer %zu is not what was written", i);
    workloads_release(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    workload_list list = {0};
    char message[256] = "";
    int code = workloads_parse((const char *)data, size, &list, message, sizeof message);
    fuzz_require(code == CLI_SUCCESS || message[0] != '\0', "a text is refused without a reason");
    for (size_t i = 0; i < list.count; ++i) {
        tconv_issue issue;
        fuzz_require(workloads_find(&list, list.items[i].name) == &list.items[i], "\"%s\" is not found",
                     list.items[i].name);
        tconv_validate(&list.items[i].layer.desc, &issue);
    }
    if (code == CLI_SUCCESS)
        check_again(&list);
    workloads_release(&list);
    return 0;
}
