/* tconv_explain: what every implementation would do with a layer, on this machine or on a GPU that the cost model knows. */
#include <stdio.h>
#include <string.h>

#include "../core/alloc.h"
#include "../core/status.h"
#include "../core/stream.h"
#include "../cpu/cpu_target.h"
#include "../cuda/cuda_target.h"
#include "../cuda/model/machine.h"
#include "choose.h"
#include "impl_list.h"
#include "resolve.h"
#include "volume.h"
#include "writer.h"

/* Bytes of a reason, and of a plan's words: the words of cuda_finish end with the words of two inner plans. */
#define MOST_TEXT     768
#define PARTS         8
#define NANOSECONDS   1e9 /* of a second */
#define MOST_SECONDS  9e9 /* whose nanoseconds fit in 63 bits */
#define DECIMALS      10  /* a microsecond is written in tenths */
#define PER_DECIMAL   100 /* nanoseconds */
#define COLUMN_FORMAT " %9s"
#define NAME_FORMAT   " %-16s" /* as long as "cuda_gemm_col2im" */

/* What became of one implementation. */
struct answer {
    const tconv_implementation *implementation;
    bool takes, batch_invariant;
    const char *chunk_invariance; /* tconv_chunk_invariance */
    int rank;                     /* from 1 on, of those that take the layer */
    tconv_planned planned;
    char text[MOST_TEXT]; /* the plan, or why there is none */
};

struct explanation {
    tconv_problem asked; /* the caller's layer */
    tconv_layer layer;   /* that is explained: the caller's, or of a layer with depth its part with the most work */
    tconv_plan whole;    /* of a layer with depth, which has the part's phases */
    int64_t calls;       /* of layers of two axes that compute the caller's; 0: it is one of them itself */
    const char *machine; /* NULL: this one */
    size_t count;
    struct answer *answers; /* owned: more than a thread's stack should hold */
};

static const struct {
    const char *name;
    size_t offset;
} parts[PARTS] = {
    {"launch", offsetof(tconv_prediction, launch)},
    {"dram", offsetof(tconv_prediction, dram)},
    {"l2", offsetof(tconv_prediction, l2)},
    {"shared", offsetof(tconv_prediction, shared)},
    {"products", offsetof(tconv_prediction, products)},
    {"issue", offsetof(tconv_prediction, issue)},
    {"wait", offsetof(tconv_prediction, wait)},
    {"store", offsetof(tconv_prediction, store)},
};

/* Returns a time in nanoseconds, of layers that would take centuries the most that fits. */
static int64_t in_nanoseconds(double seconds)
{
    return seconds < MOST_SECONDS ? (int64_t)(seconds * NANOSECONDS + 0.5) : (int64_t)(MOST_SECONDS * NANOSECONDS);
}

static int64_t part_of(const tconv_prediction *prediction, int part)
{
    double seconds;
    memcpy(&seconds, (const char *)prediction + parts[part].offset, sizeof seconds);
    return in_nanoseconds(seconds);
}

static int64_t nanoseconds_of(const struct answer *answer)
{
    return in_nanoseconds(answer->planned.prediction.seconds);
}

/* ------------------------------------------------------------------------------------------------------------ asking */

static void ask(const struct explanation *explained, void *memory, struct answer *answer)
{
    const tconv_implementation *implementation = answer->implementation;
    tconv_issue issue;
    answer->takes =
        tconv_implementation_plan(implementation, &explained->layer, memory, &answer->planned, &issue) == TCONV_SUCCESS;
    answer->batch_invariant = answer->takes && tconv_is_batch_invariant(implementation, &explained->layer, memory);
    answer->chunk_invariance = answer->takes ? tconv_chunk_invariance(implementation, &explained->layer, memory) : "";
    if (!answer->takes)
        snprintf(answer->text, sizeof answer->text, "%s", issue.message);
    else if (implementation->describe != NULL)
        implementation->describe(&explained->layer, memory, answer->text, sizeof answer->text);
}

/* Ranks those that take the layer as a plan would take them: by predicted time, or in their order where there is
 * none. */
static void rank(struct explanation *explained)
{
    for (size_t i = 0; i < explained->count; i++)
        for (size_t j = 0; explained->answers[i].takes && j < explained->count; j++) {
            const double mine = tconv_compared_seconds(&explained->answers[i].planned.prediction),
                         other = tconv_compared_seconds(&explained->answers[j].planned.prediction);
            explained->answers[i].rank += explained->answers[j].takes && (other < mine || (other == mine && j <= i));
        }
}

