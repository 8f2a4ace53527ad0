/* The interface that the program's commands share: how they are called and what they return. */
#ifndef TCONV_CLI_COMMAND_H
#define TCONV_CLI_COMMAND_H

/* Exit codes. */
enum {
    CLI_SUCCESS = 0,
    CLI_FAILURE = 1,  /* the input was right, but the work failed, or verify found an error */
    CLI_BAD_INPUT = 2 /* an option, a file or an environment variable breaks a rule */
};

/* The commands. argv[0] is the command's own name. */
int cli_info(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_verify(int argc, char **argv);
int cli_bench(int argc, char **argv);

#endif
