#include "layer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Integers that an attribute of all axes has at most: pads, begin and end of each. */
#define MOST_INTEGERS (2 * TCONV_ORT_AXES)

/* Extents and attributes up to here have sums and products of two in 63 bits; tconv itself refuses larger layers. */
#define LARGEST (INT64_C(1) << 30)

static bool fail(tconv_issue *issue, const char *field, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Says why a layer is not taken. */
static bool fail(tconv_issue *issue, const char *field, const char *format, ...)
{
    va_list arguments;
    issue->status = TCONV_ERROR_UNSUPPORTED;
    snprintf(issue->field, sizeof issue->field, "%s", field);
    va_start(arguments, format);
    vsnprintf(issue->message, sizeof issue->message, format, arguments);
    va_end(arguments);
    return false;
}

bool tconv_ort_dtype(int type, tconv_dtype *dtype)
{
    static const struct {
        int type;
        tconv_dtype dtype;
    } known[] = {{ORT_FLOAT, TCONV_F32}, {ORT_DOUBLE, TCONV_F64}, {ORT_FLOAT16, TCONV_F16}, {ORT_BFLOAT16, TCONV_BF16}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].type == type) {
            *dtype = known[i].dtype;
            return true;
        }
    }
    return false;
}

/* --------------------------------------------------------------------------------------------------------- attributes */

/* Releases a status and says whether there was none. */
static bool succeeded(const struct ort *ort, OrtStatus *status)
{
    if (status == NULL)
        return true;
    ort->ReleaseStatus(status);
    return false;
}

static const OrtOpAttr *find(const struct tconv_ort_attributes *from, const char *name)
{
    const OrtOpAttr *attribute = NULL;
    return succeeded(from->ort, from->ort->Node_GetAttributeByName(from->node, name, &attribute)) ? attribute : NULL;
}

/*
 * Reads an attribute's integers and returns how many there are: 0 where the node does not have the attribute, -1 where there
 * are more than MOST_INTEGERS.
 */
static int read_integers(const struct tconv_ort_attributes *from, const char *name, int64_t values[MOST_INTEGERS])
{
    const struct ort *ort = from->ort;
    size_t count = 0;
    if (from->node != NULL) {
        size_t bytes = 0;
        const OrtOpAttr *attribute = find(from, name);
        if (attribute == NULL)
            return 0;
        if (!succeeded(
                ort, ort->ReadOpAttr(attribute, ORT_ATTRIBUTE_INTS, values, MOST_INTEGERS * sizeof values[0], &bytes)))
            return -1;
        count = bytes / sizeof values[0];
    } else {
        if (!succeeded(ort, ort->KernelInfoGetAttributeArray_int64(from->info, name, NULL, &count)) || count == 0)
            return 0;
        if (count > MOST_INTEGERS ||
            !succeeded(ort, ort->KernelInfoGetAttributeArray_int64(from->info, name, values, &count)))
            return -1;
    }
    return count <= MOST_INTEGERS ? (int)count : -1;
}

static int64_t read_integer(const struct tconv_ort_attributes *from, const char *name, int64_t otherwise)
{
    const struct ort *ort = from->ort;
    int64_t value = otherwise;
    size_t bytes = 0;
    if (from->node == NULL)
        return succeeded(ort, ort->KernelInfoGetAttribute_int64(from->info, name, &value)) ? value : otherwise;
    const OrtOpAttr *attribute = find(from, name);
    if (attribute == NULL ||
        !succeeded(ort, ort->ReadOpAttr(attribute, ORT_ATTRIBUTE_INT, &value, sizeof value, &bytes)))
        return otherwise;
    return value;
}

/* Reads a short text: "" where the node does not have the attribute, "?" where the text is too long for any that is known. */
static void read_text(const struct tconv_ort_attributes *from, const char *name, char *text, size_t size)
{
    const struct ort *ort = from->ort;
    size_t length = size - 1;
    memset(text, 0, size);
    if (from->node == NULL) {
        size_t needed = 0;
        const bool there =
            succeeded(ort, ort->KernelInfoGetAttribute_string(from->info, name, NULL, &needed)) && needed > 0;
        if (there && !succeeded(ort, ort->KernelInfoGetAttribute_string(from->info, name, text, &length)))
            snprintf(text, size, "?");
        return;
    }
    const OrtOpAttr *attribute = find(from, name);
    if (attribute != NULL && !succeeded(ort, ort->ReadOpAttr(attribute, ORT_ATTRIBUTE_STRING, text, size - 1, &length)))
        snprintf(text, size, "?");
}

