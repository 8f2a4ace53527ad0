/*
 * Files that are there whole or not at all.
 *
 * A file is written beside its place under another name and then renamed. One that is replaced keeps its mode and owner,
 * and a symbolic link keeps pointing to it. Where that cannot be had (a file with hard links or an access control list,
 * one of another owner, a directory that takes no new file) the file that is there is written in place; so is what is no
 * regular file: a device, a pipe.
 */
#ifndef TCONV_CLI_OUTPUT_H
#define TCONV_CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct cli_output {
    FILE *file;      /* to write to */
    char *path;      /* owned; where it goes, symbolic links followed */
    char *temporary; /* owned; NULL where path is written in place */
} cli_output;

/* Whether path can be opened, so that nobody waits for a result that has no place to go. On false, errno says why. */
bool cli_output_possible(const char *path);

/* Opens path. On false, errno says why and nothing is left. A file without any write permission is not opened, even where
 * the user could. */
bool cli_output_open(cli_output *output, const char *path);

/* Closes the file and puts it in its place. On false, errno says why, and nothing is left but what was written in place.
 * A writer that sees an error itself passes false for written, with errno, which comes back. */
bool cli_output_commit(cli_output *output, bool written);

/* Closes the file and removes it. */
void cli_output_discard(cli_output *output);

/* Whether path is where stdout goes (/dev/stdout): then nothing else should be said there. */
bool cli_output_is_stdout(const char *path);

#endif