/* Makes room for the answers of the operation's implementations, and names the implementations of the backend. */
static tconv_status list_answers(struct explanation *explained, const tconv_allocator *allocator, tconv_issue *issue)
{
    const tconv_op op = explained->layer.problem.desc.op;
    const tconv_implementation *implementation;
    size_t listed = 0;
    void *memory = NULL;
    while (tconv_implementation_at(op, listed) != NULL)
        listed++;
    const size_t bytes = listed * sizeof *explained->answers;
    const tconv_status status = tconv_allocate_for(allocator, bytes, "answers", &memory, issue);
    if (status != TCONV_SUCCESS)
        return status;
    explained->answers = memset(memory, 0, bytes);
    for (size_t i = 0; (implementation = tconv_implementation_at(op, i)) != NULL; i++)
        if (implementation->backend == explained->layer.target.backend)
            explained->answers[explained->count++].implementation = implementation;
    return TCONV_SUCCESS;
}

/* Makes the layer that is explained of a layer with depth. */
static tconv_status take_main_part(struct explanation *explained, const tconv_allocator *allocator, tconv_issue *issue)
{
    tconv_plan *plan = &explained->whole;
    plan->layer = explained->layer;
    plan->allocator = *allocator;
    const tconv_status status = tconv_plan_choose(plan, issue);
    const tconv_plan *main = status == TCONV_SUCCESS ? tconv_volume_main(plan->volume) : NULL;
    if (status == TCONV_SUCCESS && main == NULL)
        return tconv_fail(issue, TCONV_ERROR_UNSUPPORTED, "op", "no output of this layer has a tap to explain");
    if (main != NULL) {
        explained->layer = main->layer;
        explained->calls = tconv_volume_calls(plan);
    }
    return status;
}

static tconv_status ask_all(struct explanation *explained, const tconv_allocator *allocator, tconv_issue *issue)
{
    const size_t bytes =
        tconv_implementation_most_bytes(explained->layer.problem.desc.op, explained->layer.target.backend);
    void *memory = NULL;
    const bool own = explained->calls == 0; /* phases */
    tconv_status status = own ? tconv_layer_create_phases(&explained->layer, allocator, issue) : TCONV_SUCCESS;
    if (status == TCONV_SUCCESS &&
        (status = tconv_allocate_for(allocator, bytes, "plans", &memory, issue)) == TCONV_SUCCESS &&
        (status = list_answers(explained, allocator, issue)) == TCONV_SUCCESS)
        for (size_t i = 0; i < explained->count; i++)
            ask(explained, memory, &explained->answers[i]);
    rank(explained);
    tconv_release(allocator, memory);
    if (own)
        tconv_layer_release_phases(&explained->layer, allocator);
    return status;
}

/* ----------------------------------------------------------------------------------------------------------- writing */

static void write_target(const struct explanation *explained, tconv_writer *writer)
{
    const tconv_target *target = &explained->layer.target;
    char problem[TCONV_PROBLEM_TEXT_SIZE], capability[16];
    tconv_problem_format(&explained->asked, false, problem, sizeof problem);
    tconv_write_text(writer, "layer", problem);
    if (explained->calls > 0) {
        tconv_problem_format(&explained->layer.problem, false, problem, sizeof problem);
        tconv_write_number(writer, "calls", explained->calls);
        tconv_write_text(writer, "largest_part", problem);
    }
    tconv_write_text(writer, "backend", tconv_backend_name(target->backend));
    if (target->backend == TCONV_BACKEND_CPU) {
        const tconv_cpu_target cpu = tconv_cpu_target_of(target);
        tconv_write_text(writer, "isa", tconv_cpu_isa_name(cpu.cpu_isa));
        tconv_write_number(writer, "threads", cpu.threads);
        return;
    }
    const tconv_cuda_target gpu = tconv_cuda_target_of(target);
    const tconv_cuda_machine rates = tconv_cuda_machine_like(gpu.compute_capability, gpu.multiprocessors);
    snprintf(capability, sizeof capability, "%d.%d", gpu.compute_capability / 10, gpu.compute_capability % 10);
    if (explained->machine != NULL)
        tconv_write_text(writer, "device", explained->machine);
    else
        tconv_write_number(writer, "device", gpu.device);
    tconv_write_text(writer, "compute_capability", capability);
    tconv_write_number(writer, "multiprocessors", gpu.multiprocessors);
    tconv_write_text(writer, "rates", rates.name);
    tconv_write_truth(writer, "rates_measured", rates.measured);
}

