/*
 * check_kernels: checks each of the library's kernels by itself against plain C, on guarded buffers, and times it beside what
 * the machine can do.
 *
 *     check_kernels 'cpu/avx512/tile f32 6x2'       one kernel
 *     check_kernels --bench --isa avx2 store        kernels of one instruction set whose names have "store" in them
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families.h"

static check_family *const families[] = {check_cpu_tile, check_cpu_load, check_cpu_store, check_cpu_pixel_tile,
                                         check_cpu_pixel_rows};

static const char usage[] =
    "Usage: check_kernels [OPTION]... [PATTERN]\n"
    "Checks the kernels of this machine whose names match PATTERN: a part of a name, or a shell's pattern of all of "
    "it.\n\n"
    "  --list      print their names, check nothing\n"
    "  --bench     time them as well, beside the machine's own rate\n"
    "  --isa NAME  those of one instruction set: the second part of the names\n"
    "  --seed N    of the random numbers (1)\n"
    "  --verbose   a line for each kernel\n\n"
    "Exit status: 0 where all are right, 1 where one is not, or none matches, 2 for a wrong option.\n";

/* Whether arguments has option at *index, and the value behind it, to which *index goes on. */
static const char *option_value(const char *option, int count, char **arguments, int *index)
{
    return strcmp(arguments[*index], option) == 0 && *index + 1 < count ? arguments[++*index] : NULL;
}

static bool parse_seed(const char *text, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

static bool parse(int count, char **arguments, check_options *options)
{
    for (int i = 1; i < count; i++) {
        const char *value;
        if (strcmp(arguments[i], "--list") == 0)
            options->list = true;
        else if (strcmp(arguments[i], "--bench") == 0)
            options->bench = true;
        else if (strcmp(arguments[i], "--verbose") == 0)
            options->verbose = true;
        else if ((value = option_value("--isa", count, arguments, &i)) != NULL)
            options->isa = value;
        else if ((value = option_value("--seed", count, arguments, &i)) != NULL) {
            if (!parse_seed(value, &options->seed))
                return false;
        } else if (arguments[i][0] != '-' && options->pattern == NULL)
            options->pattern = arguments[i];
        else
            return false;
    }
    return true;
}

int main(int count, char **arguments)
{
    check_options options = {.seed = 1};
    if (count == 2 && strcmp(arguments[1], "--help") == 0) {
        fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (!parse(count, arguments, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    check_begin(&options);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        families[i]();
    return check_end();
}
