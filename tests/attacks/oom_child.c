/*
 * The child of attack_out_of_memory: uses the whole API in a cold process while malloc fails for everybody. A call that
 * fails returns a status and leaves dst and *plan as promised, and succeeds when it is repeated, unless memory stays
 * short. Ends with OOM_CHILD_ENDED.
 *
 *     oom_child one|pool|openmp once|forever [LIBRARY]
 *
 * one is one thread, pool two of the caller's, openmp two of OpenMP's. With LIBRARY it is loaded by dlopen before
 * malloc begins to fail, as an extension of a language would be.
 */
#include "oom_child.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attack_layer.h"
#include "caller_pool.h"
#include "fail_malloc.h"

static attack_library library;
static attack_layer layer;
static tconv_options options;
static bool forever; /* memory stays short */
static fail_malloc_count_function *count_calls;

/* Whether a call succeeded; where it failed, checks that it did so as promised. */
static bool succeeded(tconv_status status, const tconv_issue *issue, const char *call)
{
    if (status == TCONV_SUCCESS)
        return true;
    tconv_issue last = {TCONV_SUCCESS, "", ""};
    library.last_issue(&last);
    EXPECT(status == TCONV_ERROR_OUT_OF_MEMORY, "%s: status %d", call, (int)status);
    EXPECT(last.status == status && last.message[0] != '\0', "%s: the last issue does not say why", call);
    EXPECT(issue == NULL || (issue->status == status && issue->message[0] != '\0'), "%s: no issue", call);
    EXPECT(attack_layer_is_untouched(&layer), "%s: dst was written on failure", call);
    return false;
}

/* Returns success. Checks that a call fails a second time only where memory stays short. */
static bool settled(int attempt, bool success, const char *call)
{
    EXPECT(success || forever || attempt == 0, "%s: fails again when there is memory", call);
    return success;
}

static tconv_plan *make_plan(void)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        tconv_plan *plan = (tconv_plan *)&layer;
        tconv_issue issue = {TCONV_SUCCESS, "", ""};
        bool success = succeeded(library.plan_create(&layer.desc, &options, &plan, &issue), &issue, "plan_create");
        EXPECT(success || plan == NULL, "plan_create: *plan is not NULL on failure");
        if (settled(attempt, success, "plan_create"))
            return plan;
    }
    return NULL;
}

static tconv_plan *pack(const tconv_plan *plan)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        tconv_plan *packed = (tconv_plan *)&layer;
        tconv_issue issue = {TCONV_SUCCESS, "", ""};
        bool success = succeeded(library.plan_pack_weights(plan, &layer.weights, NULL, &packed, &issue), &issue,
                                 "plan_pack_weights");
        EXPECT(success || packed == NULL, "plan_pack_weights: *packed is not NULL on failure");
        if (settled(attempt, success, "plan_pack_weights"))
            return packed;
    }
    return NULL;
}

static void execute(const tconv_plan *plan, const tconv_tensor *weights, const char *call)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        attack_layer_clear(&layer);
        tconv_status status = library.plan_execute(plan, &layer.src, weights, &layer.bias, &layer.dst, layer.workspace,
                                                   layer.workspace_size, NULL);
        if (!settled(attempt, succeeded(status, NULL, call), call))
            continue;
        EXPECT(attack_layer_is_right(&layer), "%s: wrong result", call);
        break;
    }
    attack_layer_clear(&layer);
}

static void one_shot(void)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        tconv_issue issue = {TCONV_SUCCESS, "", ""};
        tconv_status status = library.conv_transpose2d(&layer.desc, &options, &layer.src, &layer.weights, &layer.bias,
                                                       &layer.dst, &issue);
        if (!settled(attempt, succeeded(status, &issue, "conv_transpose2d"), "conv_transpose2d"))
            continue;
        EXPECT(attack_layer_is_right(&layer), "conv_transpose2d: wrong result");
        break;
    }
    attack_layer_clear(&layer);
}

/* Describes the plan. These calls have no reason to fail: they write into the caller's memory. */
static void describe(const tconv_plan *plan)
{
    char text[8192] = "";
    size_t length = 0;
    if (plan != NULL) {
        EXPECT(library.plan_describe(plan, text, sizeof text, &length) == TCONV_SUCCESS, "plan_describe fails");
        EXPECT(length > 0 && strlen(text) == length, "plan_describe says \"%s\"", text);
    }
    EXPECT(library.system_info(TCONV_TEXT_JSON, text, sizeof text, &length) == TCONV_SUCCESS, "system_info fails");
    EXPECT(length > 0 && strlen(text) == length, "system_info says \"%s\"", text);
}

static void use_everything(void)
{
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    EXPECT(library.validate(&layer.desc, &issue) == TCONV_SUCCESS, "validate: %s", issue.message);
    tconv_plan *plan = make_plan();
    if (plan != NULL) {
        execute(plan, &layer.weights, "plan_execute");
        tconv_plan *packed = pack(plan);
        if (packed != NULL)
            execute(packed, NULL, "plan_execute, packed");
        library.plan_destroy(packed);
    }
    describe(plan);
    one_shot();
    library.plan_destroy(plan);
}

static void set_up(int argc, char **argv)
{
    void *found = dlsym(RTLD_DEFAULT, FAIL_MALLOC_COUNT);
    void *handle = argc > 3 ? dlopen(argv[3], RTLD_NOW | RTLD_LOCAL) : NULL;
    memcpy(&count_calls, &found, sizeof found);
    if (argc > 3 && (handle == NULL || !attack_library_find(&library, handle))) {
        printf("%s cannot be loaded: %s\n", argv[3], dlerror());
        exit(EXIT_FAILURE);
    }
#if !defined(OOM_CHILD_UNLINKED)
    library = ATTACK_LINKED_LIBRARY;
#endif
    forever = strcmp(argv[2], "forever") == 0;
    attack_layer_init(&layer, ATTACK_LARGE);
    library.options_init_sized(&options, sizeof options);
    options.threads = strcmp(argv[1], "one") == 0 ? 1 : 2;
    if (strcmp(argv[1], "pool") == 0 && caller_pool_start())
        options.parallel = caller_pool_functions();
}

int main(int argc, char **argv)
{
    static char buffer[1 << 16]; /* so that stdout needs no memory */
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    set_up(argc, argv);
    if (count_calls != NULL)
        count_calls(1);
    use_everything();
    if (count_calls != NULL)
        count_calls(0);
    if (options.parallel.parallel_for != NULL) {
        EXPECT(forever || caller_pool_calls() > 0, "the caller's threads were never asked");
        caller_pool_stop();
    }
    attack_layer_release(&layer);
    return attack_end() == 0 ? OOM_CHILD_ENDED : EXIT_FAILURE;
}
