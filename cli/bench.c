/*
 * tconv bench: times layers, from a file of workloads or given as text, one after another, and compares each with the
 * floor measured in the same run (floor.h). With --check the output of each is judged first.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "floor.h"
#include "harness.h"
#include "options.h"
#include "output.h"
#include "timing.h"
#include "workloads.h"

/* FLOP: with --check, the reference judges every output of a layer of up to that much work, and random samples of a
 * larger one. Layers with depth are judged by the formula, which takes longer. */
#define CHECKED_WHOLE_FLOPS   4e8
#define CHECKED_FORMULA_FLOPS 4e7
#define CHECKED_PIXELS        1000
#define SEED                  1

typedef struct request {
    const char *workloads, *json;
    cli_texts cases, problems;
    double batch_budget; /* GFLOP; 0: no limit */
    bool check, pack_each;
    int64_t repeat;
    tconv_desc desc; /* dtype, layouts and math of every layer */
    cli_posts posts; /* of every layer that has none of its own */
    cli_execution execution;
    cli_option *options;
    size_t option_count;
} request;

typedef struct measurement {
    workload of;
    timing time;
    double gflops, gbps, floor_ms;
} measurement;

typedef struct bench {
    const request *asked;
    tconv_options options;
    workload_list layers;
    measurement *done; /* measurements of the layers that could be timed */
    size_t done_count;
    machine_floor cpu, cuda;
    bool terminal; /* whether there is a terminal to show progress on */
} bench;

/* ------------------------------------------------------------------------------------------------ what is to be timed */

/* Gives the layer what the options say of every layer. */
static void set_common(const request *asked, tconv_desc *desc)
{
    desc->dtype = asked->desc.dtype;
    desc->layout = asked->desc.layout;
    desc->weight_layout = asked->desc.weight_layout;
    desc->math = asked->desc.math;
    desc->op = asked->desc.op;
    if (asked->posts.given && desc->post_count == 0)
        cli_posts_set(&asked->posts, desc);
}

static int add_problems(const request *asked, workload_list *layers)
{
    for (size_t i = 0; i < asked->problems.count; ++i) {
        char name[WORKLOAD_NAME_SIZE];
        harness_layer layer;
        const int code = cli_problem_parse(asked->problems.items[i], &asked->desc, &layer);
        if (code != CLI_SUCCESS)
            return code;
        set_common(asked, &layer.desc);
        snprintf(name, sizeof name, asked->problems.count > 1 ? "problem_%zu" : "problem", i + 1);
        if (!workloads_append(layers, name, &layer)) {
            cli_error("no memory for the layers");
            return CLI_FAILURE;
        }
    }
    return CLI_SUCCESS;
}

static const char *source_name(const request *asked)
{
    return asked->workloads != NULL ? asked->workloads : "the built-in workloads";
}

/* Appends the wanted layers; wanted is NULL for all. */
static int add_workloads(const request *asked, const workload_list *file, const bool *wanted, workload_list *layers)
{
    for (size_t i = 0; i < file->count; ++i) {
        workload entry = file->items[i];
        if (wanted != NULL && !wanted[i])
            continue;
        tconv_desc *desc = &entry.layer.desc;
        tconv_issue issue;
        set_common(asked, desc);
        if (tconv_validate(desc, &issue) != TCONV_SUCCESS) {
            cli_error("--workloads %s: %s: %s", source_name(asked), entry.name, issue.message);
            return cli_exit_code(issue.status);
        }
        if (!workloads_append(layers, entry.name, &entry.layer)) {
            cli_error("no memory for the layers");
            return CLI_FAILURE;
        }
    }
    return CLI_SUCCESS;
}

/* Chooses the layers that --case names, in the order of the file, or all of them. */
static int choose_workloads(const request *asked, const workload_list *file, workload_list *layers)
{
    if (asked->cases.count == 0)
        return add_workloads(asked, file, NULL, layers);
    bool *wanted = calloc(file->count, sizeof *wanted);
    int code = CLI_SUCCESS;
    if (wanted == NULL) {
        cli_error("no memory for the layers");
        code = CLI_FAILURE;
    }
    for (size_t i = 0; code == CLI_SUCCESS && i < asked->cases.count; ++i) {
        const workload *found = workloads_find(file, asked->cases.items[i]);
        if (found != NULL) {
            wanted[found - file->items] = true;
            continue;
        }
        cli_error("--case %s: must be a name in %s", asked->cases.items[i], source_name(asked));
        code = CLI_BAD_INPUT;
    }
    if (code == CLI_SUCCESS)
        code = add_workloads(asked, file, wanted, layers);
    free(wanted);
    return code;
}

