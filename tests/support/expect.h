/* Assertions on the outcome of a call of the library. Criterion's own report says where the failed assertion is. */
#ifndef TCONV_TESTS_EXPECT_H
#define TCONV_TESTS_EXPECT_H

#include <criterion/criterion.h>
#include <string.h>

#include "tconv/tconv.h"

/* Expects that the call succeeded; else its issue is the message. */
#define expect_success(call, issue)                                                                                    \
    cr_assert_eq((call), TCONV_SUCCESS, "%s: %s", tconv_status_string((issue).status), (issue).message)

/* Expects that the call failed with status, and that the issue has that status, names field and contains text. */
#define expect_failure(call, issue, expected, name, text)                                                              \
    do {                                                                                                               \
        tconv_status got_ = (call);                                                                                    \
        cr_assert_eq(got_, (expected), "%s: got %s \"%s\", expected %s", (name), tconv_status_string(got_),            \
                     got_ == TCONV_SUCCESS ? "" : (issue).message, tconv_status_string(expected));                     \
        cr_assert_eq((issue).status, got_, "issue.status %d, returned %d", (int)(issue).status, (int)got_);            \
        cr_assert_str_eq((issue).field, (name), "field \"%s\" in \"%s\", expected \"%s\"", (issue).field,              \
                         (issue).message, (name));                                                                     \
        cr_assert(strstr((issue).message, (text)) != NULL, "message \"%s\" lacks \"%s\"", (issue).message, (text));    \
    } while (0)

#endif
