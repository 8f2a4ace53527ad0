#include "part.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness.h"

static const char *asked(void)
{
    const char *text = getenv("TCONV_TESTS_PART");
    return text != NULL && text[0] != '\0' ? text : NULL;
}

bool is_whole(void)
{
    return asked() == NULL;
}

bool in_part(uint64_t index)
{
    const char *text = asked();
    unsigned part, parts;
    char rest;
    if (text == NULL)
        return true;
    if (sscanf(text, "%u/%u%c", &part, &parts, &rest) != 2 || part >= parts) {
        fprintf(stderr, "TCONV_TESTS_PART=%s: must be k/n with 0 <= k < n\n", text);
        _Exit(2);
    }
    harness_random random;
    harness_random_seed(&random, index);
    return harness_random_integer(&random, 0, parts - 1) == part;
}
