/* stdout, of which it is known in the end whether all of it arrived, and errors on stderr. */
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

/* Makes descriptors 0 to 2 ones that are open, so that no file takes the place of a closed stdout, and a write past the
 * limit of a file's size an error instead of a signal. First of all. */
void cli_streams_prepare(void);

/* Flushes stdout. False where something could not be written, now or before. */
bool cli_stdout_flush(void);

/* Last of all: flushes and closes stdout. Returns code, or CLI_FAILURE, after a message, where it says success but not all
 * was written. */
int cli_stdout_finish(int code);

#endif
