/* Fuzzes .npy files: a file that is read is written and read back to the same array; a file that is not read is refused
 * with a reason. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "command.h"
#include "fuzz.h"
#include "npy.h"

/* A file in memory and the path under which it can be opened again. */
typedef struct memory_file {
    int descriptor;
    char path[32];
} memory_file;

static memory_file open_memory(void)
{
    memory_file made = {memfd_create("fuzz", MFD_CLOEXEC), ""};
    fuzz_require(made.descriptor >= 0, "no file in memory");
    snprintf(made.path, sizeof made.path, "/proc/self/fd/%d", made.descriptor);
    return made;
}

static int read_checked(const char *path, npy_array *array)
{
    char message[256] = "";
    int code = npy_read(path, array, message, sizeof message);
    fuzz_require(code == CLI_SUCCESS || message[0] != '\0', "a file is refused without a reason");
    fuzz_require(code == CLI_SUCCESS || array->data == NULL, "a refused file leaves data");
    return code;
}

static size_t bytes_of(const npy_array *array)
{
    static const size_t sizes[] = {[TCONV_F32] = 4, [TCONV_F64] = 8, [TCONV_F16] = 2};
    int64_t elements = 1;
    for (int i = 0; i < array->rank; ++i)
        elements *= array->shape[i];
    fuzz_require(elements == array->elements, "the elements are not the product of the shape");
    return (size_t)elements * sizes[array->dtype];
}

static void check_again(const npy_array *array)
{
    npy_array again;
    memory_file file = open_memory();
    FILE *stream = fdopen(dup(file.descriptor), "wb");
    fuzz_require(stream != NULL, "no stream");
    npy_write(stream, array->dtype, array->shape, array->rank, array->data);
    fuzz_require(fclose(stream) == 0, "the file cannot be written");
    fuzz_require(read_checked(file.path, &again) == CLI_SUCCESS, "what was written is refused");
    const size_t bytes = bytes_of(array);
    fuzz_require(again.rank == array->rank && again.dtype == array->dtype && bytes_of(&again) == bytes &&
                     memcmp(again.shape, array->shape, (size_t)array->rank * sizeof array->shape[0]) == 0,
                 "what was written has another shape or dtype");
    fuzz_require(memcmp(again.data, array->data, bytes) == 0, "what was written has other data");
    npy_release(&again);
    close(file.descriptor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    npy_array array;
    memory_file file = open_memory();
    for (size_t done = 0; done < size;) {
        ssize_t wrote = write(file.descriptor, data + done, size - done);
        fuzz_require(wrote > 0, "the file cannot be written");
        done += (size_t)wrote;
    }
    if (read_checked(file.path, &array) == CLI_SUCCESS) {
        check_again(&array);
        npy_release(&array);
    }
    close(file.descriptor);
    return 0;
}
