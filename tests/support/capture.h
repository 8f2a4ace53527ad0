/* Captures what the process writes to stdout and stderr between start and end, by any means. */
#ifndef TCONV_TESTS_CAPTURE_H
#define TCONV_TESTS_CAPTURE_H

#include <stddef.h>
#include <stdio.h>

struct capture {
    int saved[2];
    FILE *file[2];
    char *text[2]; /* text of stdout and of stderr, after end; owned */
};

void capture_start(struct capture *capture);
void capture_end(struct capture *capture);
void capture_release(struct capture *capture);

#define CAPTURED_STDOUT 0
#define CAPTURED_STDERR 1

/* Returns the number of lines of text. */
size_t count_lines(const char *text);

#endif
