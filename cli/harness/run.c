/*
 * Runs a case through the public API as a careful caller would, with weights packed or not, a workspace of exactly the
 * size that the plan asks for, and all tensors where the plan runs. On CUDA a tensor's whole buffer is copied, guards
 * included, so that stray writes there are seen as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "clock.h"
#include "device.h"
#include "element.h"
#include "stream.h"

/* A host buffer placed where the plan runs: itself on the CPU, a copy on CUDA. */
typedef struct placed {
    const harness_buffer *host;
    unsigned char *memory; /* on the device, owned; NULL on the CPU */
    tconv_tensor tensor;
} placed;

typedef struct run {
    const harness_case *test;
    bool on_device;
    void *stream;
    tconv_plan *plan, *packed;
    harness_buffer workspace_host;
    void *carry; /* of a stream, where the plan runs, owned; else NULL */
    placed tensors[HARNESS_ROLES], workspace;
    tconv_issue *issue;
} run;

static tconv_status fail(const run *state, tconv_status status, const char *field, const char *message)
{
    char text[sizeof state->issue->message];
    snprintf(text, sizeof text, "%s: %s", field, message);
    return harness_fail(state->issue, status, field, text);
}

static tconv_status place(run *state, placed *where, const harness_buffer *host, const char *name)
{
    where->host = host;
    where->tensor.location = state->on_device ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST;
    where->tensor.data = host->data;
    if (host->memory == NULL || !state->on_device)
        return TCONV_SUCCESS;
    where->memory = harness_device_allocate(host->bytes);
    if (where->memory == NULL)
        return fail(state, TCONV_ERROR_OUT_OF_MEMORY, name, "no device memory");
    where->tensor.data = where->memory + host->offset;
    if (!harness_device_copy(where->memory, host->memory, host->bytes, state->stream))
        return fail(state, TCONV_ERROR_CUDA, name, harness_device_error());
    return TCONV_SUCCESS;
}

/* Copies a buffer that the plan may have written back into host. */
static tconv_status fetch(const run *state, const placed *where, const harness_buffer *host, const char *name)
{
    if (where->memory == NULL)
        return TCONV_SUCCESS;
    if (!harness_device_copy(host->memory, where->memory, host->bytes, state->stream) ||
        !harness_stream_synchronize(state->stream))
        return fail(state, TCONV_ERROR_CUDA, name, harness_device_error());
    return TCONV_SUCCESS;
}

/* Returns how many elements the outputs are off the best alignment. Where the first tensor that is read is off by an
 * odd number of elements, they are off by one more; else they are not off. */
static unsigned output_skew(const harness_case *test)
{
    const size_t size = harness_element_size(test->layer.desc.dtype);
    int role = 0;
    while (role + 1 < HARNESS_ROLES && !harness_case_reads(test, (harness_role)role))
        ++role;
    const size_t skew = test->tensors[role].offset / size;
    return skew % 2 == 0 ? 0 : (unsigned)skew + 1;
}

static tconv_status place_all(run *state, harness_output *output)
{
    const harness_case *test = state->test;
    const tconv_desc *desc = &test->layer.desc;
    const size_t size = harness_element_size(desc->dtype);
    tconv_status status;
    if (state->on_device && (state->stream = harness_stream_create()) == NULL)
        return fail(state, TCONV_ERROR_CUDA, "stream", harness_device_error());
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        const char *name = harness_role_name((harness_role)role);
        const bool writes = harness_case_writes(test, (harness_role)role);
        const harness_buffer *host = writes ? &output->tensors[role] : &test->tensors[role];
        if (writes) {
            output->tensors[role] = harness_buffer_create(test->views[role].extent, size, output_skew(test));
            if (host->memory == NULL)
                return fail(state, TCONV_ERROR_OUT_OF_MEMORY, name, "no memory for the output");
            if (harness_case_adds_to(test, (harness_role)role))
                memcpy(host->data, test->tensors[role].data, (size_t)test->views[role].extent * size);
        }
        state->tensors[role].tensor.dtype = harness_role_dtype(desc, (harness_role)role);
        if ((status = place(state, &state->tensors[role], host, name)))
            return status;
    }
    return TCONV_SUCCESS;
}

static tconv_status place_workspace(run *state, const tconv_plan *plan, harness_output *output)
{
    tconv_status status = tconv_plan_workspace_size(plan, &output->workspace_bytes);
    if (status != TCONV_SUCCESS)
        return status;
    state->workspace_host = harness_buffer_create((int64_t)output->workspace_bytes, 1, 1);
    if (state->workspace_host.memory == NULL)
        return fail(state, TCONV_ERROR_OUT_OF_MEMORY, "workspace", "no memory for the workspace");
    return place(state, &state->workspace, &state->workspace_host, "workspace");
}

static bool all_untouched(const unsigned char *bytes, size_t count)
{
    while (count > 0 && *bytes == 0xff)
        ++bytes, --count;
    return count == 0;
}

static tconv_status check_workspace(const run *state, const harness_output *output)
{
    const harness_buffer *host = &state->workspace_host;
    const size_t end = host->offset + output->workspace_bytes;
    tconv_status status = fetch(state, &state->workspace, host, "workspace");
    if (status == TCONV_SUCCESS &&
        !(all_untouched(host->memory, host->offset) && all_untouched(host->memory + end, host->bytes - end)))
        status = fail(state, TCONV_ERROR_INVALID_ARGUMENT, "workspace", "bytes outside it were written");
    return status;
}

