/*
 * trace [--all] [--bytes] [--match TEXT] [CSV...]: prints what the GPU would see of every layer by every
 * implementation, one line each, so that two builds of the library can be compared with diff: a change of the host's
 * side that changes no line changes nothing that runs.
 *
 * A line has the implementation, whether weights were packed before, the tensors' offset, the layer, sizes of memory,
 * and the launches, tensor maps, copies and fills in their order. Kernels are named by the digest of their machine
 * code, so that they may be renamed. Tensors lie at fixed addresses, and parameters are printed as a digest of their
 * bytes.
 *
 * Some parameters have bytes that nobody wrote: padding, and ends of arrays. What earlier calls left there counts as
 * zeros where it shows: bytes that differ between two runs over differently painted stacks and heaps, and addresses of
 * this process, whole or by half, for which it starts itself anew at addresses that are always the same. --all prints
 * every call, --bytes the parameters as well, --match the layers alone whose names hold TEXT.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

#include "drive.h"
#include "layers.h"
#include "standin.h"

#define DEEPER            0x111110 /* bytes of stack */
#define DEEPER_PAINT      0xff
#define OWN_ADDRESSES     UINT64_C(0x200000000000) /* of the stand-in's memory (memory.c), and of tensors (drive.c) */
#define OWN_ADDRESSES_END UINT64_C(0x500000000000)

/* What is printed without --all: the rest only asks. */
static const char *const seen[] = {"cuTensorMapEncodeTiled", "cudaMemsetAsync", "cudaMemcpyAsync", "cudaLaunchKernel",
                                   "cudaLaunchKernelExC",    "cudaMalloc",      "cudaFree"};

struct subject {
    const standin_layer *layer;
    const char *implementation; /* NULL: the chosen one */
    int skew;
    bool packed, all;
};

/* What one run leaves beside its calls. */
struct run {
    tconv_status status;
    char message[sizeof(((tconv_issue *)NULL)->message)];
    char implementation[32];
    size_t workspace;
    size_t first, end; /* of its calls */
};

static int paint;
static bool shows_bytes;

static void *allocate_painted(void *context, size_t size)
{
    void *memory = malloc(size);
    (void)context;
    if (memory != NULL)
        memset(memory, paint, size);
    return memory;
}

static void release_painted(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static void take_issue(struct run *run, tconv_status status)
{
    tconv_issue issue;
    run->status = status;
    run->message[0] = '\0';
    if (status == TCONV_SUCCESS)
        return;
    tconv_last_issue(&issue);
    memcpy(run->message, issue.message, sizeof run->message);
}

static __attribute__((noinline)) void run_once(const struct subject *subject, int painted, struct run *run)
{
    const drive_tensors tensors = drive_place(&subject->layer->layer, subject->skew);
    tconv_options options = drive_options(subject->implementation, 0);
    tconv_plan *plan = NULL, *packed = NULL;
    options.allocator = (tconv_allocator){allocate_painted, release_painted, NULL};
    paint = painted;
    standin_paint(painted);
    run->first = standin_call_count();
    standin_paint_now();
    tconv_status status = tconv_plan_create(&subject->layer->layer.desc, &options, &plan, NULL);
    standin_paint_now();
    if (status == TCONV_SUCCESS && subject->packed && subject->layer->layer.desc.op != TCONV_BACKWARD_WEIGHTS)
        status = tconv_plan_pack_weights(plan, &tensors.weights, DRIVE_STREAM, &packed, NULL);
    const tconv_plan *used = packed != NULL ? packed : plan;
    snprintf(run->implementation, sizeof run->implementation, "%s", tconv_plan_implementation(used));
    run->workspace = 0;
    if (status == TCONV_SUCCESS) {
        tconv_plan_workspace_size(used, &run->workspace);
        standin_paint_now();
        status = drive_execute(used, &tensors);
    }
    take_issue(run, status);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
    run->end = standin_call_count();
}

/* Runs at another depth of the stack, so that addresses on it are others. */
static __attribute__((noinline)) void run_deeper(const struct subject *subject, int painted, struct run *run)
{
    volatile unsigned char above[DEEPER];
    above[0] = 0;
    run_once(subject, painted, run);
    above[DEEPER - 1] = above[0];
}

static bool is_seen(const standin_call *call)
{
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++)
        if (strcmp(call->name, seen[i]) == 0)
            return true;
    return false;
}

