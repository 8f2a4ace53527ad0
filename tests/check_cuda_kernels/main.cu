/*
 * check_cuda_kernels: checks pieces of the CUDA kernels by themselves on a GPU against plain C, on guarded buffers, and
 * times them beside what the machine can do.
 *
 *     check_cuda_kernels 'cuda/ptx/wgmma*'           pieces by a pattern
 *     check_cuda_kernels --bench pack                rates of those whose names have "pack" in them
 */
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <getopt.h>

#include "check.h"
#include "families.h"

using namespace tconv::check;

static constexpr int SKIPPED = 77; /* what ctest takes for a test that was skipped (SKIP_RETURN_CODE) */

static void (*const families[])() = {
    check_numeric,         check_ptx_memory, check_ptx_tma,        check_ptx_mma,
    check_ptx_wgmma,       check_pack_boxes, check_pack_cells,     check_pack_fragments,
    check_transform_igemm, check_transforms, check_mainloop_wgmma, check_mainloop_igemm,
    check_mainloop_cells,  check_rows,       check_epilogues,      check_posts,
    check_filling,         check_whole,      check_activations};

static const char usage[] =
    "Usage: check_cuda_kernels [OPTION]... [PATTERN]\n"
    "Checks the pieces of the CUDA kernels whose names match PATTERN: a part of a name, or a shell's pattern of all of "
    "it.\n\n"
    "  --list      print their names, check nothing\n"
    "  --bench     time them as well, beside the machine's own rate\n"
    "  --unchecked with --bench: do not check them first\n"
    "  --seed N    of the random numbers (1)\n"
    "  --part K/N  the K-th of N parts of them, so that N processes may check all\n"
    "  --verbose   a line for each piece\n\n"
    "Exit status: 0 where all are right, 1 where one is not, or none matches, 2 for a wrong option, 77 without a CUDA "
    "device.\n";

static bool parse_seed(const char *text, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

static bool parse_part(const char *text, int *part, int *parts)
{
    int end = 0;
    return sscanf(text, "%d/%d%n", part, parts, &end) == 2 && text[end] == '\0' && *part >= 1 && *part <= *parts;
}

/* False for what is no option of this program. */
static bool parse(int count, char **arguments, options *asked)
{
    static const struct option known[] = {
        {"list", no_argument, nullptr, 'l'},       {"bench", no_argument, nullptr, 'b'},
        {"seed", required_argument, nullptr, 's'}, {"part", required_argument, nullptr, 'p'},
        {"verbose", no_argument, nullptr, 'v'},    {"unchecked", no_argument, nullptr, 'u'},
        {"help", no_argument, nullptr, 'h'},       {},
    };
    for (int option; (option = getopt_long(count, arguments, "", known, nullptr)) != -1;)
        switch (option) {
        case 'l': asked->list = true; break;
        case 'b': asked->bench = true; break;
        case 'u': asked->unchecked = true; break;
        case 'v': asked->verbose = true; break;
        case 's':
            if (!parse_seed(optarg, &asked->seed))
                return false;
            break;
        case 'p':
            if (!parse_part(optarg, &asked->part, &asked->parts))
                return false;
            break;
        case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
        default: return false;
        }
    asked->pattern = optind < count ? arguments[optind++] : nullptr;
    return optind >= count;
}

int main(int count, char **arguments)
{
    options asked = {false, false, false, false, nullptr, 1, 1, 1};
    int devices = 0;
    if (!parse(count, arguments, &asked)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!asked.list && (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)) {
        printf("skipped: no CUDA device\n");
        return SKIPPED;
    }
    begin(asked);
    for (void (*family)() : families)
        family();
    return end();
}
