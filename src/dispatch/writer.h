/* Facts in one of two forms: plain lines for a reader, indented by group, or JSON. */
#ifndef TCONV_DISPATCH_WRITER_H
#define TCONV_DISPATCH_WRITER_H

#include <stdbool.h>

#include "../core/text.h"

#define TCONV_WRITER_DEPTH 4 /* groups within groups, at most */

typedef struct tconv_writer {
    tconv_text_format format;
    tconv_text out;
    int depth;
    bool empty[TCONV_WRITER_DEPTH]; /* whether nothing is written yet at this depth */
} tconv_writer;

/* Begins a text that is cut to capacity bytes; fails where the caller's arguments are wrong. */
tconv_status tconv_writer_begin(tconv_writer *writer, tconv_text_format format, char *text, size_t capacity,
                                tconv_issue *issue);

/* Ends it, and writes its full length to *length unless length is NULL. */
void tconv_writer_end(tconv_writer *writer, size_t *length);

/* Each writes a fact; name is NULL inside a list. A group is an object, by '{' and '}', or a list, by '[' and ']'. */
void tconv_write_open_group(tconv_writer *writer, const char *name, char bracket);
void tconv_write_close_group(tconv_writer *writer, char bracket);
void tconv_write_text(tconv_writer *writer, const char *name, const char *value);
void tconv_write_number(tconv_writer *writer, const char *name, int64_t value);
void tconv_write_truth(tconv_writer *writer, const char *name, bool value);

#endif