/* The process's own memory, as the system lists it; where the stand-in and its tensors have addresses is none of it. */
static struct range {
    uint64_t first, end;
    bool is_file;
} ranges[512];
static size_t range_count;

static void read_ranges(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[1024];
    range_count = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL && range_count < sizeof ranges / sizeof ranges[0]) {
        struct range *range = &ranges[range_count];
        range->is_file = strchr(line, '/') != NULL;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64, &range->first, &range->end) == 2 &&
            (range->first < OWN_ADDRESSES || range->first >= OWN_ADDRESSES_END))
            range_count++;
    }
    if (file != NULL)
        fclose(file);
}

static bool is_address(uint64_t word)
{
    for (size_t i = 0; i < range_count; i++)
        if (word >= ranges[i].first && word < ranges[i].end)
            return true;
    return false;
}

/* The upper half of an address, or the lower one of an address in a file; lower halves on the stack are small
 * numbers. */
static bool is_half(uint64_t half)
{
    for (size_t i = 0; i < range_count; i++)
        if ((half == ranges[i].first >> 32 && half != 0) ||
            (ranges[i].is_file && half >= (uint32_t)ranges[i].first && half < (uint32_t)ranges[i].end))
            return true;
    return false;
}

/* An address of a tensor that was half overwritten: whole ones have more in their lower half. */
static bool is_broken(uint64_t word)
{
    return word >= OWN_ADDRESSES && word < OWN_ADDRESSES_END && (uint32_t)word < DRIVE_LOWER_HALF;
}

/* Zeros the words of width bytes that are what is_left says. */
static void mask_words(unsigned char *bytes, size_t count, size_t width, bool (*is_left)(uint64_t))
{
    for (size_t i = 0; i + width <= count; i += width) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, width); /* of a little-endian machine, as all with CUDA are */
        if (is_left(word))
            memset(bytes + i, 0, width);
    }
}

/* Zeros what nobody wrote, as far as it shows: bytes that have the paint of either run, and halves of words that
 * differ in another way. */
static void mask(unsigned char *bytes, size_t count, const unsigned char *others)
{
    for (size_t i = 0; i < count; i++) {
        const size_t half = i / 4 * 4;
        if (bytes[i] == 0 && others[i] == DEEPER_PAINT)
            continue; /* it is zero already */
        if (bytes[i] != others[i])
            memset(bytes + half, 0, half + 4 <= count ? 4 : count - half);
    }
    mask_words(bytes, count, 8, is_address);
    mask_words(bytes, count, 8, is_broken);
    mask_words(bytes, count, 4, is_half);
}

/* Prints a call of two runs. */
static void print_call(const standin_call *call, const standin_call *other)
{
    standin_call masked = *call;
    const bool same = strcmp(call->name, other->name) == 0 && call->parameter_bytes == other->parameter_bytes;
    masked.parameters = NULL;
    if (same && call->parameters != NULL) {
        masked.parameters = malloc(call->parameter_bytes + 1);
        if (masked.parameters == NULL)
            abort();
        memcpy(masked.parameters, call->parameters, call->parameter_bytes);
        mask(masked.parameters, call->parameter_bytes, other->parameters);
    }
    printf(" | ");
    standin_print_call(stdout, &masked);
    if (!same)
        printf(" (differs from run to run)");
    for (size_t i = 0; shows_bytes && masked.parameters != NULL && i < masked.parameter_bytes; i++)
        printf("%s%02x", i % 8 == 0 ? " " : "", masked.parameters[i]);
    free(masked.parameters);
}

