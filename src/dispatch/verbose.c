/*
 * The only output of the library. A line is composed on the stack and goes out in one call, so that lines of several
 * threads never mix. It bypasses stdio, so that nothing is allocated and a closed stderr is harmless.
 */
#define _POSIX_C_SOURCE 200809L

#include "verbose.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../core/status.h"
#include "../core/text.h"
#include "../cpu/cpu_target.h"
#include "choose.h"

/* Bytes of a line: the layer, and room for the keys before it and the line feed. */
#define LINE_SIZE (TCONV_PROBLEM_TEXT_SIZE + 512)

/* Whether descriptor 2 was open when the library was loaded. If it was closed, a file that the caller opens later may
 * get its number. */
static bool has_stderr = true;

__attribute__((constructor)) static void look_for_stderr(void)
{
    const int error = errno;
    has_stderr = fcntl(STDERR_FILENO, F_GETFD) != -1;
    errno = error;
}

static bool is_pending(int number)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

/* Writes to stderr. Where that is a pipe that nobody reads, the write raises SIGPIPE, which would end the process, and
 * which is therefore taken back. */
static void write_to_stderr(const char *line, size_t length)
{
    const struct timespec no_wait = {0, 0};
    sigset_t pipe_signal, mask;
    const int error = errno;
    if (!has_stderr)
        return;
    const bool was_pending = is_pending(SIGPIPE);
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    if (pthread_sigmask(SIG_BLOCK, &pipe_signal, &mask) != 0)
        return;
    ssize_t written;
    do
        written = write(STDERR_FILENO, line, length);
    while (written < 0 && errno == EINTR);
    if (written < 0 && errno == EPIPE && !was_pending)
        sigtimedwait(&pipe_signal, NULL, &no_wait);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    errno = error;
}

/* Ends the line with the layer, and writes it. */
static void finish(const tconv_plan *plan, tconv_text *text, bool has_bias)
{
    char layer[TCONV_PROBLEM_TEXT_SIZE];
    tconv_problem_format(&plan->layer.problem, has_bias, layer, sizeof layer);
    tconv_text_append(text, ",bench=--backend %s %s", tconv_backend_name(plan->layer.target.backend), layer);
    if (plan->log.write != NULL) {
        plan->log.write(plan->log.context, text->text);
        return;
    }
    size_t length = strlen(text->text);
    text->text[length] = '\n'; /* in place of the closing 0 */
    write_to_stderr(text->text, length + 1);
}

void tconv_verbose_passed_over(const tconv_plan *plan, const char *implementation, const char *reason)
{
    char line[LINE_SIZE];
    tconv_text text = {line, sizeof line, 0};
    tconv_text_append(&text, "tconv,passed_over,backend=%s,impl=%s,reason=%s",
                      tconv_backend_name(plan->layer.target.backend), implementation, reason);
    finish(plan, &text, false);
}

void tconv_verbose_chosen(const tconv_plan *plan, size_t workspace_size)
{
    char line[LINE_SIZE];
    tconv_text text = {line, sizeof line, 0};
    tconv_text_append(&text, "tconv,plan,backend=%s,impl=%s,workspace=%zu",
                      tconv_backend_name(plan->layer.target.backend), plan->implementation->name, workspace_size);
    finish(plan, &text, false);
}

/* Writes the time in whole numbers: "%f" would write a comma in some locales. */
void tconv_verbose_executed(const tconv_plan *plan, bool has_bias, int64_t nanoseconds)
{
    const tconv_target *target = &plan->layer.target;
    const int threads = target->backend == TCONV_BACKEND_CPU ? tconv_cpu_target_of(target).threads : 0;
    char line[LINE_SIZE];
    tconv_text text = {line, sizeof line, 0};
    tconv_text_append(&text, "tconv,execute,version=%s,backend=%s,impl=%s,threads=%d,packed=%s,batch_invariant=%s,ms=",
                      TCONV_VERSION_STRING, tconv_backend_name(target->backend), plan->implementation->name, threads,
                      plan->packed != NULL ? "yes" : "no", tconv_plan_is_batch_invariant(plan) ? "yes" : "no");
    if (target->backend == TCONV_BACKEND_CUDA)
        tconv_text_append(&text, "queued"); /* it runs on the stream; measuring its time would synchronise */
    else
        tconv_text_append(&text, "%" PRId64 ".%04d", nanoseconds / 1000000, (int)(nanoseconds / 100 % 10000));
    finish(plan, &text, has_bias);
}

int64_t tconv_verbose_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
