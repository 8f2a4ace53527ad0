/*
 * The interface of fuzzers. A fuzzer is one source file that defines LLVMFuzzerTestOneInput. The function takes any
 * bytes, and returns 0, or ends the process (fuzz_require) where a requirement is broken. It is linked twice: with
 * libFuzzer by clang (preset fuzz, scripts/fuzz), and with standalone.c as replay_<name>, which ctest runs in every
 * build.
 */
#ifndef TCONV_TESTS_FUZZ_H
#define TCONV_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process with a message unless the condition holds; a format and its arguments follow the condition. */
#define fuzz_require(condition, ...)                                                                                   \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
