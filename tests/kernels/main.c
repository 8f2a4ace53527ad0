/*
 * check_kernels: checks each of the library's kernels by itself against plain C, on guarded buffers, and times it
 * beside what the machine can do.
 *
 *     check_kernels 'cpu/avx512/microtile f32 6x2'       one kernel
 *     check_kernels --bench --isa avx2 store        kernels of one instruction set whose names have "store" in them
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "families.h"

static check_family *const families[] = {
    check_cpu_microtile,       check_cpu_load,       check_cpu_pack,    check_cpu_store,
    check_cpu_pixel_microtile, check_cpu_pixel_rows, check_cpu_activate};

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

static bool parse_seed(const char *text, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

/* False for what is no option of this program. */
static bool parse(int count, char **arguments, check_options *options)
{
    static const struct option known[] = {
        {"list", no_argument, NULL, 'l'},
        {"bench", no_argument, NULL, 'b'},
        {"isa", required_argument, NULL, 'i'},
        {"seed", required_argument, NULL, 's'},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    for (int option; (option = getopt_long(count, arguments, "", known, NULL)) != -1;)
        switch (option) {
        case 'l': options->list = true; break;
        case 'b': options->bench = true; break;
        case 'i': options->isa = optarg; break;
        case 'v': options->verbose = true; break;
        case 's':
            if (!parse_seed(optarg, &options->seed))
                return false;
            break;
        case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
        default: return false;
        }
    options->pattern = optind < count ? arguments[optind++] : NULL;
    return optind >= count;
}

int main(int count, char **arguments)
{
    check_options options = {.seed = 1};
    if (!parse(count, arguments, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    check_begin(&options);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        families[i]();
    return check_end();
}