/* An attribute that has an integer, or two, for each axis. */
struct axis_attribute {
    const char *name;
    int64_t least;           /* of its values */
    int64_t *first, *second; /* planes, rows and columns; second takes the ends of pads, else NULL */
};

/* Reads an attribute of the axes, and finds their number if it is not known yet. */
static bool read_axes(const struct tconv_ort_attributes *from, const struct axis_attribute *attribute,
                      struct tconv_ort_layer *layer, tconv_issue *issue)
{
    int64_t values[MOST_INTEGERS] = {0};
    const int parts = attribute->second != NULL ? 2 : 1;
    const int count = read_integers(from, attribute->name, values);
    if (count == 0)
        return true;
    if (layer->axes == 0 && count > 0 && count % parts == 0)
        layer->axes = count / parts;
    if (count < 0 || layer->axes > TCONV_ORT_AXES || count != parts * layer->axes)
        return fail(issue, attribute->name, "%s: must be of one to three axes, those of the tensors", attribute->name);
    for (int i = 0; i < count; i++) {
        const int axis = TCONV_ORT_AXES - layer->axes + i % layer->axes;
        if (values[i] < attribute->least || values[i] > LARGEST)
            return fail(issue, attribute->name, "%s[%d] = %" PRId64 ": must be %" PRId64 " to %" PRId64,
                        attribute->name, i, values[i], attribute->least, LARGEST);
        int64_t *const to = i >= layer->axes && attribute->second != NULL ? attribute->second : attribute->first;
        to[axis] = values[i];
    }
    return true;
}

static bool read_padding(const struct tconv_ort_attributes *from, struct tconv_ort_layer *layer, tconv_issue *issue)
{
    char text[16];
    read_text(from, "auto_pad", text, sizeof text);
    layer->upper = strcmp(text, "SAME_UPPER") == 0;
    if (layer->upper)
        layer->padding = TCONV_ORT_SAME_UPPER;
    else if (strcmp(text, "SAME_LOWER") == 0)
        layer->padding = TCONV_ORT_SAME_LOWER;
    else if (strcmp(text, "VALID") == 0)
        memset(layer->pad_begin, 0, sizeof layer->pad_begin), memset(layer->pad_end, 0, sizeof layer->pad_end);
    else if (text[0] != '\0' && strcmp(text, "NOTSET") != 0)
        return fail(issue, "auto_pad", "auto_pad = %s: must be NOTSET, VALID, SAME_UPPER or SAME_LOWER", text);
    if (layer->output_shape[TCONV_ORT_AXES - 1] != 0)
        layer->padding = TCONV_ORT_OUTPUT_SHAPE;
    return true;
}

bool tconv_ort_read_layer(const struct tconv_ort_attributes *from, int rank, struct tconv_ort_layer *layer,
                          tconv_issue *issue)
{
    *layer = (struct tconv_ort_layer){.stride = {1, 1, 1}, .dilation = {1, 1, 1}, .padding = TCONV_ORT_EXPLICIT};
    if (rank != -1 && (rank < 3 || rank > TCONV_ORT_MAX_RANK))
        return fail(issue, "rank", "rank = %d: must be 3, 4 or 5, a layer of one to three dimensions", rank);
    layer->axes = rank == -1 ? 0 : rank - 2;
    const struct axis_attribute attributes[] = {
        {"kernel_shape", 1, layer->kernel, NULL},       {"strides", 1, layer->stride, NULL},
        {"dilations", 1, layer->dilation, NULL},        {"output_padding", 0, layer->output_padding, NULL},
        {"output_shape", 1, layer->output_shape, NULL}, {"pads", 0, layer->pad_begin, layer->pad_end}};
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        if (!read_axes(from, &attributes[i], layer, issue))
            return false;
    }
    if (layer->axes == 0)
        return fail(issue, "rank", "rank: must be known, 3, 4 or 5");
    layer->groups = read_integer(from, "group", 1);
    return read_padding(from, layer, issue);
}

/* ----------------------------------------------------------------------------------------------------------------- desc */

/*
 * Finds the paddings of an axis for what SAME or output_shape ask for. An output_shape that is a little larger than what the
 * inputs reach is an output padding.
 */
