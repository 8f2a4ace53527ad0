/* The standard streams: opened, flushed, and closed with an answer. */
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

static int stdout_error; /* errno of a failed write; 0: all succeeded */

void cli_streams_prepare(void)
{
    /* The modes are the wrong way round, so that a write to a closed stdout fails and is noticed. */
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int descriptor = 0; descriptor < 3; ++descriptor)
        if (fcntl(descriptor, F_GETFD) < 0) {
            int opened = open("/dev/null", modes[descriptor]); /* open returns the lowest free descriptor: this one */
            if (opened > descriptor)
                close(opened);
        }
    signal(SIGXFSZ, SIG_IGN);
}

bool cli_stdout_flush(void)
{
    const bool flushed = fflush(stdout) == 0;
    if (stdout_error == 0 && (!flushed || ferror(stdout) != 0))
        stdout_error = flushed || errno == 0 ? EIO : errno;
    return stdout_error == 0;
}

void cli_error(const char *format, ...)
{
    va_list arguments;
    cli_stdout_flush(); /* earlier output comes first */
    fputs("tconv: error: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

int cli_stdout_finish(int code)
{
    if (cli_stdout_flush() && close(STDOUT_FILENO) != 0)
        stdout_error = errno;
    if (stdout_error == 0)
        return code;
    cli_error("stdout cannot be written: %s", strerror(stdout_error));
    return code != CLI_SUCCESS ? code : CLI_FAILURE;
}
