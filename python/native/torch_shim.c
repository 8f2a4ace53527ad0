/*
 * tconv inside of PyTorch without Python: a kernel of aten::convolution looks up a planned layer and executes it.
 *
 * torch.conv_transpose1d and conv_transpose2d end in aten::convolution. The package (tconv/torch/_eager.py) calls them
 * with a dispatch key included that leads to a kernel here in place of PyTorch's. A layer that is in the table is
 * executed; for any other this calls the operator tconv::unplanned, in Python, which plans, computes, and puts the
 * layer into the table for the next time. Where gradients are wanted the kernel lies above autograd and calls
 * aten::convolution_overrideable, which has a node of PyTorch's but no kernel of its.
 *
 * The code uses only functions of PyTorch's stable C interface (torch/csrc/stable/c/shim.h and what that includes),
 * looked up in the libtorch of the process, so that one shared object serves every PyTorch from 2.10 on, and no PyTorch
 * is needed to compile it. Functions here return 0 or -1; only errors of convolutions that are not the package's are
 * thrown.
 */
#include "torch_shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ PyTorch's C interface */

typedef uint64_t stable_value; /* an argument of an operator: an integer or a handle, which its receiver owns */
typedef struct torch_tensor torch_tensor;
typedef struct torch_list torch_list;
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
    X(int, aoti_torch_empty_strided,                                                                                   \
      (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, torch_tensor **))                         \
    X(int, aoti_torch_delete_tensor_object, (torch_tensor *))                                                          \
    X(int32_t, aoti_torch_layout_strided, (void))                                                                      \
    X(int32_t, aoti_torch_device_type_cuda, (void))                                                                    \
    X(int, torch_get_num_threads, (uint32_t *))                                                                        \
    X(int, torch_list_size, (torch_list *, size_t *))                                                                  \
    X(int, torch_list_get_item, (torch_list *, size_t, stable_value *))                                                \
    X(int, torch_delete_list, (torch_list *))                                                                          \
    X(int, torch_call_dispatcher, (const char *, const char *, stable_value *, uint64_t))                              \
    X(int, aoti_torch_library_init_impl, (const char *, const char *, const char *, uint32_t, torch_library **))       \
    X(int, torch_library_impl, (torch_library *, const char *, torch_kernel *, uint64_t))                              \
    X(int, aoti_torch_delete_library_object, (torch_library *))                                                        \
    X(void, aoti_torch_check, (bool, const char *, const char *, uint32_t, const char *))

#define MEMBER(result, name, parameters) result(*name) parameters;
static struct torch_functions {
    FUNCTIONS(MEMBER)
    /* The following functions are not in every version or build. */
    int (*torch_delete_stable_ivalue)(stable_value *);
    void (*operator_delete)(void *);
    const char *(*torch_exception_get_what_without_backtrace)(void);
    int (*aoti_torch_get_current_cuda_stream)(int32_t, void **);
} torch;

/* Copies the address of a function, because ISO C keeps pointers to functions apart from pointers to data. */
static void copy_address(void *function, void *address)
{
    memcpy(function, &address, sizeof address);
}

static bool look_up_functions(void)
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
    copy_address(&torch.torch_delete_stable_ivalue, dlsym(library, "torch_delete_stable_ivalue"));
    copy_address(&torch.operator_delete, dlsym(library, "_ZdlPv"));
    copy_address(&torch.torch_exception_get_what_without_backtrace,
                 dlsym(library, "torch_exception_get_what_without_backtrace"));
    if (cuda != NULL)
        copy_address(&torch.aoti_torch_get_current_cuda_stream, dlsym(cuda, "aoti_torch_get_current_cuda_stream"));
    return torch.torch_delete_stable_ivalue != NULL || torch.operator_delete != NULL;
}

/* --------------------------------------------------------------------------------------------------------------- the key */

/* Everything about a tensor that a plan depends on. Unused axes are 0. */
typedef struct tensor_key {
    int64_t rank, dtype, device_type, device_index;
    int64_t sizes[4], strides[4];
} tensor_key;

