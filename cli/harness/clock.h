/* Wall-clock time. */
#ifndef TCONV_HARNESS_CLOCK_H
#define TCONV_HARNESS_CLOCK_H

/* Seconds since some fixed moment; never goes back. */
double harness_seconds(void);

#endif
