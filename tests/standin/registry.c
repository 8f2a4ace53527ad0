/* The kernels that the library registers before main, and the table that says what each takes. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define MAX_BINARIES 256
#define MAX_KERNELS  4096
#define MAX_IMAGES   8
#define SLOTS        16384 /* of the hash table of stubs; a power of two */
#define LINE         8192  /* bytes; a mangled name has up to 1,500 */

#define MOST_REGISTERS   128 /* of a thread of a kernel that the table does not have */
#define PTX_IMAGE        1   /* kinds of entries of a fat binary */
#define MACHINE_IMAGE    2
#define FAT_BINARY_MAGIC 0xba55ed50u

/* What nvcc's stubs call; no header declares them for C. */
void **__cudaRegisterFatBinary(void *fatCubin);
void __cudaRegisterFatBinaryEnd(void **fatCubinHandle);
void __cudaUnregisterFatBinary(void **fatCubinHandle);
void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun, const char *deviceName,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *bDim, dim3 *gDim, int *wSize);
void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress, const char *deviceName, int ext,
                       size_t size, int constant, int global);

/* The architectures that a file of the library has code for. */
struct standin_binary {
    int count;
    struct {
        int capability; /* major * 10 + minor */
        bool is_ptx;
    } images[MAX_IMAGES];
};

/* As fatbinary_section.h has it. */
struct wrapper {
    int magic, version;
    const unsigned char *data;
    void *names;
};

static struct standin_binary binaries[MAX_BINARIES];
static int binary_count;
static standin_kernel kernels[MAX_KERNELS];
static int kernel_count;
static int slots[SLOTS]; /* 1 + index of a kernel; 0: free */

/* ----------------------------------------------------------------------------------------------------- registration */

static uint64_t read_number(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/* A fat binary is a header (magic, version, its own size, the size of all entries) and entries, each with a header
 * (kind at 0, size of the header at 4, of what follows at 8, the architecture at 28). */
static void read_images(struct standin_binary *binary, const unsigned char *data)
{
    if (read_number(data, 4) != FAT_BINARY_MAGIC)
        return;
    const unsigned char *entry = data + read_number(data + 6, 2), *end = entry + read_number(data + 8, 8);
    while (entry < end && binary->count < MAX_IMAGES) {
        const uint64_t kind = read_number(entry, 2);
        if (kind == PTX_IMAGE || kind == MACHINE_IMAGE) {
            binary->images[binary->count].capability = (int)read_number(entry + 28, 4);
            binary->images[binary->count++].is_ptx = kind == PTX_IMAGE;
        }
        entry += read_number(entry + 4, 4) + read_number(entry + 8, 8);
    }
}

void **__cudaRegisterFatBinary(void *fatCubin)
{
    if (binary_count == MAX_BINARIES)
        abort();
    struct standin_binary *binary = &binaries[binary_count++];
    read_images(binary, ((struct wrapper *)fatCubin)->data);
    return (void **)binary;
}

void __cudaRegisterFatBinaryEnd(void **fatCubinHandle)
{
    (void)fatCubinHandle;
}

void __cudaUnregisterFatBinary(void **fatCubinHandle)
{
    (void)fatCubinHandle;
}

static unsigned slot_of(const void *host)
{
    return (unsigned)(((uintptr_t)host >> 4) * 2654435761u) % SLOTS;
}

void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun, const char *deviceName,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *bDim, dim3 *gDim, int *wSize)
{
    (void)deviceFun, (void)thread_limit, (void)tid, (void)bid, (void)bDim, (void)gDim, (void)wSize;
    if (kernel_count == MAX_KERNELS)
        abort();
    kernels[kernel_count] = (standin_kernel){.host = hostFun,
                                             .name = deviceName,
                                             .binary = (struct standin_binary *)fatCubinHandle,
                                             .registers = MOST_REGISTERS,
                                             .max_threads = STANDIN_MAX_THREADS,
                                             .parameters = -1};
    unsigned slot = slot_of(hostFun);
    while (slots[slot] != 0)
        slot = (slot + 1) % SLOTS;
    slots[slot] = ++kernel_count;
}

void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress, const char *deviceName, int ext,
                       size_t size, int constant, int global)
{
    (void)fatCubinHandle, (void)hostVar, (void)deviceAddress, (void)deviceName;
    (void)ext, (void)size, (void)constant, (void)global;
}

standin_kernel *standin_find_kernel(const void *host)
{
    for (unsigned slot = slot_of(host); slots[slot] != 0; slot = (slot + 1) % SLOTS)
        if (kernels[slots[slot] - 1].host == host)
            return &kernels[slots[slot] - 1];
    return NULL;
}

bool standin_has_image(const standin_kernel *kernel, const standin_device *device)
{
    const int capability = device->major * 10 + device->minor;
    for (int i = 0; i < kernel->binary->count; i++) {
        const int image = kernel->binary->images[i].capability;
        if (image <= capability && (kernel->binary->images[i].is_ptx || image / 10 == device->major))
            return true;
    }
    return false;
}

int standin_kernel_count(void)
{
    return kernel_count;
}

const standin_kernel *standin_kernel_at(int index)
{
    return &kernels[index];
}

const char *standin_kernel_name(const standin_kernel *kernel)
{
    return kernel->name;
}

uint64_t standin_kernel_code(const standin_kernel *kernel)
{
    return kernel->code;
}

/* ----------------------------------------------------------------------------------------------------------- the
 * table */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(standin_kernel *const *)a)->name, (*(standin_kernel *const *)b)->name);
}

/* A line: name, digest, registers, threads, static shared memory, cluster, then the sizes of the parameters. */
static bool read_line(char *line, standin_kernel *const *sorted)
{
    char *rest = NULL;
    standin_kernel key = {.name = strtok_r(line, " \n", &rest)}, *wanted = &key;
    char *figures = strtok_r(NULL, "\n", &rest);
    if (key.name == NULL || figures == NULL)
        return false;
    standin_kernel *const *found = bsearch(&wanted, sorted, (size_t)kernel_count, sizeof *sorted, by_name);
    if (found == NULL)
        return false;
    standin_kernel *kernel = *found;
    kernel->code = strtoull(figures, &figures, 16);
    kernel->registers = (int)strtol(figures, &figures, 10);
    kernel->max_threads = (int)strtol(figures, &figures, 10);
    kernel->static_shared = (int)strtol(figures, &figures, 10);
    kernel->cluster = (int)strtol(figures, &figures, 10);
    for (kernel->parameters = 0; kernel->parameters < STANDIN_MAX_PARAMETERS; kernel->parameters++) {
        char *end;
        const size_t size = strtoull(figures, &end, 10);
        if (end == figures)
            break;
        kernel->sizes[kernel->parameters] = size;
        figures = end;
    }
    return true;
}

int standin_read_kernels(const char *path)
{
    FILE *file = fopen(path, "r");
    static char line[LINE];
    static standin_kernel *sorted[MAX_KERNELS];
    int known = 0;
    if (file == NULL)
        return -1;
    for (int i = 0; i < kernel_count; i++)
        sorted[i] = &kernels[i];
    qsort(sorted, (size_t)kernel_count, sizeof sorted[0], by_name);
    while (fgets(line, sizeof line, file) != NULL)
        known += line[0] != '#' && read_line(line, sorted);
    fclose(file);
    return known;
}