static void print_subject(const struct subject *subject, const struct run runs[2])
{
    char text[HARNESS_LAYER_TEXT];
    harness_layer_format(&subject->layer->layer, text, sizeof text);
    printf("%s%s%s skew=%d %s status=%d workspace=%zu",
           subject->implementation != NULL ? "" : "chosen=", runs[0].implementation, subject->packed ? " packed" : "",
           subject->skew, text, (int)runs[0].status, runs[0].workspace);
    if (runs[0].status != TCONV_SUCCESS)
        printf(" \"%s\"", runs[0].message);
    if (runs[1].status != runs[0].status || runs[1].workspace != runs[0].workspace)
        printf(" (differs from run to run)");
}

/* Returns false where the implementation does not take the layer, of which nothing is printed. */
static bool trace(const struct subject *subject)
{
    struct run runs[2];
    standin_forget_calls();
    run_once(subject, 0, &runs[0]);
    if (runs[0].status == TCONV_ERROR_UNSUPPORTED)
        return false;
    run_deeper(subject, DEEPER_PAINT, &runs[1]);
    print_subject(subject, runs);
    size_t other = runs[1].first;
    for (size_t i = runs[0].first; i < runs[0].end; i++) {
        const standin_call *call = standin_call_at(i);
        if (!subject->all && !is_seen(call))
            continue;
        while (other < runs[1].end && !subject->all && !is_seen(standin_call_at(other)))
            other++;
        if (other < runs[1].end)
            print_call(call, standin_call_at(other++));
    }
    printf("\n");
    return true;
}

/* What the command line asks for. */
struct request {
    const char *files[64], *match;
    size_t file_count;
    bool all;
};

static void read_request(int count, char **arguments, struct request *request)
{
    memset(request, 0, sizeof *request);
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--all") == 0)
            request->all = true;
        else if (strcmp(arguments[i], "--bytes") == 0)
            shows_bytes = true;
        else if (strcmp(arguments[i], "--match") == 0 && i + 1 < count)
            request->match = arguments[++i];
        else if (request->file_count < sizeof request->files / sizeof request->files[0])
            request->files[request->file_count++] = arguments[i];
    }
}

/* Starts this program anew at addresses that are always the same, if they are not yet and the system lets it. */
static void fix_addresses(char **arguments)
{
    const int before = personality(0xffffffff);
    if (before == -1 || (before & ADDR_NO_RANDOMIZE) != 0)
        return;
    if (personality((unsigned long)before | ADDR_NO_RANDOMIZE) != -1)
        execv("/proc/self/exe", arguments);
    fprintf(stderr, "addresses are random here: some lines may differ from run to run\n");
}

static void read_kernels(void)
{
    int known = 0;
#ifdef STANDIN_KERNELS
    known = standin_read_kernels(STANDIN_KERNELS);
#endif
    if (known != standin_kernel_count())
        fprintf(stderr, "%d of %d kernels are in the table: others are named, and their parameters not shown\n", known,
                standin_kernel_count());
}

static void trace_layer(const standin_layer *layer, bool all)
{
    const char *name;
    struct subject subject = {layer, NULL, 0, false, all};
    read_ranges();
    printf("# %s\n", layer->name);
    trace(&subject);
    for (size_t at = 0; (name = drive_implementation(at)) != NULL; at++)
        for (int form = 0; form < 3; form++) { /* as it is, packed before, off alignment */
            subject = (struct subject){layer, name, form == 2, form == 1, all};
            if (!trace(&subject))
                break;
        }
}

int main(int count, char **arguments)
{
    struct request request;
    standin_layer *layers;
    fix_addresses(arguments);
    read_request(count, arguments, &request);
    read_kernels();
    const size_t layer_count = standin_list_layers(request.files, request.file_count, &layers);
    if (layer_count == 0)
        return EXIT_FAILURE;
    for (size_t i = 0; i < layer_count; i++)
        if (request.match == NULL || strstr(layers[i].name, request.match) != NULL)
            trace_layer(&layers[i], request.all);
    free(layers);
    return EXIT_SUCCESS;
}
