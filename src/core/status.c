/* Names of statuses and enumerators, and the issue of a failure. */
#include "status.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const status_names[] = {
    [TCONV_SUCCESS] = "TCONV_SUCCESS",
    [TCONV_ERROR_INVALID_ARGUMENT] = "TCONV_ERROR_INVALID_ARGUMENT",
    [TCONV_ERROR_OVERFLOW] = "TCONV_ERROR_OVERFLOW",
    [TCONV_ERROR_OUT_OF_MEMORY] = "TCONV_ERROR_OUT_OF_MEMORY",
    [TCONV_ERROR_UNAVAILABLE] = "TCONV_ERROR_UNAVAILABLE",
    [TCONV_ERROR_UNSUPPORTED] = "TCONV_ERROR_UNSUPPORTED",
    [TCONV_ERROR_ENVIRONMENT] = "TCONV_ERROR_ENVIRONMENT",
    [TCONV_ERROR_CUDA] = "TCONV_ERROR_CUDA",
};
static const char *const dtype_names[] = {"f32", "f64", "f16", "bf16"};
static const char *const layout_names[] = {"nchw", "nhwc"};
static const char *const weight_layout_names[] = {"iohw", "ihwo", "hwoi"};
static const char *const math_names[] = {"default", "strict", "tf32"};
static const char *const op_names[] = {"forward", "backward_data", "backward_weights"};
static const char *const backend_names[] = {"auto", "cpu", "cuda"};
static const char *const location_names[] = {"auto", "host", "cuda"};
static const char *const cpu_isa_names[] = {"default", "generic", "avx2", "avx512", "neon", "avx512_bf16", "amx"};

static const char *lookup(const char *const *names, size_t count, long long value, const char *otherwise)
{
    return value >= 0 && (unsigned long long)value < count ? names[value] : otherwise;
}

const char *tconv_status_string(tconv_status status)
{
    return lookup(status_names, COUNT(status_names), status, "unknown status");
}

const char *tconv_dtype_name(tconv_dtype dtype)
{
    return lookup(dtype_names, COUNT(dtype_names), dtype, "?");
}

const char *tconv_layout_name(tconv_layout layout)
{
    return lookup(layout_names, COUNT(layout_names), layout, "?");
}

const char *tconv_weight_layout_name(tconv_weight_layout layout)
{
    return lookup(weight_layout_names, COUNT(weight_layout_names), layout, "?");
}

const char *tconv_math_name(tconv_math math)
{
    return lookup(math_names, COUNT(math_names), math, "?");
}

const char *tconv_op_name(tconv_op op)
{
    return lookup(op_names, COUNT(op_names), op, "?");
}

const char *tconv_backend_name(tconv_backend backend)
{
    return lookup(backend_names, COUNT(backend_names), backend, "?");
}

const char *tconv_location_name(tconv_location location)
{
    return lookup(location_names, COUNT(location_names), location, "?");
}

const char *tconv_cpu_isa_name(tconv_cpu_isa isa)
{
    return lookup(cpu_isa_names, COUNT(cpu_isa_names), isa, "?");
}

void tconv_issue_clear(tconv_issue *issue)
{
    memset(issue, 0, sizeof *issue);
}

#undef tconv_fail /* the function itself is defined here; the macro is for clang-tidy */

tconv_status tconv_fail(tconv_issue *issue, tconv_status status, const char *field, const char *format, ...)
{
    va_list arguments;
    if (issue == NULL)
        return status;
    tconv_issue_clear(issue);
    issue->status = status;
    snprintf(issue->field, sizeof issue->field, "%s", field);
    va_start(arguments, format);
    vsnprintf(issue->message, sizeof issue->message, format, arguments);
    va_end(arguments);
    return status;
}

/* A thread's last issue lies in a place that the thread takes at its first failure and gives back at its end. The first
 * PLACES threads take one of these; later ones allocate theirs. The places are not thread-local variables, because the
 * C library aborts where it has no memory for those of a library that was loaded late. */
enum { PLACES = 64 };

static tconv_issue places[PLACES];
static bool taken[PLACES];
static pthread_key_t place_key;
static pthread_once_t place_once = PTHREAD_ONCE_INIT;
static bool has_place_key;

static void give_place(void *place)
{
    const tconv_issue *given = place;
    for (int i = 0; i < PLACES; i++)
        if (given == &places[i]) {
            __atomic_store_n(&taken[i], false, __ATOMIC_RELEASE);
            return;
        }
    free(place);
}

static void *take_place(void)
{
    for (int i = 0; i < PLACES; i++)
        if (!__atomic_exchange_n(&taken[i], true, __ATOMIC_ACQUIRE))
            return &places[i];
    return malloc(sizeof(tconv_issue));
}

static void make_place_key(void)
{
    has_place_key = pthread_key_create(&place_key, give_place) == 0;
}

/* Returns the calling thread's last issue. Where it has none yet and takes is true, it takes a place; NULL where it has
 * none. */
static tconv_issue *last_issue(bool takes)
{
    pthread_once(&place_once, make_place_key);
    tconv_issue *issue = has_place_key ? pthread_getspecific(place_key) : NULL;
    if (issue != NULL || !takes || !has_place_key || (issue = take_place()) == NULL)
        return issue;
    if (pthread_setspecific(place_key, issue) != 0) {
        give_place(issue);
        return NULL;
    }
    return issue;
}

void tconv_last_issue(tconv_issue *issue)
{
    if (issue == NULL)
        return;
    const tconv_issue *last = last_issue(false);
    if (last != NULL)
        *issue = *last;
    else
        tconv_issue_clear(issue);
}

tconv_status tconv_report(const tconv_issue *found, tconv_issue *issue)
{
    tconv_issue *last = found->status != TCONV_SUCCESS ? last_issue(true) : NULL;
    if (last != NULL)
        *last = *found;
    if (issue != NULL)
        *issue = *found;
    return found->status;
}
