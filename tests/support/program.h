/* Runs the tconv program as a user would, in a directory of its own. */
#ifndef TCONV_TESTS_PROGRAM_H
#define TCONV_TESTS_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What a run left. */
struct program_result {
    int code;          /* exit code; -1 where a signal ended it */
    char *out, *error; /* what it wrote to stdout and stderr; owned */
};

/* Makes an empty directory and goes there; leave_scratch removes it with the files in it. */
void enter_scratch(void);
void leave_scratch(void);

/* Runs the program with arguments (ending with NULL, without its own name) and the environment of the test, but for
 * TCONV_* variables, plus settings ("NAME=value", ending with NULL; NULL for none). */
struct program_result run_program(const char *const *arguments, const char *const *settings);

/* Where stdout or stderr of a run goes instead of into its result. */
#define CLOSED "" /* it is closed */

/* The same; out and error are paths of what is there to be written to, CLOSED or NULL, for the result. */
struct program_result run_program_to(const char *out, const char *error, const char *const *arguments,
                                     const char *const *settings);

/* Starts it so and does not wait; wait_program does. */
pid_t start_program(const char *out, const char *error, const char *const *arguments, const char *const *settings);
struct program_result wait_program(pid_t child);

void release_result(struct program_result *result);

/* The same with the arguments written out. */
#define PROGRAM(...) run_program((const char *const[]){__VA_ARGS__, NULL}, NULL)

/* Fail the test, which says what it did, unless the program ended with code, or text is in where. */
void expect_code(const struct program_result *result, int code, const char *what);
void expect_text(const char *where, const char *text, const char *what);

/* Whether a file whose name starts so is in the directory. */
bool exists_like(const char *start);

/* The whole file, with '\0' after it; *size, which may be NULL, becomes its size. The caller frees it. */
char *read_whole(const char *path, size_t *size);
void write_whole(const char *path, const void *data, size_t size);

#endif
