/* A layer as arguments of `tconv bench`, written and read. The keys of --problem are one table, used both ways. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

const char *const harness_dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};
const char *const harness_layout_names[] = {"nchw", "nhwc", NULL};
const char *const harness_weight_layout_names[] = {"iohw", "ihwo", "hwoi", NULL};
const char *const harness_math_names[] = {"default", "strict", "tf32", NULL};
const char *const harness_op_names[] = {"forward", "backward_data", "backward_weights", NULL};
const char *const harness_backend_names[] = {"auto", "cpu", "cuda", NULL};
const char *const harness_cpu_isa_names[] = {"default", "generic",     "avx2", "avx512",
                                             "neon",    "avx512_bf16", "amx",  NULL};

/* The last entry is NULL, which is no name. */
#define LOOK_UP(names, value)                                                                                          \
    ((size_t)(value) < sizeof(names) / sizeof((names)[0]) - 1 ? (names)[(size_t)(value)] : "?")

const char *harness_dtype_name(tconv_dtype dtype)
{
    return LOOK_UP(harness_dtype_names, dtype);
}

const char *harness_layout_name(tconv_layout layout)
{
    return LOOK_UP(harness_layout_names, layout);
}

const char *harness_weight_layout_name(tconv_weight_layout layout)
{
    return LOOK_UP(harness_weight_layout_names, layout);
}

const char *harness_math_name(tconv_math math)
{
    return LOOK_UP(harness_math_names, math);
}

const char *harness_op_name(tconv_op op)
{
    return LOOK_UP(harness_op_names, op);
}

const char *harness_backend_name(tconv_backend backend)
{
    return LOOK_UP(harness_backend_names, backend);
}

const char *harness_cpu_isa_name(tconv_cpu_isa isa)
{
    return LOOK_UP(harness_cpu_isa_names, isa);
}

bool harness_is_generic_again(const char *implementation, tconv_cpu_isa isa)
{
    return isa != TCONV_CPU_ISA_GENERIC && isa < TCONV_CPU_ISA_AVX512_BF16 && strcmp(implementation, "cpu_bf16") == 0;
}

#define MOST_NUMBERS 6 /* of a key */

/* One key of --problem and the fields of the desc that its numbers go to. */
typedef struct key {
    const char *name;
    bool required;
    int count;                   /* the most numbers that the key takes in a layer with depth */
    size_t fields[MOST_NUMBERS]; /* offsets in tconv_desc; in the order of the text of a layer with depth */
    const char *meaning;         /* for messages */
} key;

