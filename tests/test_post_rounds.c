/* Affine lists of post-ops as CUDA kernels take them: rounds, which keep every bit of the steps. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../src/cuda/epilogue/affine.h"
#include "harness.h"
#include "support/desc_numbers.h"
#include "support/expect.h"

static tconv_issue issue;

/* A problem in f32 with the list of a text, as --problem has it. */
static tconv_problem problem_with(const char *list)
{
    tconv_desc desc = uneven_layer();
    tconv_problem problem;
    char message[256];
    desc.dtype = TCONV_F32;
    cr_assert(harness_posts_parse(list, strlen(list), &desc, message, sizeof message), "%s", message);
    expect_success(tconv_problem_init(&problem, &desc, &issue), issue);
    return problem;
}

/* Takes a value of channel 0 through an affine list step by step, as kernels do. */
static float run_affine_steps(const post_steps *steps, float y)
{
    for (int i = 0; i < steps->count; i++) {
        const post_step *step = &steps->of[i];
        const float alpha = step->alpha.f32, beta = step->beta.f32;
        const float *first = step->first, *second = step->second;
        switch (step->kind) {
        case POST_MUL_ADD_CHANNEL: y = fmaf(y, first[0], second[0]); break;
        case TCONV_POST_MUL_CHANNEL: y = y * first[0]; break;
        case TCONV_POST_ADD_CHANNEL: y = y + first[0]; break;
        case TCONV_POST_LINEAR: y = fmaf(alpha, y, beta); break;
        case TCONV_POST_LEAKY_RELU: y = y > 0 ? y : alpha * y; break;
        default: y = y < alpha ? alpha : y > beta ? beta : y;
        }
    }
    return y;
}

/* Takes the value through the list's rounds. whole: without a look at which parts a round has. */
static float run_rounds(const affine_posts *posts, bool whole, float y)
{
    for (int i = 0; i < posts->count; i++) {
        const affine_round *round = &posts->rounds[i];
        const float factor = round->factors != NULL ? round->factors[0] : round->factor;
        const float term = round->terms != NULL ? round->terms[0] : round->term;
        if (whole || (round->parts & ROUND_SCALES) != 0)
            y = fmaf(y, factor, term);
        if (whole || (round->parts & ROUND_SLOPES) != 0)
            y = y > 0 ? y : round->slope * y;
        if (whole || (round->parts & ROUND_BOUNDS_BELOW) != 0)
            y = y < round->least ? round->least : y;
        if (whole || (round->parts & ROUND_BOUNDS_ABOVE) != 0)
            y = y > round->most ? round->most : y;
    }
    return y;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

Test(posts, rounds_keep_every_bit_of_the_steps)
{
    static const char *const kinds[] = {"mul_channel",    "add_channel",  "linear:-3:0.5", "linear:0.7:-0",
                                        "leaky_relu:0.1", "leaky_relu:3", "leaky_relu:-2", "leaky_relu:0",
                                        "clamp:-1:2",     "clamp:-inf:1", "clamp:-2:inf"};
    static const float numbers[] = {1.5F, -0.3F, 2.0F, -0.0F, 0.0F, 7.25F, -1.0F, 0x1p-100F},
                       specials[] = {0.0F,      -0.0F,     1.0F,       -1.0F,      INFINITY,
                                     -INFINITY, 0x1p-149F, -0x1p-149F, 0x1.8p127F, -0x1.8p127F};
    harness_random random;
    int alone = 0;
    harness_random_seed(&random, 11);
    for (int round = 0; round < 3000; round++) {
        char text[256] = "";
        const void *operands[TCONV_MAX_POST_OPS] = {NULL};
        size_t length = 0;
        const int count = 1 + (int)harness_random_integer(&random, 0, TCONV_MAX_POST_OPS - 1);
        for (int i = 0; i < count; i++) {
            const int kind = (int)harness_random_integer(&random, 0, (int)COUNT(kinds) - 1);
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", i > 0 ? "," : "", kinds[kind]);
            operands[i] = kind < 2 ? &numbers[harness_random_integer(&random, 0, (int)COUNT(numbers) - 1)] : NULL;
        }
        const tconv_problem problem = problem_with(text);
        const post_steps steps = tconv_cuda_post_steps(&problem, operands);
        const affine_posts posts = tconv_cuda_affine_posts(&problem, operands);
        cr_assert(posts.count >= 1 && posts.count <= steps.count, "%s", text);
        alone += posts.count == 1;
        for (int i = 0; i < 40; i++) {
            const uint32_t drawn = (uint32_t)harness_random_bits(&random);
            float from;
            memcpy(&from, &drawn, sizeof from);
            if (i < (int)COUNT(specials))
                from = specials[i];
            const float expected = run_affine_steps(&steps, from);
            for (int whole = 0; whole < 2; whole++) {
                const float found = run_rounds(&posts, whole, from);
                cr_assert(bits_of(expected) == bits_of(found) || (isnan(expected) && isnan(found)),
                          "%s: %a to %a, not %a", text, (double)from, (double)found, (double)expected);
            }
        }
    }
    cr_assert_gt(alone, 100);
}

/* Lists that layers have scale and shift by channel, and end with an activation. */
Test(posts, common_lists_are_one_round)
{
    static const char *const lists[] = {"leaky_relu:0",
                                        "leaky_relu:0.2",
                                        "mul_channel,add_channel,leaky_relu:0.2",
                                        "add_channel,clamp:0:6",
                                        "mul_channel,add_channel,leaky_relu:0",
                                        "linear:2:1"};
    for (size_t i = 0; i < COUNT(lists); i++) {
        const tconv_problem problem = problem_with(lists[i]);
        cr_assert(tconv_cuda_posts_are_a_round(&problem), "%s", lists[i]);
    }
    const tconv_problem problem = problem_with("leaky_relu:0.2,add_channel");
    cr_assert_not(tconv_cuda_posts_are_a_round(&problem));
}