/* Cuts the batch to max(1, min(n, floor(budget / work of one image))) images. */
static void cut_batch(double budget, tconv_desc *desc)
{
    tconv_desc image = *desc;
    image.batch = 1;
    double images = floor(budget * 1e9 / harness_layer_flops(&image));
    if (images < (double)desc->batch)
        desc->batch = images < 1 ? 1 : (int64_t)images;
}

static int collect(const request *asked, workload_list *layers)
{
    workload_list file = {0};
    char message[256];
    int code = add_problems(asked, layers);
    if (code == CLI_SUCCESS && (asked->problems.count == 0 || asked->workloads != NULL || asked->cases.count > 0)) {
        code = asked->workloads != NULL
                   ? workloads_read(asked->workloads, &file, message, sizeof message)
                   : workloads_parse(workloads_default, strlen(workloads_default), &file, message, sizeof message);
        if (code != CLI_SUCCESS)
            cli_error("--workloads %s: %s", asked->workloads != NULL ? asked->workloads : "(built in)", message);
        else
            code = choose_workloads(asked, &file, layers);
    }
    workloads_release(&file);
    for (size_t i = 0; i < layers->count && asked->batch_budget > 0; ++i)
        cut_batch(asked->batch_budget, &layers->items[i].layer.desc);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------ progress */

static void show_progress(const bench *all, size_t index)
{
    if (!all->terminal)
        return;
    cli_stdout_flush();
    fprintf(stderr, "[%zu/%zu] %s", index + 1, all->layers.count, all->layers.items[index].name);
    fflush(stderr);
}

/* Clears the progress line before other output is printed. */
static void clear_progress(const bench *all)
{
    if (all->terminal)
        fputs("\r\033[K", stderr);
}

/* ------------------------------------------------------------------------------------------------------------ checking */

/* Runs the layer on numbers of one kind and judges the output. On false, failure says why. */
static bool check_fill(const bench *all, const harness_layer *layer, harness_fill fill, harness_failure *failure)
{
    harness_case test;
    harness_output output;
    tconv_issue issue;
    const double most = harness_has_depth(&layer->desc) ? CHECKED_FORMULA_FLOPS : CHECKED_WHOLE_FLOPS;
    const bool whole = harness_layer_flops(&layer->desc) <= most;
    bool right = false;
    tconv_status status = whole ? harness_case_create(&test, layer, fill, SEED, &issue)
                                : harness_case_create_unanswered(&test, layer, fill, SEED, &issue);
    if (status == TCONV_SUCCESS) {
        status = harness_run(&test, &all->options, !all->asked->pack_each, &output, &issue);
        if (status == TCONV_SUCCESS) {
            right = whole ? harness_compare(&test, &output, failure)
                          : harness_compare_sampled(&test, &output, CHECKED_PIXELS, SEED, failure);
            harness_output_release(&output);
        }
        harness_case_destroy(&test);
    }
    if (status != TCONV_SUCCESS)
        snprintf(failure->text, sizeof failure->text, "%s", issue.message);
    return right;
}

static bool check(const bench *all, const workload *entry)
{
    harness_failure failure;
    if ((!harness_has_integers(&entry->layer) || check_fill(all, &entry->layer, HARNESS_INTEGERS, &failure)) &&
        check_fill(all, &entry->layer, HARNESS_REALS, &failure))
        return true;
    clear_progress(all);
    cli_error("%s: the check failed: %s", entry->name, failure.text);
    return false;
}

/* -------------------------------------------------------------------------------------------------------------- timing */

static machine_floor *floor_of(bench *all, const timing *time)
{
    machine_floor *floor = time->cuda ? &all->cuda : &all->cpu;
    if (floor->measured)
        return floor;
    if (!(time->cuda ? floor_measure_cuda(floor) : floor_measure_cpu(time->threads, time->cpu_isa, floor)))
        return NULL;
    clear_progress(all);
    if (time->cuda)
        printf("floor: copy %.0f GB/s (measured), strict f32 %.0f, tf32 %.0f, f16 %.0f, bf16 %.0f, f64 %.0f TFLOP/s "
               "(nominal, of an H200)\n",
               floor->bytes_per_second * 1e-9, floor->flops_per_second[TCONV_F32] * 1e-12,
               floor->tf32_flops_per_second * 1e-12, floor->flops_per_second[TCONV_F16] * 1e-12,
               floor->flops_per_second[TCONV_BF16] * 1e-12, floor->flops_per_second[TCONV_F64] * 1e-12);
    else
        printf("floor: copy %.1f GB/s, f32 %.1f, f64 %.1f GFLOP/s (measured on %d threads, %s)\n",
               floor->bytes_per_second * 1e-9, floor->flops_per_second[TCONV_F32] * 1e-9,
               floor->flops_per_second[TCONV_F64] * 1e-9, time->threads, harness_cpu_isa_name(time->cpu_isa));
    return floor;
}

static void print_row(const bench *all, const measurement *row)
{
    if (all->done_count == 0)
        printf("%-14s %-5s %-22s %6s %11s %11s %10s %9s %10s %8s %12s\n", "name", "where", "implementation", "n",
               "median ms", "min ms", "GFLOP/s", "GB/s", "floor ms", "x floor", "workspace");
    printf("%-14s %-5s %-22s %6lld %11.4f %11.4f %10.1f %9.2f %10.4f %8.2f %12zu\n", row->of.name,
           row->time.cuda ? "cuda" : "cpu", row->time.implementation, (long long)row->of.layer.desc.batch,
           row->time.median_ms, row->time.minimum_ms, row->gflops, row->gbps, row->floor_ms,
           row->time.median_ms / row->floor_ms, row->time.workspace_bytes);
}

/* Returns the bytes of src, weights, dst and an addend, each counted once, or twice where it is added to. */
static double layer_bytes(const tconv_desc *desc)
{
    const bool *writes = harness_operation_of(desc->op)->writes;
    double elements = 0;
    const int addend = harness_post_addend(desc);
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        const harness_view view = harness_view_of(desc, (harness_role)role);
        if (role != HARNESS_BIAS && (role < HARNESS_POST || role - HARNESS_POST == addend))
            elements += (double)harness_view_elements(&view) * (writes[role] && desc->accumulate ? 2 : 1);
    }
    return (double)harness_element_size(desc->dtype) * elements;
}

