/* Memory: where it comes from, that execute allocates none, that each allocation may fail, and that all of it is
 * freed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support/counting_allocator.h"
#include "support/expect.h"
#include "support/small_layer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct small_layer layer;
static tconv_issue issue;

static void set_up(void)
{
    small_layer_init(&layer);
}

TestSuite(memory, .init = set_up);

/* The library's calls of malloc and its kin come through these functions (the linker's --wrap), which count them and
 * refuse the n-th. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static struct {
    atomic_size_t calls;
    size_t fail_at;
} heap;

static bool heap_refuses(void)
{
    return atomic_fetch_add(&heap.calls, 1) + 1 == heap.fail_at;
}

void *__wrap_malloc(size_t size)
{
    return heap_refuses() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return heap_refuses() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return heap_refuses() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return heap_refuses() ? NULL : __real_aligned_alloc(alignment, size);
}

static void heap_watch(size_t fail_at)
{
    heap.fail_at = fail_at;
    atomic_store(&heap.calls, 0);
}

Test(memory, execute_allocates_nothing)
{
    const char *name;
    for (size_t i = 0; (name = tconv_implementation_name(i)) != NULL; i++) {
        struct counting_allocator counting;
        tconv_options options;
        tconv_plan *plan, *packed;
        if (strncmp(name, "cpu_", 4) != 0)
            continue;
        counting_init(&counting, 0);
        tconv_options_init(&options);
        options.implementation = name;
        options.allocator = counting.functions;
        options.threads = 2;
        if (tconv_plan_create(&layer.desc, &options, &plan, &issue) == TCONV_ERROR_UNSUPPORTED)
            continue;
        expect_success(issue.status, issue);
        expect_success(tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), issue);
        small_layer_execute(&layer, plan, &issue); /* the first one starts OpenMP's threads */
        size_t before = atomic_load(&counting.calls);
        heap_watch(0);
        tconv_status first = small_layer_execute(&layer, plan, &issue),
                     second = small_layer_execute(&layer, packed, &issue);
        size_t calls = atomic_load(&heap.calls);
        cr_assert(first == TCONV_SUCCESS && second == TCONV_SUCCESS);
        cr_assert_eq(atomic_load(&counting.calls), before, "%s: the allocator was called", name);
        cr_assert_eq(calls, 0, "%s: malloc was called %zu times", name, calls);
        tconv_plan_destroy(packed);
        tconv_plan_destroy(plan);
        cr_assert_eq(atomic_load(&counting.live), 0);
    }
}

static void look_at_line(void *context, const char *line)
{
    *(size_t *)context += strlen(line);
}

/* Verbose lines are composed on the stack. */
Test(memory, verbose_lines_allocate_nothing)
{
    tconv_options options;
    size_t bytes = 0;
    tconv_options_init(&options);
    options.threads = 1;
    options.verbose = 2;
    options.log = (tconv_log){look_at_line, &bytes};
    tconv_plan *plan = small_layer_plan(&layer, &options);
    heap_watch(0);
    tconv_status status = small_layer_execute(&layer, plan, &issue);
    size_t calls = atomic_load(&heap.calls);
    expect_success(status, issue);
    cr_assert_gt(bytes, 0);
    cr_assert_eq(calls, 0, "malloc was called %zu times", calls);
    tconv_plan_destroy(plan);
}

Test(memory, all_memory_comes_from_the_allocator_and_goes_back)
{
    struct counting_allocator counting;
    tconv_options options;
    tconv_plan *plan, *packed;
    counting_init(&counting, 0);
    tconv_options_init(&options);
    options.allocator = counting.functions;
    small_layer_execute(&layer, plan = small_layer_plan(&layer, NULL), &issue); /* anything set up once is set up now */
    tconv_plan_destroy(plan);
    heap_watch(0);
    tconv_status create = tconv_plan_create(&layer.desc, &options, &plan, &issue);
    tconv_status pack = tconv_plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue);
    tconv_status call =
        tconv_conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue);
    /* the counting allocator itself calls malloc, wrapped as well, once for each block */
    size_t calls = atomic_load(&heap.calls), counted = atomic_load(&counting.calls);
    cr_assert(create == TCONV_SUCCESS && pack == TCONV_SUCCESS && call == TCONV_SUCCESS);
    cr_assert_gt(counted, 0);
    cr_assert_eq(calls, counted, "%zu allocations passed the allocator by", calls - counted);
    cr_assert_gt(atomic_load(&counting.live), 0);
    tconv_plan_destroy(plan);
    tconv_plan_destroy(packed);
    cr_assert_eq(atomic_load(&counting.live), 0, "%zu blocks leaked", atomic_load(&counting.live));
    cr_assert_eq(atomic_load(&counting.wrong), 0);
}

