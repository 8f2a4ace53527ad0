/* Facts in one of two forms, plain lines or JSON. */
#include "writer.h"

#include <inttypes.h>

static void append_json_string(tconv_writer *writer, const char *value)
{
    tconv_text_append(&writer->out, "\"");
    for (; *value != '\0'; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\')
            tconv_text_append(&writer->out, "\\%c", c);
        else if (c < 0x20)
            tconv_text_append(&writer->out, "\\u%04x", c);
        else
            tconv_text_append(&writer->out, "%c", c);
    }
    tconv_text_append(&writer->out, "\"");
}

/* Writes what precedes every value: separator, indentation and key (NULL inside a list). */
static void key(tconv_writer *writer, const char *name)
{
    if (writer->format == TCONV_TEXT_JSON) {
        tconv_text_append(&writer->out, writer->empty[writer->depth] ? "\n%*s" : ",\n%*s", 2 * (writer->depth + 1), "");
        if (name != NULL) {
            append_json_string(writer, name);
            tconv_text_append(&writer->out, ": ");
        }
    } else {
        tconv_text_append(&writer->out, "%*s%s", 2 * writer->depth, "", name != NULL ? name : "-");
        tconv_text_append(&writer->out, name != NULL ? ":" : "");
    }
    writer->empty[writer->depth] = false;
}

void tconv_write_open_group(tconv_writer *writer, const char *name, char bracket)
{
    key(writer, name);
    tconv_text_append(&writer->out, writer->format == TCONV_TEXT_JSON ? "%c" : "\n", bracket);
    writer->empty[++writer->depth] = true;
}

void tconv_write_close_group(tconv_writer *writer, char bracket)
{
    bool empty = writer->empty[writer->depth--];
    if (writer->format != TCONV_TEXT_JSON)
        return;
    if (!empty)
        tconv_text_append(&writer->out, "\n%*s", 2 * (writer->depth + 1), "");
    tconv_text_append(&writer->out, "%c", bracket);
}

void tconv_write_text(tconv_writer *writer, const char *name, const char *value)
{
    key(writer, name);
    if (writer->format == TCONV_TEXT_JSON)
        append_json_string(writer, value);
    else
        tconv_text_append(&writer->out, " %s\n", value);
}

void tconv_write_number(tconv_writer *writer, const char *name, int64_t value)
{
    key(writer, name);
    tconv_text_append(&writer->out, writer->format == TCONV_TEXT_JSON ? "%" PRId64 : " %" PRId64 "\n", value);
}

void tconv_write_truth(tconv_writer *writer, const char *name, bool value)
{
    key(writer, name);
    tconv_text_append(&writer->out, writer->format == TCONV_TEXT_JSON ? "%s" : " %s\n", value ? "true" : "false");
}

tconv_status tconv_writer_begin(tconv_writer *writer, tconv_text_format format, char *text, size_t capacity,
                                tconv_issue *issue)
{
    *writer = (tconv_writer){format, {text, capacity, 0}, 0, {true}};
    if (format != TCONV_TEXT_PLAIN && format != TCONV_TEXT_JSON)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "format", "format = %d: must be plain (0) or json (1)",
                          (int)format);
    if (text == NULL && capacity > 0)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "text", "text = NULL: must point to %zu bytes",
                          capacity);
    if (capacity > 0)
        text[0] = '\0';
    if (format == TCONV_TEXT_JSON)
        tconv_text_append(&writer->out, "{");
    return TCONV_SUCCESS;
}

void tconv_writer_end(tconv_writer *writer, size_t *length)
{
    if (writer->format == TCONV_TEXT_JSON)
        tconv_text_append(&writer->out, "\n}\n");
    if (length != NULL)
        *length = writer->out.length;
}
