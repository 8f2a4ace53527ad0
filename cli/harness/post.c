/* Names, texts and random lists of post-ops. */
#include "post.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

static const struct post_kind {
    const char *name;
    int numbers; /* of alpha and beta */
    int vectors; /* numbers that the operand has of each channel */
} kinds[] = {
    [TCONV_POST_ADD_CHANNEL] = {"add_channel", 0, 1},
    [TCONV_POST_MUL_CHANNEL] = {"mul_channel", 0, 1},
    [TCONV_POST_ADD_TENSOR] = {"add_tensor", 1, 0},
    [TCONV_POST_LINEAR] = {"linear", 2, 0},
    [TCONV_POST_CLAMP] = {"clamp", 2, 0},
    [TCONV_POST_LEAKY_RELU] = {"leaky_relu", 1, 0},
    [TCONV_POST_SIGMOID] = {"sigmoid", 0, 0},
    [TCONV_POST_TANH] = {"tanh", 0, 0},
    [TCONV_POST_SILU] = {"silu", 0, 0},
    [TCONV_POST_GELU] = {"gelu", 0, 0},
    [TCONV_POST_GELU_TANH] = {"gelu_tanh", 0, 0},
    [TCONV_POST_MISH] = {"mish", 0, 0},
    [TCONV_POST_ELU] = {"elu", 1, 0},
    [TCONV_POST_SOFTPLUS] = {"softplus", 0, 0},
    [TCONV_POST_HARDSWISH] = {"hardswish", 0, 0},
    [TCONV_POST_SNAKE] = {"snake", 0, 2},
};
#define KIND_END (sizeof kinds / sizeof kinds[0])

static struct post_kind kind_of(tconv_post_kind kind)
{
    const size_t index = (size_t)kind;
    return index > 0 && index < KIND_END ? kinds[index] : (struct post_kind){"?", 0, 0};
}

const char *harness_post_name(tconv_post_kind kind)
{
    return kind_of(kind).name;
}

int harness_post_numbers(tconv_post_kind kind)
{
    return kind_of(kind).numbers;
}

int harness_post_vectors(tconv_post_kind kind)
{
    return kind_of(kind).vectors;
}

bool harness_post_has_operand(tconv_post_kind kind)
{
    return kind == TCONV_POST_ADD_TENSOR || harness_post_vectors(kind) > 0;
}

int harness_post_addend(const tconv_desc *desc)
{
    for (int i = 0; i < desc->post_count; ++i)
        if (desc->post[i].kind == TCONV_POST_ADD_TENSOR)
            return i;
    return -1;
}

/* --------------------------------------------------------------------------------------------------------------- text */

int harness_posts_format(const tconv_desc *desc, char *text, size_t capacity)
{
    char all[HARNESS_POSTS_TEXT];
    int length = 0;
    all[0] = '\0';
    for (int i = 0; i < desc->post_count; ++i) {
        const tconv_post_op *post = &desc->post[i];
        const double numbers[2] = {post->alpha, post->beta};
        length += snprintf(all + length, sizeof all - (size_t)length, "%s%s", i == 0 ? "" : ",",
                           harness_post_name(post->kind));
        for (int j = 0; j < 2 && j < harness_post_numbers(post->kind); ++j)
            length += snprintf(all + length, sizeof all - (size_t)length, ":%.17g", numbers[j]);
    }
    return snprintf(text, capacity, "%s", all);
}

/* Returns the kind of a name; 0 for none. */
static tconv_post_kind find_kind(const char *name, size_t length)
{
    for (size_t i = 1; i < KIND_END; ++i)
        if (strlen(kinds[i].name) == length && memcmp(kinds[i].name, name, length) == 0)
            return (tconv_post_kind)i;
    return (tconv_post_kind)0;
}

/* Reads the number that takes all of length bytes: decimal, or inf with a sign. */
static bool parse_number(const char *text, size_t length, double *number)
{
    char copy[64], *end;
    if (length == 0 || length >= sizeof copy || strspn(text, "+-.0123456789einfEINF") < length)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    *number = strtod(copy, &end);
    return *end == '\0';
}

