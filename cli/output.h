/* Output files that are there whole or not at all: written beside their place under another name, then renamed. */
#ifndef TCONV_CLI_OUTPUT_H
#define TCONV_CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct cli_output {
    FILE *file; /* to write to */
    const char *path;
    char *temporary; /* owned; NULL where path is no regular file and is written directly (a device, a pipe) */
} cli_output;

/* Whether path can be opened, so that nobody waits for a result that has no place to go. On false, errno says why. */
bool cli_output_possible(const char *path);

/* Opens path, which must outlive the output. On false, errno says why and nothing is left. */
bool cli_output_open(cli_output *output, const char *path);

/* Closes the file and puts it in its place. On false, errno says why, and nothing is left. */
bool cli_output_commit(cli_output *output);

/* Closes the file and removes it. */
void cli_output_discard(cli_output *output);

#endif
