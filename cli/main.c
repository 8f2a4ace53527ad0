/* The tconv program: finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "options.h"
#include "streams.h"
#include "tconv/tconv.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"info", cli_info, "describe this build and this machine"},
    {"plan", cli_plan, "say what would run for a layer, and why"},
    {"run", cli_run, "run a layer on .npy files"},
    {"verify", cli_verify, "test every implementation on this machine"},
    {"bench", cli_bench, "time layers against the machine's limits"},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(void)
{
    printf("Usage: tconv COMMAND [OPTION]...\n"
           "2-D transposed convolution on the CPU and on CUDA.\n\n"
           "Commands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; ++i)
        printf("  %-8s %s\n", commands[i].name, commands[i].summary);
    printf("\n"
           "  tconv COMMAND --help   the options of a command\n"
           "  tconv --version        the version of the library\n\n" CLI_EXIT_CODES);
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        cli_error("a command is missing: info, plan, run, verify or bench (see tconv --help)");
        return CLI_BAD_INPUT;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return CLI_SUCCESS;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tconv %s\n", tconv_version());
        return CLI_SUCCESS;
    }
    for (size_t i = 0; i < COMMAND_COUNT; ++i)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    cli_error("%s: must be one of the commands info, plan, run, verify and bench (see tconv --help)", argv[1]);
    return CLI_BAD_INPUT;
}

int main(int argc, char **argv)
{
    cli_streams_prepare();
    return cli_stdout_finish(run_command(argc, argv));
}
