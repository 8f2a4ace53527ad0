#include "torch_plans.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NUMBER 40 /* characters; repr of a float has up to 24 */

static const struct kind {
    const char *name;
    tconv_post_kind kind;
    int numbers;
    bool has_operand;
} kinds[] = {
    {"add_channel", TCONV_POST_ADD_CHANNEL, 0, true},
    {"mul_channel", TCONV_POST_MUL_CHANNEL, 0, true},
    {"add", TCONV_POST_ADD_TENSOR, 1, true},
    {"linear", TCONV_POST_LINEAR, 2, false},
    {"clamp", TCONV_POST_CLAMP, 2, false},
    {"leaky_relu", TCONV_POST_LEAKY_RELU, 1, false},
    {"sigmoid", TCONV_POST_SIGMOID, 0, false},
    {"tanh", TCONV_POST_TANH, 0, false},
    {"silu", TCONV_POST_SILU, 0, false},
    {"gelu", TCONV_POST_GELU, 0, false},
    {"gelu_tanh", TCONV_POST_GELU_TANH, 0, false},
    {"mish", TCONV_POST_MISH, 0, false},
    {"elu", TCONV_POST_ELU, 1, false},
    {"softplus", TCONV_POST_SOFTPLUS, 0, false},
    {"hardswish", TCONV_POST_HARDSWISH, 0, false},
    {"snake", TCONV_POST_SNAKE, 0, true},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static const struct kind *kind_of(const char *name, size_t length)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strlen(kinds[i].name) == length && memcmp(kinds[i].name, name, length) == 0)
            return &kinds[i];
    return NULL;
}

/* Reads a number of that many characters. In the locale of the process a comma may stand for the point. */
static bool parse_number(const char *text, size_t length, double *number)
{
    char copy[LONGEST_NUMBER + 1], *end = copy;
    locale_t plain = length > 0 && length <= LONGEST_NUMBER ? newlocale(LC_ALL_MASK, "C", (locale_t)0) : (locale_t)0;
    if (plain == (locale_t)0)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    *number = strtod_l(copy, &end, plain);
    freelocale(plain);
    return end == copy + length;
}

/* Reads the numbers between parentheses, from behind the first one on. Returns what follows the last one, NULL where the
 * text is another. */
static const char *parse_numbers(const char *at, const char *end, int count, double numbers[2])
{
    for (int i = 0; i < count; i++) {
        while (at < end && *at == ' ')
            at++;
        const char *last = at;
        while (last < end && *last != ',' && *last != ')')
            last++;
        if (last == end || *last != (i + 1 < count ? ',' : ')') || !parse_number(at, (size_t)(last - at), &numbers[i]))
            return NULL;
        at = last + 1;
    }
    return at;
}

bool parse_posts(const char *text, size_t length, post_list *made)
{
    const char *at = text, *const end = text + length;
    *made = (post_list){.count = 0};
    while (at < end) {
        const char *last = at;
        while (last < end && *last != ' ' && *last != '(')
            last++;
        const struct kind *kind = kind_of(at, (size_t)(last - at));
        double numbers[2] = {0, 0};
        if (kind == NULL || made->count == TCONV_MAX_POST_OPS || (kind->numbers > 0) != (last < end && *last == '('))
            return false;
        at = kind->numbers > 0 ? parse_numbers(last + 1, end, kind->numbers, numbers) : last;
        if (at == NULL || (at < end && *at++ != ' '))
            return false;
        made->steps[made->count] = (tconv_post_op){.kind = kind->kind, .alpha = numbers[0], .beta = numbers[1]};
        made->operands[made->count++] = kind->has_operand ? made->operand_count++ : -1;
    }
    return made->count > 0;
}