/* Reads "name", "name:number" or "name:number:number". */
static bool parse_post(const char *text, size_t length, tconv_post_op *post, char *message, size_t capacity)
{
    const char *const end = text + length, *colon = memchr(text, ':', length);
    const tconv_post_kind kind = find_kind(text, colon != NULL ? (size_t)(colon - text) : length);
    double numbers[2] = {0, 0};
    int count = 0;
    if ((int)kind == 0) {
        int written = snprintf(message, capacity, "post-op \"%.*s\" is none of", (int)length, text);
        for (size_t i = 1; i < KIND_END && written > 0 && (size_t)written < capacity; ++i)
            written += snprintf(message + written, capacity - (size_t)written, " %s", kinds[i].name);
        return false;
    }
    while (colon != NULL) {
        const char *const from = colon + 1;
        colon = memchr(from, ':', (size_t)(end - from));
        if (count == harness_post_numbers(kind)) {
            snprintf(message, capacity, "post-op \"%.*s\" has more than %d numbers", (int)length, text, count);
            return false;
        }
        if (!parse_number(from, (size_t)((colon != NULL ? colon : end) - from), &numbers[count++])) {
            snprintf(message, capacity, "post-op \"%.*s\" must have numbers after its name, each after a colon",
                     (int)length, text);
            return false;
        }
    }
    *post = (tconv_post_op){kind, 0, numbers[0], numbers[1]};
    return true;
}

bool harness_posts_parse(const char *text, size_t length, tconv_desc *desc, char *message, size_t capacity)
{
    tconv_post_op posts[TCONV_MAX_POST_OPS];
    memset(posts, 0, sizeof posts);
    int32_t count = 0;
    for (const char *at = text, *const end = text + length; at <= end; ++count) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *const stop = comma != NULL ? comma : end;
        if (count == TCONV_MAX_POST_OPS) {
            snprintf(message, capacity, "\"%.*s\" has more than %d post-ops", (int)length, text, TCONV_MAX_POST_OPS);
            return false;
        }
        if (!parse_post(at, (size_t)(stop - at), &posts[count], message, capacity))
            return false;
        at = stop + 1;
    }
    memset(desc->post, 0, sizeof desc->post);
    memcpy(desc->post, posts, (size_t)count * sizeof posts[0]);
    desc->post_count = count;
    return true;
}

/* ------------------------------------------------------------------------------------------------------- random lists */

/* Draws a number with few binary digits, or any. */
static double draw_number(harness_random *random, bool exact)
{
    static const double numbers[] = {-2, -1, -0.5, 0, 0.25, 0.5, 1, 1.5, 2, 3};
    const int64_t last = (int64_t)(sizeof numbers / sizeof numbers[0]) - 1;
    return exact ? numbers[harness_random_integer(random, 0, last)] : 1.5 * harness_random_real(random);
}

static tconv_post_op draw_post(harness_random *random, bool exact)
{
    tconv_post_op post;
    memset(&post, 0, sizeof post); /* without a byte between the fields that nobody wrote */
    post.kind = (tconv_post_kind)harness_random_integer(random, 1, exact ? TCONV_POST_LEAKY_RELU : TCONV_POST_SNAKE);
    if (harness_post_numbers(post.kind) > 0)
        post.alpha = draw_number(random, exact);
    if (harness_post_numbers(post.kind) > 1)
        post.beta = draw_number(random, exact);
    if (post.kind != TCONV_POST_CLAMP)
        return post;
    if (harness_random_chance(random, 25))
        post.beta = INFINITY;
    if (harness_random_chance(random, 25))
        post.alpha = -INFINITY;
    if (post.alpha > post.beta) {
        const double least = post.beta;
        post.beta = post.alpha;
        post.alpha = least;
    }
    return post;
}

void harness_draw_posts(harness_random *random, tconv_desc *desc)
{
    const bool exact = harness_random_chance(random, 50);
    memset(desc->post, 0, sizeof desc->post);
    desc->post_count = (int32_t)harness_random_integer(random, 0, TCONV_MAX_POST_OPS);
    for (int i = 0, addend = -1; i < desc->post_count; ++i) {
        do
            desc->post[i] = draw_post(random, exact);
        while (desc->post[i].kind == TCONV_POST_ADD_TENSOR && addend >= 0);
        if (desc->post[i].kind == TCONV_POST_ADD_TENSOR)
            addend = i;
        /* A folded BatchNorm is one operation: one in two scales is followed by a shift. */
        if (desc->post[i].kind == TCONV_POST_MUL_CHANNEL && i + 1 < desc->post_count &&
            harness_random_chance(random, 50)) {
            memset(&desc->post[++i], 0, sizeof desc->post[i]);
            desc->post[i].kind = TCONV_POST_ADD_CHANNEL;
        }
    }
    memset(desc->addend_strides, 0, sizeof desc->addend_strides);
    desc->addend_stride_d = 0;
    if (harness_post_addend(desc) >= 0 && harness_random_chance(random, 50))
        harness_draw_slice_of_addend(random, desc);
}
