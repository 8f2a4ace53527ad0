/* A text that is cut at its capacity but whose full length is counted, as snprintf does. */
#ifndef TCONV_CORE_TEXT_H
#define TCONV_CORE_TEXT_H

#include <stddef.h>

#include "status.h"

typedef struct tconv_text {
    char *text; /* NULL only if capacity is 0 */
    size_t capacity;
    size_t length; /* length of everything appended, whether it fitted or not */
} tconv_text;

void tconv_text_append(tconv_text *text, const char *format, ...) TCONV_PRINTF(2, 3);

#endif
