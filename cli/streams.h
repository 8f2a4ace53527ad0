/* stdout, with a check in the end that all of it was written, and errors on stderr. */
#ifndef TCONV_CLI_STREAMS_H
#define TCONV_CLI_STREAMS_H

#include <stdbool.h>

#if defined(__GNUC__)
#define CLI_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#else
#define CLI_PRINTF(format_index, first_argument)
#endif

/* Prints "tconv: error: " and the text to stderr. */
void cli_error(const char *format, ...) CLI_PRINTF(1, 2);

/* Opens those of descriptors 0 to 2 that are closed, so that no file takes the place of a closed stdout, and makes a
 * write past the limit of a file's size an error instead of a signal. It must be called first. */
void cli_streams_prepare(void);

/* Flushes stdout. Returns false where some output could not be written, now or before. */
bool cli_stdout_flush(void);

/* Flushes and closes stdout; it must be called last. Returns code, or CLI_FAILURE, after a message, where code is
 * success but not everything was written. */
int cli_stdout_finish(int code);

#endif