#define FIELD(name) offsetof(tconv_desc, name)
#define STRIDES(of)                                                                                                    \
    {                                                                                                                  \
        FIELD(of##_strides[0]), FIELD(of##_strides[1]), FIELD(of##_stride_d), FIELD(of##_strides[2]),                  \
            FIELD(of##_strides[3])                                                                                     \
    }
#define PADS                                                                                                           \
    {                                                                                                                  \
        FIELD(pad_front), FIELD(pad_top), FIELD(pad_left), FIELD(pad_back), FIELD(pad_bottom), FIELD(pad_right)        \
    }
#define BIAS_FIELD       SIZE_MAX /* the bias is no field of the desc */
#define ACCUMULATE_FIELD FIELD(accumulate)
#define STREAM_FIELD     FIELD(stream_axis)
#define CARRY_FIELD      FIELD(carry_dtype)
#define POST_FIELD       FIELD(post) /* a list, not numbers */

static const key keys[] = {
    {"n", false, 1, {FIELD(batch)}, "images"},
    {"ci", true, 1, {FIELD(in_channels)}, "input channels"},
    {"z", false, 1, {FIELD(in_d)}, "input planes"},
    {"h", true, 1, {FIELD(in_h)}, "input height"},
    {"w", true, 1, {FIELD(in_w)}, "input width"},
    {"co", true, 1, {FIELD(out_channels)}, "output channels"},
    {"k", true, 3, {FIELD(kernel_d), FIELD(kernel_h), FIELD(kernel_w)}, "kernel"},
    {"s", false, 3, {FIELD(stride_d), FIELD(stride_h), FIELD(stride_w)}, "stride"},
    {"p", false, 6, PADS, "padding"},
    {"op", false, 3, {FIELD(output_padding_d), FIELD(output_padding_h), FIELD(output_padding_w)}, "output padding"},
    {"d", false, 3, {FIELD(dilation_d), FIELD(dilation_h), FIELD(dilation_w)}, "dilation"},
    {"g", false, 1, {FIELD(groups)}, "groups"},
    {"b", false, 1, {BIAS_FIELD}, "bias"},
    {"acc", false, 1, {ACCUMULATE_FIELD}, "accumulate"},
    {"st", false, 1, {STREAM_FIELD}, "streamed axis"},
    {"cd", false, 1, {CARRY_FIELD}, "dtype of the carry"},
    {"ss", false, 5, STRIDES(src), "strides of src"},
    {"ds", false, 5, STRIDES(dst), "strides of dst"},
    {"post", false, 0, {POST_FIELD}, "post-ops"},
    {"as", false, 5, STRIDES(addend), "strides of the addend"},
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

static int64_t *field_of(tconv_desc *desc, size_t offset)
{
    return (int64_t *)(void *)((char *)desc + offset);
}

/* Returns the most that a key with one small number takes, whose 0 is not written; 0 for the others, whose fields are
 * int64_t. */
static int64_t most_of(const key *which)
{
    switch (which->fields[0]) {
    case BIAS_FIELD:
    case ACCUMULATE_FIELD: return 1;
    case STREAM_FIELD: return 2;
    case CARRY_FIELD: return TCONV_BF16;
    default: return 0;
    }
}

static int small_number_of(const harness_layer *layer, const key *which)
{
    switch (which->fields[0]) {
    case BIAS_FIELD: return layer->has_bias;
    case ACCUMULATE_FIELD: return layer->desc.accumulate;
    case STREAM_FIELD: return layer->desc.stream_axis;
    default: return (int)layer->desc.carry_dtype;
    }
}

static void store_small_number(harness_layer *layer, const key *which, int number)
{
    switch (which->fields[0]) {
    case BIAS_FIELD: layer->has_bias = number != 0; break;
    case ACCUMULATE_FIELD: layer->desc.accumulate = number; break;
    case STREAM_FIELD: layer->desc.stream_axis = number; break;
    default: layer->desc.carry_dtype = (tconv_dtype)number;
    }
}

static bool is_post(const key *which)
{
    return which->fields[0] == POST_FIELD;
}

static bool is_strides(const key *which)
{
    return which->count == 5;
}

static bool is_of_depth(size_t field)
{
    return field >= FIELD(in_d) && field <= FIELD(addend_stride_d);
}

/* Lists the fields that a key has in a layer, in the order of the text, and returns their number: z= and all that is of
 * depth are left out where there is none. */
static int fields_in(const key *which, bool has_depth, size_t fields[MOST_NUMBERS])
{
    int count = 0;
    for (int i = 0; i < which->count; ++i)
        if (has_depth || !is_of_depth(which->fields[i]))
            fields[count++] = which->fields[i];
    return count;
}

/* ----------------------------------------------------------------------------------------------------------- writing */

typedef struct writer {
    char *text;
    size_t capacity;
    int length; /* length of the full text, as snprintf counts */
} writer;

#if defined(__GNUC__)
#define PRINTF_LIKE __attribute__((format(printf, 2, 3)))
#else
#define PRINTF_LIKE
#endif

static void PRINTF_LIKE append(writer *to, const char *format, ...)
{
    size_t used = (size_t)to->length < to->capacity ? (size_t)to->length : to->capacity;
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(used < to->capacity ? to->text + used : NULL, to->capacity - used, format, arguments);
    va_end(arguments);
    to->length += added > 0 ? added : 0;
}

static void append_key(writer *to, const harness_layer *layer, const key *which)
{
    tconv_desc desc = layer->desc;
    bool all_zero = true;
    size_t fields[MOST_NUMBERS];
    if (most_of(which) > 0) {
        if (small_number_of(layer, which) != 0)
            append(to, " %s=%d", which->name, small_number_of(layer, which));
        return;
    }
    if (is_post(which)) {
        char posts[HARNESS_POSTS_TEXT];
        if (harness_posts_format(&desc, posts, sizeof posts) > 0)
            append(to, " %s=%s", which->name, posts);
        return;
    }
    const int count = fields_in(which, harness_has_depth(&desc), fields);
    for (int i = 0; i < count; ++i)
        all_zero &= *field_of(&desc, fields[i]) == 0;
    if (count == 0 || (is_strides(which) && all_zero))
        return;
    append(to, "%s%s=", which == keys ? "" : " ", which->name);
    for (int i = 0; i < count; ++i)
        append(to, "%s%" PRId64, i == 0 ? "" : "x", *field_of(&desc, fields[i]));
}

int harness_layer_format(const harness_layer *layer, char *text, size_t capacity)
{
    const tconv_desc *desc = &layer->desc;
    writer to = {text, capacity, 0};
    append(&to, "--problem \"");
    for (size_t i = 0; i < KEY_COUNT; ++i)
        append_key(&to, layer, &keys[i]);
    append(&to, "\" --dtype %s --layout %s --weight-layout %s --math %s --op %s", harness_dtype_name(desc->dtype),
           harness_layout_name(desc->layout), harness_weight_layout_name(desc->weight_layout),
           harness_math_name(desc->math), harness_op_name(desc->op));
    return to.length;
}

/* ----------------------------------------------------------------------------------------------------------- reading */

#define SPACES " \t\n"

/* Reads up to limit numbers joined by x, those of the item "key=numbers" from item to end. Returns their number, or 0
 * with a message. */
static int parse_numbers(const char *item, const char *end, int limit, int64_t *numbers, char *message, size_t capacity)
{
    const int length = (int)(end - item);
    int count = 0;
    for (const char *at = strchr(item, '=') + 1;; ++at) {
        char *stop;
        const bool digit = at < end && *at >= '0' && *at <= '9'; /* strtoll would accept a sign or a space */
        if (count == limit) {
            snprintf(message, capacity, "\"%.*s\" has more than %d numbers", length, item, limit);
            return 0;
        }
        errno = 0;
        if (digit)
            numbers[count++] = strtoll(at, &stop, 10);
        if (!digit || (stop != end && *stop != 'x')) {
            snprintf(message, capacity, "\"%.*s\" must have whole numbers >= 0 joined by x", length, item);
            return 0;
        }
        if (errno == ERANGE) {
            snprintf(message, capacity, "\"%.*s\" does not fit in 63 bits", length, item);
            return 0;
        }
        if (stop == end)
            return count;
        at = stop;
    }
}

/* Spreads the numbers that were given over the fields of the key: one number stands for all, HxW or DxHxW for both
 * sides. */
static bool store_numbers(harness_layer *layer, const key *which, bool has_depth, const int64_t *numbers, int count,
                          char *message, size_t capacity)
{
    const int64_t most = most_of(which);
    size_t fields[MOST_NUMBERS];
    const int full = fields_in(which, has_depth, fields);
    const bool has_sides = which->count == MOST_NUMBERS;
    if (most > 0) {
        if (numbers[0] > most) {
            snprintf(message, capacity, "%s=%" PRId64 " must be 0 %s %" PRId64, which->name, numbers[0],
                     most == 1 ? "or" : "to", most);
            return false;
        }
        store_small_number(layer, which, (int)numbers[0]);
        return true;
    }
    if (is_strides(which) ? count != full : count != 1 && count != full && !(has_sides && count == full / 2)) {
        const char *const takes = is_strides(which) ? (has_depth ? "5 numbers" : "4 numbers")
                                  : !has_sides      ? "1 or 3 numbers"
                                  : has_depth       ? "1, 3 or 6 numbers"
                                                    : "1, 2 or 4 numbers";
        snprintf(message, capacity, "%s takes %s%s, not %d", which->name, takes, has_depth ? " beside z=" : "", count);
        return false;
    }
    for (int i = 0; i < full; ++i)
        *field_of(&layer->desc, fields[i]) = numbers[i % count];
    return true;
}

static const key *find_key(const char *text, size_t length)
{
    for (size_t i = 0; i < KEY_COUNT; ++i)
        if (strlen(keys[i].name) == length && memcmp(keys[i].name, text, length) == 0)
            return &keys[i];
    return NULL;
}

/* Reads the item "key=value" from item to end into the layer. */
static bool parse_value(harness_layer *layer, const key *which, bool has_depth, const char *item, const char *end,
                        char *message, size_t capacity)
{
    int64_t numbers[MOST_NUMBERS];
    size_t fields[MOST_NUMBERS];
    const char *value = strchr(item, '=') + 1;
    if (is_post(which))
        return harness_posts_parse(value, (size_t)(end - value), &layer->desc, message, capacity);
    const int count = parse_numbers(item, end, fields_in(which, has_depth, fields), numbers, message, capacity);
    return count > 0 && store_numbers(layer, which, has_depth, numbers, count, message, capacity);
}

/* Whether one of the items is z=, which says how lists are read, wherever it stands. */
static bool has_planes(const char *text)
{
    for (text += strspn(text, SPACES); *text != '\0'; text += strspn(text, SPACES)) {
        if (text[0] == 'z' && text[1] == '=')
            return true;
        text += strcspn(text, SPACES);
    }
    return false;
}

bool harness_problem_parse(const char *text, harness_layer *layer, char *message, size_t capacity)
{
    bool seen[KEY_COUNT] = {false};
    const bool has_depth = has_planes(text);
    tconv_desc_init(&layer->desc);
    layer->has_bias = false;
    for (text += strspn(text, SPACES); *text != '\0'; text += strspn(text, SPACES)) {
        const char *end = text + strcspn(text, SPACES);
        size_t length = strcspn(text, "=" SPACES);
        const key *which = text[length] == '=' ? find_key(text, length) : NULL;
        if (which == NULL) {
            snprintf(message, capacity,
                     "\"%.*s\" is none of n= ci= z= h= w= co= k= s= p= op= d= g= b= acc= st= cd= ss= ds= post= as=",
                     (int)(end - text), text);
            return false;
        }
        if (seen[which - keys]) {
            snprintf(message, capacity, "%s= appears twice", which->name);
            return false;
        }
        seen[which - keys] = true;
        if (!parse_value(layer, which, has_depth, text, end, message, capacity))
            return false;
        text = end;
    }
    for (size_t i = 0; i < KEY_COUNT; ++i)
        if (keys[i].required && !seen[i]) {
            snprintf(message, capacity, "%s= (%s) is missing", keys[i].name, keys[i].meaning);
            return false;
        }
    return true;
}