/* Reports why a layer could not be run, and returns whether the layer or the options were at fault, as an exit code. */
static int issue_code(const bench *all, const workload *entry, const tconv_issue *issue)
{
    clear_progress(all);
    if (issue->status == TCONV_ERROR_OUT_OF_MEMORY || issue->status == TCONV_ERROR_CUDA) {
        cli_error("%s: %s", entry->name, issue->message);
        return CLI_FAILURE;
    }
    return cli_issue_error(all->asked->options, all->asked->option_count, issue);
}

static int bench_one(bench *all, const workload *entry)
{
    harness_case test;
    tconv_issue issue;
    measurement row = {.of = *entry};
    if (all->asked->check && !check(all, entry))
        return CLI_FAILURE;
    tconv_status status = harness_case_create_unanswered(&test, &entry->layer, HARNESS_REALS, SEED, &issue);
    if (status != TCONV_SUCCESS)
        return issue_code(all, entry, &issue);
    const timing_request timed = {&test, &all->options, all->asked->pack_each, all->asked->repeat};
    status = timing_measure(&timed, &row.time, &issue);
    harness_case_destroy(&test);
    if (status != TCONV_SUCCESS)
        return issue_code(all, entry, &issue);
    const machine_floor *floor = floor_of(all, &row.time);
    clear_progress(all);
    if (floor == NULL) {
        cli_error("the floor cannot be measured: no memory");
        return CLI_FAILURE;
    }
    const tconv_desc *desc = &entry->layer.desc;
    const double seconds = row.time.median_ms * 1e-3, bytes = layer_bytes(desc);
    row.gflops = seconds > 0 ? harness_layer_flops(desc) / seconds * 1e-9 : 0;
    row.gbps = seconds > 0 ? bytes / seconds * 1e-9 : 0;
    row.floor_ms = floor_milliseconds(floor, desc, row.time.math, bytes);
    print_row(all, &row);
    all->done[all->done_count++] = row;
    return CLI_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------------ reporting */

/* On false, errno says why. */
static bool write_json(const bench *all, FILE *file)
{
    bool written = fprintf(file, "[") >= 0;
    for (size_t i = 0; written && i < all->done_count; ++i) {
        const measurement *row = &all->done[i];
        const tconv_desc *desc = &row->of.layer.desc;
        written =
            fprintf(
                file,
                "%s\n  {\"name\": \"%s\", \"backend\": \"%s\", \"impl\": \"%s\", \"dtype\": \"%s\", \"math\": \"%s\", "
                "\"layout\": \"%s\", \"n\": %lld, \"median_ms\": %.6g, \"min_ms\": %.6g, \"gflops\": %.6g, \"gbps\": "
                "%.6g, \"floor_ms\": %.6g, \"x_floor\": %.6g, \"workspace_bytes\": %zu}",
                i == 0 ? "" : ",", row->of.name, row->time.cuda ? "cuda" : "cpu", row->time.implementation,
                harness_dtype_name(desc->dtype), harness_math_name(row->time.math), harness_layout_name(desc->layout),
                (long long)desc->batch, row->time.median_ms, row->time.minimum_ms, row->gflops, row->gbps,
                row->floor_ms, row->time.median_ms / row->floor_ms, row->time.workspace_bytes) >= 0;
    }
    return written && fprintf(file, "\n]\n") >= 0 && fflush(file) == 0;
}

static int save_json(const bench *all)
{
    cli_output output;
    const char *path = all->asked->json;
    if (!cli_output_open(&output, path))
        return cli_output_error(all->asked->options, all->asked->option_count, "json");
    if (cli_output_commit(&output, write_json(all, output.file)))
        return CLI_SUCCESS;
    cli_error("--json %s: cannot be written: %s", path, strerror(errno));
    return CLI_FAILURE;
}

static int run_request(const request *asked)
{
    bench all = {
        .asked = asked, .options = cli_execution_options(&asked->execution), .terminal = isatty(STDERR_FILENO) != 0};
    int code = collect(asked, &all.layers), worst = CLI_SUCCESS;
    if (code == CLI_SUCCESS && asked->json != NULL && !cli_output_possible(asked->json))
        code = cli_output_error(asked->options, asked->option_count, "json");
    if (code == CLI_SUCCESS && (all.done = calloc(all.layers.count + 1, sizeof *all.done)) == NULL) {
        cli_error("no memory for the times");
        code = CLI_FAILURE;
    }
    for (size_t i = 0; code == CLI_SUCCESS && i < all.layers.count; ++i) {
        show_progress(&all, i);
        int one = bench_one(&all, &all.layers.items[i]);
        worst = one > worst ? one : worst;
        if (one == CLI_BAD_INPUT) /* options and environment are the same for every layer, so that all would fail */
            break;
        if (!cli_stdout_flush()) /* nobody can read the other results */
            break;
    }
    if (code == CLI_SUCCESS && asked->check && worst == CLI_SUCCESS)
        printf("checked: all outputs right\n");
    if (code == CLI_SUCCESS && worst != CLI_BAD_INPUT && asked->json != NULL)
        code = save_json(&all);
    workloads_release(&all.layers);
    free(all.done);
    return code > worst ? code : worst;
}

int cli_bench(int argc, char **argv)
{
    request asked = {.execution = CLI_EXECUTION_DEFAULTS};
    tconv_desc_init(&asked.desc);
    cli_option options[] = {
        CLI_TEXT("workloads", "FILE.csv", &asked.workloads, "layers by name (default: built in)"),
        CLI_TEXTS("case", "NAME", &asked.cases, "only this layer of the file; may be repeated"),
        CLI_TEXTS("problem", "TEXT", &asked.problems, "this layer, see above; may be repeated"),
        CLI_NAME("dtype", harness_dtype_names, &asked.desc.dtype, "f32 (default), f64, f16 or bf16"),
        CLI_LAYER_OPTIONS(asked.desc),
        CLI_OP_OPTION(asked.desc.op),
        CLI_POSTS("post", cli_parse_posts, &asked.posts,
                  "post-ops of layers that have none of their own, for instance clamp:0:6"),
        CLI_NAME("backend", harness_backend_names, &asked.execution.backend, "auto (default), cpu or cuda"),
        CLI_EXECUTION_OPTIONS(asked.execution),
        {.name = "batch-budget",
         .argument = "GFLOP",
         .help = "cut n so that a layer stays at about so much work",
         .parse = cli_parse_number,
         .target = &asked.batch_budget},
        CLI_FLAG("check", &asked.check, "judge each layer's output by the float64 reference first"),
        CLI_FLAG("pack-each", &asked.pack_each, "pack the weights in every run (default: once, before)"),
        CLI_INTEGER("repeat", "N", 1, TIMING_MOST_RUNS, &asked.repeat,
                    "runs (default: as many as take 0.3 s, at least 5)"),
        CLI_TEXT("json", "FILE", &asked.json, "write the figures to a file as well"),
    };
    const cli_usage usage = {
        "bench", "[--workloads FILE.csv] [--case NAME]... [--problem TEXT]... [OPTION]...",
        "Times layers after a warm-up and prints median and minimum, GFLOP/s (two for each input pixel and tap), GB/s\n"
        "(src, weights, dst and an addend once each; what acc=1 adds to, twice), and how many times the floor that "
        "was: the "
        "longer of\n"
        "bytes by the rate of a copy and arithmetic by the rate of multiply-adds, measured in the same run (on CUDA "
        "the\n"
        "arithmetic is nominal).\n\n" CLI_PROBLEM_HELP " A log line of "
        "TCONV_VERBOSE=1\n"
        "ends with the arguments that time its layer again."};
    asked.options = options;
    asked.option_count = sizeof options / sizeof options[0];
    int code = cli_options_parse(&usage, options, asked.option_count, argc, argv);
    if (code < 0 && (code = cli_posts_check(&asked.posts, options, asked.option_count)) == CLI_SUCCESS)
        code = run_request(&asked);
    free(asked.cases.items);
    free(asked.problems.items);
    return code;
}
