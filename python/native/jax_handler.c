/*
 * The handlers that XLA calls for each operation of tconv.jax, by the C interface of XLA's foreign functions
 * (xla/ffi/api/c_api.h, which comes with jaxlib). They are compiled with the header of an old jaxlib and called by newer ones.
 *
 * On CUDA XLA may record a call into a command buffer, a CUDA graph, and launch that in place of further calls. What is
 * recorded has the addresses of the call's buffers, which XLA keeps for the buffer. So the workspace is a buffer too:
 * memory of XLA's allocator for scratch would belong to somebody else when the graph is launched.
 */
#include "jax_shim.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char LAYER_ATTRIBUTE[] = "layer";

static atomic_llong computed;

/* src, weights and dst are these buffers of a call, by operation: operands are counted from 0, or RESULT. */
enum { RESULT = -1, ROLES = 3 };
static const int indices[3][ROLES] = {
    [TCONV_FORWARD] = {0, 1, RESULT},
    [TCONV_BACKWARD_DATA] = {RESULT, 1, 0},
    [TCONV_BACKWARD_WEIGHTS] = {1, RESULT, 0},
};

/* The index is a tconv_dtype. */
static const XLA_FFI_DataType dtypes[] = {XLA_FFI_DataType_F32, XLA_FFI_DataType_F64, XLA_FFI_DataType_F16,
                                          XLA_FFI_DataType_BF16};

/* The index is a tconv_status. */
static const XLA_FFI_Error_Code codes[] = {XLA_FFI_Error_Code_OK,
                                           XLA_FFI_Error_Code_INVALID_ARGUMENT,
                                           XLA_FFI_Error_Code_INVALID_ARGUMENT,
                                           XLA_FFI_Error_Code_RESOURCE_EXHAUSTED,
                                           XLA_FFI_Error_Code_UNAVAILABLE,
                                           XLA_FFI_Error_Code_UNIMPLEMENTED,
                                           XLA_FFI_Error_Code_FAILED_PRECONDITION,
                                           XLA_FFI_Error_Code_INTERNAL};

static XLA_FFI_Error *fail(const XLA_FFI_CallFrame *frame, tconv_status status, const char *message)
{
    char text[sizeof((tconv_issue *)0)->message + sizeof "tconv: "];
    snprintf(text, sizeof text, "tconv: %s", message);
    XLA_FFI_Error_Create_Args arguments = {
        .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = text, .errc = codes[status]};
    return frame->api->XLA_FFI_Error_Create(&arguments);
}

/* XLA asks for the handler's version and traits when it is registered or first called. */
static bool answer_metadata(const XLA_FFI_CallFrame *frame, XLA_FFI_Handler_Traits traits)
{
    XLA_FFI_Extension_Base *extension = frame->extension_start;
    if (extension == NULL || extension->type != XLA_FFI_Extension_Metadata)
        return false;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)(void *)extension)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = traits;
    return true;
}

static bool find_layer(const XLA_FFI_Attrs *attributes, int64_t layer[LAYER_WORDS])
{
    for (int64_t i = 0; i < attributes->size; i++) {
        const XLA_FFI_ByteSpan *name = attributes->names[i];
        if (attributes->types[i] != XLA_FFI_AttrType_ARRAY || name->len != sizeof LAYER_ATTRIBUTE - 1 ||
            memcmp(name->ptr, LAYER_ATTRIBUTE, name->len) != 0)
            continue;
        const XLA_FFI_Array *array = attributes->attrs[i];
        return array->dtype == XLA_FFI_DataType_S64 && read_words(array->data, (int64_t)array->size, layer);
    }
    return false;
}

static int64_t count_elements(const XLA_FFI_Buffer *buffer)
{
    int64_t count = 1;
    for (int64_t axis = 0; axis < buffer->rank; axis++)
        count *= buffer->dims[axis];
    return count;
}

/* The buffer as a tensor, of which dtype and location are set before; false where it is not what the layer has. */
static bool read_buffer(const XLA_FFI_Buffer *buffer, int64_t elements, tconv_tensor *tensor)
{
    tensor->data = buffer->data;
    return buffer->dtype == dtypes[tensor->dtype] && count_elements(buffer) == elements;
}

/* The tensors of a call by role, and the bias, of which tensors[ROLES].data is NULL where there is none. */
static bool read_tensors(const XLA_FFI_CallFrame *frame, const planned *found, tconv_tensor tensors[ROLES + 1])
{
    const int64_t op = found->layer[WORD_OP], operands = frame->args.size;
    const tconv_location location =
        found->where.backend == TCONV_BACKEND_CUDA ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST;
    for (int role = 0; role <= ROLES; role++)
        tensors[role] = (tconv_tensor){NULL, (tconv_dtype)found->layer[WORD_DTYPE], location};
    if (frame->rets.size != 2 || operands < 2 || operands > (op == TCONV_FORWARD ? 3 : 2))
        return false;
    for (int role = 0; role < ROLES; role++) {
        const int index = indices[op][role];
        const XLA_FFI_Buffer *buffer = index == RESULT ? frame->rets.rets[0] : frame->args.args[index];
        if (!read_buffer(buffer, found->elements[role], &tensors[role]))
            return false;
    }
    return operands == 2 || read_buffer(frame->args.args[2], found->layer[WORD_OUT_CHANNELS], &tensors[ROLES]);
}

