/* Runs the tconv program as a user would, in a directory of its own. */
#ifndef TCONV_TESTS_PROGRAM_H
#define TCONV_TESTS_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The outcome of a run. */
struct program_result {
    int code;          /* exit code; -1 where a signal ended it */
    char *out, *error; /* what it wrote to stdout and stderr; owned */
};

/* Makes an empty directory and changes to it; leave_scratch removes it with the files in it. */
void enter_scratch(void);
void leave_scratch(void);

/* Runs the program with arguments (ending with NULL, without its own name) and the environment of the test, but for
 * TCONV_* variables, plus settings ("NAME=value", ending with NULL; NULL for none). */
struct program_result run_program(const char *const *arguments, const char *const *settings);

/* Stands for a closed stdout or stderr in run_program_to. */
#define CLOSED "" /* the descriptor is closed */

/* Does the same. out and error are paths of existing files to write to, CLOSED, or NULL for the result. */
struct program_result run_program_to(const char *out, const char *error, const char *const *arguments,
                                     const char *const *settings);

/* Starts the program like that without waiting; wait_program waits. */
pid_t start_program(const char *out, const char *error, const char *const *arguments, const char *const *settings);
struct program_result wait_program(pid_t child);

void release_result(struct program_result *result);

/* Does the same with the arguments written out. */
#define PROGRAM(...) run_program((const char *const[]){__VA_ARGS__, NULL}, NULL)

/* These fail the test, saying what it did, unless the program ended with code, or text is in where. */
void expect_code(const struct program_result *result, int code, const char *what);
void expect_text(const char *where, const char *text, const char *what);

/* Whether there is a file in the directory whose name begins with start. */
bool exists_like(const char *start);

/* Reads the whole file and appends '\0'; *size, which may be NULL, becomes its size. The caller frees it. */
char *read_whole(const char *path, size_t *size);
void write_whole(const char *path, const void *data, size_t size);

#endif