typedef struct layer_key {
    tensor_key input, weight;
    tensor_key bias; /* all 0 where there is no bias */
    int64_t stride[2], padding[2], dilation[2], output_padding[2];
    int64_t spatial, groups;
    int64_t flags; /* flags of the calling thread: PyTorch's settings */
    int64_t threads;
} layer_key;

/* The tensors of a call, and its key. */
typedef struct call {
    torch_tensor *input, *weight, *bias;
    layer_key key;
} call;

/* The arguments of aten::convolution in their order. */
enum { INPUT, WEIGHT, BIAS, STRIDE, PADDING, DILATION, TRANSPOSED, OUTPUT_PADDING, GROUPS };

static bool read_tensor(torch_tensor *tensor, tensor_key *key)
{
    int32_t layout = 0, dtype = 0, device_type = 0, device_index = 0;
    int64_t *sizes = NULL, *strides = NULL;
    if (torch.aoti_torch_get_layout(tensor, &layout) != 0 || layout != torch.aoti_torch_layout_strided() ||
        torch.aoti_torch_get_dim(tensor, &key->rank) != 0 || key->rank > 4 ||
        torch.aoti_torch_get_sizes(tensor, &sizes) != 0 || torch.aoti_torch_get_strides(tensor, &strides) != 0 ||
        torch.aoti_torch_get_dtype(tensor, &dtype) != 0 ||
        torch.aoti_torch_get_device_type(tensor, &device_type) != 0 ||
        torch.aoti_torch_get_device_index(tensor, &device_index) != 0)
        return false;
    key->dtype = dtype;
    key->device_type = device_type;
    key->device_index = device_index;
    for (int64_t axis = 0; axis < key->rank; axis++) {
        key->sizes[axis] = sizes[axis];
        key->strides[axis] = strides[axis];
    }
    return true;
}

/* Reads a list of one number for each spatial axis. */
static bool read_list(stable_value value, int64_t spatial, int64_t numbers[2])
{
    torch_list *list = (torch_list *)(uintptr_t)value;
    size_t size = 0;
    if (torch.torch_list_size(list, &size) != 0 || (int64_t)size != spatial)
        return false;
    for (size_t i = 0; i < size; i++) {
        stable_value number = 0;
        if (torch.torch_list_get_item(list, i, &number) != 0)
            return false;
        numbers[i] = (int64_t)number;
    }
    return true;
}

/* Reads a call. Returns false for one that the table does not hold. The tensors stay the stack's. */
static bool read_call(const stable_value *stack, int64_t flags, call *made)
{
    layer_key *key = &made->key;
    uint32_t threads = 0;
    memset(made, 0, sizeof *made);
    made->input = (torch_tensor *)(uintptr_t)stack[INPUT];
    made->weight = (torch_tensor *)(uintptr_t)stack[WEIGHT];
    if (stack[BIAS] != 0) { /* without a bias PyTorch passes an undefined tensor */
        bool defined = false;
        made->bias = *(torch_tensor **)(uintptr_t)stack[BIAS];
        if (torch.aoti_torch_is_defined(made->bias, &defined) != 0 || !defined)
            made->bias = NULL;
    }
    if ((stack[TRANSPOSED] & 0xff) == 0 || !read_tensor(made->input, &key->input) ||
        !read_tensor(made->weight, &key->weight) || (made->bias != NULL && !read_tensor(made->bias, &key->bias)))
        return false;
    key->spatial = key->weight.rank - 2;
    key->groups = (int64_t)stack[GROUPS];
    key->flags = flags;
    if (torch.torch_get_num_threads(&threads) != 0)
        return false;
    key->threads = threads;
    return key->spatial >= 1 && key->spatial <= 2 && read_list(stack[STRIDE], key->spatial, key->stride) &&
           read_list(stack[PADDING], key->spatial, key->padding) &&
           read_list(stack[DILATION], key->spatial, key->dilation) &&
           read_list(stack[OUTPUT_PADDING], key->spatial, key->output_padding);
}

static size_t hash_key(const layer_key *key)
{
    const uint64_t *words = (const uint64_t *)(const void *)key;
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof *key / sizeof *words; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 32);
}

