/*
 * A device whose memory is all taken. Every call that needs device memory returns TCONV_ERROR_OUT_OF_MEMORY and leaves
 * dst as it was. When the memory is free again the same calls succeed, and none of it is lost in a hundred rounds.
 */
#include <stdlib.h>

#include "attack_layer.h"
#include "harness.h"

#define BLOCKS 64 /* the most blocks that take the memory: halves of the rest, down to the smallest */
#define ROUNDS 100

static void *taken[BLOCKS];

/* Takes all free memory but a rest, which is smaller than anything the layers need. */
static int take_all(size_t rest)
{
    int count = 0;
    size_t size = harness_device_free_bytes();
    while (count < BLOCKS && size > rest)
        if ((taken[count] = harness_device_allocate(size)) != NULL)
            count++;
        else
            size /= 2;
    return count;
}

static void give_back(int count)
{
    while (count > 0)
        harness_device_release(taken[--count]);
}

/* Describes a layer with 64 MiB of weights, which pack, and the one-shot call on host tensors, copy to the device. */
static void init_layer(tconv_desc *desc)
{
    tconv_desc_init(desc);
    desc->in_channels = desc->out_channels = 4096;
    desc->in_h = desc->in_w = 2;
    desc->kernel_h = desc->kernel_w = 1;
}

static void expect_out_of_memory(tconv_status status, const tconv_issue *issue, const char *what)
{
    EXPECT(status == TCONV_ERROR_OUT_OF_MEMORY, "%s: %s, \"%s\"", what, tconv_status_string(status), issue->message);
}

/* Makes the one-shot call and packs, with the memory taken or not. */
static void call(const tconv_desc *desc, const tconv_options *options, float *host, void *device_weights, bool is_taken)
{
    const size_t src = 4096 * 4, weights = 4096 * 4096;
    tconv_tensor tensors[3] = {{host, TCONV_F32, TCONV_LOCATION_HOST},
                               {host + src, TCONV_F32, TCONV_LOCATION_HOST},
                               {host + src + weights, TCONV_F32, TCONV_LOCATION_HOST}};
    float *dst = host + src + weights;
    tconv_issue issue = {TCONV_SUCCESS, "", ""};
    for (size_t i = 0; i < src; i++)
        dst[i] = -1;
    tconv_status status = tconv_conv_transpose2d(desc, options, &tensors[0], &tensors[1], NULL, &tensors[2], &issue);
    if (is_taken)
        expect_out_of_memory(status, &issue, "the one-shot call");
    else
        EXPECT(status == TCONV_SUCCESS, "the one-shot call with memory: \"%s\"", issue.message);
    /* all ones: 4096 products each */
    bool as_expected = true;
    for (size_t i = 0; i < src; i++)
        as_expected = as_expected && dst[i] == (is_taken ? -1.0F : 4096.0F);
    EXPECT(as_expected, "the one-shot call, memory %s: dst is not as expected", is_taken ? "taken" : "free");

    tconv_plan *plan = NULL, *packed = NULL;
    status = tconv_plan_create(desc, options, &plan, &issue);
    EXPECT(status == TCONV_SUCCESS, "a plan takes no memory of the device: \"%s\"", issue.message);
    const tconv_tensor on_device = {device_weights, TCONV_F32, TCONV_LOCATION_CUDA};
    if (status == TCONV_SUCCESS)
        status = tconv_plan_pack_weights(plan, &on_device, NULL, &packed, &issue);
    if (is_taken)
        expect_out_of_memory(status, &issue, "packing");
    else
        EXPECT(status == TCONV_SUCCESS, "packing with memory: \"%s\"", issue.message);
    EXPECT((packed == NULL) == is_taken, "packing: the plan is %s", packed == NULL ? "NULL" : "there");
    harness_stream_synchronize(NULL);
    tconv_plan_destroy(packed);
    tconv_plan_destroy(plan);
}

int main(void)
{
    const size_t rest = (size_t)1 << 20, floats = 4096 * 4 + 4096 * 4096 + 4096 * 4;
    tconv_issue issue;
    tconv_options options;
    tconv_desc desc;
    if (tconv_backend_available(TCONV_BACKEND_CUDA, &issue) != TCONV_SUCCESS) {
        attack_skip("no CUDA device (%s)", issue.message);
        return attack_end();
    }
    tconv_options_init(&options);
    options.backend = TCONV_BACKEND_CUDA;
    init_layer(&desc);
    float *host = malloc(floats * sizeof *host);
    void *device_weights = harness_device_allocate((size_t)4096 * 4096 * sizeof(float));
    EXPECT(host != NULL && device_weights != NULL, "no memory for the attack");
    if (host == NULL || device_weights == NULL)
        goto cleanup;
    for (size_t i = 0; i < floats; i++)
        host[i] = 1;

    call(&desc, &options, host, device_weights, false); /* memory that stays for good (kernels) is there now */
    const size_t before = harness_device_free_bytes();
    for (int i = 0; i < ROUNDS; i++) {
        const int count = take_all(rest);
        call(&desc, &options, host, device_weights, true);
        give_back(count);
        if (i % 10 == 0)
            call(&desc, &options, host, device_weights, false);
    }
    const size_t after = harness_device_free_bytes();
    EXPECT(after + ((size_t)64 << 20) > before, "%zu bytes of the device were free, and %zu are after %d rounds",
           before, after, ROUNDS);
    attack_held("a device whose memory is taken");

cleanup:
    harness_device_release(device_weights);
    free(host);
    return attack_end();
}