/* Returns the tensor as execute takes it: NULL where the case has none. */
static const tconv_tensor *given(const run *state, harness_role role)
{
    const tconv_tensor *tensor = &state->tensors[role].tensor;
    return tensor->data != NULL ? tensor : NULL;
}

static tconv_status fetch_results(const run *state, const harness_output *output)
{
    for (int role = 0; role < HARNESS_ROLES; ++role) {
        tconv_status status;
        if (harness_case_writes(state->test, (harness_role)role) &&
            (status =
                 fetch(state, &state->tensors[role], &output->tensors[role], harness_role_name((harness_role)role))))
            return status;
    }
    return TCONV_SUCCESS;
}

/* Executes the plan, by the call that takes operands where the layer has post-ops. */
static tconv_status call(const run *state, const tconv_plan *plan, size_t workspace_bytes)
{
    tconv_operands all = {.struct_size = sizeof all,
                          .src = given(state, HARNESS_SRC),
                          .weights = state->packed != NULL ? NULL : given(state, HARNESS_WEIGHTS),
                          .bias = given(state, HARNESS_BIAS),
                          .dst = given(state, HARNESS_DST)};
    void *const workspace = workspace_bytes > 0 ? state->workspace.tensor.data : NULL;
    if (state->test->layer.desc.post_count == 0 && state->test->layer.desc.stream_axis == 0)
        return tconv_plan_execute(plan, all.src, all.weights, all.bias, all.dst, workspace, workspace_bytes,
                                  state->stream);
    for (int i = 0; i < TCONV_MAX_POST_OPS; ++i)
        all.post[i] = given(state, (harness_role)(HARNESS_POST + i));
    return harness_execute(plan, &state->test->layer.desc, &all, state->carry, workspace, workspace_bytes,
                           state->stream);
}

/* Makes the carry of a stream, of zeros. */
static tconv_status place_carry(run *state)
{
    const size_t bytes = harness_carry_bytes(&state->test->layer.desc);
    if (bytes == 0)
        return TCONV_SUCCESS;
    state->carry = state->on_device ? harness_device_allocate(bytes) : calloc(1, bytes);
    if (state->carry == NULL)
        return fail(state, TCONV_ERROR_OUT_OF_MEMORY, "carry", "no memory for the carry");
    if (state->on_device && !harness_device_fill(state->carry, 0, bytes, state->stream))
        return fail(state, TCONV_ERROR_CUDA, "carry", harness_device_error());
    return TCONV_SUCCESS;
}

static tconv_status execute(run *state, harness_output *output)
{
    const tconv_plan *plan = state->packed != NULL ? state->packed : state->plan;
    tconv_status status = place_workspace(state, plan, output);
    if (status != TCONV_SUCCESS)
        return status;
    double start = harness_seconds();
    status = call(state, plan, output->workspace_bytes);
    if (status != TCONV_SUCCESS) {
        if (state->issue != NULL)
            tconv_last_issue(state->issue);
        return status;
    }
    if (state->on_device && !harness_stream_synchronize(state->stream))
        return fail(state, TCONV_ERROR_CUDA, "execute", harness_device_error());
    output->milliseconds = 1e3 * (harness_seconds() - start);
    if ((status = fetch_results(state, output)))
        return status;
    return check_workspace(state, output);
}

tconv_status harness_run(const harness_case *test, const tconv_options *options, bool pack_once, harness_output *output,
                         tconv_issue *issue)
{
    run state = {.test = test, .issue = issue};
    tconv_status status;
    memset(output, 0, sizeof *output);
    if ((status = tconv_plan_create(&test->layer.desc, options, &state.plan, issue)))
        return status;
    output->implementation = tconv_plan_implementation(state.plan);
    state.on_device = strncmp(output->implementation, "cuda_", strlen("cuda_")) == 0;
    if ((status = place_all(&state, output)) || (status = place_carry(&state)))
        goto cleanup;
    if (pack_once && harness_case_reads(test, HARNESS_WEIGHTS) &&
        (status =
             tconv_plan_pack_weights(state.plan, given(&state, HARNESS_WEIGHTS), state.stream, &state.packed, issue)))
        goto cleanup;
    if (state.on_device && !harness_stream_synchronize(state.stream)) {
        status = fail(&state, TCONV_ERROR_CUDA, "stream", harness_device_error());
        goto cleanup;
    }
    status = execute(&state, output);
cleanup:
    if (state.stream != NULL)
        harness_stream_synchronize(state.stream);
    tconv_plan_destroy(state.packed);
    tconv_plan_destroy(state.plan);
    for (int role = 0; role < HARNESS_ROLES; ++role)
        harness_device_release(state.tensors[role].memory);
    harness_device_release(state.workspace.memory);
    if (state.on_device)
        harness_device_release(state.carry);
    else
        free(state.carry);
    harness_stream_destroy(state.stream);
    harness_buffer_release(&state.workspace_host);
    if (status != TCONV_SUCCESS)
        harness_output_release(output);
    return status;
}

void harness_output_release(harness_output *output)
{
    for (int role = 0; role < HARNESS_ROLES; ++role)
        harness_buffer_release(&output->tensors[role]);
    *output = (harness_output){.implementation = ""};
}