/* ------------------------------------------------------------------------------------------------------------- the table */

typedef struct layer {
    tconv_torch_layer is;
    layer_key key;
    /* The references to the layer: of the table, of the package and of executes. The last one destroys the plan. */
    atomic_int uses;
    struct layer *next; /* next in its bucket */
    struct layer *newer, *older;
} layer;

/* Layers: as many as the package's own cache keeps (tconv/_plan.py). */
#define CAPACITY 512
#define BUCKETS  1024

static struct table {
    pthread_mutex_t lock;
    layer *buckets[BUCKETS];
    layer *newest, *oldest;
    int count;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void release(layer *given)
{
    if (atomic_fetch_sub(&given->uses, 1) == 1) {
        given->is.destroy(given->is.plan);
        free(given);
    }
}

static void unlink_from_order(layer *given)
{
    *(given->newer != NULL ? &given->newer->older : &table.newest) = given->older;
    *(given->older != NULL ? &given->older->newer : &table.oldest) = given->newer;
}

static void link_as_newest(layer *given)
{
    given->newer = NULL;
    given->older = table.newest;
    *(table.newest != NULL ? &table.newest->newer : &table.oldest) = given;
    table.newest = given;
}

static layer **bucket_of(const layer_key *key)
{
    return &table.buckets[hash_key(key) % BUCKETS];
}

static layer *find_in_bucket(const layer_key *key)
{
    layer *found = *bucket_of(key);
    while (found != NULL && memcmp(&found->key, key, sizeof *key) != 0)
        found = found->next;
    return found;
}

/* Takes a layer out of the table; the caller releases it. */
static void take_out(layer *gone)
{
    for (layer **link = bucket_of(&gone->key); *link != NULL; link = &(*link)->next)
        if (*link == gone) {
            *link = gone->next;
            unlink_from_order(gone);
            table.count--;
            return;
        }
}

/* Finds the layer of this key, which the caller releases; NULL where there is none. */
static layer *find(const layer_key *key)
{
    pthread_mutex_lock(&table.lock);
    layer *found = find_in_bucket(key);
    if (found != NULL) {
        atomic_fetch_add(&found->uses, 1);
        if (table.newest != found) {
            unlink_from_order(found);
            link_as_newest(found);
        }
    }
    pthread_mutex_unlock(&table.lock);
    return found;
}

/* Puts a layer into the table, in place of one with the same key or, where the table is full, of the one used longest
 * ago. Does nothing where the layer itself is there. */
static void put(layer *given)
{
    pthread_mutex_lock(&table.lock);
    layer *gone = find_in_bucket(&given->key);
    const bool is_there = gone == given;
    if (!is_there) {
        layer **bucket = bucket_of(&given->key);
        if (gone == NULL && table.count == CAPACITY)
            gone = table.oldest;
        if (gone != NULL)
            take_out(gone);
        atomic_fetch_add(&given->uses, 1);
        given->next = *bucket;
        *bucket = given;
        link_as_newest(given);
        table.count++;
    }
    pthread_mutex_unlock(&table.lock);
    if (gone != NULL && !is_there)
        release(gone);
}

/* Locks the table before a fork: another thread could hold the lock then, and would not exist in the child to release
 * it. */
static void lock_table(void)
{
    pthread_mutex_lock(&table.lock);
}

static void unlock_table(void)
{
    pthread_mutex_unlock(&table.lock);
}

/* ------------------------------------------------------------------------------------------------------------- a thread's */

/* Bytes: the largest workspace on the host that is the thread's own, so that small layers allocate nothing
 * (tconv/_plan.py). */
#define SCRATCH_BYTES (64 * 1024)

typedef struct thread_state {
    /* Not 0 while the package calls: marks the next convolution as the package's, and holds PyTorch's settings. */
    int64_t flags;
    bool has_call; /* whether key is that of a call that the package is planning */
    layer_key key;
    _Alignas(64) char scratch[SCRATCH_BYTES];
} thread_state;

static pthread_key_t state_key;
static atomic_llong taken;

static thread_state *get_state(void)
{
    return pthread_getspecific(state_key);
}

/* --------------------------------------------------------------------------------------------------------------- a call */

/* Returns the result. On NULL there is nothing left to release. */
static torch_tensor *execute(const layer *planned, const call *made, thread_state *state)
{
    const tconv_torch_layer *is = &planned->is;
    const tensor_key *like = &made->key.input;
    torch_tensor *result = NULL, *workspace = NULL;
    tconv_tensor src = {NULL, (tconv_dtype)is->dtype, (tconv_location)is->location};
    tconv_tensor weights = src, bias = src, dst = src;
    void *memory = state->scratch, *stream = NULL;
    const int64_t one = 1;
    bool done = torch.aoti_torch_get_data_ptr(made->input, &src.data) == 0 &&
                torch.aoti_torch_get_data_ptr(made->weight, &weights.data) == 0 &&
                (made->bias == NULL || torch.aoti_torch_get_data_ptr(made->bias, &bias.data) == 0) &&
                (is->location != TCONV_LOCATION_CUDA ||
                 (torch.aoti_torch_get_current_cuda_stream != NULL &&
                  torch.aoti_torch_get_current_cuda_stream((int32_t)like->device_index, &stream) == 0)) &&
                torch.aoti_torch_empty_strided(is->rank, is->sizes, is->strides, (int32_t)like->dtype,
                                               (int32_t)like->device_type, (int32_t)like->device_index, &result) == 0 &&
                torch.aoti_torch_get_data_ptr(result, &dst.data) == 0;
    if (done && is->workspace_elements > 0)
        done =
            torch.aoti_torch_empty_strided(1, &is->workspace_elements, &one, (int32_t)like->dtype,
                                           (int32_t)like->device_type, (int32_t)like->device_index, &workspace) == 0 &&
            torch.aoti_torch_get_data_ptr(workspace, &memory) == 0;
    done = done && is->execute(is->plan, &src, &weights, made->bias == NULL ? NULL : &bias, &dst, memory,
                               is->workspace_size, stream) == TCONV_SUCCESS;
    if (workspace != NULL)
        torch.aoti_torch_delete_tensor_object(workspace);
    if (!done && result != NULL) {
        torch.aoti_torch_delete_tensor_object(result);
        result = NULL;
    }
    return result;
}

static void release_arguments(const stable_value *stack)
{
    static const int lists[] = {STRIDE, PADDING, DILATION, OUTPUT_PADDING};
    torch.aoti_torch_delete_tensor_object((torch_tensor *)(uintptr_t)stack[INPUT]);
    torch.aoti_torch_delete_tensor_object((torch_tensor *)(uintptr_t)stack[WEIGHT]);
    if (stack[BIAS] != 0) {
        stable_value *bias = (stable_value *)(uintptr_t)stack[BIAS];
        torch.aoti_torch_delete_tensor_object((torch_tensor *)(uintptr_t)*bias);
        if (torch.torch_delete_stable_ivalue != NULL)
            torch.torch_delete_stable_ivalue(bias);
        else
            torch.operator_delete(bias);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        torch.torch_delete_list((torch_list *)(uintptr_t)stack[lists[i]]);
}

/* Calls an operator with the arguments of aten::convolution, and takes them over. PyTorch raises an error of the
 * operator. */
static void call_operator(const char *name, stable_value *stack)
{
    if (torch.torch_call_dispatcher(name, "", stack, INTERFACE_VERSION) == 0)
        return;
    const char *what = torch.torch_exception_get_what_without_backtrace == NULL
                           ? NULL
                           : torch.torch_exception_get_what_without_backtrace();
    torch.aoti_torch_check(false, "convolution", __FILE__, __LINE__,
                           what == NULL ? "aten::convolution failed; stderr may tell why" : what);
}

/* Computes the package's call by its layer in the table, or has Python compute it. */
static void compute(stable_value *stack, thread_state *state)
{
    call made;
    torch_tensor *result = NULL;
    bool known = read_call(stack, state->flags, &made);
    state->flags = 0;
    if (known) {
        layer *planned = find(&made.key);
        if (planned != NULL) {
            result = execute(planned, &made, state);
            release(planned);
        }
    }
    if (result != NULL) {
        atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
        release_arguments(stack);
        stack[0] = (stable_value)(uintptr_t)result;
        return;
    }
    state->key = made.key;
    state->has_call = known;
    call_operator("tconv::unplanned", stack);
    state->has_call = false;
}

/* The kernels. Each is also called without the package. */

static bool is_ours(const thread_state *state)
{
    return state != NULL && state->flags != 0;
}

/* aten::convolution below autograd: without the package, of views of complex tensors, which have the dispatch key
 * themselves. */
static void convolution(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    thread_state *state = get_state();
    if (is_ours(state))
        compute(stack, state);
    else
        call_operator("tconv::negated", stack);
}

/* aten::convolution above autograd. */
static void convolution_with_graph(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    call_operator(is_ours(get_state()) ? "aten::convolution_overrideable" : "tconv::foreign", stack);
}

/* aten::convolution_overrideable below autograd. */
static void convolution_overrideable(stable_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    thread_state *state = get_state();
    if (is_ours(state))
        compute(stack, state);
    else
        call_operator("tconv::foreign", stack);
}

/* ------------------------------------------------------------------------------------------- what the package calls */

static const struct kernel {
    const char *dispatch_key, *name;
    torch_kernel *function;
} kernels[] = {
    {"Negative", "convolution", convolution},
    {"AutogradNestedTensor", "convolution", convolution_with_graph},
    {"CPU", "convolution_overrideable", convolution_overrideable},
    {"CUDA", "convolution_overrideable", convolution_overrideable},
};
#define KERNELS (sizeof kernels / sizeof *kernels)

static torch_library *installed[KERNELS];

void tconv_torch_uninstall(void)
{
    for (size_t i = 0; i < KERNELS; i++) {
        if (installed[i] != NULL)
            torch.aoti_torch_delete_library_object(installed[i]);
        installed[i] = NULL;
    }
}

int tconv_torch_install(void)
{
    if (!look_up_functions() || pthread_key_create(&state_key, free) != 0 ||
        pthread_atfork(lock_table, unlock_table, unlock_table) != 0)
        return -1;
    for (size_t i = 0; i < KERNELS; i++)
        if (torch.aoti_torch_library_init_impl("aten", kernels[i].dispatch_key, __FILE__, __LINE__, &installed[i]) !=
                0 ||
            torch.torch_library_impl(installed[i], kernels[i].name, kernels[i].function, INTERFACE_VERSION) != 0) {
            tconv_torch_uninstall();
            return -1;
        }
    return 0;
}

int64_t *tconv_torch_flags(void)
{
    thread_state *state = get_state();
    if (state != NULL)
        return &state->flags;
    size_t size = (sizeof *state + 63) / 64 * 64;
    state = aligned_alloc(64, size);
    if (state == NULL)
        return NULL;
    memset(state, 0, sizeof *state);
    if (pthread_setspecific(state_key, state) != 0) {
        free(state);
        return NULL;
    }
    return &state->flags;
}

void *tconv_torch_remember(const tconv_torch_layer *description)
{
    thread_state *state = get_state();
    if (state == NULL || !state->has_call)
        return NULL;
    if (description->workspace_elements == 0 && description->workspace_size > SCRATCH_BYTES)
        return NULL; /* the package counts on more scratch memory than SCRATCH_BYTES */
    layer *made = malloc(sizeof *made);
    if (made == NULL)
        return NULL;
    memset(made, 0, sizeof *made);
    made->is = *description;
    made->key = state->key;
    atomic_init(&made->uses, 1);
    put(made);
    return made;
}

void tconv_torch_remember_again(void *given)
{
    put(given);
}

void tconv_torch_release(void *given)
{
    release(given);
}

void tconv_torch_forget(void)
{
    layer *gone;
    do {
        pthread_mutex_lock(&table.lock);
        gone = table.oldest;
        if (gone != NULL)
            take_out(gone);
        pthread_mutex_unlock(&table.lock);
        if (gone != NULL)
            release(gone);
    } while (gone != NULL);
}

int64_t tconv_torch_taken(void)
{
    return atomic_load(&taken);
}