/* The calls that may fail for lack of memory: each leaves a plan or none, and dst right or untouched. */
static tconv_status create_call(const tconv_options *options, tconv_plan **made)
{
    return tconv_plan_create(&layer.desc, options, made, &issue);
}

static tconv_status pack_call(const tconv_options *options, tconv_plan **made)
{
    tconv_plan *plan;
    tconv_status status = tconv_plan_create(&layer.desc, options, &plan, &issue);
    if (status != TCONV_SUCCESS)
        return status;
    status = tconv_plan_pack_weights(plan, &layer.weights, NULL, made, &issue);
    tconv_plan_destroy(plan);
    return status;
}

static tconv_status one_call(const tconv_options *options, tconv_plan **made)
{
    *made = NULL;
    return tconv_conv_transpose2d(&layer.desc, options, &layer.src, &layer.weights, &layer.bias, &layer.dst, &issue);
}

static const struct {
    const char *name;
    tconv_status (*call)(const tconv_options *options, tconv_plan **made);
} memory_calls[] = {
    {"tconv_plan_create", create_call}, {"tconv_plan_pack_weights", pack_call}, {"tconv_conv_transpose2d", one_call}};

static void expect_out_of_memory(const char *name, size_t n, tconv_status status, const tconv_plan *made)
{
    cr_assert_eq(status, TCONV_ERROR_OUT_OF_MEMORY, "%s, allocation %zu refused: %s \"%s\"", name, n,
                 tconv_status_string(status), issue.message);
    cr_assert_str_eq(issue.field, "allocator", "%s, allocation %zu: %s", name, n, issue.message);
    cr_assert_null(made, "%s, allocation %zu", name, n);
    cr_assert(small_layer_is_untouched(&layer), "%s, allocation %zu: dst was written", name, n);
}

Test(memory, every_allocation_may_fail)
{
    for (size_t c = 0; c < COUNT(memory_calls); c++) {
        size_t n;
        for (n = 1;; n++) {
            struct counting_allocator counting;
            tconv_options options;
            tconv_plan *made = NULL;
            counting_init(&counting, n);
            tconv_options_init(&options);
            options.allocator = counting.functions;
            small_layer_clear(&layer);
            tconv_status status = memory_calls[c].call(&options, &made);
            bool refused = atomic_load(&counting.calls) >= n;
            if (refused)
                expect_out_of_memory(memory_calls[c].name, n, status, made);
            else
                expect_success(status, issue);
            tconv_plan_destroy(made);
            cr_assert_eq(atomic_load(&counting.live), 0, "%s, allocation %zu: %zu blocks leaked", memory_calls[c].name,
                         n, atomic_load(&counting.live));
            cr_assert_eq(atomic_load(&counting.wrong), 0);
            if (!refused)
                break;
        }
        cr_assert_gt(n, 3, "%s makes %zu allocations: too few to be all", memory_calls[c].name, n - 1);
    }
}

/* The same holds for malloc itself, without an allocator of the caller's. */
Test(memory, every_malloc_may_fail)
{
    for (size_t c = 0; c < COUNT(memory_calls); c++) {
        size_t calls = 1;
        for (size_t n = 1; calls >= n; n++) {
            tconv_plan *made = NULL;
            small_layer_clear(&layer);
            heap_watch(n);
            tconv_status status = memory_calls[c].call(NULL, &made);
            calls = atomic_load(&heap.calls);
            heap_watch(0);
            if (calls >= n)
                expect_out_of_memory(memory_calls[c].name, n, status, made);
            else
                expect_success(status, issue);
            tconv_plan_destroy(made);
        }
    }
}

/* No allocator has room for this workspace and output, although each size fits in 63 bits. */
Test(memory, layer_too_large_for_any_memory)
{
    tconv_plan *plan = NULL;
    tconv_desc_init(&layer.desc);
    layer.desc.in_channels = INT64_C(1) << 20, layer.desc.out_channels = INT64_C(1) << 20;
    layer.desc.in_h = layer.desc.in_w = 1;
    layer.desc.kernel_h = layer.desc.kernel_w = INT64_C(1) << 9;
    layer.src.data = (void *)(UINT64_C(1) << 45); /* addresses that are not mapped, but far enough apart */
    layer.dst.data = (void *)(UINT64_C(1) << 46);
    layer.weights.data = (void *)(UINT64_C(1) << 61);
    tconv_status status =
        tconv_conv_transpose2d(&layer.desc, NULL, &layer.src, &layer.weights, NULL, &layer.dst, &issue);
    cr_assert(status == TCONV_ERROR_OUT_OF_MEMORY || status == TCONV_ERROR_OVERFLOW, "%s: %s",
              tconv_status_string(status), issue.message);
    cr_assert(small_layer_is_untouched(&layer));
    tconv_plan_destroy(plan);
}