/* Says that a call has less workspace than the plan takes, as in a program that was compiled elsewhere. */
static tconv_status refuse_workspace(const planned *found, int64_t given, tconv_issue *issue)
{
    *issue = (tconv_issue){TCONV_ERROR_INVALID_ARGUMENT, "workspace", ""};
    snprintf(issue->message, sizeof issue->message,
             "the program gives %" PRId64
             " bytes of workspace, and this GPU takes %zu: the program was compiled for another "
             "GPU and must be compiled for this one",
             given, found->workspace);
    return issue->status;
}

/* The workspace is the last result. A program that was compiled elsewhere may have too little of it for this machine's
 * plan, which on the CPU then gets its own. */
static tconv_status execute(const XLA_FFI_CallFrame *frame, const planned *found, const tconv_tensor tensors[ROLES + 1],
                            void *stream, tconv_issue *issue)
{
    const XLA_FFI_Buffer *given = frame->rets.rets[1];
    const bool on_cpu = found->where.backend == TCONV_BACKEND_CPU;
    void *workspace = given->data, *own = NULL;
    if ((size_t)count_elements(given) < found->workspace) {
        if (!on_cpu)
            return refuse_workspace(found, count_elements(given), issue);
        workspace = own = malloc(found->workspace);
        if (own == NULL) {
            *issue = (tconv_issue){TCONV_ERROR_OUT_OF_MEMORY, "workspace", "no memory for a workspace"};
            return TCONV_ERROR_OUT_OF_MEMORY;
        }
    }
    if (on_cpu)
        use_pool(frame->api, frame->ctx);
    const tconv_tensor *bias = tensors[ROLES].data == NULL ? NULL : &tensors[ROLES];
    tconv_status status = tconv_jax.plan_execute(found->plan, &tensors[0], &tensors[1], bias, &tensors[2], workspace,
                                                 found->workspace, stream);
    use_pool(NULL, NULL);
    if (status != TCONV_SUCCESS)
        tconv_jax.last_issue(issue);
    free(own);
    return status;
}

static XLA_FFI_Error *handle(XLA_FFI_CallFrame *frame, place where, void *stream)
{
    int64_t layer[LAYER_WORDS];
    if (!find_layer(&frame->attrs, layer))
        return fail(frame, TCONV_ERROR_INVALID_ARGUMENT, "the call has no layer of this version of tconv.jax");
    planned *found = NULL;
    tconv_issue issue;
    tconv_status status = acquire_plan(layer, where, &found, &issue);
    if (status != TCONV_SUCCESS)
        return fail(frame, status, issue.message);
    tconv_tensor tensors[ROLES + 1];
    XLA_FFI_Error *error = NULL;
    if (!read_tensors(frame, found, tensors))
        error = fail(frame, TCONV_ERROR_INVALID_ARGUMENT, "the buffers of the call are not those of its layer");
    else if ((status = execute(frame, found, tensors, stream, &issue)) != TCONV_SUCCESS)
        error = fail(frame, status, issue.message);
    else
        atomic_fetch_add(&computed, 1);
    release_plan(found);
    return error;
}

XLA_FFI_Error *tconv_jax_handle(XLA_FFI_CallFrame *frame)
{
    if (answer_metadata(frame, 0) || frame->stage != XLA_FFI_ExecutionStage_EXECUTE)
        return NULL;
    return handle(frame, (place){TCONV_BACKEND_CPU, 0, 0}, NULL);
}

/* tconv neither synchronises nor allocates in a call, and what it launches depends on the layer alone. */
XLA_FFI_Error *tconv_jax_handle_cuda(XLA_FFI_CallFrame *frame)
{
    if (answer_metadata(frame, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE) ||
        frame->stage != XLA_FFI_ExecutionStage_EXECUTE)
        return NULL;
    XLA_FFI_DeviceOrdinal_Get_Args device = {.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE,
                                             .ctx = frame->ctx};
    XLA_FFI_Stream_Get_Args stream = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE, .ctx = frame->ctx};
    XLA_FFI_Error *error = frame->api->XLA_FFI_DeviceOrdinal_Get(&device);
    if (error == NULL)
        error = frame->api->XLA_FFI_Stream_Get(&stream);
    if (error != NULL)
        return error;
    return handle(frame, (place){TCONV_BACKEND_CUDA, -1, device.device_ordinal}, stream.stream);
}

int64_t tconv_jax_calls(void)
{
    return atomic_load(&computed);
}

const char *tconv_jax_version(void)
{
    return TCONV_VERSION_STRING;
}

void tconv_jax_interface(int32_t *major, int32_t *minor)
{
    *major = XLA_FFI_API_MAJOR;
    *minor = XLA_FFI_API_MINOR;
}
