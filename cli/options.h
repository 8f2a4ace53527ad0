/*
 * Command-line options as tables. A command fills an array of cli_option, each with the target of its value, and one
 * call reads the command line by that array; --help is printed from the same array. A value that breaks a rule is
 * reported as
 *     tconv: error: --stride 2,x: must be whole numbers joined by commas
 * and so are the library's issues, which are traced back to the option that the field came from.
 */
#ifndef TCONV_CLI_OPTIONS_H
#define TCONV_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness.h"
#include "streams.h"
#include "tconv/tconv.h"

typedef struct cli_option cli_option;

/* Writes the value of text to option->target; on false, rule says what the text must be. */
typedef bool cli_parser(const cli_option *option, const char *text, char *rule, size_t capacity);

struct cli_option {
    const char *name;
    const char *argument; /* name of the value in --help; NULL for a flag */
    const char *help;
    cli_parser *parse;
    void *target;
    const char *const *names; /* cli_parse_name: the accepted names, ending with NULL; the value is the index */
    int64_t minimum, maximum; /* cli_parse_integer, cli_parse_sizes */
    int count;                /* cli_parse_sizes: the most numbers */
    bool required;
    const char *text; /* the text that was given last; NULL where none was */
};

typedef struct cli_usage {
    const char *command, *synopsis, *description;
} cli_usage;

/* The post-ops of --post. */
typedef struct cli_posts {
    bool given, random;
    tconv_desc list; /* where it is not random: a desc with nothing else */
} cli_posts;

/* Numbers joined by commas: none where the option was not given. */
#define CLI_MOST_SIZES 6
typedef struct cli_sizes {
    int64_t values[CLI_MOST_SIZES];
    int count;
} cli_sizes;

/* Texts that an option collects when it is given more than once; release with free(items). */
typedef struct cli_texts {
    const char **items;
    size_t count;
} cli_texts;

cli_parser cli_parse_flag;      /* bool */
cli_parser cli_parse_text;      /* const char *, not empty */
cli_parser cli_parse_texts;     /* cli_texts */
cli_parser cli_parse_name;      /* an enumerator or an int */
cli_parser cli_parse_integer;   /* int64_t */
cli_parser cli_parse_seed;      /* uint64_t */
cli_parser cli_parse_number;    /* double, above 0 */
cli_parser cli_parse_posts;     /* cli_posts: a list of post-ops */
cli_parser cli_parse_any_posts; /* cli_posts: a list, or "random" */
cli_parser cli_parse_sizes;     /* cli_sizes: up to count numbers */

/* Reads the command line. Returns -1 to go on; else the exit code, once --help or an error is printed. */
int cli_options_parse(const cli_usage *usage, cli_option *options, size_t count, int argc, char **argv);

/* Reports that the option's value breaks a rule. Returns CLI_BAD_INPUT. */
int cli_option_error(const cli_option *options, size_t count, const char *name, const char *format, ...)
    CLI_PRINTF(4, 5);

/* Reports that the file that the option names cannot be made, as errno says. Returns the exit code. */
int cli_output_error(const cli_option *options, size_t count, const char *name);

/* Reports an issue of the library. Names the option that set the issue's field, if there is one and it was given.
 * Returns the exit code that goes with the status. */
int cli_issue_error(const cli_option *options, size_t count, const tconv_issue *issue);

/* Returns the exit code of a status: CLI_BAD_INPUT where the caller can correct the input. */
int cli_exit_code(tconv_status status);

/* ------------------------------------------------------------------------- options that commands have in common */

/* Where and how a layer runs, as the command line has it. */
typedef struct cli_execution {
    tconv_backend backend;
    tconv_cpu_isa isa;
    int64_t threads, device;
    const char *implementation;
} cli_execution;

#define CLI_EXECUTION_DEFAULTS                                                                                         \
    {                                                                                                                  \
        .device = -1                                                                                                   \
    }

/* Returns the library's options for the execution; they point to the execution's texts. A device that was asked for
 * becomes the current one, so that the harness's memory lies there too. */
tconv_options cli_execution_options(const cli_execution *execution);

/* Reads --problem, a layer with dtype, layouts, math and operation of `asked`. Returns the exit code, 0 for success. */
int cli_problem_parse(const char *text, const tconv_desc *asked, harness_layer *layer);

/* Checks the rules of the list of --post. Returns the exit code, 0 for success. */
int cli_posts_check(const cli_posts *posts, const cli_option *options, size_t count);

/* Gives a layer the list of --post. */
void cli_posts_set(const cli_posts *posts, tconv_desc *desc);

