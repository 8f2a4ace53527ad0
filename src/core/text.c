/* All text of bounded length is appended to here. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

void tconv_text_append(tconv_text *text, const char *format, ...)
{
    va_list arguments;
    size_t room = text->length < text->capacity ? text->capacity - text->length : 0;
    va_start(arguments, format);
    int written = vsnprintf(room > 0 ? text->text + text->length : NULL, room, format, arguments);
    va_end(arguments);
    if (written > 0)
        text->length += (size_t)written;
}
