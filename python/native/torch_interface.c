#include "torch_interface.h"

#include <dlfcn.h>
#include <string.h>

struct torch_functions torch;

/* Copies the address of a function, because ISO C keeps pointers to functions apart from pointers to data. */
static void copy_address(void *function, void *address)
{
    memcpy(function, &address, sizeof address);
}

bool look_up_functions(void)
{
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return false;
#define LOOK_UP(result, name, parameters)                                                                              \
    copy_address(&torch.name, dlsym(library, #name));                                                                  \
    if (torch.name == NULL)                                                                                            \
        return false;
    FUNCTIONS(LOOK_UP)
#define LOOK_UP_IF_THERE(name, from, symbol) copy_address(&torch.name, dlsym(from, symbol))
    LOOK_UP_IF_THERE(torch_delete_stable_ivalue, library, "torch_delete_stable_ivalue");
    LOOK_UP_IF_THERE(operator_delete, library, "_ZdlPv");
    LOOK_UP_IF_THERE(torch_new_stable_ivalue, library, "torch_new_stable_ivalue");
    LOOK_UP_IF_THERE(operator_new, library, "_Znwm");
    LOOK_UP_IF_THERE(torch_exception_get_what_without_backtrace, library, "torch_exception_get_what_without_backtrace");
    LOOK_UP_IF_THERE(aoti_torch_library_init_def, library, "aoti_torch_library_init_def");
    LOOK_UP_IF_THERE(aoti_torch_library_def, library, "aoti_torch_library_def");
    LOOK_UP_IF_THERE(has_any_level, library, "_ZN5torch8autograd14ForwardADLevel13has_any_levelEv");
    LOOK_UP_IF_THERE(global_context, library, "_ZN2at13globalContextEv");
    LOOK_UP_IF_THERE(user_enabled_cudnn, library, "_ZNK2at7Context16userEnabledCuDNNEv");
    LOOK_UP_IF_THERE(deterministic_algorithms, library, "_ZNK2at7Context23deterministicAlgorithmsEv");
    LOOK_UP_IF_THERE(float32_precision, library,
                     "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE");
    if (cuda != NULL)
        LOOK_UP_IF_THERE(aoti_torch_get_current_cuda_stream, cuda, "aoti_torch_get_current_cuda_stream");
    return (torch.torch_delete_stable_ivalue != NULL || torch.operator_delete != NULL) &&
           (torch.torch_new_stable_ivalue != NULL || torch.operator_new != NULL);
}

void call_operator(const char *name, stable_value *stack)
{
    if (torch.torch_call_dispatcher(name, "", stack, INTERFACE_VERSION) != 0)
        throw_error_of(name);
}

void throw_error_of(const char *name)
{
    const char *what = torch.torch_exception_get_what_without_backtrace == NULL
                           ? NULL
                           : torch.torch_exception_get_what_without_backtrace();
    torch.aoti_torch_check(false, name, __FILE__, __LINE__,
                           what == NULL ? "an operator failed; stderr may tell why" : what);
}

stable_value *new_optional(stable_value value)
{
    stable_value *made = NULL;
    if (torch.torch_new_stable_ivalue == NULL)
        made = torch.operator_new(sizeof *made);
    else if (torch.torch_new_stable_ivalue(&made) != 0)
        return NULL;
    *made = value;
    return made;
}

void delete_optional(stable_value *optional)
{
    if (torch.torch_delete_stable_ivalue != NULL)
        torch.torch_delete_stable_ivalue(optional);
    else
        torch.operator_delete(optional);
}
