/* Reads the command line by a table of options. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "harness.h"
#include "output.h"

#define MAX_OPTIONS 40
#define HELP_COLUMN 34 /* column in which the help texts start */
/* The first of the values by which getopt_long tells options apart: values above those of characters, which stand for
 * short options. */
#define FIRST_VALUE 256
#define HELP_VALUE  1000

/* ------------------------------------------------------------------------------------------------------------- errors */

static const cli_option *find_option(const cli_option *options, size_t count, const char *name)
{
    for (size_t i = 0; i < count; ++i)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

int cli_option_error(const cli_option *options, size_t count, const char *name, const char *format, ...)
{
    char rule[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rule, sizeof rule, format, arguments);
    va_end(arguments);
    const cli_option *option = find_option(options, count, name);
    if (option != NULL && option->text != NULL)
        cli_error("--%s %s: %s", name, option->text, rule);
    else
        cli_error("--%s: %s", name, rule);
    return CLI_BAD_INPUT;
}

int cli_output_error(const cli_option *options, size_t count, const char *name)
{
    const int error = errno;
    const int code = cli_option_error(options, count, name, "cannot be made: %s", strerror(error));
    return error == ENOMEM ? CLI_FAILURE : code;
}

int cli_exit_code(tconv_status status)
{
    switch (status) {
    case TCONV_SUCCESS: return CLI_SUCCESS;
    case TCONV_ERROR_INVALID_ARGUMENT:
    case TCONV_ERROR_OVERFLOW:
    case TCONV_ERROR_ENVIRONMENT: return CLI_BAD_INPUT;
    case TCONV_ERROR_OUT_OF_MEMORY:
    case TCONV_ERROR_UNAVAILABLE:
    case TCONV_ERROR_UNSUPPORTED:
    case TCONV_ERROR_CUDA: break;
    }
    return CLI_FAILURE;
}

/* The option that sets a field of tconv_desc or tconv_options, by the start of the field's name. Where several options
 * determine a field, the first that was given is named. */
static const struct {
    const char *field, *option;
} origins[] = {
    {"stride_", "stride"},
    {"pad_", "padding"},
    {"output_padding_", "output-padding"},
    {"dilation_", "dilation"},
    {"groups", "groups"},
    {"batch", "input"},
    {"in_", "input"},
    {"kernel_", "weight"},
    {"out_channels", "weight"},
    {"weights", "weight"},
    {"out_d", "padding"},
    {"out_d", "dilation"},
    {"out_d", "stride"},
    {"out_h", "padding"},
    {"out_h", "dilation"},
    {"out_h", "stride"},
    {"out_w", "padding"},
    {"out_w", "dilation"},
    {"out_w", "stride"},
    {"threads", "threads"},
    {"cpu_isa", "isa"},
    {"device", "device"},
    {"implementation", "implementation"},
    {"backend", "backend"},
    {"op", "op"},
    {"post", "post"},
};

int cli_issue_error(const cli_option *options, size_t count, const tconv_issue *issue)
{
    for (size_t i = 0; i < sizeof origins / sizeof origins[0]; ++i) {
        if (strncmp(issue->field, origins[i].field, strlen(origins[i].field)) != 0)
            continue;
        const cli_option *option = find_option(options, count, origins[i].option);
        if (option != NULL && option->text != NULL) {
            cli_error("--%s %s: %s", option->name, option->text, issue->message);
            return cli_exit_code(issue->status);
        }
    }
    cli_error("%s", issue->message);
    return cli_exit_code(issue->status);
}

/* ------------------------------------------------------------------------------------------------------------ parsers */

bool cli_parse_flag(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    (void)text, (void)rule, (void)capacity;
    *(bool *)option->target = true;
    return true;
}

bool cli_parse_text(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    if (text[0] == '\0') {
        snprintf(rule, capacity, "must not be empty");
        return false;
    }
    *(const char **)option->target = text;
    return true;
}

bool cli_parse_posts(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    cli_posts *posts = option->target;
    posts->given = true;
    return harness_posts_parse(text, strlen(text), &posts->list, rule, capacity);
}

bool cli_parse_any_posts(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    cli_posts *posts = option->target;
    posts->given = true;
    posts->random = strcmp(text, "random") == 0;
    return posts->random || cli_parse_posts(option, text, rule, capacity);
}

bool cli_parse_texts(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    cli_texts *list = option->target;
    const char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (items == NULL) {
        snprintf(rule, capacity, "no memory");
        return false;
    }
    list->items = items;
    list->items[list->count++] = text;
    return true;
}

bool cli_parse_name(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    for (unsigned i = 0; option->names[i] != NULL; ++i)
        if (strcmp(option->names[i], text) == 0) {
            memcpy(option->target, &i, sizeof i);
            return true;
        }
    size_t length = (size_t)snprintf(rule, capacity, "must be ");
    for (size_t i = 0; option->names[i] != NULL && length < capacity; ++i) {
        const char *joint = i == 0 ? "" : option->names[i + 1] != NULL ? ", " : " or ";
        length += (size_t)snprintf(rule + length, capacity - length, "%s%s", joint, option->names[i]);
    }
    return false;
}

/* Reads a whole number from text up to *end. strtoll alone would accept spaces and a plus. */
static bool parse_whole(const char *text, int64_t *value, const char **end)
{
    char *stop;
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] < '0' || digits[0] > '9')
        return false;
    errno = 0;
    *value = strtoll(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

static bool in_range(const cli_option *option, int64_t value, char *rule, size_t capacity)
{
    if (value >= option->minimum && value <= option->maximum)
        return true;
    if (option->maximum == INT64_MAX)
        snprintf(rule, capacity, "must be at least %" PRId64, option->minimum);
    else
        snprintf(rule, capacity, "must be from %" PRId64 " to %" PRId64, option->minimum, option->maximum);
    return false;
}

bool cli_parse_integer(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    int64_t value;
    const char *end;
    if (!parse_whole(text, &value, &end) || *end != '\0') {
        snprintf(rule, capacity, "must be a whole number below 2^63");
        return false;
    }
    if (!in_range(option, value, rule, capacity))
        return false;
    *(int64_t *)option->target = value;
    return true;
}

bool cli_parse_seed(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    char *end;
    const bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    errno = 0;
    uint64_t value = strtoull(text, &end, hexadecimal ? 16 : 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        snprintf(rule, capacity, "must be a whole number from 0 to 2^64 - 1");
        return false;
    }
    *(uint64_t *)option->target = value;
    return true;
}

bool cli_parse_number(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    char *end;
    double value = strtod(text, &end);
    const bool begins = (text[0] >= '0' && text[0] <= '9') || text[0] == '.'; /* a sign, space or name is refused */
    if (!begins || end == text || *end != '\0' || !(value > 0 && value < 1e300)) {
        snprintf(rule, capacity, "must be a number above 0");
        return false;
    }
    *(double *)option->target = value;
    return true;
}

bool cli_parse_sizes(const cli_option *option, const char *text, char *rule, size_t capacity)
{
    cli_sizes sizes = {{0}, 0};
    for (const char *at = text;; ++at) {
        const char *end;
        if (sizes.count == option->count || !parse_whole(at, &sizes.values[sizes.count], &end) ||
            (*end != '\0' && *end != ',')) {
            snprintf(rule, capacity, "must be %s, whole numbers below 2^63", option->argument);
            return false;
        }
        if (!in_range(option, sizes.values[sizes.count++], rule, capacity))
            return false;
        if (*end == '\0')
            break;
        at = end;
    }
    *(cli_sizes *)option->target = sizes;
    return true;
}

/* --------------------------------------------------------------------------------------------------- the command line */

static void print_help(const cli_usage *usage, const cli_option *options, size_t count)
{
    printf("Usage: tconv %s %s\n%s\n\nOptions:\n", usage->command, usage->synopsis, usage->description);
    for (size_t i = 0; i < count; ++i) {
        int length = printf("  --%s%s%s", options[i].name, options[i].argument != NULL ? " " : "",
                            options[i].argument != NULL ? options[i].argument : "");
        if (length >= HELP_COLUMN)
            length = printf("\n") - 1;
        printf("%*s%s\n", HELP_COLUMN - length, "", options[i].help);
    }
    printf("  --help%*sthis text\n\n" CLI_EXIT_CODES, HELP_COLUMN - (int)strlen("  --help"), "");
}

static int check_required(const cli_option *options, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        if (options[i].required && options[i].text == NULL)
            return cli_option_error(options, count, options[i].name, "is required");
    return -1;
}

/* Reports the option at which getopt_long stopped: it is unknown, is the abbreviation of several, or lacks a value or
 * has one against its row. After a long option optind is past it. After a short one (the program has none) optind is
 * past it only where it was the last of its argument, as in -a. */
static int report_bad_option(const cli_usage *usage, int found, char **argv)
{
    const char *text = argv[optind - 1];
    if (found == ':') {
        cli_error("%s: needs a value (see tconv %s --help)", text, usage->command);
    } else if (optopt >= FIRST_VALUE) {
        cli_error("%s: takes no value (see tconv %s --help)", text, usage->command);
    } else {
        const bool last = text[0] == '-' && text[1] == (char)optopt && text[2] == '\0';
        if (optopt != 0 && !last)
            text = argv[optind];
        cli_error("%s: is no option of tconv %s (see tconv %s --help)", text, usage->command, usage->command);
    }
    return CLI_BAD_INPUT;
}

int cli_options_parse(const cli_usage *usage, cli_option *options, size_t count, int argc, char **argv)
{
    struct option table[MAX_OPTIONS + 2] = {{0}};
    for (size_t i = 0; i < count && i < MAX_OPTIONS; ++i)
        table[i] = (struct option){options[i].name, options[i].argument != NULL ? required_argument : no_argument, NULL,
                                   FIRST_VALUE + (int)i};
    table[count] = (struct option){"help", no_argument, NULL, HELP_VALUE};

    opterr = 0;
    for (int found; (found = getopt_long(argc, argv, ":", table, NULL)) != -1;) {
        if (found == HELP_VALUE) {
            print_help(usage, options, count);
            return CLI_SUCCESS;
        }
        if (found == '?' || found == ':')
            return report_bad_option(usage, found, argv);
        cli_option *option = &options[found - FIRST_VALUE];
        char rule[256];
        option->text = optarg != NULL ? optarg : "";
        if (!option->parse(option, option->text, rule, sizeof rule)) {
            const int code = cli_option_error(options, count, option->name, "%s", rule);
            return option->parse == cli_parse_texts ? CLI_FAILURE : code; /* cli_parse_texts only lacks memory */
        }
    }
    if (optind < argc) {
        cli_error("%s: tconv %s takes options only (see tconv %s --help)", argv[optind], usage->command,
                  usage->command);
        return CLI_BAD_INPUT;
    }
    return check_required(options, count);
}

tconv_options cli_execution_options(const cli_execution *execution)
{
    tconv_options options;
    tconv_options_init(&options);
    options.backend = execution->backend;
    options.cpu_isa = execution->isa;
    options.threads = (int32_t)execution->threads;
    options.device = (int32_t)execution->device;
    options.implementation = execution->implementation;
    if (options.device >= 0)
        harness_device_select(options.device); /* a failure is reported when the plan is made */
    return options;
}

int cli_posts_check(const cli_posts *posts, const cli_option *options, size_t count)
{
    tconv_desc smallest;
    tconv_issue issue;
    if (!posts->given || posts->random)
        return CLI_SUCCESS;
    tconv_desc_init(&smallest);
    smallest.in_channels = smallest.in_h = smallest.in_w = smallest.out_channels = 1;
    smallest.kernel_h = smallest.kernel_w = 1;
    cli_posts_set(posts, &smallest);
    return tconv_validate(&smallest, &issue) == TCONV_SUCCESS ? CLI_SUCCESS : cli_issue_error(options, count, &issue);
}

void cli_posts_set(const cli_posts *posts, tconv_desc *desc)
{
    desc->post_count = posts->list.post_count;
    memcpy(desc->post, posts->list.post, sizeof desc->post);
}

int cli_problem_parse(const char *text, const tconv_desc *asked, harness_layer *layer)
{
    char message[256];
    tconv_issue issue;
    if (!harness_problem_parse(text, layer, message, sizeof message)) {
        cli_error("--problem \"%s\": %s", text, message);
        return CLI_BAD_INPUT;
    }
    layer->desc.dtype = asked->dtype;
    layer->desc.layout = asked->layout;
    layer->desc.weight_layout = asked->weight_layout;
    layer->desc.math = asked->math;
    layer->desc.op = asked->op;
    if (tconv_validate(&layer->desc, &issue) != TCONV_SUCCESS) {
        cli_error("--problem \"%s\": %s", text, issue.message);
        return cli_exit_code(issue.status);
    }
    return CLI_SUCCESS;
}
