/* Wall-clock time. */
#ifndef TCONV_HARNESS_CLOCK_H
#define TCONV_HARNESS_CLOCK_H

/* Returns the seconds since some fixed moment; they never go back. */
double harness_seconds(void);

#endif
