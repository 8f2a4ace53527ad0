/* tconv plan: what each implementation would do with a layer, here or on a GPU that the library's cost model knows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "harness.h"
#include "options.h"
#include "output.h"
#include "tconv/tconv.h"

typedef struct request {
    const char *problem, *device; /* a name, or the number of a device; NULL: what options say */
    tconv_desc desc;
    cli_execution execution;
    bool json;
    cli_option *options; /* the table that the command line was read by, for errors */
    size_t option_count;
} request;

static bool is_number(const char *text)
{
    return strspn(text, "0123456789") == strlen(text);
}

static int print_plan(const request *asked, const tconv_desc *desc)
{
    const tconv_text_format format = asked->json ? TCONV_TEXT_JSON : TCONV_TEXT_PLAIN;
    const char *name = asked->device != NULL && !is_number(asked->device) ? asked->device : NULL;
    tconv_options options = cli_execution_options(&asked->execution);
    tconv_issue issue;
    size_t length = 0;
    if (asked->device != NULL && name == NULL) {
        options.backend = TCONV_BACKEND_CUDA;
        options.device = atoi(asked->device);
    }
    tconv_status status = tconv_explain(desc, &options, name, format, NULL, 0, &length, &issue);
    char *text = status == TCONV_SUCCESS ? malloc(length + 1) : NULL;
    if (text != NULL)
        status = tconv_explain(desc, &options, name, format, text, length + 1, NULL, &issue);
    if (status != TCONV_SUCCESS) {
        free(text);
        return cli_issue_error(asked->options, asked->option_count, &issue);
    }
    if (text == NULL) {
        cli_error("no memory for %zu bytes of text", length + 1);
        return CLI_FAILURE;
    }
    fputs(text, stdout);
    free(text);
    return CLI_SUCCESS;
}

int cli_plan(int argc, char **argv)
{
    request asked = {.execution = CLI_EXECUTION_DEFAULTS};
    harness_layer layer;
    tconv_desc_init(&asked.desc);
    cli_option options[] = {
        CLI_REQUIRED_TEXT("problem", "TEXT", &asked.problem, "the layer, see above"),
        CLI_TEXT("device", "NAME", &asked.device,
                 "a GPU that need not be here (h200, h100, a100, b200, ...), or the number of a device that is"),
        CLI_NAME("dtype", harness_dtype_names, &asked.desc.dtype, "f32 (default), f64, f16 or bf16"),
        CLI_LAYER_OPTIONS(asked.desc),
        CLI_OP_OPTION(asked.desc.op),
        CLI_NAME("backend", harness_backend_names, &asked.execution.backend, "auto (default), cpu or cuda"),
        CLI_FLAG("json", &asked.json, "print JSON"),
    };
    const cli_usage usage = {
        "plan", "--problem TEXT [--device NAME] [OPTION]...",
        "Says what each implementation would do with a layer: the time that it is predicted to take and the parts of\n"
        "that, its tiles, its rank, or why it declines. The first is what a plan takes.\n\n" CLI_PROBLEM_HELP};
    asked.options = options;
    asked.option_count = sizeof options / sizeof options[0];
    int code = cli_options_parse(&usage, options, asked.option_count, argc, argv);
    if (code < 0)
        code = cli_problem_parse(asked.problem, &asked.desc, &layer);
    else
        return code;
    return code == CLI_SUCCESS ? print_plan(&asked, &layer.desc) : code;
}
