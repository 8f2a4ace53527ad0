/* tconv info: the library's description of itself and of the machine. */
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "options.h"
#include "tconv/tconv.h"

int cli_info(int argc, char **argv)
{
    bool json = false;
    cli_option options[] = {CLI_FLAG("json", &json, "print JSON")};
    const cli_usage usage = {
        "info", "[--json]",
        "Describes this build of tconv and this machine: version, build options, backends and why one "
        "is missing,\nGPUs, instruction sets, cores, caches, NUMA nodes, environment variables in effect."};
    int code = cli_options_parse(&usage, options, 1, argc, argv);
    if (code >= 0)
        return code;

    const tconv_text_format format = json ? TCONV_TEXT_JSON : TCONV_TEXT_PLAIN;
    size_t length;
    tconv_status status = tconv_system_info(format, NULL, 0, &length);
    char *text = status == TCONV_SUCCESS ? malloc(length + 1) : NULL;
    if (text != NULL)
        status = tconv_system_info(format, text, length + 1, NULL);
    if (text == NULL || status != TCONV_SUCCESS) {
        cli_error("the system cannot be described: %s", text == NULL ? "no memory" : tconv_status_string(status));
        free(text);
        return CLI_FAILURE;
    }
    fputs(text, stdout);
    free(text);
    return CLI_SUCCESS;
}