static void write_json(const struct explanation *explained, tconv_writer *writer)
{
    tconv_write_open_group(writer, "implementations", '[');
    for (size_t i = 0; i < explained->count; i++) {
        const struct answer *answer = &explained->answers[i];
        tconv_write_open_group(writer, NULL, '{');
        tconv_write_text(writer, "name", answer->implementation->name);
        if (answer->takes) {
            tconv_write_number(writer, "rank", answer->rank);
            tconv_write_text(writer, "plan", answer->text);
            tconv_write_truth(writer, "batch_invariant", answer->batch_invariant);
            if (tconv_is_stream(&explained->layer.problem))
                tconv_write_truth(writer, "chunk_invariant", strstr(answer->chunk_invariance, "yes") != NULL);
            tconv_write_number(writer, "packed_bytes", (int64_t)answer->planned.sizes.packed);
            tconv_write_number(writer, "scratch_bytes", (int64_t)answer->planned.sizes.scratch);
        } else {
            tconv_write_text(writer, "declines", answer->text);
        }
        if (answer->takes && answer->planned.prediction.seconds > 0) {
            tconv_write_open_group(writer, "predicted_ns", '{');
            tconv_write_number(writer, "total", nanoseconds_of(answer));
            for (int part = 0; part < PARTS; part++)
                tconv_write_number(writer, parts[part].name, part_of(&answer->planned.prediction, part));
            tconv_write_close_group(writer, '}');
        }
        tconv_write_close_group(writer, '}');
    }
    tconv_write_close_group(writer, ']');
}

/* Writes nanoseconds in microseconds: "%f" would write a comma in some locales. */
static void append_time(tconv_writer *writer, int64_t nanoseconds)
{
    char text[32];
    const int64_t decimals = (nanoseconds + PER_DECIMAL / 2) / PER_DECIMAL;
    snprintf(text, sizeof text, "%lld.%d", (long long)(decimals / DECIMALS), (int)(decimals % DECIMALS));
    tconv_text_append(&writer->out, COLUMN_FORMAT, text);
}

/* A table: those that take the layer by rank, then the others. */
static void write_table(const struct explanation *explained, tconv_writer *writer)
{
    tconv_text *out = &writer->out;
    tconv_text_append(out, "\nPredicted microseconds, and those of each part as if nothing else took time\n");
    tconv_text_append(out, "%4s" NAME_FORMAT COLUMN_FORMAT, "rank", "implementation", "total");
    for (int part = 0; part < PARTS; part++)
        tconv_text_append(out, COLUMN_FORMAT, parts[part].name);
    tconv_text_append(out, "  plan\n");
    for (int wanted = 1; wanted <= (int)explained->count; wanted++)
        for (size_t i = 0; i < explained->count; i++) {
            const struct answer *answer = &explained->answers[i];
            if (answer->rank != wanted)
                continue;
            tconv_text_append(out, "%4d" NAME_FORMAT, answer->rank, answer->implementation->name);
            append_time(writer, nanoseconds_of(answer));
            for (int part = 0; part < PARTS; part++)
                append_time(writer, part_of(&answer->planned.prediction, part));
            tconv_text_append(out, "  %s%sbatch_invariant=%s%s\n", answer->text, answer->text[0] != 0 ? " " : "",
                              answer->batch_invariant ? "yes" : "no", answer->chunk_invariance);
        }
    for (size_t i = 0; i < explained->count; i++)
        if (!explained->answers[i].takes)
            tconv_text_append(out, "   -" NAME_FORMAT " declines: %s\n", explained->answers[i].implementation->name,
                              explained->answers[i].text);
}

/* Asks with the options that are known, whose allocator is also who releases the answers. */
static tconv_status explain(const tconv_desc *desc, const tconv_options *options, const char *device,
                            struct explanation *explained, tconv_options *known, tconv_issue *issue)
{
    tconv_config config;
    tconv_status status;
    memset(explained, 0, sizeof *explained);
    tconv_options_init(known);
    explained->machine = device;
    if ((status = tconv_problem_init(&explained->layer.problem, desc, issue)) ||
        (status = tconv_operation_check(&explained->layer.problem, issue)) ||
        (status = tconv_options_read(known, options, issue)))
        return status;
    if (device != NULL && known->backend == TCONV_BACKEND_AUTO)
        known->backend = TCONV_BACKEND_CUDA;
    if ((status = tconv_target_resolve(known, device, &explained->layer, &config, issue)))
        return status;
    explained->asked = explained->layer.problem;
    if (tconv_has_depth(&explained->asked) && (status = take_main_part(explained, &known->allocator, issue)))
        return status;
    return ask_all(explained, &known->allocator, issue);
}

tconv_status tconv_explain(const tconv_desc *desc, const tconv_options *options, const char *device,
                           tconv_text_format format, char *text, size_t capacity, size_t *length, tconv_issue *issue)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    struct explanation explained;
    tconv_options known;
    tconv_writer writer;
    /* The writer begins last: it writes to text. */
    if (explain(desc, options, device, &explained, &known, &found) == TCONV_SUCCESS &&
        tconv_writer_begin(&writer, format, text, capacity, &found) == TCONV_SUCCESS) {
        write_target(&explained, &writer);
        if (format == TCONV_TEXT_JSON)
            write_json(&explained, &writer);
        else
            write_table(&explained, &writer);
        tconv_writer_end(&writer, length);
    }
    tconv_release(&known.allocator, explained.answers);
    tconv_plan_forget(&explained.whole);
    return tconv_report(&found, issue);
}
