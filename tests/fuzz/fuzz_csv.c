/* Fuzzes workloads: every layer that is read is found under a name of its own, and text written from the layers is read
 * back to the same ones. */
#include <inttypes.h>
#include <string.h>

#include "command.h"
#include "fuzz.h"
#include "workloads.h"

#define HEADER     "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias\n"
#define LINE_BYTES 512

static void format_line(const workload *entry, char *line)
{
    const tconv_desc *desc = &entry->layer.desc;
    const int64_t numbers[] = {desc->batch,
                               desc->in_channels,
                               desc->in_h,
                               desc->in_w,
                               desc->out_channels,
                               desc->kernel_h,
                               desc->kernel_w,
                               desc->stride_h,
                               desc->stride_w,
                               desc->pad_top,
                               desc->pad_left,
                               desc->output_padding_h,
                               desc->output_padding_w,
                               desc->dilation_h,
                               desc->dilation_w,
                               desc->groups,
                               entry->layer.has_bias};
    size_t length = (size_t)snprintf(line, LINE_BYTES, "%s", entry->name);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i)
        length += (size_t)snprintf(line + length, LINE_BYTES - length, ",%" PRId64, numbers[i]);
    fuzz_require(length + 1 < LINE_BYTES, "a line takes %zu bytes", length);
    memcpy(line + length, "\n", 2);
}

static void check_again(const workload_list *list)
{
    workload_list again = {0};
    char message[256], *text = malloc(sizeof HEADER + list->count * LINE_BYTES);
    if (text == NULL)
        return;
    memcpy(text, HEADER, sizeof HEADER);
    size_t length = strlen(HEADER);
    for (size_t i = 0; i < list->count; ++i) {
        format_line(&list->items[i], text + length);
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
