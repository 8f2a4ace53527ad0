/* Fuzzes the text of --problem: text that is read is written and read back to the same layer, and a valid layer has
 * views. */
#include <string.h>

#include "fuzz.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), message[256], written[HARNESS_LAYER_TEXT];
    harness_layer layer, again;
    tconv_issue issue;
    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    message[0] = '\0';
    const bool read = harness_problem_parse(text, &layer, message, sizeof message);
    free(text);
    if (!read) {
        fuzz_require(message[0] != '\0', "a problem is refused without a reason");
        return 0;
    }

    /* --problem "..." and then the options that it does not hold */
    int length = harness_layer_format(&layer, written, sizeof written);
    fuzz_require(length > 0 && (size_t)length < sizeof written, "the text of a layer takes %d bytes", length);
    char *start = strchr(written, '"') + 1, *end = strchr(start, '"');
    *end = '\0';
    fuzz_require(harness_problem_parse(start, &again, message, sizeof message), "\"%s\": %s", start, message);
    if (!harness_has_depth(&layer.desc)) /* nothing of depth is written then */
        harness_drop_depth(&layer.desc);
    fuzz_require(memcmp(&layer.desc, &again.desc, sizeof layer.desc) == 0 && layer.has_bias == again.has_bias,
                 "\"%s\" is not the layer that it was written from", start);

    /* With room for one byte less the text is cut, and nothing is written past it. */
    char cut[16];
    fuzz_require(harness_layer_format(&layer, cut, sizeof cut) == length, "the length depends on the room");
    fuzz_require(strlen(cut) == sizeof cut - 1, "the text is not cut at its room");

    if (tconv_validate(&layer.desc, &issue) == TCONV_SUCCESS) {
        const harness_view src = harness_src_view(&layer.desc), dst = harness_dst_view(&layer.desc),
                           weights = harness_weights_view(&layer.desc);
        for (int i = 0; i < layer.desc.post_count; i++)
            fuzz_require(harness_view_of(&layer.desc, (harness_role)(HARNESS_POST + i)).extent >= 0,
                         "an operand of a valid layer has no extent");
        fuzz_require(src.extent >= 0 && dst.extent >= 0 && weights.extent >= 0, "a valid layer has no extents");
    }
    return 0;
}