static bool find_pads(const struct tconv_ort_layer *layer, int axis, int64_t in, int64_t kernel, int64_t pads[2],
                      int64_t *output_padding, tconv_issue *issue)
{
    pads[0] = layer->pad_begin[axis], pads[1] = layer->pad_end[axis];
    *output_padding = layer->output_padding[axis];
    if (layer->padding == TCONV_ORT_EXPLICIT || axis < TCONV_ORT_AXES - layer->axes)
        return true;
    const bool is_shape = layer->padding == TCONV_ORT_OUTPUT_SHAPE;
    const int64_t out = is_shape ? layer->output_shape[axis] : in * layer->stride[axis];
    int64_t total = (in - 1) * layer->stride[axis] + *output_padding + layer->dilation[axis] * (kernel - 1) + 1 - out;
    if (total < 0 && !is_shape)
        return fail(issue, "auto_pad",
                    "auto_pad: an output of %" PRId64 " must not be larger than what the inputs reach, %" PRId64, out,
                    out + total);
    if (total < 0) {
        *output_padding -= total;
        total = 0;
    }
    pads[0] = layer->upper ? total / 2 : total - total / 2;
    pads[1] = total - pads[0];
    return true;
}

static bool fits(const struct tconv_ort_layer *layer, const struct tconv_ort_shape *shape, const char *name,
                 tconv_issue *issue)
{
    if (shape->rank != layer->axes + 2)
        return fail(issue, name, "%s.rank = %d: must be %d", name, shape->rank, layer->axes + 2);
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0 || shape->dims[i] > LARGEST)
            return fail(issue, name, "%s.shape[%d] = %" PRId64 ": must be 0 to %" PRId64, name, i, shape->dims[i],
                        LARGEST);
    }
    return true;
}

bool tconv_ort_describe(const struct tconv_ort_layer *layer, tconv_dtype dtype, const struct tconv_ort_shape *src,
                        const struct tconv_ort_shape *weights, tconv_desc *desc, tconv_issue *issue)
{
    int64_t in[TCONV_ORT_AXES] = {1, 1, 1}, kernel[TCONV_ORT_AXES] = {1, 1, 1};
    int64_t pads[TCONV_ORT_AXES][2], output_padding[TCONV_ORT_AXES];
    if (!fits(layer, src, "X", issue) || !fits(layer, weights, "W", issue))
        return false;
    if (src->dims[1] != weights->dims[0])
        return fail(issue, "W", "W.shape[0] = %" PRId64 ": must be the %" PRId64 " channels of X", weights->dims[0],
                    src->dims[1]);
    if (layer->groups < 1 || layer->groups > LARGEST)
        return fail(issue, "group", "group = %" PRId64 ": must be 1 to %" PRId64, layer->groups, LARGEST);
    for (int axis = TCONV_ORT_AXES - layer->axes; axis < TCONV_ORT_AXES; axis++) {
        const int place = axis - TCONV_ORT_AXES + layer->axes + 2;
        in[axis] = src->dims[place];
        kernel[axis] = weights->dims[place];
        if (layer->kernel[axis] != 0 && layer->kernel[axis] != kernel[axis])
            return fail(issue, "kernel_shape", "kernel_shape: must be that of W, %" PRId64, kernel[axis]);
    }
    for (int axis = 0; axis < TCONV_ORT_AXES; axis++) {
        if (!find_pads(layer, axis, in[axis], kernel[axis], pads[axis], &output_padding[axis], issue))
            return false;
        if (in[axis] == 0) { /* a layer of one input has an output that is larger by a stride */
            in[axis] = 1;
            pads[axis][1] += layer->stride[axis];
        }
    }
    tconv_desc_init(desc);
    desc->batch = src->dims[0], desc->in_channels = src->dims[1];
    desc->in_d = in[0], desc->in_h = in[1], desc->in_w = in[2];
    desc->out_channels = weights->dims[1] * layer->groups;
    desc->kernel_d = kernel[0], desc->kernel_h = kernel[1], desc->kernel_w = kernel[2];
    desc->stride_d = layer->stride[0], desc->stride_h = layer->stride[1], desc->stride_w = layer->stride[2];
    desc->pad_front = pads[0][0], desc->pad_back = pads[0][1];
    desc->pad_top = pads[1][0], desc->pad_bottom = pads[1][1];
    desc->pad_left = pads[2][0], desc->pad_right = pads[2][1];
    desc->output_padding_d = output_padding[0], desc->output_padding_h = output_padding[1];
    desc->output_padding_w = output_padding[2];
    desc->dilation_d = layer->dilation[0], desc->dilation_h = layer->dilation[1], desc->dilation_w = layer->dilation[2];
    desc->groups = layer->groups;
    desc->dtype = dtype;
    desc->math = TCONV_MATH_STRICT;
    return tconv_validate(desc, issue) == TCONV_SUCCESS;
}