#define CLI_PROBLEM_HELP                                                                                               \
    "A problem is written as \"n=16 ci=32 h=128 w=256 co=64 k=3x5 s=2x3 p=1x2 op=0x0 d=2x1 g=4 b=1\": images, input\n" \
    "channels, height and width, output channels, kernel, stride, padding (A, HxW or TOPxLEFTxBOTTOMxRIGHT), output\n" \
    "padding, dilation, groups, bias; acc=1 adds to what the outputs hold; st=1 or st=2 is a step of a stream of\n"    \
    "rows or columns, cd=2 or cd=3 with a carry of f16 or bf16; ss= and ds= are strides of src and dst,\n"             \
    "NxCxHxW; post= has the post-ops that outputs go through, as in post=mul_channel,add_channel,clamp:0:6, and as=\n" \
    "the strides of an addend. z= is the number of planes of a layer of three axes, whose lists have one number or "   \
    "the\n"                                                                                                            \
    "number of depth first, as in z=16 h=32 w=64 k=3x5x7: padding A, DxHxW or FRONTxTOPxLEFTxBACKxBOTTOMxRIGHT, "      \
    "strides\n"                                                                                                        \
    "NxCxDxHxW."

#define CLI_FLAG(option_name, value, text)                                                                             \
    {                                                                                                                  \
        .name = (option_name), .help = (text), .parse = cli_parse_flag, .target = (value)                              \
    }
#define CLI_NAME(option_name, list, value, text)                                                                       \
    {                                                                                                                  \
        .name = (option_name), .argument = "NAME", .help = (text), .parse = cli_parse_name, .target = (value),         \
        .names = (list)                                                                                                \
    }
#define CLI_TEXT(option_name, what, value, text)                                                                       \
    {                                                                                                                  \
        .name = (option_name), .argument = (what), .help = (text), .parse = cli_parse_text, .target = (value)          \
    }
#define CLI_REQUIRED_TEXT(option_name, what, value, text)                                                              \
    {                                                                                                                  \
        .name = (option_name), .argument = (what), .help = (text), .parse = cli_parse_text, .target = (value),         \
        .required = true                                                                                               \
    }
#define CLI_TEXTS(option_name, what, value, text)                                                                      \
    {                                                                                                                  \
        .name = (option_name), .argument = (what), .help = (text), .parse = cli_parse_texts, .target = (value)         \
    }
#define CLI_INTEGER(option_name, what, least, most, value, text)                                                       \
    {                                                                                                                  \
        .name = (option_name), .argument = (what), .help = (text), .parse = cli_parse_integer, .target = (value),      \
        .minimum = (least), .maximum = (most)                                                                          \
    }
#define CLI_POSTS(option_name, parser, value, text)                                                                    \
    {                                                                                                                  \
        .name = (option_name), .argument = "LIST", .help = (text), .parse = (parser), .target = (value)                \
    }
#define CLI_SIZES(option_name, what, least, most, value, text)                                                         \
    {                                                                                                                  \
        .name = (option_name), .argument = (what), .help = (text), .parse = cli_parse_sizes, .target = (value),        \
        .minimum = (least), .maximum = INT64_MAX, .count = (most)                                                      \
    }

#define CLI_MAX_THREADS 65536

/* Rows of an option table. */
#define CLI_EXECUTION_OPTIONS(execution)                                                                               \
    CLI_INTEGER("threads", "N", 1, CLI_MAX_THREADS, &(execution).threads,                                              \
                "CPU threads, no more than can run at once (default: all that are allowed)"),                          \
        CLI_NAME("isa", harness_cpu_isa_names, &(execution).isa,                                                       \
                 "the most that the CPU may use: generic, avx2, avx512, neon, avx512_bf16 or amx"),                    \
        CLI_INTEGER("device", "N", 0, INT32_MAX, &(execution).device, "CUDA device (default: the current one)"),       \
        CLI_TEXT("implementation", "NAME", &(execution).implementation, "one by its name (tconv info lists them)")

#define CLI_OP_OPTION(op)                                                                                              \
    CLI_NAME("op", harness_op_names, &(op), "the operation: forward (default), backward_data or backward_weights")

#define CLI_LAYER_OPTIONS(desc)                                                                                        \
    CLI_NAME("layout", harness_layout_names, &(desc).layout, "how src and dst lie: nchw (default) or nhwc"),           \
        CLI_NAME("weight-layout", harness_weight_layout_names, &(desc).weight_layout,                                  \
                 "how the weights lie: iohw (default), ihwo or hwoi"),                                                 \
        CLI_NAME("math", harness_math_names, &(desc).math,                                                             \
                 "of f32: strict or tf32 (default: as TCONV_MATH says, strict)")

#define CLI_EXIT_CODES                                                                                                 \
    "Exit codes: 0 done; 1 it could not be done (no memory, no such backend here) or verify found an error;\n"         \
    "2 bad input (an option, a file or an environment variable breaks a rule).\n"

#endif
