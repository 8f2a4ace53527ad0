/* Checks tensor arguments, for plans and for the one-shot call. */
#include "tensors.h"

#include <inttypes.h>
#include <stdio.h>

#include "../core/post.h"
#include "../core/status.h"
#include "../cuda/cuda_backend.h"

/* The set of roles that have a part in the operation, or in some calls of it. */
static unsigned roles_of(const tconv_problem *problem)
{
    const tconv_operation operation = tconv_operation_of(problem);
    const int addend = tconv_post_addend(&problem->desc);
    const unsigned of_images = TCONV_ROLE_BIT(TCONV_ROLE_SRC) | TCONV_ROLE_BIT(TCONV_ROLE_DST) |
                               (addend >= 0 ? TCONV_ROLE_BIT(TCONV_ROLE_POST + addend) : 0);
    return (operation.reads | operation.writes) & ~(problem->batch == 0 ? of_images : 0);
}

tconv_tensors tconv_tensors_in_use(const tconv_problem *problem, const tconv_tensors *given)
{
    const unsigned roles = roles_of(problem);
    tconv_tensors used = *given;
    for (int role = 0; role < TCONV_ROLES; role++)
        if (!tconv_is_in(roles, (tconv_role)role))
            used.of[role] = NULL;
    return used;
}

unsigned tconv_tensors_due(const tconv_problem *problem, const tconv_tensors *tensors)
{
    const tconv_operation operation = tconv_operation_of(problem);
    unsigned given = 0, due = operation.needs;
    for (int role = 0; role < TCONV_ROLES; role++)
        if (tensors->of[role] != NULL)
            given |= TCONV_ROLE_BIT(role);
    if ((given & operation.writes) == 0)
        due |= operation.writes & ~TCONV_ROLE_BIT(TCONV_ROLE_BIAS);
    if (tconv_is_in(given, TCONV_ROLE_WEIGHTS))
        due |= operation.with_weights;
    return (due & roles_of(problem)) | given;
}

tconv_status tconv_tensor_check(const tconv_tensor *tensor, tconv_role role, const tconv_problem *problem,
                                tconv_issue *issue)
{
    const char *name = tconv_role_name(problem->desc.op, role);
    const tconv_dtype dtype = tconv_role_dtype(problem, role);
    const size_t size = tconv_dtype_size(dtype);
    char field[32];
    if (tensor == NULL)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, name, "%s = NULL: must point to a tensor%s", name,
                          role >= TCONV_ROLE_POST ? ", as calls whose names end in _with take it" : "");
    if (tensor->data == NULL) {
        snprintf(field, sizeof field, "%s.data", name);
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field, "%s = NULL: must point to the elements", field);
    }
    if (tensor->dtype != dtype) {
        snprintf(field, sizeof field, "%s.dtype", name);
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field, "%s = %s (%d): must be %s, %s", field,
                          tconv_dtype_name(tensor->dtype), (int)tensor->dtype, tconv_dtype_name(dtype),
                          dtype == problem->dtype ? "the desc's dtype" : "that of sums");
    }
    if ((uintptr_t)tensor->data % size != 0) {
        snprintf(field, sizeof field, "%s.data", name);
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field,
                          "%s = 0x%" PRIxPTR ": must be a multiple of %zu, the size of an element", field,
                          (uintptr_t)tensor->data, size);
    }
    if ((int)tensor->location < TCONV_LOCATION_AUTO || tensor->location > TCONV_LOCATION_CUDA) {
        snprintf(field, sizeof field, "%s.location", name);
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field, "%s = %d: must be auto (0), host (1) or cuda (2)",
                          field, (int)tensor->location);
    }
    return TCONV_SUCCESS;
}

tconv_location tconv_tensor_locate(const tconv_tensor *tensor, int *device, bool *anywhere)
{
    *device = -1;
    *anywhere = false;
    if (tensor->location != TCONV_LOCATION_AUTO)
        return tensor->location;
    return tconv_cuda_locate(tensor->data, device, anywhere);
}

tconv_status tconv_tensor_check_location(const tconv_tensor *tensor, const char *name, tconv_backend backend,
                                         int device, tconv_issue *issue)
{
    int found_device;
    bool anywhere;
    char field[32];
    tconv_location wanted = backend == TCONV_BACKEND_CUDA ? TCONV_LOCATION_CUDA : TCONV_LOCATION_HOST;
    tconv_location found = tconv_tensor_locate(tensor, &found_device, &anywhere);
    const bool elsewhere = found == TCONV_LOCATION_CUDA && found_device >= 0 && found_device != device;
    if (anywhere || (found == wanted && !elsewhere))
        return TCONV_SUCCESS;
    snprintf(field, sizeof field, "%s.location", name);
    if (found != wanted)
        return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field,
                          "%s = %s: must be %s, where the plan runs; a plan never copies between host and device",
                          field, tconv_location_name(found), tconv_location_name(wanted));
    return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, field, "%s = cuda device %d: must be device %d, the plan's",
                      field, found_device, device);
}
