/* Issues carry a failure up to the caller. The function that fails fills the issue once, because it knows the most. */
#ifndef TCONV_CORE_STATUS_H
#define TCONV_CORE_STATUS_H

#include "tconv/tconv.h"

#if defined(__GNUC__) || defined(__clang__)
#define TCONV_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#else
#define TCONV_PRINTF(format_index, first_argument)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Fills issue (NULL: nobody asks why) and returns status, so that a check is one statement:
 *     return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "groups", "groups = %" PRId64 ": must be at least 1", g);
 */
tconv_status tconv_fail(tconv_issue *issue, tconv_status status, const char *field, const char *format, ...)
    TCONV_PRINTF(4, 5);

#ifdef __clang_analyzer__
/* clang-tidy sees one file at a time, and without this macro would assume that a failure may return success. */
#define tconv_fail(issue, status, ...) ((void)tconv_fail(issue, status, __VA_ARGS__), (status))
#endif

/* Makes issue the empty issue of a success. */
void tconv_issue_clear(tconv_issue *issue);

/* Ends every public call: remembers a failure for tconv_last_issue, copies it to the caller's issue (may be NULL) and
 * returns its status. */
tconv_status tconv_report(const tconv_issue *found, tconv_issue *issue);

/* These return the names that the command line and the verbose lines use, such as "f32"; "?" for a value that is
 * none. */
const char *tconv_dtype_name(tconv_dtype dtype);
const char *tconv_layout_name(tconv_layout layout);
const char *tconv_weight_layout_name(tconv_weight_layout layout);
const char *tconv_math_name(tconv_math math);
const char *tconv_op_name(tconv_op op);
const char *tconv_backend_name(tconv_backend backend);
const char *tconv_location_name(tconv_location location);
const char *tconv_cpu_isa_name(tconv_cpu_isa isa);

#ifdef __cplusplus
}
#endif

#endif
