/*
 * Functions of PyTorch's stable C interface (torch/csrc/stable/c/shim.h and what that includes), looked up in the
 * libtorch of the process, so that one shared object serves every PyTorch from 2.10 on, and no PyTorch is needed to
 * compile it.
 */
#ifndef TCONV_TORCH_INTERFACE_H
#define TCONV_TORCH_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t stable_value; /* an argument of an operator: an integer or a handle, which its receiver owns */
typedef struct torch_tensor torch_tensor;
typedef struct torch_list torch_list;
typedef struct torch_string torch_string;
typedef struct torch_library torch_library;
typedef void torch_kernel(stable_value *stack, uint64_t arguments, uint64_t results);

/* The version of the interface that the declarations here follow: that of PyTorch 2.10. */
#define INTERFACE_VERSION (UINT64_C(2) << 56 | UINT64_C(10) << 48)

/* X(result, name, parameters) for each function that is looked up. The functions return 0, or another number after an
 * error. */
#define FUNCTIONS(X)                                                                                                   \
    X(int, aoti_torch_is_defined, (torch_tensor *, bool *))                                                            \
    X(int, aoti_torch_get_dim, (torch_tensor *, int64_t *))                                                            \
    X(int, aoti_torch_get_sizes, (torch_tensor *, int64_t **))                                                         \
    X(int, aoti_torch_get_strides, (torch_tensor *, int64_t **))                                                       \
    X(int, aoti_torch_get_dtype, (torch_tensor *, int32_t *))                                                          \
    X(int, aoti_torch_get_layout, (torch_tensor *, int32_t *))                                                         \
    X(int, aoti_torch_get_device_type, (torch_tensor *, int32_t *))                                                    \
    X(int, aoti_torch_get_device_index, (torch_tensor *, int32_t *))                                                   \
    X(int, aoti_torch_get_data_ptr, (torch_tensor *, void **))                                                         \
    X(int, aoti_torch_new_tensor_handle, (torch_tensor *, torch_tensor **))                                            \
    X(int, aoti_torch_new_uninitialized_tensor, (torch_tensor **))                                                     \
    X(int, aoti_torch_empty_strided,                                                                                   \
      (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, torch_tensor **))                         \
    X(int, aoti_torch_copy_, (torch_tensor *, torch_tensor *, int32_t))                                                \
    X(int, aoti_torch_delete_tensor_object, (torch_tensor *))                                                          \
    X(bool, aoti_torch_grad_mode_is_enabled, (void))                                                                   \
    X(int32_t, aoti_torch_dtype_float32, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_float64, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_float16, (void))                                                                       \
    X(int32_t, aoti_torch_dtype_bfloat16, (void))                                                                      \
    X(int32_t, aoti_torch_dtype_int32, (void))                                                                         \
    X(int32_t, aoti_torch_dtype_uint8, (void))                                                                         \
    X(int32_t, aoti_torch_dtype_bool, (void))                                                                          \
    X(int32_t, aoti_torch_layout_strided, (void))                                                                      \
    X(int32_t, aoti_torch_device_type_cuda, (void))                                                                    \
    X(int, torch_get_num_threads, (uint32_t *))                                                                        \
    X(int, torch_new_list_reserve_size, (size_t, torch_list **))                                                       \
    X(int, torch_list_push_back, (torch_list *, stable_value))                                                         \
    X(int, torch_list_size, (torch_list *, size_t *))                                                                  \
    X(int, torch_list_get_item, (torch_list *, size_t, stable_value *))                                                \
    X(int, torch_list_set_item, (torch_list *, size_t, stable_value))                                                  \
    X(int, torch_delete_list, (torch_list *))                                                                          \
    X(int, torch_string_length, (torch_string *, size_t *))                                                            \
    X(int, torch_string_c_str, (torch_string *, const char **))                                                        \
    X(int, torch_delete_string, (torch_string *))                                                                      \
    X(int, torch_call_dispatcher, (const char *, const char *, stable_value *, uint64_t))                              \
    X(int, aoti_torch_library_init_impl, (const char *, const char *, const char *, uint32_t, torch_library **))       \
    X(int, torch_library_impl, (torch_library *, const char *, torch_kernel *, uint64_t))                              \
    X(int, aoti_torch_delete_library_object, (torch_library *))                                                        \
    X(void, aoti_torch_check, (bool, const char *, const char *, uint32_t, const char *))

#define MEMBER(result, name, parameters) result(*name) parameters;
extern struct torch_functions {
    FUNCTIONS(MEMBER)
    /* The following functions are not in every version or build. */
    int (*torch_delete_stable_ivalue)(stable_value *);
    void (*operator_delete)(void *);
    int (*torch_new_stable_ivalue)(stable_value **);
    void *(*operator_new)(size_t);
    const char *(*torch_exception_get_what_without_backtrace)(void);
    int (*aoti_torch_get_current_cuda_stream)(int32_t, void **);
    int (*aoti_torch_library_init_def)(const char *, const char *, uint32_t, torch_library **);
    int (*aoti_torch_library_def)(torch_library *, const char *);
    /* These are functions of PyTorch's C++: ForwardADLevel::has_any_level, globalContext, and three methods of Context. */
    bool (*has_any_level)(void);
    const void *(*global_context)(void);
    bool (*user_enabled_cudnn)(const void *context);
    bool (*deterministic_algorithms)(const void *context);
    int (*float32_precision)(const void *context, int backend, int operation);
} torch;
#undef MEMBER

/* Of the enumerations Float32Backend, Float32Op and Float32Precision. */
enum { FLOAT32_BACKEND_CUDA = 1, FLOAT32_OP_CONV = 1, FLOAT32_PRECISION_TF32 = 2 };

bool look_up_functions(void);

/* Calls an operator, and takes its arguments over. PyTorch raises an error of the operator. */
void call_operator(const char *name, stable_value *stack);

/* Throws the error of an operator that has failed. */
void throw_error_of(const char *name);

static inline torch_tensor *tensor_of(stable_value value)
{
    return (torch_tensor *)(uintptr_t)value;
}

static inline torch_list *list_of(stable_value value)
{
    return (torch_list *)(uintptr_t)value;
}

static inline torch_string *string_of(stable_value value)
{
    return (torch_string *)(uintptr_t)value;
}

static inline stable_value value_of(const void *handle)
{
    return (stable_value)(uintptr_t)handle;
}

/* What an optional argument that is there points to. */
stable_value *new_optional(stable_value value);
void delete_optional(stable_value *optional);

#endif
