/* A program outside tconv's tree: doubles a picture of four pixels and checks the answer. */
#include <stdio.h>
#include <string.h>
#include <tconv/tconv.h>

int main(void)
{
    static const float doubled[16] = {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4};
    float x[4] = {1, 2, 3, 4}, kernel[4] = {1, 1, 1, 1}, y[16] = {0};
    const tconv_tensor src = {x, TCONV_F32, TCONV_LOCATION_HOST}, weights = {kernel, TCONV_F32, TCONV_LOCATION_HOST};
    const tconv_tensor dst = {y, TCONV_F32, TCONV_LOCATION_HOST};
    tconv_desc desc;
    tconv_issue issue;
    tconv_desc_init(&desc);
    desc.in_channels = desc.out_channels = 1;
    desc.in_h = desc.in_w = desc.kernel_h = desc.kernel_w = desc.stride_h = desc.stride_w = 2;
    if (tconv_conv_transpose2d(&desc, NULL, &src, &weights, NULL, &dst, &issue) != TCONV_SUCCESS) {
        fprintf(stderr, "%s\n", issue.message);
        return 1;
    }
    if (strcmp(tconv_version(), TCONV_VERSION_STRING) != 0 || memcmp(y, doubled, sizeof y) != 0)
        return 1;
    printf("tconv %s: right\n", tconv_version());
    return 0;
}
