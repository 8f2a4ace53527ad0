/* What this machine and this build of the library have, for the ways of `tconv verify`. */
#include <stdio.h>
#include <string.h>

#include "timing.h"
#include "verify.h"

tconv_status verify_probe(tconv_op op, tconv_cpu_isa isa, const char *implementation, tconv_plan **plan,
                          tconv_issue *issue)
{
    tconv_desc desc;
    tconv_options options;
    tconv_desc_init(&desc);
    desc.in_channels = desc.in_h = desc.in_w = desc.out_channels = desc.kernel_h = desc.kernel_w = 1;
    desc.op = op;
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CPU;
    options.cpu_isa = isa;
    options.implementation = implementation;
    return tconv_plan_create(&desc, &options, plan, issue);
}

bool verify_machine_has(tconv_cpu_isa isa)
{
    tconv_plan *plan;
    char used[16];
    if (verify_probe(TCONV_FORWARD, isa, NULL, &plan, NULL) != TCONV_SUCCESS)
        return false;
    timing_plan_fact(plan, " isa=", used, sizeof used);
    tconv_plan_destroy(plan);
    return strcmp(used, harness_cpu_isa_name(isa)) == 0;
}

bool verify_is_cuda(const char *implementation)
{
    return strncmp(implementation, "cuda_", strlen("cuda_")) == 0;
}

int verify_find_backends(verify_request *asked)
{
    const tconv_op op = asked->op == VERIFY_ALL_OPERATIONS ? TCONV_FORWARD : (tconv_op)asked->op;
    tconv_issue issue;
    tconv_plan *plan;
    /* a bad environment variable, for instance, fails here */
    if (verify_probe(op, asked->execution.isa, NULL, &plan, &issue) != TCONV_SUCCESS)
        return cli_issue_error(asked->options, asked->option_count, &issue);
    tconv_plan_destroy(plan);
    asked->cpu = asked->backend != VERIFY_ONLY_CUDA;
    asked->cuda = asked->backend != VERIFY_ONLY_CPU;
    if (asked->cuda && tconv_backend_available(TCONV_BACKEND_CUDA, &issue) != TCONV_SUCCESS) {
        if (asked->backend != VERIFY_WHAT_IS_HERE)
            return cli_issue_error(asked->options, asked->option_count, &issue);
        printf("not tried: CUDA: %s\n", issue.message);
        asked->cuda = false;
    }
    return -1;
}

void verify_give_posts(const verify_request *asked, bool is_random_layer, harness_random *random, tconv_desc *desc)
{
    const bool is_drawn = is_random_layer && harness_random_chance(random, 100 / VERIFY_POST_EVERY);
    if (desc->op != TCONV_FORWARD)
        return;
    if (asked->posts.given && !asked->posts.random) {
        cli_posts_set(&asked->posts, desc);
        if (harness_post_addend(desc) >= 0 && harness_random_chance(random, 50))
            harness_draw_slice_of_addend(random, desc);
    } else if (asked->posts.given || is_drawn) {
        harness_draw_posts(random, desc);
    }
}

void verify_print_posts(const verify_request *asked)
{
    char posts[HARNESS_POSTS_TEXT];
    if (!asked->posts.given)
        return;
    harness_posts_format(&asked->posts.list, posts, sizeof posts);
    printf(" --post %s", asked->posts.random ? "random" : posts);
}

void verify_print_isas_left_out(void)
{
    bool any = false;
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_AMX; ++isa) {
        tconv_plan *plan = NULL;
        const bool of_this_architecture =
            verify_probe(TCONV_FORWARD, (tconv_cpu_isa)isa, NULL, &plan, NULL) == TCONV_SUCCESS;
        tconv_plan_destroy(plan);
        if (of_this_architecture && !verify_machine_has((tconv_cpu_isa)isa)) {
            printf("%s %s", any ? "," : "not tried, because this machine has none or the build has no code for it:",
                   harness_cpu_isa_name((tconv_cpu_isa)isa));
            any = true;
        }
    }
    if (any)
        printf("\n");
}

bool verify_has_operation(tconv_op op, const char *implementation)
{
    tconv_options options;
    tconv_desc desc;
    tconv_issue issue;
    tconv_plan *plan;
    tconv_desc_init(&desc);
    desc.in_channels = desc.in_h = desc.in_w = desc.out_channels = desc.kernel_h = desc.kernel_w = 1;
    desc.op = op;
    tconv_options_init(&options);
    options.implementation = implementation;
    const tconv_status status = tconv_plan_create(&desc, &options, &plan, &issue);
    tconv_plan_destroy(plan);
    return status != TCONV_ERROR_UNSUPPORTED || strstr(issue.message, "does not take op") == NULL;
}
