/* The descriptors themselves are redirected to temporary files, so that writes past stdio are captured as well. */
#include "capture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void capture_start(struct capture *capture)
{
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        capture->text[i] = NULL;
        capture->saved[i] = dup(i + 1);
        capture->file[i] = tmpfile();
        cr_assert(capture->saved[i] >= 0 && capture->file[i] != NULL, "no file to capture to");
        dup2(fileno(capture->file[i]), i + 1);
    }
}

void capture_end(struct capture *capture)
{
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        dup2(capture->saved[i], i + 1);
        close(capture->saved[i]);
        int file = fileno(capture->file[i]);
        off_t size = lseek(file, 0, SEEK_END);
        capture->text[i] = calloc((size_t)size + 1, 1);
        cr_assert_not_null(capture->text[i]);
        cr_assert_eq(pread(file, capture->text[i], (size_t)size, 0), size);
        fclose(capture->file[i]);
    }
}

void capture_release(struct capture *capture)
{
    free(capture->text[0]);
    free(capture->text[1]);
}

size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}
