#include "desc_numbers.h"

#include <inttypes.h>
#include <stdio.h>

tconv_desc uneven_layer(void)
{
    tconv_desc desc;
    tconv_desc_init(&desc);
    desc.batch = 2;
    desc.in_channels = 6, desc.in_h = 5, desc.in_w = 7;
    desc.out_channels = 9;
    desc.kernel_h = 3, desc.kernel_w = 4;
    desc.stride_h = 2, desc.stride_w = 3;
    desc.pad_top = 1, desc.pad_left = 2, desc.pad_bottom = 0, desc.pad_right = 1;
    desc.output_padding_h = 1, desc.output_padding_w = 2;
    desc.dilation_h = 2, desc.dilation_w = 1;
    desc.groups = 3;
    return desc; /* dst: 2 x 9 x 13 x 21 */
}

tconv_desc uneven_volume(void)
{
    tconv_desc desc = uneven_layer();
    desc.in_d = 4, desc.kernel_d = 2, desc.stride_d = 3, desc.dilation_d = 4;
    desc.pad_front = 4, desc.pad_back = 2, desc.output_padding_d = 3;
    return desc; /* out_d: 3 * 3 - 6 + 4 + 3 + 1 = 11 */
}

const struct desc_number desc_numbers[DESC_NUMBERS] = {
    {"batch", offsetof(tconv_desc, batch), 0, "must be at least 0"},
    {"in_channels", offsetof(tconv_desc, in_channels), 1, "must be at least 1"},
    {"in_h", offsetof(tconv_desc, in_h), 1, "must be at least 1"},
    {"in_w", offsetof(tconv_desc, in_w), 1, "must be at least 1"},
    {"out_channels", offsetof(tconv_desc, out_channels), 1, "must be at least 1"},
    {"kernel_h", offsetof(tconv_desc, kernel_h), 1, "must be at least 1"},
    {"kernel_w", offsetof(tconv_desc, kernel_w), 1, "must be at least 1"},
    {"stride_h", offsetof(tconv_desc, stride_h), 1, "must be at least 1"},
    {"stride_w", offsetof(tconv_desc, stride_w), 1, "must be at least 1"},
    {"pad_top", offsetof(tconv_desc, pad_top), 0, "must be at least 0"},
    {"pad_left", offsetof(tconv_desc, pad_left), 0, "must be at least 0"},
    {"pad_bottom", offsetof(tconv_desc, pad_bottom), 0, "must be at least 0"},
    {"pad_right", offsetof(tconv_desc, pad_right), 0, "must be at least 0"},
    {"output_padding_h", offsetof(tconv_desc, output_padding_h), 0, "must be at least 0"},
    {"output_padding_w", offsetof(tconv_desc, output_padding_w), 0, "must be at least 0"},
    {"dilation_h", offsetof(tconv_desc, dilation_h), 1, "must be at least 1"},
    {"dilation_w", offsetof(tconv_desc, dilation_w), 1, "must be at least 1"},
    {"groups", offsetof(tconv_desc, groups), 1, "must be at least 1"},
    {"in_d", offsetof(tconv_desc, in_d), 1, "must be at least 1"},
    {"kernel_d", offsetof(tconv_desc, kernel_d), 1, "must be at least 1"},
    {"stride_d", offsetof(tconv_desc, stride_d), 1, "must be at least 1"},
    {"dilation_d", offsetof(tconv_desc, dilation_d), 1, "must be at least 1"},
    {"pad_front", offsetof(tconv_desc, pad_front), 0, "must be at least 0"},
    {"pad_back", offsetof(tconv_desc, pad_back), 0, "must be at least 0"},
    {"output_padding_d", offsetof(tconv_desc, output_padding_d), 0, "must be at least 0"},
};

int64_t *desc_number_of(tconv_desc *desc, const struct desc_number *number)
{
    return (int64_t *)(void *)((char *)desc + number->offset);
}

const char *stated(const char *name, int64_t value)
{
    static char text[96];
    snprintf(text, sizeof text, "%s = %" PRId64, name, value);
    return text;
}
