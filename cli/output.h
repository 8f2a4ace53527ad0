/*
 * Output files that are written whole or not at all.
 *
 * A file is written under another name in the same directory and then renamed. A file that is replaced keeps its mode
 * and owner, and a symbolic link keeps pointing to it. Where that is impossible (a file with hard links or an access
 * control list, a file of another owner, a directory that takes no new file) the file is written in place; so is a file
 * that is not regular: a device, a pipe.
 */
#ifndef TCONV_CLI_OUTPUT_H
#define TCONV_CLI_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

typedef struct cli_output {
    FILE *file;      /* to write to */
    char *path;      /* owned; the file's place, symbolic links followed */
    char *temporary; /* owned; NULL where path is written in place */
} cli_output;

/* Whether path can be opened, so that nobody waits for a result that has no place to go. On false, errno says why. */
bool cli_output_possible(const char *path);

/* Whether both paths are one regular file, that is there or would be made: the same name, by symbolic or hard links too.
 * What is written to a device or a pipe twice is not lost. */
bool cli_output_is_same(const char *a, const char *b);

/* Opens path. On false, errno says why and nothing is left. A file without any write permission is not opened, even
 * where the user could open it. */
bool cli_output_open(cli_output *output, const char *path);

/* Closes the file and puts it in its place. On false, errno says why, and nothing is left unless it was written in
 * place. A caller whose own writing failed passes false for written, with errno, which is kept. */
bool cli_output_commit(cli_output *output, bool written);

/* Closes the file and removes it. */
void cli_output_discard(cli_output *output);

/* Whether path is the file that stdout goes to (/dev/stdout): then nothing else should be printed there. */
bool cli_output_is_stdout(const char *path);

#endif
