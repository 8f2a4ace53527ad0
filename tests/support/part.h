/*
 * A part of the layers of a suite, for runs that have no time for all: with TCONV_TESTS_PART=k/n (0 <= k < n) the suites
 * that take longest try about one in n of their layers, each in every way, and the runs with k = 0 to n - 1 try all of them.
 */
#ifndef TCONV_TESTS_PART_H
#define TCONV_TESTS_PART_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the index-th layer of a loop is in the part that is asked for; always, where none is. Which are is drawn by the
 * index, so that no form that goes round with the index is left out. A value of the variable that is no part ends the
 * process with a message. */
bool in_part(uint64_t index);

/* Whether no part is asked for, so that what all layers together reach can be judged. */
bool is_whole(void);

#endif
